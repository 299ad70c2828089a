"""Pieces of a message."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rectifier_core.pieces import LONGEST, MOST, pieces

SENTENCE = "The area of the triangle is half the product of base and height. "
HOSTILE = ("a", "\n\n", ". ", "\n", "\u0301", "數", "a. ", " \t", "$$", "\\frac{", "\ud800")


@pytest.mark.parametrize("text", ["", " ", "\n\n \t", "\n" * 5_000])
def test_blank_text_has_no_pieces(text: str) -> None:
    assert pieces(text).texts == ()
    assert not pieces(text).is_cut


def test_short_text_is_one_piece() -> None:
    assert pieces("  So x = 3.\n").texts == ("So x = 3.",)


def test_cuts_fall_between_paragraphs_before_sentences_before_words() -> None:
    paragraph = (SENTENCE * 6).strip()
    assert pieces(f"{paragraph}\n\n{paragraph}", longest=500).texts == (paragraph, paragraph)
    assert all(part.endswith("height.") for part in pieces(SENTENCE * 20).texts)
    assert all(part.split()[-1] == "word" for part in pieces("word " * 400).texts)


def test_pieces_of_one_text_have_about_one_length() -> None:
    lengths = [len(part) for part in pieces(SENTENCE * 10).texts]
    assert len(lengths) == 2
    assert min(lengths) > max(lengths) / 2


def test_long_text_keeps_start_end_and_an_even_spread() -> None:
    marks = [f"paragraph {n} " + "x" * (LONGEST - 50) for n in range(40)]
    made = pieces("\n\n".join(marks))
    kept = [int(part.split()[1]) for part in made.texts]
    assert made.is_cut
    assert kept[:4] == [0, 1, 2, 3]
    assert kept[-4:] == [36, 37, 38, 39]
    steps = [after - before for before, after in pairwise(kept[3:9])]
    assert max(steps) - min(steps) <= 5


def test_twelve_pieces_are_kept_whole_and_thirteen_are_cut() -> None:
    paragraph = "y" * (LONGEST - 20)
    assert not pieces("\n\n".join([paragraph] * 12)).is_cut
    made = pieces("\n\n".join([paragraph] * 13))
    assert made.is_cut
    assert len(made.texts) == MOST


@given(st.text(alphabet="ab .\n?!。數", max_size=3_000), st.integers(2, 700))
def test_pieces_are_in_order_bounded_and_lose_nothing_but_space(text: str, longest: int) -> None:
    made = pieces(text, longest=longest)
    assert len(made.texts) <= MOST
    assert all(part.strip() and len(part) <= longest for part in made.texts)
    if not made.is_cut:
        assert "".join("".join(made.texts).split()) == "".join(text.split())


@pytest.mark.parametrize("unit", HOSTILE)
def test_any_text_of_256_kib_is_cut_in_no_time(unit: str) -> None:
    text = (unit * 262_144)[:262_144]
    start = time.process_time()
    made = pieces(text)
    assert time.process_time() - start < 0.5
    assert len(made.texts) <= MOST
