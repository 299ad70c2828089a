"""How the replies of a model are read."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rectifier_core.reply import (
    REPLY_LIMIT,
    Json,
    as_bool,
    as_number,
    as_text,
    parse,
    with_latex,
)

VALUE = {"clean": [1], "violated": []}
BARE = json.dumps(VALUE)


def contents(text: str) -> list[Json]:
    return [value.content for value in parse(text).values]


@pytest.mark.parametrize(
    "text",
    [
        BARE,
        f"  \n{BARE}\n ",
        f"\ufeff{BARE}",
        f"```json\n{BARE}\n```",
        f"```\n{BARE}\n```",
        f"~~~json\n{BARE}\n~~~",
        f"```JSON {BARE} ```",
        '{"clean": [1,], "violated": [],}',
        '{"clean": [1\n,\n], "violated": []}'.replace("\n,\n", ",\n"),
        "{'clean': [1], 'violated': []}",
        f"<think>hm {{'clean': [2]}}</think>{BARE}",
        f'<THINK type="deep">hm</Think >\n{BARE}',
        f"<thinking>a</thinking><reasoning>b</reasoning>```json\n{BARE}\n```",
        f"<think/>{BARE}",
        f"so the draft is {BARE} and then</think>{BARE}",
        f"<think>a <think>b</think> c {{}}</think>{BARE}",
        f"[THINK]hm {{'clean': [2]}}[/THINK]{BARE}",
        f"<|begin_of_thought|>{{}}<|end_of_thought|>\n{BARE}",
        f"<seed:think>{{}}</seed:think>{BARE}",
        f"<|channel|>analysis<|message|>{{}}<|end|><|start|>assistant<|channel|>final<|message|>{BARE}",
    ],
)
def test_one_value_in_any_form_is_sole(text: str) -> None:
    parsed = parse(text)
    assert parsed.is_sole
    assert parsed.values[0].content == VALUE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "clean",
        f"Sure: {BARE}",
        f"{BARE}\nLet me know.",
        f"```json\n{BARE}\n```\nLet me know.",
        f"```json\n{BARE}",
        f"{BARE}\n```",
        f"```json\n{BARE}\n~~~",
        f"{BARE}{BARE}",
        f"<think>{BARE}",
        f"[THINK]{BARE}",
        f"{BARE}[THINK]wait[/THINK]",
        f"<|begin_of_thought|>{BARE}",
        f"<seed:think>{BARE}",
        f"<|channel|>analysis<|message|>{BARE}<|end|>",
        f"{BARE}<think>wait",
        f"{BARE}<think>no, it is wrong</think>",
        f"{BARE}</think>",
        f"<answer>{BARE}</answer>",
        BARE[:-1],
        '{"clean": [1], "clean": [2], "violated": []}',
        '{"clean": [1], "violated": [{"id": 2, "id": 3}]}',
        '{"clean": [NaN], "violated": []}',
        '{"clean": [1] "violated": []}',
        '{"clean": [,], "violated": []}',
    ],
)
def test_anything_else_is_not_sole(text: str) -> None:
    assert not parse(text).is_sole


def test_values_in_prose_are_found_in_order() -> None:
    text = "it's {not json} but \\frac{1}{2}, see {'a': 1} and [2]. It's ```{\"b\": \"}\"}```"
    assert contents(text) == [{"a": 1}, [2], {"b": "}"}]


def test_quotes_of_other_kinds_survive() -> None:
    text = """{'a': "it's", 'b': 'it\\'s "so"', "c": True, 'd': None, "e": "True, None,]"}"""
    assert contents(text) == [
        {"a": "it's", "b": 'it\'s "so"', "c": True, "d": None, "e": "True, None,]"}
    ]


def test_latex_with_one_backslash_is_read_as_written() -> None:
    [value] = contents(r'{"a": "\( \sqrt{2} \le \underline{x}", "b": "\\pi"}')
    assert value == {"a": r"\( \sqrt{2} \le \underline{x}", "b": r"\pi"}
    assert with_latex("\x0crac{1}{2} \times 3 \x08oxed") == r"\frac{1}{2} \times 3 \boxed"


def test_reasoning_tags_inside_a_string_are_text() -> None:
    text = '{"clean": [], "violated": [{"id": 1, "evidence": "<think>203</think> {"}]}'
    assert parse(text).is_sole


def test_a_lone_surrogate_is_replaced() -> None:
    [value] = contents('{"a": "\\ud83d"}')
    assert isinstance(value, dict)
    assert as_text(value["a"]) == "\ufffd"


def test_words_for_truth_are_closed() -> None:
    truths: list[Json] = [True, "true", " False ", "FALSE"]
    others: list[Json] = [1, 0, None, "yes", "", [], 1.0]
    assert [as_bool(value) for value in truths] == [True, True, False, False]
    assert {as_bool(value) for value in others} == {None}


def test_numbers_are_whole_and_not_booleans() -> None:
    given_numbers: list[Json] = [1, "2", " 30 "]
    others: list[Json] = [True, 1.0, "1.0", "01", 0, -1, None, "", "\u0661"]
    assert [as_number(value) for value in given_numbers] == [1, 2, 30]
    assert {as_number(value) for value in others} == {None}


HOSTILE = {
    "an open fence and spaces": "```json" + " " * 200_000 + "x",
    "spaces": " " * 1_000_000,
    "brackets": "[" * 100_000,
    "closed brackets": "[" * 100_000 + "]" * 100_000,
    "objects": '{"a":' * 200_000,
    "braces": "{" * REPLY_LIMIT,
    "pairs": "{}" * 500_000,
    "small failures": "{x}" * 340_000,
    "a huge number": '{"a": ' + "9" * 1_000_000 + "}",
    "an open string": '{"a": "' + "x" * 1_000_000,
    "escaped quotes": '{"' + '\\"' * 500_000 + "\\",
    "apostrophes": "{" + "'" * 1_000_000,
    "open objects and strings": '{"' * 500_000,
    "commas": "[" + ", " * 500_000,
    "tags": "<think" * 170_000,
    "channels": "<|channel|>analysis" * 50_000,
    "prefixes": "<seed:" * 170_000,
    "open tags": "<think>" * 140_000,
    "closing tags": "</think>" * 130_000,
    "too long": BARE + " " * REPLY_LIMIT,
    "doubled keys": '{"a":1,"a":2}' * 80_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_replies_are_read_in_bounded_time(text: str) -> None:
    start = time.process_time()
    assert not parse(text).is_sole
    assert time.process_time() - start < 2.0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
containers = st.lists(json_values, max_size=3) | st.dictionaries(
    st.text(max_size=6), json_values, max_size=3
)


@given(containers)
@settings(max_examples=100, deadline=None)
def test_every_json_container_is_read_as_json_reads_it(value: Json) -> None:
    parsed = parse(json.dumps(value))
    assert parsed.is_sole
    assert parsed.values[0].content == value


@given(containers, st.sampled_from(["x", "{", '"', "]", "```", "<think>", "1", "."]), st.booleans())
@settings(max_examples=100, deadline=None)
def test_text_beside_a_value_is_never_sole(value: Json, beside: str, first: bool) -> None:
    text = json.dumps(value)
    assert not parse(f"{beside} {text}" if first else f"{text} {beside}").is_sole


@given(containers, st.data())
@settings(max_examples=100, deadline=None)
def test_a_value_cut_short_is_never_sole(value: Json, data: st.DataObject) -> None:
    text = json.dumps(value)
    assert not parse(text[: data.draw(st.integers(0, len(text) - 1))]).is_sole


@given(st.text(alphabet="{}[]\"'\\,:<>/think`TrueNone \n1", max_size=200))
@settings(max_examples=300, deadline=None)
def test_no_text_makes_the_reader_raise(text: str) -> None:
    parse(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"is_flawed": true, // it\'s a [fault]\n "suggestion": "x"}',
        '{"is_flawed": true, /* "quoted" } */ "suggestion": "x"}',
        '{"is_flawed": true,  # certain\n "suggestion": "x", // last\n}',
        '{"is_flawed": true, "suggestion": "x", "score": NaN}',
        '{"is_flawed": true, "suggestion": "x", "score": ' + "9" * 6_000 + "}",
    ],
)
def test_value_with_comments_or_odd_numbers_is_read_and_is_not_sole(text: str) -> None:
    parsed = parse(text)
    (value,) = parsed.values
    assert isinstance(value.content, dict)
    assert (value.content["is_flawed"], value.content["suggestion"]) == (True, "x")
    assert not parsed.is_sole


def test_marks_of_comments_inside_strings_are_text() -> None:
    (value,) = parse('{"url": "a//b # c /* d */", \'e\': True,}').values
    assert value.content == {"url": "a//b # c /* d */", "e": True}


@pytest.mark.parametrize(
    "text", ["/*" * 100_000, "{" + "/*" * 100_000, "{//" * 60_000, "{#" * 90_000]
)
def test_comments_cost_bounded_time(text: str) -> None:
    began = time.process_time()
    parse(text)
    assert time.process_time() - began < 5
