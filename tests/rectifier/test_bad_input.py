"""Bad input: a problem document that names the field, at once; nothing stored, nothing logged."""

import json
import time

import httpx2
import pytest
from redis.asyncio import Redis

from tests.support.service import TASK, Json, Service

MARK = "zanzibar"
MAX_CPU_S = 0.05
TYPE = "urn:rectifier:problem:"
MESSAGE = {"agent": "solver", "content": f"{MARK} 1 + 1 = 2"}
ID = "00000000-0000-0000-0000-000000000000"
AS_JSON = {"Content-Type": "application/json"}


def body(**fields: object) -> Json:
    return {"task": f"{MARK} {TASK}", "message": MESSAGE, **fields}


def message(**fields: object) -> Json:
    return body(message={**MESSAGE, **fields})


async def refused(
    service: Service,
    status: int,
    kind: str,
    field: str | None,
    *,
    method: str = "POST",
    path: str = "/audit",
    **sent: object,
) -> Json:
    """Send it and return the problem document, which must be a whole one and come at once."""
    request = service.client.build_request(method, path, **sent)  # type: ignore[arg-type]  # as given
    began = time.process_time()
    answer = await service.client.send(request)
    spent = time.process_time() - began
    problem: Json = answer.json()
    assert (answer.status_code, problem["status"]) == (status, status), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["type"] == TYPE + kind
    assert problem.get("field") == field, problem
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert problem["title"]
    assert problem["detail"]
    assert spent < MAX_CPU_S
    return problem


BODIES: list[tuple[str | None, object]] = [
    (None, []),
    (None, None),
    (None, "text"),
    (None, 3),
    ("message", {"task": "t"}),
    ("task", {"message": MESSAGE}),
    ("task", body(task="")),
    ("task", body(task=None)),
    ("task", body(task=["t"])),
    ("task", body(task="é" * 33_000)),
    ("message", body(message="text")),
    ("message", body(message=None)),
    ("message.content", message(content=3)),
    ("message.content", message(content="é" * 132_000)),
    ("message.agent", message(agent=None)),
    ("message.agent", message(agent="a" * 257)),
    ("message.role", message(role="a" * 20_000)),
    ("message.contents", message(contents="x")),
    ("message.tool_calls", message(tool_calls={"name": "x"})),
    ("message.tool_calls", message(tool_calls=[{"name": "x"}] * 129)),
    ("message.tool_calls.0", message(tool_calls=["x"])),
    ("message.tool_calls.1.name", message(tool_calls=[{"name": "x"}, {"name": 3}])),
    ("message.tool_calls.0.name", message(tool_calls=[{"arguments": "{}"}])),
    ("message.tool_calls.0.arguments", message(tool_calls=[{"name": "x", "arguments": 3}])),
    ("message.tool_calls.0.list", message(tool_calls=[{"name": "x", "list": 1}])),
    ("pool", body(pool=3)),
    ("pool", body(pool={})),
    ("pool", body(pool=[])),
    ("pool", body(pool="No Pool")),
    ("pool", body(pool="math\n")),
    ("pool", body(pool="unknown")),
    ("pool", body(pool=["math"] * 33)),
    ("pool.1", body(pool=["math", "No Pool"])),
    ("pool.1", body(pool=["math", None])),
    ("policy", body(policy=3)),
    ("policy", body(policy=[])),
    ("policy", body(policy="unknown")),
    ("policy.preset", body(policy={"preset": "unknown"})),
    ("policy.preset", body(policy={"preset": 3})),
    ("policy.tau", body(policy={"tau": 1.01})),
    ("policy.tau", body(policy={"tau": -0.01})),
    ("policy.tau", body(policy={"tau": "0.6"})),
    ("policy.tau", body(policy={"tau": True})),
    ("policy.k_act", body(policy={"k_act": 11, "k_cand": 10})),
    ("policy.k_act", body(policy={"k_act": 21})),
    ("policy.k_act", body(policy={"k_act": 2.5})),
    ("policy.k_cand", body(policy={"k_cand": -1})),
    ("policy.max_retries", body(policy={"max_retries": 11})),
    ("policy.select", body(policy={"select": "all"})),
    ("policy.str", body(policy={"str": 1})),
    ("context", body(context="text")),
    ("context", body(context=["x"] * 201)),
    ("context.1", body(context=["x", 3])),
    ("context.1", body(context=["x", None])),
    ("context.1.content", body(context=["x", {"content": 3}])),
    ("context.0.text", body(context=[{"text": "x"}])),
    ("message_schema", body(message_schema=[])),
    ("message_schema", body(message_schema="object")),
    ("message_schema", body(message_schema={"type": "nothing"})),
    ("message_schema", body(message_schema={"$ref": "https://example.org/x"})),
    ("message_schema", body(message_schema={"properties": {"a": {"minimum": "x"}}})),
    ("deadline_ms", body(deadline_ms=999)),
    ("deadline_ms", body(deadline_ms=120_001)),
    ("deadline_ms", body(deadline_ms=1_000.5)),
    ("deadline_ms", body(deadline_ms="1000")),
    ("deadline_ms", body(deadline_ms=None)),
    ("Tau of it", {**body(), "Tau of it": 1}),
    ("list", body(list=1)),
    ("a.b", {**body(), "a.b": 1}),
]


@pytest.mark.parametrize("path", ["/audit", "/rectify"])
async def test_refusal_names_the_field_as_the_caller_wrote_it(
    service: Service,
    redis: Redis,
    capsys: pytest.CaptureFixture[str],
    path: str,
) -> None:
    before = await redis.dbsize()
    for field, sent in BODIES:
        await refused(service, 422, "invalid-request", field, path=path, json=sent)
    assert await redis.dbsize() == before
    logged = capsys.readouterr()
    assert MARK not in logged.out + logged.err


OF_RUNS = [
    ("message_id", body(run_id="r")),
    ("run_id", body(message_id="m")),
    ("run_id", body(run_id="", message_id="m")),
    ("run_id", body(run_id=3, message_id="m")),
    ("run_id", body(run_id="r" * 257, message_id="m")),
    ("attempt", body(run_id="r", message_id="m", attempt=-1)),
    ("attempt", body(run_id="r", message_id="m", attempt=True)),
    ("expected_messages", body(run_id="r", message_id="m", expected_messages=0)),
    ("fallback_of", body(run_id="r", message_id="m", fallback_of=1)),
]


async def test_refused_message_of_a_run_opens_no_run(service: Service, redis: Redis) -> None:
    before = await redis.dbsize()
    for field, sent in OF_RUNS:
        await refused(service, 422, "invalid-request", field, path="/rectify", json=sent)
    assert await redis.dbsize() == before


ELSEWHERE: list[tuple[str, str, str | None, object]] = [
    ("POST", "/runs/r/finish", "again", {"again": True}),
    ("POST", "/runs/r/finish", None, []),
    ("POST", "/runs/r/outcome", "final_answer", {}),
    ("POST", "/runs/r/outcome", "final_answer", {"final_answer": 3}),
    ("POST", "/runs/r/outcome", "correct", {"final_answer": "3", "correct": "yes"}),
    ("POST", "/runs/r/outcome", "ground_truth", {"final_answer": "3", "ground_truth": 3}),
    ("PUT", "/pools/No%20Pool", "pool", None),
    ("POST", "/pools/math/indicators", "name", {"definition": MARK}),
    ("POST", "/pools/math/indicators", "name", {"name": "", "definition": MARK}),
    (
        "POST",
        "/pools/math/indicators",
        "status",
        {"name": "N", "definition": MARK, "status": "on"},
    ),
    (
        "POST",
        "/pools/math/indicators",
        "examples.0.violated",
        {
            "name": "N",
            "definition": MARK,
            "examples": [{"task": "t", "message": "m", "violated": "no"}],
        },
    ),
    ("PUT", "/pools/math/indicators/no-id", "id", {"name": "N", "definition": MARK}),
    ("PATCH", f"/pools/math/indicators/{ID}", "mode", {"mode": "off"}),
    ("POST", "/pools/math/indicators/search", "q", {"q": ""}),
    ("POST", "/pools/math/indicators/search", "limit", {"q": MARK, "limit": 101}),
    ("POST", "/pools/math/indicators/search", "by", {"q": MARK, "by": "luck"}),
]


async def test_every_endpoint_names_the_field(
    service: Service,
    redis: Redis,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = await redis.dbsize()
    for method, path, field, sent in ELSEWHERE:
        await refused(service, 422, "invalid-request", field, method=method, path=path, json=sent)
    assert await redis.dbsize() == before
    assert MARK not in capsys.readouterr().out


PARAMETERS = [
    ("/pools/math/indicators?limit=0", "limit"),
    ("/pools/math/indicators?limit=many", "limit"),
    ("/pools/math/indicators?status=on", "status"),
    ("/pools/math/indicators?after=1", "after"),
    ("/pools/math/indicators/search", "q"),
    ("/pools/math/indicators/search?q=", "q"),
    ("/pools/math/indicators/search?q=x&by=luck", "by"),
    ("/pools/math/indicators/search?q=%ff", "q"),
    ("/pools/math/indicators/search?q=%ed%a0%80", "q"),
    ("/pools/math/indicators/search?q=a%00b", "q"),
    ("/pools/%ff", "pool"),
    ("/runs/a%00", "run_id"),
    ("/runs/%c3%28", "run_id"),
    (f"/runs/{'r' * 257}", "run_id"),
    ("/pools/math/indicators/%00", "id"),
]


async def test_parameters_are_named_like_fields(service: Service) -> None:
    for path, field in PARAMETERS:
        await refused(service, 422, "invalid-request", field, method="GET", path=path)


async def test_replacement_character_that_was_sent_as_one_is_text(service: Service) -> None:
    found = await service.client.get("/pools/math/indicators/search?q=%ef%bf%bd")
    assert found.status_code == 200


@pytest.mark.parametrize("key", ["", "k" * 257])
async def test_idempotency_key_is_named(service: Service, key: str) -> None:
    headers = {"Idempotency-Key": key}
    sent = {"path": "/rectify", "json": body(), "headers": headers}
    await refused(service, 422, "invalid-request", "Idempotency-Key", **sent)  # type: ignore[arg-type]


NO_JSON = [
    b"{",
    b'{"task": "zanzibar}',
    b'{"task": "\xff"}',
    b'{"task": "\xed\xa0\x80"}',
    b'{"task": "a\x00b"}',
    '{"task": "zanzibar"}'.encode("utf-16"),
    '{"task": "zanzibar"}'.encode("utf-32"),
    b'{"task": "zanzibar", "task": "b"}',
    b'{"message": {"content": "a", "content": "b"}}',
    b'{"policy": {"tau": NaN}}',
    b'{"policy": {"tau": -Infinity}}',
    b'{"deadline_ms": ' + b"9" * 5_000 + b"}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b"{} {}",
]


@pytest.mark.parametrize("path", ["/audit", "/rectify", "/runs/r/outcome"])
async def test_what_is_no_json_is_refused(
    service: Service, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    for sent in NO_JSON:
        kind = "malformed-body"
        await refused(service, 400, kind, None, path=path, content=sent, headers=AS_JSON)
    assert MARK not in capsys.readouterr().out


NO_TEXT = [
    ("task", r'{"task": "a\ud800b"}'),
    ("task", r'{"task": "a\udc00"}'),
    ("task", r'{"task": "\ude00\ud83d"}'),
    ("task", r'{"task": "\ud83d\ude00\ude00"}'),
    ("task", r'{"task": "\\\ud800"}'),
    ("task", r'{"task": "\u0000"}'),
    ("message.content", r'{"task": "t", "message": {"content": "\u0000"}}'),
    ("context.1.agent", r'{"context": ["t", {"agent": "\ud800"}]}'),
    ("message_schema.a.0", r'{"message_schema": {"a": ["\uDfff"]}}'),
    ("message", r'{"message": {"\ud800": 1}}'),
    (None, r'{"\u0000": 1}'),
]


async def test_half_a_surrogate_pair_and_nul_are_no_text(service: Service) -> None:
    for field, sent in NO_TEXT:
        content = {"content": sent.encode(), "headers": AS_JSON}
        await refused(service, 422, "invalid-request", field, **content)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [r"\ud83d\ude00", r"\\ud800", r"\\u0000", r"\\\\ud800 \n"])
async def test_whole_pairs_and_escaped_backslashes_are_text(service: Service, text: str) -> None:
    content = f'{{"task": "t", "message": {{"content": "{text}"}}, "policy": "checks"}}'
    answer = await service.client.post("/audit", content=content, headers=AS_JSON)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "content_type",
    [None, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"],
)
async def test_another_media_type_is_refused(service: Service, content_type: str | None) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    sent = {"content": json.dumps(body()).encode(), "headers": headers}
    await refused(service, 415, "unsupported-media-type", None, **sent)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=UTF-8", "application/vnd.x+json"],
)
async def test_json_is_taken_by_its_names(service: Service, content_type: str) -> None:
    sent = json.dumps(body(policy="checks")).encode()
    answer = await service.client.post(
        "/audit", content=b"\xef\xbb\xbf" + sent, headers={"Content-Type": content_type}
    )
    assert answer.status_code == 200


async def test_import_takes_json_lines_alone(service: Service) -> None:
    path = "/pools/math/indicators/import"
    await refused(service, 415, "unsupported-media-type", None, path=path, json={})


@pytest.mark.parametrize(
    "path", ["/audit", "/rectify", "/runs/r/outcome", "/pools/math/indicators"]
)
async def test_content_encoding_is_refused(service: Service, path: str) -> None:
    headers = {"Content-Encoding": "gzip"}
    sent = {"json": body(), "headers": headers, "path": path}
    await refused(service, 415, "unsupported-media-type", None, **sent)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path", ["/audit", "/rectify", "/runs/r/outcome", "/pools/math/indicators"]
)
async def test_body_over_the_limit_is_refused(service: Service, path: str) -> None:
    sent = {"content": b"{" + b" " * 1024 * 1024, "headers": AS_JSON, "path": path}
    await refused(service, 413, "body-too-large", None, **sent)  # type: ignore[arg-type]


def many_keys(count: int) -> str:
    return ",".join(f'"{MARK}{number}":1' for number in range(count))


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        (f"{MARK}0", f"{{{many_keys(20_000)}}}"),
        (f"message.{MARK}0", f'{{"task": "t", "message": {{{many_keys(20_000)}}}}}'),
        (f"policy.{MARK}0", f'{{"task": "t", "policy": {{{many_keys(20_000)}}}}}'),
        ("context", f'{{"task": "t", "context": [{"1," * 100_000}1]}}'),
        ("pool", f'{{"task": "t", "pool": [{"1," * 100_000}1]}}'),
    ],
)
async def test_a_crowd_of_errors_is_refused_as_fast_as_one(
    service: Service, field: str, sent: str
) -> None:
    sent = (
        sent.replace('"task": "t"', f'"task": "t", "message": {json.dumps(MESSAGE)}')
        if ('"message"' not in sent)
        else sent
    )
    content = {"content": sent.encode(), "headers": AS_JSON}
    await refused(service, 422, "invalid-request", field, **content)  # type: ignore[arg-type]


async def test_request_id_is_taken_where_it_is_readable(service: Service) -> None:
    given = await service.post("/audit", [], **{"X-Request-Id": "trace-1"})
    assert given.json()["request_id"] == given.headers["x-request-id"] == "trace-1"
    made = await service.post("/audit", [], **{"X-Request-Id": "a b\t" + "c" * 300})
    assert made.json()["request_id"] == made.headers["x-request-id"] != "trace-1"


@pytest.mark.parametrize("path", ["/nothing", "/audit/", "/pools/math/nothing"])
async def test_unknown_path_is_a_problem(service: Service, path: str) -> None:
    await refused(service, 404, "not-found", None, method="GET", path=path)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS", "TRACE", "PURGE"])
async def test_another_method_is_a_problem(service: Service, method: str) -> None:
    answer = await service.client.request(method, "/audit")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.headers["content-type"] == "application/problem+json"
    assert method == "HEAD" or answer.json()["type"] == f"{TYPE}method-not-allowed"


@pytest.mark.parametrize("path", ["/livez", "/pools", "/pools/math", "/openapi.json"])
async def test_head_answers_as_get_without_the_body(service: Service, path: str) -> None:
    got, head = await service.client.get(path), await service.client.head(path)
    assert head.status_code == got.status_code == 200
    assert head.headers["content-type"] == got.headers["content-type"]
    assert head.content == b""


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8700", "LOCALHOST.evil"])
async def test_a_name_that_an_attacker_can_own_is_refused(service: Service, host: str) -> None:
    headers = {"Host": host}
    sent = {"method": "GET", "path": "/pools", "headers": headers}
    await refused(service, 421, "misdirected-request", None, **sent)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "host", ["localhost:8700", "127.0.0.1", "[::1]:8700", "a.localhost", "test"]
)
async def test_local_names_and_addresses_are_served(service: Service, host: str) -> None:
    answer: httpx2.Response = await service.client.get("/livez", headers={"Host": host})
    assert answer.status_code == 200


@pytest.mark.parametrize("run_id", ["a/b", "a/finish", "line\nbreak", 'a{c="d"}', "é 🙂", "100%"])
async def test_run_of_any_name_can_be_reached(service: Service, run_id: str) -> None:
    path = httpx2.URL("http://testserver").copy_with(raw_path=b"/runs/" + quoted(run_id))
    assert (await service.rectify(run_id=run_id, policy="checks")).status_code == 200
    assert (await service.client.get(path)).json()["run_id"] == run_id
    finish = path.copy_with(raw_path=path.raw_path + b"/finish")
    assert (await service.client.post(finish)).status_code == 200
    assert (await service.client.delete(path)).status_code == 204


def quoted(text: str) -> bytes:
    return "".join(f"%{byte:02x}" for byte in text.encode()).encode()
