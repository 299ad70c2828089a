import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rectifier.checks.suite import CheckResult, check


def test_clean_message_has_no_findings() -> None:
    assert check("17 * 3 = 51.\n```python\nx = 1\n```") == CheckResult()


def test_findings_stand_in_order() -> None:
    text = "17 * 3 = 41.\n```python\ndef f(x)\n    return x\n```"
    result = check(text, message_schema={"type": "object"})
    assert [f.indicator_id for f in result.findings] == [
        "check:schema",
        "check:python",
        "check:arithmetic",
    ]
    assert all(f.violated and f.source == "check" and f.rationale for f in result.findings)


def test_task_and_context_count_as_sources() -> None:
    assert check("17 * 3 = 41", task="Is 17 * 3 = 41?").findings == ()
    assert check("17 * 3 = 41", context=["17 * 3 = 41"]).findings == ()


def test_cut_is_told_whichever_check_was_cut() -> None:
    assert check("```python\n" + "(" * 500 + "\n```").is_cut
    assert check("1 + 1 = 2. " * 30_000).is_cut
    assert check('"a"', message_schema={"$ref": "#"}).is_cut


@pytest.mark.parametrize("text", ["", " ", "\x00", "\ud800 1+1=3", "\u202e1+1=3", "=" * 9, "```"])
def test_odd_text_breaks_nothing(text: str) -> None:
    assert isinstance(check(text, message_schema={}), CheckResult)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_checked(text: str) -> None:
    result = check(text, message_schema={"type": "string"})
    assert all(not f.evidence or f.evidence in text for f in result.findings)
