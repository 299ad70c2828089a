"""What counts as a quote, a concrete correction and an impact."""

import time

import pytest

from rectifier.evidence import Sources, has_impact, is_concrete, is_nothing

MESSAGE = 'We get\n  3 km + 200\u00a0m = 203 km, so "x" is \\boxed{203} with \\frac{1}{2}, \\neq 7 \\times 2.'
SOURCES = Sources(message=MESSAGE, task="How long is it in metres, exactly?")


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
        "**203 km**",
        "_203 km_.",
        '"203 km."',
        "***203 km***,",
        "\u201e203 km\u201c",
        "so \u201cx\u201d is",
        "203 km, so \u00abx\u00bb is.",
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
        "203 km...",
        "203 km\u2026",
        "we get 3 km",
        "WE GET",
        "**204 km**",
        "20.",
        "the units",
    ],
)
def test_what_is_no_quote_is_refused(quote: str) -> None:
    assert SOURCES.find(quote) is None


@pytest.mark.parametrize(
    ("message", "quote"),
    [
        ("It\u2019s 5 \u2013 7 apples", "It's 5 - 7 apples"),
        ("It's 5-7 apples, no more", "It\u2019s 5\u20147 apples"),
        ("x = \u22123 for \u201call\u201d y", 'x = -3 for "all" y'),
    ],
)
def test_typography_is_folded_and_the_message_is_what_is_returned(message: str, quote: str) -> None:
    found = Sources(message, "").find(quote)
    assert found is not None
    assert found.text == message[: len(quote)]


def test_an_omission_may_quote_the_task() -> None:
    found = SOURCES.find("in metres, exactly")
    assert found is not None
    assert found.where == "task"


def test_hidden_characters_in_the_message_do_not_hide_its_words() -> None:
    sources = Sources(message="the sum is 3\u200b8\u20601", task="")
    assert sources.find("sum is 381") is not None


def test_a_letter_or_digit_of_a_message_that_is_no_more_is_a_quote() -> None:
    assert Sources(message="5", task="").find("5") is not None
    assert Sources(message="答案是五", task="").find("五") is not None


def test_the_message_comes_before_the_task() -> None:
    found = Sources(message="exactly 2", task="exactly 2").find("exactly 2")
    assert found is not None
    assert found.where == "message"


@pytest.mark.parametrize(
    "text",
    [
        "use 3200 m",
        "convert 3 km to 3000 m first",
        "use metres",
        "3200",
        "False",
        "True",
        "false.",
        "**False**",
        "\u2264",
        "<",
        ">=",
        "\u221e",
        "$\u2265$",
        "\u2205",
    ],
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
        "...",
        "<>",
        "---",
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
        "The answer becomes 3200 m; the first line is unchanged",
        "The answer becomes 3200 m and the first line is unchanged",
        "The first step stays correct, the answer becomes 3200 m",
        "The unchanged first line hides it: 3200 m",
        "The result is 3200 m, no change to the other steps",
        "The answer does not remain correct",
        "Non-integer: the answer becomes 3.2",
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
        "Unchanged.",
        "remains the same",
        "The final answer is unchanged",
        "A matter of style; the conclusion stays valid",
        "It leaves the result unchanged",
        "unchanged final answer",
        "Nein",
        "nein.",
        "Nein, die Antwort bleibt",
        "\u5426",
        "\u5426\u3002",
        "\u043d\u0435\u0442",
        "\u041d\u0435\u0442.",
        "non",
        "\u3044\u3044\u3048",
        "n\u00e3o",
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
