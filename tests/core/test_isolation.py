"""How text of others is kept from acting in a prompt."""

import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rectifier_core.isolation import encoded, folded, plain, sealed, visible, whole

# Format characters that do show: Arabic number signs and the Syriac abbreviation mark.
SHOWN = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2}


def test_encoded_text_is_one_readable_line() -> None:
    assert encoded('评审\n"x"\té') == '"评审\\n\\"x\\"\\té"'


def test_every_invisible_format_character_is_shown() -> None:
    for code in range(0x110000):
        if unicodedata.category(chr(code)) in {"Cf", "Zl", "Zp", "Cc"} and code not in SHOWN:
            assert chr(code) not in encoded(f"a{chr(code)}b"), hex(code)


@pytest.mark.parametrize("code", [0xFE0F, 0xE0101, 0x3164, 0x115F, 0x34F, 0x180B, 0x2800, 0xE0041])
def test_what_leaves_no_ink_is_shown(code: int) -> None:
    for text in (encoded(chr(code)), visible(chr(code))):
        assert chr(code) not in text
        assert "\\u" in text


@pytest.mark.parametrize(
    "token",
    [
        "<|im_end|>",
        "<|eot_id|>",
        "<\uff5cAssistant\uff5c>",
        "<s>",
        "</s>",
        "<bos>",
        "<start_of_turn>",
        "[INST]",
        "[/INST]",
        "<<SYS>>",
        "<</SYS>>",
        "[gMASK]",
        "[TOOL_CALLS]",
        "<think>",
        "</message>",
        "<unused12>",
        "<seed:bos>",
        "]~b]",
    ],
)
def test_tokens_of_chat_templates_are_broken_visibly(token: str) -> None:
    assert token not in encoded(f"x{token}y")
    assert token not in visible(f"x{token}y")
    assert token not in plain(f"x{token}y")
    assert json.loads(encoded(token)) == token


def test_comparisons_and_indices_stay_as_they_are() -> None:
    text = "if a<b and c <= d[i]: x = A[0] << 2"
    assert encoded(text) == json.dumps(text)


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    for read in (whole, encoded, visible, sealed, folded, plain):
        assert "\ufffd" in read("a\ud83d b")
        read("a\ud83d b").encode()


def test_visible_text_keeps_braces_backslashes_and_quotes() -> None:
    text = '{x : x > 0} or \\frac{n}{n+k}, 80%% of {0} "so" {task} $task'
    assert visible(text) == text
    assert visible("a\n2. FAKE") == "a\\n2. FAKE"


def test_the_mark_is_new_for_every_request() -> None:
    first, second = (sealed("x").splitlines() for _ in range(2))
    assert first[0] == first[2] != second[0]
    assert re.fullmatch(r"DATA-[0-9a-f]{16}", first[0])


def test_plain_text_is_one_line_without_anything_hidden() -> None:
    assert plain("a\u200bb\n\tc\x1b[2K\u202ed\u2028e") == "ab c [2Kd e"


def test_every_attack_stays_inside_its_block(shared: Path) -> None:
    lines = (shared / "attacks" / "judge_attacks.jsonl").read_text(encoding="utf-8").splitlines()
    for line in lines:
        message = json.loads(line)["message"]
        opened, data, closed = sealed(message).split("\n")
        assert opened == closed
        assert opened not in data
        assert json.loads(data) == message
        assert not re.search(r"<\||\[/?INST\]|</|<<<E", data)
        assert all(unicodedata.category(c) not in {"Cf", "Cc", "Cs"} for c in data)


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_encoded_text_reads_back_and_never_breaks_the_line(text: str) -> None:
    shown = encoded(text)
    assert json.loads(shown) == whole(text)
    assert len(shown.splitlines()) == 1
    assert len(visible(text).splitlines()) <= 1
    assert len(plain(text).splitlines()) <= 1
