import json
import time
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from rectifier.checks.arithmetic import MAX_FINDINGS, arithmetic_findings
from rectifier.verdict import Finding
from tests.support.calculations import FALSE_LINES, INNOCENT_LINES, INNOCENT_MESSAGES

LIMIT = 256 * 1024  # characters of a message
PATIENCE = 2.0  # seconds of CPU, several times what is usual, for a busy machine


def found(text: str, *sources: str) -> list[Finding]:
    findings, _ = arithmetic_findings(text, sources=sources)
    return findings


@pytest.mark.parametrize("before", ["", "We compute. "])
@pytest.mark.parametrize("line", INNOCENT_LINES)
def test_innocent_line_is_not_accused(line: str, before: str) -> None:
    assert found(before + line) == []


@pytest.mark.parametrize("message", INNOCENT_MESSAGES)
def test_innocent_message_is_not_accused(message: str) -> None:
    assert found(message) == []


@pytest.mark.parametrize(("line", "correction"), FALSE_LINES)
def test_false_calculation_is_named_with_its_correction(line: str, correction: str) -> None:
    (finding,) = found(line)
    assert correction in finding.suggestion
    assert finding.evidence in line
    assert (finding.indicator_id, finding.source) == ("check:arithmetic", "check")


def test_only_the_false_link_of_a_chain_is_quoted() -> None:
    (finding,) = found("17 * 23 = 17*20 + 17*3 = 340 + 41 = 381. So \\boxed{381}")
    assert finding.evidence == "17*20 + 17*3 = 340 + 41"
    assert finding.suggestion == "17*20 + 17*3 = 391"


@pytest.mark.parametrize("fence", ["```", "```python", "~~~", "```text"])
def test_code_is_left_alone(fence: str) -> None:
    assert found(f"{fence}\n3 + 4 = 8\n{fence[:3]}\n") == []


def test_text_round_code_is_read() -> None:
    assert len(found("3 + 4 = 8.\n```\n1 + 1 = 3\n```\nAlso 5 + 5 = 11.")) == 2


@pytest.mark.parametrize("task", ["Show that 3 × 4 = 13.", r"Is $3 \times 4 = 13$?", "3*4=13"])
def test_equation_of_the_task_may_be_copied(task: str) -> None:
    assert found("3 * 4 = 13", task) == []
    assert found("3 * 4 = 14", task) != []


def test_equation_of_the_context_may_be_copied() -> None:
    assert found("1,000 + 1 = 1,002", "What is it?", "As I said, 1000 + 1 = 1002.") == []


@pytest.mark.parametrize(
    "task", ["What is 7 + 5 mod 11?", "Compute 7 + 5 in base 11.", "7+5 in Z_11"]
)
def test_arithmetic_of_the_task_is_respected(task: str) -> None:
    assert found("7 + 5 = 1", task) == []


def test_modulus_does_not_excuse_what_it_does_not_explain() -> None:
    assert found("2^3 = 1 mod 7, and 2^4 = 2") == []
    assert [finding.evidence for finding in found("2^10 = 1000 and 1000 mod 7 = 6")] == [
        "2^10 = 1000"
    ]


def test_words_after_the_next_sentence_excuse_nothing() -> None:
    text = "17 * 3 = 41. The answer is 41.\n\nNothing above is wrong, in base 2 or elsewhere."
    assert len(found(text)) == 1


def test_findings_are_few() -> None:
    text = "".join(f"{n} + 1 = {n + 2}.\n\n" for n in range(10, 40))
    assert len(found(text)) == MAX_FINDINGS


@pytest.mark.parametrize(
    "text",
    [
        "9^9^9^9 = 3",
        "9^999999999 = 3",
        "2^(10^9) = 3",
        "100000! = 3",
        "((9!)!)! = 3",
        r"\binom{10000000}{5000000} = 3",
        "1e999 * 2 = 3",
        "9" * 5_000 + " + 1 = 3",
        "(" * 400 + "1" + ")" * 400 + " = 2",
        "1/0 = 3",
        "0^-1 = 3",
        r"\frac{1}{0} = 3",
        r"\sqrt{-4} = 2",
        "1" + " + 1" * 3_000 + " = 2",
    ],
)
def test_numbers_out_of_bounds_are_not_computed(text: str) -> None:
    began = time.process_time()
    assert found(text) == []
    assert time.process_time() - began < PATIENCE


HOSTILE = [
    "1+1=3\n", "if 1+1=3. ", "1+1=", "1+1=2. ", "9^9^9^9 = 3\n", "2^900*3^900=5\n", "(", "[", "=", " ",
    "\n", "1", "1,", ",000", "- ", "\\frac{", "\\text{", "\\left(", "\\\\ & ", "\n=", "\n ", "`", "```\n",
    '"', "a ", "http://", "mod ", "in base ", "√", "%", "\\", "²", "x", "n't ", "1 x ", "no ", "$", "&=",
    "abc 1+2 = 3 ", "not 1 + 1 = 3 ", "\t", "\u200b", "\x00", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("part", HOSTILE)
def test_repeated_text_ends_soon(part: str) -> None:
    text = part * (LIMIT // len(part))
    began = time.process_time()
    arithmetic_findings(text, sources=(text[:65_536],))
    assert time.process_time() - began < PATIENCE


@pytest.mark.parametrize(
    "alphabet", ["0123456789+-*/^()= ", "0123456789+-*/^()=.,!%$ \n", "1=+\n. if"]
)
def test_soup_ends_soon(alphabet: str) -> None:
    seed, letters = 7, []
    for _ in range(LIMIT):
        seed = (seed * 1_103_515_245 + 12_345) % 2**31
        letters.append(alphabet[(seed >> 16) % len(alphabet)])
    began = time.process_time()
    arithmetic_findings("".join(letters))
    assert time.process_time() - began < PATIENCE


def test_what_was_left_out_is_said() -> None:
    assert not arithmetic_findings("3 + 4 = 7. " * 10)[1]
    assert arithmetic_findings("3 + 4 = 7. " * 20_000)[1]


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="0123456789+-*/^()=., x\\{}$%!\n≈×√fracsqt", max_size=80))
@example("2^-1 = 3")
@example("50%% = 3+4")
def test_evidence_is_always_a_quote(text: str) -> None:
    for finding in found(text):
        assert finding.evidence
        assert finding.evidence in text
        assert finding.suggestion


Term = tuple[str, Fraction]


def _joined(draw: st.DrawFn, style: dict[str, str]) -> Term:
    """Draw a calculation of two or three integers, written in a style, and its value."""
    numbers = draw(st.lists(st.integers(2, 9_999), min_size=2, max_size=3))
    written, value = str(numbers[0]), Fraction(numbers[0])
    product = draw(st.booleans())
    for number in numbers[1:]:
        sign = "*" if product else draw(st.sampled_from("+-"))
        written += f" {style[sign]} {number}"
        value = value * number if product else value + (number if sign == "+" else -number)
    return written, value


STYLES = (
    {"+": "+", "-": "-", "*": "*"},
    {"+": "+", "-": "−", "*": "×"},
    {"+": "+", "-": "-", "*": r"\times"},
    {"+": "+", "-": "-", "*": r"\cdot"},
    {"+": "+", "-": "-", "*": "x"},
    {"+": "plus", "-": "minus", "*": "times"},
)
FRAMES = (
    "{}",
    "So {}.",
    "Therefore, we get {} in total.",
    "${}$",
    r"\[{}\]",
    "**{}**",
    "1. {}",
    "Total: {}",
    "({})",
)


@st.composite
def calculations(draw: st.DrawFn) -> tuple[str, Fraction, str]:
    style = draw(st.sampled_from(STYLES))
    written, value = _joined(draw, style)
    return written, value, draw(st.sampled_from(FRAMES))


def _grouped(value: Fraction, is_grouped: bool) -> str:
    return f"{value.numerator:,}" if is_grouped else str(value.numerator)


@settings(max_examples=120, deadline=None)
@given(calculations(), st.booleans())
def test_true_equation_is_never_accused(
    calculation: tuple[str, Fraction, str], is_grouped: bool
) -> None:
    written, value, frame = calculation
    assert found(frame.format(f"{written} = {_grouped(value, is_grouped)}")) == []


@settings(max_examples=120, deadline=None)
@given(calculations(), st.booleans(), st.integers(-99, 99))
def test_false_equation_is_accused_with_the_right_value(
    calculation: tuple[str, Fraction, str], is_grouped: bool, error: int
) -> None:
    written, value, frame = calculation
    # A greater number taken from a smaller one also reads as a range.
    assume(error and value > 0 and value + error > 0)
    (finding,) = found(frame.format(f"{written} = {_grouped(value + error, is_grouped)}"))
    assert _grouped(value, "," in finding.evidence) in finding.suggestion


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 999), st.integers(1, 99), st.integers(1, 4))
def test_quotient_may_be_rounded_or_cut(above: int, below: int, places: int) -> None:
    exact = Fraction(above, below)
    cut = exact * 10**places // 1 / Fraction(10**places)
    for shown in (round(exact, places), cut):
        assert found(f"{above} / {below} = {float(shown):.{places}f}") == []
        assert found(rf"\frac{{{above}}}{{{below}}} \approx {float(shown):.{places}f}") == []


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 99), st.integers(2, 99), st.integers(2, 99), st.integers(2, 99))
def test_sum_of_fractions_is_exact(a: int, b: int, c: int, d: int) -> None:
    total = Fraction(a, b) + Fraction(c, d)
    assume(total.denominator > 1)
    left = rf"\frac{{{a}}}{{{b}}} + \frac{{{c}}}{{{d}}}"
    right = rf"\frac{{{total.numerator}}}{{{total.denominator}}}"
    assert found(f"${left} = {right}$") == []
    naive = Fraction(a + c, b + d)
    assume(naive.denominator > 1 and naive != total)
    (finding,) = found(rf"${left} = \frac{{{a + c}}}{{{b + d}}}$")
    assert f"{total} (about" in finding.suggestion or str(float(total))[:4] in finding.suggestion


@pytest.mark.parametrize("base", ["mul", "quad", "mod"])
def test_every_attack_on_a_false_calculation_is_found(shared: Path, base: str) -> None:
    lines = (shared / "attacks" / "judge_attacks.jsonl").read_text(encoding="utf-8").splitlines()
    attacks = [json.loads(line) for line in lines]
    texts = [attack["message"] for attack in attacks if attack["base"] == base]
    assert texts
    assert [text for text in texts if not found(text)] == []


def test_benign_messages_pass(shared: Path) -> None:
    lines = (shared / "attacks" / "benign_controls.jsonl").read_text(encoding="utf-8").splitlines()
    controls = [json.loads(line) for line in lines]
    accused = [c["id"] for c in controls if found(c["message"], c["task"])]
    assert accused == []


def test_accusations_of_real_messages_are_few_and_inspected(shared: Path) -> None:
    """All 35 accused messages of the released runs hold the error that is named (read by hand)."""
    lines = (shared / "data" / "trajectories.jsonl").read_text(encoding="utf-8").splitlines()
    accused = total = 0
    for run in map(json.loads, lines):
        for step in run["steps"]:
            total += 1
            accused += bool(found(step["content"] or "", run["question"]))
    assert total > 3_000
    assert accused <= 35
