"""What the words round a calculation say of it: supposed, quoted as wrong, in another arithmetic.

All of it errs towards silence: a word that may disarm an accusation does.
"""

import re
from collections.abc import Sequence

_REACH = 300  # characters to each side that are looked at
_SENTENCE_END = re.compile(r"[.!?。！？](?=\s|$)|\n\s*\n|\n\s*(?:[-*•+]|\d{1,3}[.)])\s|[。！？]")
_WRONG = re.compile(
    r"\b(?:wrong\w*|incorrect\w*|mistak\w*|error\w*|erroneous\w*|false|untrue|typos?|bugs?|slips?|blunder\w*|contradict\w*"
    r"|inconsisten\w*|impossib\w*|invalid\w*|miscalculat\w*|misread\w*|misadd\w*|mislead\w*"
    r"|should\s+(?:be|have|equal|give|read)|instead|rather\s+than|claim\w*|corrected|correction"
    r"|disagree\w*|flaw\w*|absurd\w*|nonsens\w*|no\s+(?:integer\s+|real\s+|such\s+)?solutions?|fallac\w*"
    r"|fails?|puzzles?|joke|bogus|oops|wait|hmm+|sic|off\s+by|overlook\w*|forg[eo]t\w*|ought\s+to|inaccura\w*"
    r"|not\s+(?:correct|right|true|equal|valid|accurate|the\s+case|so\b|hold|work|possible|match|agree|consistent"
    r"|satisf\w*|add\s+up|check\s+out|balance|a\s+(?:root|solution))"
    r"|falsch\w*|fehler\w*|faux|erreur\w*|incorrecto|erróne\w*|неверн\w*|ошиб\w*)\b|错|不对|誤|間違",
    re.IGNORECASE,
)
# Of an earlier sentence, only what speaks of somebody's work or announces it reaches the next one.
_POINTING = re.compile(
    r":[\s*_]*$|\b(?:agent|solver|debater|assistant|expert|student|solution|answer|response|proof|you|your|they|he|she"
    r"|claim\w*|here|there|following|previous\w*|earlier|original\w*|above|below|line|step|this|that|these|those|it"
    r"|the\s+(?:\w+\s+)?(?:errors?|mistakes?|bugs?|slips?|blunders?|flaws?|typos?)|occur\w*"
    r"|contains?|has|have|made|makes|found|spot\w*|saw|sees?)\b|^(?:\W*\w+){0,3}\W*$",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"\bnot\s+(?:(?:at\s+all|that|too|so|very|really|particularly|a|an|in)\s+)?(?:hard|difficult|tricky|complicated"
    r"|complex|easy|only|just|wrong|incorrect|false|mistaken?|mistakes?|errors?|erroneous|flawed|invalid|untrue|a?\s*typo)\b"
    r"|\bno\s+(?:doubts?|needs?|problems?|mistakes?|errors?|typos?|surprise|worries|trick|question|further|more|longer"
    r"|issues?|contradictions?|flaws?)\b"
    r"|\b(?:(?:do\s+not|don['’]t)\s+(?:worry|need|forget|panic|overlook)|(?:isn['’]t|is\s+not)\s+(?:hard|difficult|tricky"
    r"|wrong|incorrect|false|mistaken|an?\s+(?:mistake|error|typo)))\b",
    re.IGNORECASE,
)
_IMAGINED = re.compile(
    r"\b(?:pretend\w*|imagin\w*|hypothe\w*|for\s+the\s+sake\s+of|what\s+if)\b", re.IGNORECASE
)
_PREMISE = re.compile(r"\b(?:if|suppos\w*|assum\w*)\b", re.IGNORECASE)
_SUPPOSITION = re.compile(r"\b(?:suppos\w*|assum\w*)\b", re.IGNORECASE)
_PREMISE_END = re.compile(r"[,:]\s|[;—]|\bthen\b", re.IGNORECASE)
# A premise that holds an equation, or changes how one calculates, reaches what follows from it.
_ODD_PREMISE = re.compile(
    r"\d[^=\n]{0,40}[-+*/×·÷^−x][^=\n]{0,40}=|\d\s*(?:=|is|was|equals?)\s*\d|\b(?:were|contradict\w*|absurd\w*|signs?|symbols?|means?|meant|digits?"
    r"|rules?|operat\w*|addition|multiplication|subtraction|division|arithmetic|add\w*|treat\w*|count\w*|naive\w*|simply"
    r"|just|ignor\w*|carr\w*|forg[eo]t\w*|skip\w*|drop\w*|omit\w*|mis\w+|swap\w*|switch\w*|strings?|like|defin\w*|order"
    r"|left|denot\w*|interpret\w*|round\w*|trunc\w*|bits?|clock|wrap\w*|true|equations?|formulas?|(?:it|this|that)\s+holds|right|wrong\w*|accept\w*|believ\w*"
    r"|trust\w*|claim\w*|rather|instead|without|identity)\b",
    re.IGNORECASE,
)
_NEGATION = re.compile(r"\bnot\b", re.IGNORECASE)
_PROHIBITION = re.compile(r"\b(?:must|should|shall|do|can|let\s+us)\s+not\b", re.IGNORECASE)
_CLAUSE_BREAK = re.compile(r"[,:]\s|[;—]|\b(?:so|but|because|since|then)\b", re.IGNORECASE)
_OPEN = re.compile(
    r"\b(?:unless|whether|would|could|might|may|never|cannot|no|nor|why|says?|said|wrote"
    r"|writes|stated?|states|quot\w*|test\w*|try|trying|guess\w*|estimat\w*|round(?:ed|ing|s|\s+(?:up|down|to|off))|approx\w*|roughly"
    r"|nearest|ceil\w*|floor\w*|truncat\w*|integer\s+division|remainder|quotient|(?:last|unit|units|ones)\s+digits?"
    r"|digit\s+sums?|pattern|notation|overflow\w*|saturat\w*|concatenat\w*|boolean|operation|sum\s+of\s+digits|digital\s+root|actually|must\s+be\s+\S*\d|fix\w*|reads?|chang\w+|replac\w+|previous\w*|earlier|let(?!['’]s|\s+us|\s+me))\b|\w+n['’]t\b|\?|≠|!=|\bwere\s*\n|\bF_|(?:→|->|=>)\s*\**\d|~~|\\neq?\b|❌|✗|✘",
    re.IGNORECASE,
)
# A triangle has a base too, and a trapezium has two.
_OTHER_ARITHMETIC = re.compile(
    r"\b(?:binary|octal|hexadecimal|ternary|(?:in|to|from|into)\s+base|base-\d+|number\s+bases"
    r"|base[- ](?:two|three|four|five|six|seven|eight|nine|eleven|twelve|sixteen)\b"
    r"|base\s+\d+\s+(?:numbers?|numerals?|representation|expansion|system|digits?|arithmetic)"
    r"|xor|bitwise|finite\s+field|field\s+(?:of\s+order|with)|roman\s+numerals?|cryptarithm\w*"
    r"|alphametic\w*|tropical|matchsticks?|defin\w+\s+(?:(?:the|an?|new)\s+){0,3}operat\w+"
    r"|(?:new|custom|strange|special|modified|changed|altered|redefined|defined|unusual|made-up|invented|secret|alien)"
    r"\s+(?:operat(?:ion|or)|rule|definition|symbol|arithmetic|multiplication|addition|subtraction|division|sum|product)s?"
    r"|operat(?:ion|or)\s+[^\w\s.,;:()'\"]|operation\s+is\s+defined)\b"
    r"|(?<![\w*])[*#@&∗△∘◦⋆+×]['\"”’`$]?\s+(?:is|be|means?|denotes?|stands?\s+for|represents?)\b"
    r"|\b([a-z])\s?(?:[*@#&∗⋆∘◦△▽◇□×]|\\[a-z]{3,9})\s?[a-z]\s?=[^=.\n]{0,40}?(?<![a-z])\1"
    r"|\bwhere\s+\$?([a-z])\s?\S{1,9}\s?[a-z]\s?=[^=.\n]{0,40}?(?<![a-z])\2"
    r"|⊕|\\oplus|\\star|★|☆|GF\(|\\mathbb\s*\{?[ZF]\}?_|\bZ_",
    re.IGNORECASE,
)
_MODULAR = re.compile(
    r"(?:\\(?:pmod|bmod|mod)(?![a-zA-Z])|\bmod(?:ulo|ulus)?\b)[\s{(=$]*(\w+)?|≡|\\equiv(?![a-zA-Z])"
    r"|\bcongruen\w*|\bresidues?\b|\bmodular\b",
    re.IGNORECASE,
)
_CLOCK = re.compile(
    r"o['’]?clock|(?:\b|\d)[ap]\.?m\b|\bnoon\b|\bmidnight\b|\bclock\b|\d:\d\d", re.IGNORECASE
)
_WEEK = re.compile(r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b", re.IGNORECASE)
_YEAR = re.compile(
    r"\b(?:january|february|april|june|july|august|september|october|november|december)\b",
    re.IGNORECASE,
)
_TURN = re.compile(r"degrees?|°|\\circ|\bangles?\b|\bbearing\b", re.IGNORECASE)
_CYCLES = ((_CLOCK, {12, 24, 60}), (_WEEK, {7}), (_YEAR, {12}), (_TURN, {180, 360}))
_LABEL = re.compile(
    r"(?:\b(?:step|case|part|problem|question|example|equation|eqn?|section|sec|chapter|ch|round|phase|option"
    r"|figure|fig|table|line|item|task|no|exercise|lemma|theorem|player|team|group|level|page|pages|pp?"
    r"|version|ver|v|rule|claim|solution|method|approach|agent|debater|route|room|game|match|score|week|day"
    r"|year|grade|ages?|number|point|note|iteration|row|column|vol|volume|issue|test|q|a|id|type|class|unit)\.?|#|№)\s*$",
    re.IGNORECASE,
)
_OPERATION = re.compile(
    r"\b(?:half|third|quarter|square|cube|root|average|mean|median|sum|product|difference|quotient|ratio|power"
    r"|percent|reciprocal|inverse|negative|opposite|logarithm|log|factorial|digits?|multiple|multiples|remainder)\s+of\b"
    r"|\b(?:half|twice|thrice|double|triple|negative|minus|plus|times|less|more|than|greater|fewer|over|per|sin|cos|tan"
    r"|log|ln|exp|max|min|gcd|lcm|sqrt|root|arcsin|arccos|arctan|floor|det|lim|mod|xor|and\s+a)\s*(?:the\s+)?$"
    r"|\b(?:add|subtract|multipl|divid|plus|minus|times|tak|remov|increas|decreas|rais|reduc|join|combin)\w*\b.*\d",
    re.IGNORECASE | re.DOTALL,
)
_AFTER = re.compile(
    r"[ \t]*(?:mod\b|modulo|times|plus|minus|over\b|divided|multiplied|squared|cubed|hundred|dozen|remainder"
    r"|r\b|factorial|base\b|more\b|less\b|to\s+the|pi\b|tau\b|sqrt|root|choose|with\s+a?\s*remainder"
    r"|and\s+(?:a\s|one|two|three|\d+\s*/)|[ap]\.?m\b|or\s+(?:more|less)|ish\b|x\b|to\s+\d|point\b|halves|thirds?|fifths?|sixths?|eighths?|tenths?)",
    re.IGNORECASE,
)
_SIZING = re.compile(r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|boxed|textstyle)\s*$")
_CLAUSE_END = re.compile(r"[.,;:=\n|&$(){}\[\]]")
_CONNECTORS = (
    "so is are was we get has had and the of in to for at by as be or now do did it its a i you he she they"
    " all buy use pay new out via yes then me us on our can one two sum day due fee tax net area add"
)
_VERBS = frozenset({"is", "are", "was", "were", "so", "then", "thus", "gives", "equals", "makes"})
_SHORT_CONNECTORS = frozenset(_CONNECTORS.split())


def disarms(text: str, start: int, end: int) -> bool:
    """Return True where the words round ``text[start:end]`` may excuse a false equation there."""
    before, after = text[max(0, start - _REACH) : start], text[end : end + _REACH]
    own_start, previous_start = _last_two_ends(before)
    own_end, next_end = _first_two_ends(after)
    lead, rest = _bare(before[own_start:]), _bare(after[:own_end])
    earlier, later = _bare(before[previous_start:own_start]), _bare(after[own_end:next_end])
    own = f"{lead} \n {rest}"
    return bool(
        _OPEN.search(own)
        or _denies(lead, rest)
        or _IMAGINED.search(f"{earlier} {lead}")
        or _is_premised(earlier, lead, rest)
        or _WRONG.search(f"{own} {later}")
        or (_WRONG.search(earlier) and _POINTING.search(earlier.strip()))
        or _OTHER_ARITHMETIC.search(own)
    )


def _bare(words: str) -> str:
    """Return ``words`` without the denials that excuse nothing, such as "not hard"."""
    return _HARMLESS.sub(" ", words)


def _denies(lead: str, rest: str) -> bool:
    """Return True for a "not" of the clause before the equation, or anywhere after it."""
    return bool(
        _NEGATION.search(_CLAUSE_BREAK.split(lead)[-1])
        or _PROHIBITION.search(lead)
        or _NEGATION.search(rest)
    )


def _is_premised(earlier: str, lead: str, rest: str) -> bool:
    """Return True where the equation is a premise, or follows from one that is no plain fact."""
    for word in _PREMISE.finditer(lead):
        end = _PREMISE_END.search(lead, word.end())
        is_parted = lead.startswith(",", word.end())  # "Suppose, for the moment, .."
        if is_parted or end is None or _ODD_PREMISE.search(lead, word.end(), end.start()):
            return True
    supposition = _SUPPOSITION.search(earlier)
    if supposition is not None and _ODD_PREMISE.search(earlier, supposition.end()):
        return True
    return bool(_PREMISE.search(rest))


def _last_two_ends(before: str) -> tuple[int, int]:
    ends = [match.end() for match in _SENTENCE_END.finditer(before.rstrip())]
    own = ends[-1] if ends else 0
    return own, ends[-2] if len(ends) > 1 else 0


def _first_two_ends(after: str) -> tuple[int, int]:
    ends = [match.end() for match in _SENTENCE_END.finditer(after)]
    own = ends[0] if ends else len(after)
    # The sentence after that one ends with its line: what stands below is another matter.
    line_end = re.compile(r"\n|$").search(after, own + len(after[own:]) - len(after[own:].lstrip()))
    following = ends[1] if len(ends) > 1 else len(after)
    return own, min(following, line_end.start() if line_end else following)


def takes_part_before(text: str, start: int) -> bool:
    """Return True where the words before ``start`` may belong to the calculation or name a label."""
    clause = _CLAUSE_END.split(_SIZING.sub("", text[max(0, start - 80) : start]))[-1]
    if _LABEL.search(text[max(0, start - 16) : start]) or _OPERATION.search(clause):
        return True
    words = re.findall(r"[^\W\d_]+|\d+", clause)
    if not words or not clause[-1:].isspace():
        return bool(words)
    last = words[-1].lower()
    if len(words) > 1 and words[-2].isdigit() and last not in _VERBS:
        return True
    if last == "and" and any(word.isdigit() for word in words[-3:]):
        return True
    return len(last) < 4 and last not in _SHORT_CONNECTORS


def takes_part_after(text: str, end: int) -> bool:
    """Return True where the words after ``end`` may belong to the calculation."""
    return bool(_AFTER.match(text, end))


def other_arithmetic_from(text: str) -> int | None:
    """Return from where on ``text`` speaks of other numbers or operations than the usual ones."""
    match = _OTHER_ARITHMETIC.search(text)
    return match.start() if match else None


def moduli(texts: Sequence[str]) -> frozenset[int] | None:
    """Return the moduli that ``texts`` name; None where one of them is no number."""
    found = [match[1] for text in texts for match in _MODULAR.finditer(text)]
    numbers = {int(word) for word in found if word and word.isdecimal() and len(word) < 10}
    if found and (not numbers or any(word and len(word) == 1 and word.isalpha() for word in found)):
        return None
    return frozenset(numbers - {0, 1})


def cycles_near(words: str) -> frozenset[int]:
    """Return after how many a count starts anew: on clocks, in weeks, years and turns."""
    cycles: set[int] = set()
    for kind, lengths in _CYCLES:
        if kind.search(words):
            cycles |= lengths
    return frozenset(cycles)
