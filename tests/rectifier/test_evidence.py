"""What counts as a quote, a concrete correction and an impact."""

import time

import pytest

from rectifier.evidence import Sources, has_impact, is_concrete, is_nothing

MESSAGE = 'We get\n  3 km + 200\u00a0m = 203 km, so "x" is \\boxed{203} with \\frac{1}{2}, \\neq 7 \\times 2.'
SOURCES = Sources.of(message=MESSAGE, task="How long is it in metres, exactly?")


@pytest.mark.parametrize(
    "quote",
    [
        "3 km + 200 m = 203 km",
        "203",
        "We get 3 km",
        '"203 km"',
        "\u201c203 km\u201d",
        "`203 km`",
        'so "x" is',
        'so \\"x\\" is',
        "\\boxed{203}",
        "\\\\boxed{203}",
        "\x08oxed{203}",
        "\x0crac{1}{2}",
        "\neq 7 \times 2",
        "3 km + 200 m = 2\u200b03 km",
        "3 km\\n+ 200 m",
    ],
)
def test_a_quote_may_differ_in_form_alone(quote: str) -> None:
    found = SOURCES.find(quote)
    assert found is not None
    assert found.where == "message"


@pytest.mark.parametrize(
    "quote",
    [
        "",
        " ",
        "\u200b",
        "...",
        "+",
        "=",
        "m",
        "N/A",
        "none",
        "null",
        "20",
        "03",
        "204",
        "3 km + ... = 203 km",
        "the units",
    ],
)
def test_what_is_no_quote_is_refused(quote: str) -> None:
    assert SOURCES.find(quote) is None


def test_an_omission_may_quote_the_task() -> None:
    found = SOURCES.find("in metres, exactly")
    assert found is not None
    assert found.where == "task"


def test_hidden_characters_in_the_message_do_not_hide_its_words() -> None:
    sources = Sources.of(message="the sum is 3\u200b8\u20601", task="")
    assert sources.find("sum is 381") is not None


def test_a_letter_or_digit_of_a_message_that_is_no_more_is_a_quote() -> None:
    assert Sources.of(message="5", task="").find("5") is not None
    assert Sources.of(message="答案是五", task="").find("五") is not None


def test_the_message_comes_before_the_task() -> None:
    found = Sources.of(message="exactly 2", task="exactly 2").find("exactly 2")
    assert found is not None
    assert found.where == "message"


@pytest.mark.parametrize(
    "text", ["use 3200 m", "convert 3 km to 3000 m first", "use metres", "3200"]
)
def test_a_correction_that_says_what_to_write_is_concrete(text: str) -> None:
    assert is_concrete(text, evidence="203")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "N/A",
        "n/a.",
        "None",
        "**none**",
        "unclear",
        "-",
        "?",
        "203",
        " 203 ",
        "Check again.",
        "Please re-check your work carefully",
        "No correction needed",
        "not applicable",
        "<correction>".replace("correction", "none"),
    ],
)
def test_a_correction_that_says_nothing_is_not(text: str) -> None:
    assert not is_concrete(text, evidence="203")


@pytest.mark.parametrize(
    "text",
    [
        "YES",
        "YES, 3200",
        "yes: becomes 3200",
        "3200",
        "final answer becomes 3200, not 203",
        "The agent did not change km to m; the answer becomes 3200",
        "Not 203 but 3200",
        "No valid answer is left",
        "true",
    ],
)
def test_an_impact_that_names_a_change_counts(text: str) -> None:
    assert has_impact(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NO",
        "No.",
        "no, the answer stays 203",
        "NO the answer is right",
        "none",
        "N/A",
        "No impact on the result",
        "It does not change the final answer",
        "the final answer remains correct",
        "unchanged",
        "unclear",
        "false",
    ],
)
def test_an_impact_that_changes_nothing_does_not(text: str) -> None:
    assert not has_impact(text)


def test_long_hostile_texts_are_judged_in_bounded_time() -> None:
    start = time.process_time()
    for text in (
        "no " * 100_000,
        "\\u" * 100_000,
        " " * 300_000,
        "does not " * 40_000,
        "none " * 60_000,
    ):
        SOURCES.find(text)
        is_nothing(text)
        has_impact(text)
        is_concrete(text, evidence=text)
    assert time.process_time() - start < 6.0
