"""Words of a text."""

import time

import pytest

from rectifier_core.words import is_mostly_latin, words

HOSTILE = ("a", "\u0301", "\ufdfa", "數", "a\u0301", "\\a", "√", "\ud800", "\x00", "ss ", "क्ष")


def test_latin_words_lose_case_accents_plurals_and_filler() -> None:
    assert words("The Naïve PROOFS of these theories, classes") == [
        "naive",
        "proof",
        "theory",
        "classe",
    ]


@pytest.mark.parametrize(
    ("plural", "singular"), [("angles", "angle"), ("radii", "radii"), ("bus", "bus"), ("is", "is")]
)
def test_plural_and_singular_are_one_word_and_no_word_is_lost(plural: str, singular: str) -> None:
    assert words(f"{plural} x1") == words(f"{singular} x1")


def test_underscores_part_words() -> None:
    assert words("UNIT_MISMATCH") == ["unit", "mismatch"]


def test_notation_is_read_aloud() -> None:
    assert {"square", "root", "congruence"} <= set(words(r"$\sqrt{3} \equiv x$"))
    assert {"square", "root", "angle"} <= set(words("√3 and ∠ABC"))


@pytest.mark.parametrize(
    ("text", "inflected"),
    [
        ("単位を変換する", "単位の変換"),
        ("треугольник", "треугольники"),
        ("τρίγωνο", "τρίγωνα"),
        ("삼각형의 넓이", "삼각형은"),
        ("مثلث", "المثلث"),
        ("त्रिभुज", "त्रिभुजों"),
        ("สามเหลี่ยม", "พื้นที่สามเหลี่ยม"),
    ],
)
def test_other_scripts_share_parts_of_words(text: str, inflected: str) -> None:
    assert set(words(text)) & set(words(inflected))


@pytest.mark.parametrize("unit", HOSTILE)
def test_any_text_of_256_kib_is_read_in_no_time(unit: str) -> None:
    text = (unit * 262_144)[:262_144]
    start = time.process_time()
    words(text)
    is_mostly_latin(text)
    assert time.process_time() - start < 0.5


def test_of_a_long_text_both_ends_are_read() -> None:
    found = words("alpha " + "filler " * 40_000 + "omega")
    assert found[0] == "alpha"
    assert found[-1] == "omega"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12 + 3 = 15",
        "So the answer is α = 30°.",
        "Café, naïveté, Straße",
        "𝒙 + 𝒚",
        "x" * 300_000,
    ],
)
def test_latin_text_is_told(text: str) -> None:
    assert is_mostly_latin(text)


@pytest.mark.parametrize("text", ["数学の問題", "Ответ: 12", "الجواب 5", "答案是 x = 3", "η γωνία"])
def test_text_in_another_script_is_told(text: str) -> None:
    assert not is_mostly_latin(text)
