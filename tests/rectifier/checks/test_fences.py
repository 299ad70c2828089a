import pytest

from rectifier.checks.fences import blocks


def test_blocks_are_found_in_order_with_their_language() -> None:
    text = "a\n```Python title=x\none\n```\nb\n~~~\ntwo\n~~~\n"
    first, second = blocks(text)
    assert (first.language, first.body, second.language, second.body) == (
        "python",
        "one\n",
        "",
        "two\n",
    )
    assert text[first.body_start : first.body_end] == first.body


def test_longer_fence_holds_a_shorter_one() -> None:
    (block,) = blocks("````\n```\nx\n```\n````")
    assert block.body == "```\nx\n```\n"


def test_open_block_reaches_to_the_end() -> None:
    (block,) = blocks("```py\nx = 1")
    assert (block.body, block.is_closed) == ("x = 1", False)


@pytest.mark.parametrize("text", ["", "``", "`x`", "a ``` b", "```a`b"])
def test_text_without_fences_has_no_blocks(text: str) -> None:
    assert blocks(text) == []


@pytest.mark.parametrize("text", ["```", "```\n```", "```\n", "~~~\n~~~~"])
def test_empty_block_has_an_empty_body(text: str) -> None:
    assert [block.body for block in blocks(text)] == [""]
