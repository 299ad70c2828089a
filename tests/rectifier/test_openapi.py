"""The served OpenAPI document: complete, true, and its examples work as they stand."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import checks
from schemathesis.core.result import Ok

from tests.support.server import Server, serving

METHODS = {"get", "put", "post", "patch", "delete"}
EXAMPLES = 6  # for each operation
README = Path(__file__).resolve().parents[2] / "README.md"
PROBLEM = {"schema": {"$ref": "#/components/schemas/Problem"}}


@schemathesis.serializer("application/x-ndjson")
def as_line(_: schemathesis.SerializationContext, value: Any) -> bytes:
    """Write a generated import as one line."""
    return json.dumps(value).encode()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The service as it starts with nothing configured."""
    with serving() as started:
        yield started


@pytest.fixture(scope="module")
def document(server: Server) -> dict[str, Any]:
    """Its OpenAPI document."""
    found: dict[str, Any] = httpx2.get(f"{server.url}/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method in METHODS & set(methods):
            yield method, path, methods[method]


def test_every_operation_says_what_it_does(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        assert operation["summary"], (method, path)
        assert operation["description"], (method, path)


def test_errors_are_documented_as_problems(document: dict[str, Any]) -> None:
    assert document["components"]["schemas"]["Problem"]["required"]
    assert "HTTPValidationError" not in document["components"]["schemas"]
    for method, path, operation in operations(document):
        for status, response in operation["responses"].items():
            if status >= "400" and path != "/readyz":
                assert response["content"] == {"application/problem+json": PROBLEM}, (method, path)


def test_bodies_can_be_refused_in_every_way(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        if "requestBody" in operation:
            assert {"408", "413", "415"} <= set(operation["responses"]), (method, path)


def test_references_lead_somewhere(document: dict[str, Any]) -> None:
    known = document["components"]["schemas"]
    for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)):
        assert name in known


def test_examples_answer_200(server: Server, document: dict[str, Any]) -> None:
    posted = 0
    for method, path, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        for name, example in content.get("examples", {}).items():
            answer = httpx2.request(method, server.url + path, json=example["value"])
            assert answer.status_code == 200, (name, answer.text)
            posted += 1
    assert posted >= 6


@pytest.mark.skipif("curl" not in README.read_text(encoding="utf-8"), reason="no curl is shown")
def test_curl_of_the_readme_works(server: Server) -> None:
    shown = re.findall(r"^curl .*?(?:'|\S)$(?=\n```)", README.read_text(), re.M | re.S)
    assert shown
    command = shlex.split(shown[0].replace("localhost:8700", server.url.removeprefix("http://")))
    answer = subprocess.run(command, capture_output=True, check=True, timeout=20)
    assert json.loads(answer.stdout)["verdict"] == "fail"


# Not held to the rule that what the document refuses is refused: JSON Schema counts a length in
# characters, the service in bytes, and 1.0 is an integer only to JSON Schema.
HELD = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.unsupported_method,
]


def test_answers_are_as_documented(server: Server, document: dict[str, Any]) -> None:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    tried = set()
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def conforms(case: schemathesis.Case) -> None:
            answer = case.call()
            case.validate_response(answer, checks=HELD)

        conforms()
        tried.add((operation.method, operation.path))
    assert len(tried) == len(list(operations(document)))
