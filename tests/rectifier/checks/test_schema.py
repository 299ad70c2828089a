import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rectifier.checks.schema import check_schema_document, schema_findings
from rectifier.verdict import Finding
from rectifier_core.errors import InputError

PATIENCE = 2.0  # seconds of CPU
ANSWER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {"type": "integer"},
        "unit": {"enum": ["m", "s"]},
        "steps": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}},
    },
    "required": ["answer"],
    "additionalProperties": False,
}


def found(text: str, schema: dict[str, Any] = ANSWER) -> list[Finding]:
    findings, _ = schema_findings(text, schema)
    return findings


@pytest.mark.parametrize(
    "text",
    [
        '{"answer": 5}',
        '  {"answer": 5.0}\n',
        '```json\n{"answer": 5, "unit": "m"}\n```',
        '\n```\n{"answer": 5, "steps": ["add", "divide"]}\n```\n',
    ],
)
def test_message_that_satisfies_the_schema_passes(text: str) -> None:
    assert schema_findings(text, ANSWER) == ([], False)


@pytest.mark.parametrize(
    ("text", "suggestion", "evidence"),
    [
        ('{"answer": "5"}', 'At $.answer give a value of type "integer".', '"answer": "5"'),
        ('{"answer": 1, "unit": "kg"}', 'At $.unit give one of ["m", "s"].', '"unit": "kg"'),
        ('{"answer": 1, "steps": ["a", "B"]}', "At $.steps[1] give", '"B"'),
        ('{"unit": "m"}', "'answer'", '{"unit": "m"}'),
        ('{"answer": 1, "x": 2}', "only the properties of the schema", '{"answer": 1, "x": 2}'),
        ("[]", 'At $ give a value of type "object".', "[]"),
        ('Sure: {"answer": 5}', "one JSON value and nothing else", 'Sure: {"answer": 5}'),
        ('Sure:\n```json\n{"answer": 5}\n```', "one JSON value and nothing else", "Sure:"),
        ('{"answer": 5} {"answer": 6}', "one JSON value and nothing else", '{"answer": 5}'),
        ('{"answer": NaN}', "one JSON value", '{"answer": NaN}'),
        ('{"answer": 5', "one JSON value", '{"answer": 5'),
    ],
)
def test_finding_names_the_path_and_what_is_expected(
    text: str, suggestion: str, evidence: str
) -> None:
    (finding,) = found(text)
    assert suggestion in finding.suggestion
    assert evidence in finding.evidence
    assert finding.evidence in text
    assert (finding.indicator_id, finding.source) == ("check:schema", "check")


def test_draft_of_the_schema_is_respected() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"whole": {"type": "integer"}},
        "properties": {"x": {"$ref": "#/definitions/whole"}},
    }
    check_schema_document(schema)
    assert found('{"x": 1}', schema) == []
    assert len(found('{"x": "1"}', schema)) == 1


@pytest.mark.parametrize(
    "schema",
    [
        ANSWER,
        {},
        {"$defs": {"a": {"$anchor": "here", "type": "integer"}}, "$ref": "#here"},
        {
            "$id": "https://example.org/s",
            "$defs": {"a": {}},
            "properties": {"x": {"$ref": "#/$defs/a"}},
        },
        {"properties": {"$ref": {"type": "string"}, "pattern": {}, "patternProperties": {}}},
        {"const": {"$ref": "https://example.org/other"}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "required": ["a"]},
        {"pattern": "(a+)+$"},
        {"format": "date"},
    ],
)
def test_usable_schema_is_accepted(schema: dict[str, Any]) -> None:
    check_schema_document(schema)


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        [],
        "object",
        True,
        None,
        _nested(100),
        {"enum": ["x" * 40_000]},
        {"properties": {f"p{n}": {"type": "string", "minLength": 1} for n in range(500)}},
        {"type": "strange"},
        {"minimum": "low"},
        {"const": float("nan")},
        {"const": {1, 2}},
        {"$schema": "https://example.org/mine"},
        {"$schema": 7},
        {"$ref": "https://example.org/other"},
        {"$ref": "other.json"},
        {"properties": {"x": {"items": [{"$ref": "file:///etc/passwd"}]}}},
        {"$ref": "#/$defs/none"},
        {"$dynamicRef": "#x"},
        {"patternProperties": {"(a+)+$": {}}},
        {"unevaluatedProperties": False},
        {"pattern": "(?=a)b"},
        {"pattern": r"(a)\1"},
        {"pattern": "("},
        {"pattern": "(a{1,1000}){1000}"},
        {"pattern": "a" * 300},
        {"properties": {"x": {"$id": "https://example.org/x", "$ref": "#"}}},
    ],
)
def test_unusable_schema_is_refused_with_its_field(schema: Any) -> None:
    began = time.process_time()
    with pytest.raises(InputError) as caught:
        check_schema_document(schema)
    assert caught.value.field == "message_schema"
    assert time.process_time() - began < PATIENCE


def _doubling(levels: int) -> dict[str, Any]:
    parts: dict[str, Any] = {
        f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)
    }
    return {"$ref": "#/$defs/a0", "$defs": parts | {f"a{levels}": {"minLength": 1}}}


HOSTILE_SCHEMAS: list[dict[str, Any]] = [
    {"$ref": "#"},
    {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    _doubling(25),
    {"pattern": "(a|aa)+$"},
    {"items": {"pattern": "(.*a){9}"}},
    {"uniqueItems": True},
    {"items": {"uniqueItems": True}},
    {"enum": list(range(3_000))},
    {"items": {"enum": list(range(3_000))}},
    {"items": {"anyOf": [{"type": "string"}] * 200}},
    {"anyOf": [{"type": "null"}] * 250},
    {"default": {"patternProperties": {"(a+)+$": {}}}, "$ref": "#/default"},
    {"propertyNames": {"pattern": "(a+)+$"}},
    {"additionalProperties": {"type": "null"}},
    {"multipleOf": 1e-300},
    {"contains": {"type": "null"}, "minContains": 2},
]
HOSTILE_TEXTS = [
    '["' + "a" * 60 + '!"]',
    '"' + "a" * 100_000 + '!"',
    '{"' + "a" * 60 + '!": 1, "x": "3"}',
    json.dumps(list(range(40_000))),
    json.dumps([[n] for n in range(20_000)] + [{}]),
    json.dumps([["a" * 100]] * 2_000),
    "[" * 200_000,
    '{"a":' * 40_000,
    "9" * 200_000,
    "1e999999999",
    "[" + "1e300," * 30_000 + "1]",
    " " * 250_000,
    "\ud800",
]


@pytest.mark.parametrize("schema", HOSTILE_SCHEMAS)
def test_hostile_schema_and_text_end_soon(schema: dict[str, Any]) -> None:
    check_schema_document(schema)
    for text in HOSTILE_TEXTS:
        began = time.process_time()
        for finding in found(text, schema):
            assert finding.evidence in text
            assert len(finding.suggestion) < 1_000
        assert time.process_time() - began < PATIENCE


def test_what_costs_too_much_is_said_to_be_unchecked() -> None:
    assert schema_findings('"a"', {"$ref": "#"}) == ([], True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(JSON)
def test_any_document_is_used_or_refused(schema: Any) -> None:
    try:
        check_schema_document(schema)
    except InputError:
        return
    schema_findings("[1]", schema)


@settings(max_examples=150, deadline=None)
@given(JSON)
def test_evidence_of_any_violation_is_a_quote(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    assert all(finding.evidence in text for finding in found(text))
