"""Python that is presented as a solution and does not parse.

A block is accused only where both the running Python and parso's newest grammar refuse it, and
where nothing in it or beside it says that it is a fragment, a transcript or a bad example.
"""

import ast
import re
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent, indent

from parso.grammar import load_grammar

from rectifier.checks.fences import Block, blocks
from rectifier.verdict import Finding

CHECK_ID = "check:python"
NEWEST = "3.14"  # of parso's grammars
MAX_BLOCK = 64 * 1024  # characters
MAX_FAILING = 12 * 1024  # characters of all failing blocks, which are parsed many times
MAX_BLOCKS = 40
MAX_FINDINGS = 3
MAX_LATER = 3  # blocks after a failing one that may be its mended form
MAX_NESTING = 90  # brackets: half of what CPython's tokenizer takes
MAX_QUOTE = 200  # characters

_LANGUAGES = frozenset({"python", "py", "python3", "py3"})
_WARNINGS = threading.Lock()
_NO_SOURCE = re.compile(
    r"^[ \t]*(?:>>> |>>>$|\.\.\. |In \[\d*\]:|Out\[\d*\]:|Traceback \(most recent|  File \"|[!%$][ \t]*\w|@@ |diff --git"
    r"|[-+]{3} |`{3}|~{3}|(?!(?:async )?def\b)\w[\w.]*\([^()\n]*\)[ \t]*->|<<<<<<<|>>>>>>>|=======$|\d+[ \t]*[|:]\s|\d+:\S|cdef\b|cpdef\b|[\w.]+\?{1,2}[ \t]*$)",
    re.MULTILINE,
)
_DIFF_LINE = re.compile(r"^[+-](?![+-])", re.MULTILINE)
_PLACEHOLDER = re.compile(
    r"\.\.\.|…|<[A-Za-z_][\w .'/-]*>|\{\{|\{%|\$\{|\[\.\.|\?\?|(?i:\byour[ _]\w+|\bplaceholder\b|\bpseudo-?code\b|\brest of\b|\bsame as\b|\bomitted\b)"
)
_BAD_EXAMPLE = re.compile(
    r"\b(?:wrong\w*|incorrect\w*|errors?|erroneous\w*|broken|bugs?|buggy|invalid|fail\w*|fault\w*|syntax\w*|mistake\w*"
    r"|not\s+(?:valid|parse|compile|work|run)|(?:does|do|is|did|will|would|can)(?:n['’]t|\s*not)|cannot|bad|instead\s+of|original|before|faulty|problem\w*"
    r"|missing|unclosed|unterminated|truncated|incomplete|cut\s+off|python\s*2|pseudo-?code|template|skeleton|sketch|outline|snippet|fragment|excerpt|diff|patch|replace)\b",
    re.IGNORECASE,
)
_MENDED = re.compile(
    r"\b(?:corrected|fixed|mended|repaired|working|updated|revised)\b", re.IGNORECASE
)
_OLD_PYTHON = re.compile(r"\bpython\s*2|\bpy2\b", re.IGNORECASE)
_CODE_LINE = re.compile(
    r"^[ \t]*(?:(?:def|class|import|from|for|while|if|elif|else|try|except|finally|with|return|raise"
    r"|async|await|assert|print|lambda|yield|pass|break|continue|global|del|match)\b|@\w|[\w.]+\("
    r"|[A-Za-z_][\w.]*(?:\[[^\]\n]{0,80}\])?[ \t]*[-+*/]?=[^=])",
    re.MULTILINE,
)
_STARTS_AS_CODE = re.compile(
    r"\s*(?:def \w+\(|class \w+[(:]|import \w|from [\w.]+ import |@\w|async def )"
)
_GOES_ON = re.compile(r"[#)\]}\"']")
_PROSE_LINE = re.compile(
    r"^(?!(?:for|if|while|elif|with|return|import|from|assert|not|raise|del|global|nonlocal|else|class"
    r"|def|async|await|yield|lambda|except|try|print|match|case)\b)"
    r"[A-Za-z][\w'’,-]*(?: [\w'’,-]+){3,}[.:!]?[ \t]*$",
    re.MULTILINE,
)
# Syntax that the running Python is too old for, and its older form.
_MODERN = (
    (re.compile(r"^([ \t]*)type[ \t]+(\w+)(?:\[[^\]\n]*\])?[ \t]*=", re.MULTILINE), r"\1\2 ="),
    (re.compile(r"\b((?:def|class)[ \t]+\w+)\[[^\n()]*\](?=[ \t]*[(:])"), r"\1"),
    (re.compile(r"\b(except\*?)[ \t]+([\w.]+(?:[ \t]*,[ \t]*[\w.]+)+)[ \t]*:"), r"\1 (\2):"),
    (re.compile(r"(?<![\w'\"])[tT]([rR]?['\"])"), r"f\1"),
    (re.compile(r"(?<![\w'\"])([rR])[tT](['\"])"), r"\1f\2"),
)
_F_STRING = re.compile(r"(?<![\w'\"])(?:[fFtT][rR]?|[rR][fFtT])['\"]")
_MISSING = re.compile(r"expected '([^']{1,3})'")


@dataclass(frozen=True, slots=True)
class _Fault:
    """Where a source stops being Python.

    Attributes:
        line: Counted from 1.
        column: Counted from 1.
        problem: What the parser says.
    """

    line: int
    column: int
    problem: str


def python_findings(text: str, *, task: str = "") -> tuple[list[Finding], bool]:
    """Return the blocks of ``text`` that do not parse, and whether one was too large to tell."""
    candidates = list(_candidates(text))
    if _OLD_PYTHON.search(text) or _OLD_PYTHON.search(task):
        return [], False
    findings: list[Finding] = []
    is_cut = len(candidates) > MAX_BLOCKS
    failing: list[tuple[Block, _Fault]] = []
    for block in candidates[:MAX_BLOCKS]:
        if len(block.body) > MAX_BLOCK or _nesting(block.body) > MAX_NESTING:
            is_cut = True
        elif fault := _syntax_error(dedent(block.body)):
            failing.append((block, fault))
    left = MAX_FAILING
    for block, fault in failing:
        left -= len(block.body)
        if left < 0:
            return findings, True
        if len(findings) < MAX_FINDINGS and not _is_excused(block, candidates, fault, text):
            findings.append(_finding(block, fault, text))
    return findings, is_cut


def _candidates(text: str) -> Iterator[Block]:
    """Yield the blocks that are Python, or the message itself where it is nothing but code."""
    fenced = blocks(text)
    for block in fenced:
        if block.language in _LANGUAGES and block.is_closed:
            yield block
    if not fenced and _STARTS_AS_CODE.match(text):
        outer = [line for line in text.split("\n") if line.strip() and not line[0].isspace()]
        if all(_CODE_LINE.match(line) or _GOES_ON.match(line) for line in outer):
            yield Block("", text, 0, 0, len(text), len(text), is_closed=True)


def _nesting(source: str) -> int:
    """Return the depth of brackets and of indentation, strings counted too."""
    depth = deepest = 0
    for bracket in re.findall(r"[(\[{)\]}]", source):
        depth = depth + 1 if bracket in "([{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    run = max(
        (len(match) for match in re.findall(r"[-+~]{20,}|(?:not[ \t]+){20,}", source)), default=0
    )
    return max(deepest, run)


def _parses_otherwise(source: str) -> bool:
    """Return True where ``source`` is a fragment, or Python newer than the running one."""
    return any(_syntax_error(reading) is None for reading in _readings(source))


def _readings(source: str) -> Iterator[str]:
    """Yield forms in which a fragment, or newer Python, may be complete."""
    plain = dedent(source)
    modern = plain
    for pattern, older in _MODERN:
        modern = pattern.sub(older, modern)
    first, _, rest = source.lstrip("\n").partition("\n")
    yield modern
    yield f"{first.strip()}\n{dedent(rest)}"
    body = indent(plain, "    ")
    yield f"async def _():\n  while True:\n{body}"
    yield f"{plain.rstrip()}\n    pass\n"
    last = plain.rstrip().rpartition("\n")[2]
    yield f"{plain.rstrip()}\n{last[: len(last) - len(last.lstrip())]}    pass\n"
    yield f"if _:\n    pass\n{plain}"
    yield f"try:\n    pass\n{plain}"
    yield f"try:\n{body}\nfinally:\n    pass\n"
    yield f"match _:\n{body}"
    yield f"{plain.rstrip()}\ndef _(): pass\n"
    yield f"class _:\n{body}"
    if all(line.rstrip().endswith((",", "[", "{", "(")) for line in plain.strip().split("\n")[:-1]):
        yield f"_({plain.strip()})"
        yield f"{{{plain.strip()}}}"


def _syntax_error(source: str) -> _Fault | None:
    # The lock: warning filters are shared by all threads.
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(source)
        except SyntaxError as error:
            return _Fault(error.lineno or 1, max(1, error.offset or 1), error.msg)
        except (ValueError, RecursionError, MemoryError):
            return None
    return None


def _is_excused(block: Block, candidates: list[Block], fault: _Fault, text: str) -> bool:
    body = block.body
    return (
        bool(_NO_SOURCE.search(body))
        or bool(_PLACEHOLDER.search(body))
        or not _CODE_LINE.search(body)
        or bool(_PROSE_LINE.search(body) and not _is_string_or_comment(body))
        or len(_DIFF_LINE.findall(body)) * 3 > body.count("\n") + 1
        or _is_newer_string(body, fault)
        or _is_called_bad(block, text)
        or _parses_otherwise(body)
        or _is_mended(block, candidates, text)
        or _goes_on(block, text)
        or _parses_when_new(dedent(body))
    )


def _is_string_or_comment(body: str) -> bool:
    """Return True where each line of prose stands in a comment or between triple quotes."""
    bare = re.sub(r"\"{3}.*?\"{3}|'{3}.*?'{3}|#[^\n]*", "", body, flags=re.DOTALL)
    return not _PROSE_LINE.search(bare)


def _is_newer_string(body: str, fault: _Fault) -> bool:
    """Return True where the fault may be an f-string that only newer Pythons read."""
    line = dedent(body).split("\n")[fault.line - 1 : fault.line]
    is_in_f_string = "f-string" in fault.problem or any(_F_STRING.search(part) for part in line)
    return is_in_f_string and body.count("{") == body.count("}")


def _is_called_bad(block: Block, text: str) -> bool:
    """Return True where the sentence before or after the block finds fault with it."""
    before = text[max(0, block.start - 300) : block.start].rstrip()
    after = text[block.end : block.end + 300].lstrip()
    last = re.split(r"(?<=[.!?])\s+|\n", before)[-1]
    first = re.split(r"(?<=[.!?])\s+|\n", after)[0]
    return bool(
        (_BAD_EXAMPLE.search(last) and not _MENDED.search(last))
        or _BAD_EXAMPLE.search(first)
        or re.search(
            r"#.*\b(?:wrong|incorrect|bad|error|invalid|buggy|broken)\b", block.body, re.IGNORECASE
        )
    )


def _is_mended(block: Block, candidates: list[Block], text: str) -> bool:
    """Return True where a later block parses and the words between them speak of a fault."""
    later = [other for other in candidates if other.start > block.end][:MAX_LATER]
    return any(
        _BAD_EXAMPLE.search(text, block.end, other.start) is not None
        and _syntax_error(dedent(other.body)) is None
        for other in later
        if len(other.body) <= MAX_FAILING
    )


def _goes_on(block: Block, text: str) -> bool:
    """Return True where the code contains a fence of its own, so that the block ends later."""
    following = list(
        re.finditer(
            r"^[ \t]*(?:`{3,}|~{3,})[^\n]*$", text[block.end : block.end + MAX_BLOCK], re.MULTILINE
        )
    )
    return any(
        _syntax_error(dedent(text[block.body_start : block.end + fence.start()])) is None
        for fence in following[:4]
    )


def _parses_when_new(source: str) -> bool:
    grammar = load_grammar(version=NEWEST)
    return not any(True for _ in grammar.iter_errors(grammar.parse(source, cache=False)))


def _finding(block: Block, fault: _Fault, text: str) -> Finding:
    lines = block.body.split("\n")
    at = min(fault.line, len(lines)) - 1
    while at > 0 and not lines[at].strip():
        at -= 1
    quote = lines[at].strip()[:MAX_QUOTE].strip()
    place = f"line {fault.line}, column {fault.column} of the block"
    return Finding(
        indicator_id=CHECK_ID,
        name="Python that does not parse",
        violated=True,
        evidence=quote or text[block.start : block.body_start].strip(),
        rationale=f"The code does not run: {fault.problem} ({place}).",
        suggestion=_correction(quote, fault, place),
        source="check",
    )


def _correction(quote: str, fault: _Fault, place: str) -> str:
    missing = _MISSING.search(fault.problem)
    if missing and missing[1] == ":" and not quote.endswith(":"):
        return f"At {place} write `{quote}:` ({fault.problem})."
    if fault.problem.startswith("Missing parentheses in call to") and " " in quote:
        name, _, arguments = quote.partition(" ")
        return f"At {place} write `{name}({arguments})`."
    return f"At {place}, mend `{quote}`: {fault.problem}."
