"""The history of a pool over HTTP and from the command line."""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import httpx2
import pytest
import redis as sync_redis
from redis.asyncio import Redis
from typer.testing import CliRunner, Result

from examples.demo import first, process
from rectifier.cli import app
from rectifier.settings import Settings
from rectifier_core.embedding import Vectors
from rectifier_core.testing.embedding import HashedEmbedder
from tests.support.service import Json, Service, running

POOL = "/pools/harbour"
PATH = f"{POOL}/indicators"
STREAM = "rectifier:{pools}:default:harbour:changes"
ANSWER_S = 30.0  # of a server in a process of its own, on a busy machine
STRANGER = str(uuid.UUID(int=7))
FERRY: Json = {
    "name": "FERRY_COUNT",
    "definition": "Ferries are counted twice over a tide.",
    "trigger_condition": "When ferries and tides are counted.",
    "risk_alert": "Count each ferry once.",
    "examples": [{"task": "Ferries?", "message": "2 + 2 = 5", "violated": True}],
    "licence": "MIT",
}


class CountingEmbedder(HashedEmbedder):
    """Keeps the texts that it was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += texts
        return await super().embed(texts)


@pytest.fixture
def service(checks_only: Service) -> Service:
    return checks_only


async def _add(service: Service, **fields: object) -> Json:
    answer = await service.post(PATH, {**FERRY, **fields})
    assert answer.status_code == 201, answer.text
    made: Json = answer.json()
    return made


async def _get(service: Service, path: str) -> Any:
    answer = await service.client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def _export(service: Service) -> bytes:
    answer = await service.client.get(f"{PATH}/export")
    assert answer.status_code == 200, answer.text
    return answer.content


async def _version(service: Service) -> str:
    version: str = (await _get(service, POOL))["version"]
    return version


async def _rollback(service: Service, version: object) -> httpx2.Response:
    return await service.post(f"{POOL}/rollback", {"version": version})


async def _back(service: Service, version: object) -> Json:
    answer = await _rollback(service, version)
    assert answer.status_code == 200, answer.text
    done: Json = answer.json()
    return done


Changing = Callable[[Service, str], Awaitable[httpx2.Response]]


def _patched(**fields: str) -> Changing:
    return lambda service, id_: service.client.patch(f"{PATH}/{id_}", json=fields)


def _put(**fields: object) -> Changing:
    return lambda service, id_: service.client.put(f"{PATH}/{id_}", json={**FERRY, **fields})


CHANGES: dict[str, Changing] = {
    "retired": _patched(status="retired"),
    "candidate": _patched(status="candidate"),
    "shadow": _patched(mode="shadow"),
    "both": _patched(status="retired", mode="shadow"),
    "definition": _put(definition="Barges are counted."),
    "trigger left out": _put(trigger_condition=""),
    "name": _put(name="BARGE_COUNT"),
    "examples": _put(examples=[]),
    "licence": _put(licence=None),
    "delete": lambda service, id_: service.client.delete(f"{PATH}/{id_}"),
    "add": lambda service, _: service.post(PATH, {**FERRY, "definition": "Ferries sink."}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_every_change_rolls_back_to_the_byte(service: Service, change: Changing) -> None:
    made = await _add(service)
    await _add(service, definition="Another one, left alone.")
    version, exported = await _version(service), await _export(service)
    counts = await _get(service, POOL)
    assert (await change(service, made["id"])).is_success
    assert await _export(service) != exported
    done = await _back(service, version)
    assert done["written"] + done["removed"] == 1
    assert await _export(service) == exported
    assert done["version"] == await _version(service) != version
    assert {**await _get(service, POOL), "version": version} == counts
    found = await _get(service, f"{PATH}/search?q=ferries+counted+over+a+tide&by=words")
    assert found["items"][0]["id"] == made["id"]


async def test_every_version_comes_back_by_version_and_by_number(service: Service) -> None:
    made = await _add(service)
    kept = [(await _version(service), await _export(service))]
    for name in ("definition", "retired", "add", "delete", "shadow"):
        await CHANGES[name](service, made["id"])
        kept.append((await _version(service), await _export(service)))
    for version, exported in [*kept, *reversed(kept)]:
        seq = version.partition("-")[0]
        for named in (version, int(seq), seq):
            await _back(service, named)
            assert await _export(service) == exported


async def test_rollback_to_where_the_pool_is_changes_nothing(service: Service) -> None:
    made = await _add(service)
    first = await _version(service)
    assert (await _back(service, first)) == {"version": first, "written": 0, "removed": 0}
    await CHANGES["retired"](service, made["id"])
    await _back(service, first)
    version = await _version(service)
    assert (await _back(service, first)) == {"version": version, "written": 0, "removed": 0}


async def test_emptied_and_recreated_pool_comes_back(service: Service) -> None:
    for n in range(3):
        await _add(service, definition=f"Ferry {n} sinks.")
    version, exported = await _version(service), await _export(service)
    await service.client.delete(POOL)
    assert (await _rollback(service, version)).status_code == 404
    await service.client.put(POOL)
    dropped = (await _get(service, f"{POOL}/versions"))["items"][1]
    assert dropped["op"] == "drop"
    assert (await _rollback(service, dropped["version"])).status_code == 404
    assert (await _back(service, version))["written"] == 3
    assert await _export(service) == exported


async def test_more_than_a_batch_rolls_back(service: Service) -> None:
    count = 250
    await _add(service)
    version, exported = await _version(service), await _export(service)
    rows = [{**FERRY, "definition": f"Ferry {n} sinks."} for n in range(count)]
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    headers = {"Content-Type": "application/x-ndjson"}
    await service.client.post(f"{PATH}/import", content=content, headers=headers)
    full, all_of_it = await _version(service), await _export(service)
    assert (await _back(service, version))["removed"] == count
    assert await _export(service) == exported
    assert (await _back(service, full))["written"] == count
    assert await _export(service) == all_of_it


async def test_version_that_was_never_is_404(service: Service) -> None:
    await _add(service)
    for version in ("99", 99, "9" * 19, 10**30, "1-0123456789abcdef"):
        answer = await _rollback(service, version)
        assert (version, answer.status_code) == (version, 404)
        assert answer.json()["type"] == "urn:rectifier:problem:not-found"


async def test_what_is_no_version_is_422_by_its_field(service: Service) -> None:
    await _add(service)
    texts = ("", "x", "-1", "01", "1-", "1-xyz", "1-0123456789ABCDEF", "1 ", "1\n", "\u0661")
    others: list[Any] = ["9" * 40, 0, -1, 1.0, 1.5, True, None, [], {}]
    for version in [*texts, *others]:
        answer = await _rollback(service, version)
        assert (version, answer.status_code) == (version, 422)
        assert answer.json()["field"] == "version"


async def test_rollback_body_is_read_strictly(service: Service) -> None:
    await _add(service)
    for body, field in (({}, "version"), ({"version": 1, "force": True}, "force")):
        answer = await service.post(f"{POOL}/rollback", body)
        assert (answer.status_code, answer.json()["field"]) == (422, field)
    others: list[Any] = [[], "1", 1]
    for other in others:
        assert (await service.post(f"{POOL}/rollback", other)).status_code == 422


async def test_trimmed_version_is_404_and_later_ones_come_back(
    service: Service, redis: Redis
) -> None:
    made = await _add(service)
    await CHANGES["retired"](service, made["id"])
    exported = await _export(service)
    await CHANGES["delete"](service, made["id"])
    await redis.xtrim(STREAM, minid="2-0", approximate=False)
    assert (await _rollback(service, 1)).status_code == 404
    await _back(service, 2)
    assert await _export(service) == exported
    assert (await _get(service, f"{POOL}/changes"))["items"][0]["seq"] == 2
    assert (await service.client.get(f"{POOL}/diff?from=1&to=3")).status_code == 404


async def test_change_lost_in_between_is_a_conflict(service: Service, redis: Redis) -> None:
    made = await _add(service)
    await CHANGES["retired"](service, made["id"])
    await CHANGES["shadow"](service, made["id"])
    exported = await _export(service)
    await redis.xdel(STREAM, "2-0")
    for answer in (
        await _rollback(service, 1),
        await service.client.get(f"{POOL}/diff?from=1&to=3"),
    ):
        kind = "urn:rectifier:problem:history-gap"
        assert (answer.status_code, answer.json()["type"]) == (409, kind)
    assert await _export(service) == exported


async def _edit_unrecorded(service: Service, made: Json) -> None:
    """Write to the store alone, as a process does that dies before the record."""
    (stored,) = await service.parts.store.get([made["id"]], tenant="default", pool="harbour")
    changed = replace(stored.indicator, risk_alert="Nobody recorded this.")
    await service.parts.store.upsert([replace(stored, indicator=changed)])


async def test_what_a_crash_hid_is_found_in_older_changes(service: Service) -> None:
    made = await _add(service)
    version, exported = await _version(service), await _export(service)
    await _edit_unrecorded(service, made)
    await CHANGES["definition"](service, made["id"])
    change = (await _get(service, f"{POOL}/changes?since=1"))["items"][0]
    assert change["before"] is None
    assert change["was"].startswith("active:")
    await _back(service, version)
    assert await _export(service) == exported


async def test_what_was_never_recorded_is_rolled_back_too(service: Service) -> None:
    made = await _add(service)
    version, exported = await _version(service), await _export(service)
    await _edit_unrecorded(service, made)
    await _back(service, version)
    assert await _export(service) == exported


async def test_what_a_crash_hid_for_good_is_refused(service: Service, redis: Redis) -> None:
    made = await _add(service)
    await _add(service, definition="Ferries sink.")
    await _edit_unrecorded(service, made)
    await CHANGES["definition"](service, made["id"])
    await redis.xtrim(STREAM, minid="2-0", approximate=False)
    exported, version = await _export(service), await _version(service)
    answer = await _rollback(service, 2)
    assert (answer.status_code, answer.json()["type"]) == (
        409,
        "urn:rectifier:problem:history-gap",
    )
    assert (await _export(service), await _version(service)) == (exported, version)


async def test_concurrent_adds_are_kept_or_undone_on_record(service: Service) -> None:
    made = await _add(service)
    await CHANGES["retired"](service, made["id"])
    adds = [_add(service, definition=f"Ferry {n} sinks.") for n in range(6)]
    rollbacks = [_back(service, 1) for _ in range(2)]
    await asyncio.gather(*adds[:3], rollbacks[0], *adds[3:], rollbacks[1])
    changes = (await _get(service, f"{POOL}/changes?limit=1000"))["items"]
    put = {one["id"] for one in changes if one["op"] == "put"}
    deleted = {one["id"] for one in changes if one["op"] == "delete"}
    left = {one["id"] for one in (await _get(service, PATH))["items"]}
    assert len(put) == 7
    assert left == put - deleted
    assert (await _get(service, f"{PATH}/{made['id']}"))["status"] == "active"
    assert [one["seq"] for one in changes] == list(range(1, len(changes) + 1))


async def test_parallel_rollbacks_to_different_versions_end_at_one_of_them(
    service: Service,
) -> None:
    made = await _add(service)
    exported = [await _export(service)]
    for name in ("retired", "definition", "add"):
        await CHANGES[name](service, made["id"])
        exported.append(await _export(service))
    await asyncio.gather(*(_back(service, seq) for seq in (1, 2, 3, 4, 1, 2)))
    assert await _export(service) in exported


async def test_rollback_embeds_nothing_that_is_stored(redis_url: str, redis: Redis) -> None:
    embedder = CountingEmbedder()
    settings = Settings(redis_url=redis_url, qdrant_url=":memory:")
    async with running(settings, embedder=embedder) as service:
        made = await _add(service)
        for name in ("retired", "shadow", "add"):
            await CHANGES[name](service, made["id"])
        embedder.texts.clear()
        await _back(service, 1)
        assert embedder.texts == []
        await CHANGES["definition"](service, made["id"])
        embedder.texts.clear()
        await _back(service, 1)
        assert embedder.texts == [f"{FERRY['definition']}\n{FERRY['trigger_condition']}"]


async def test_diff_is_the_net_of_what_happened(service: Service) -> None:
    kept = await _add(service)
    gone = await _add(service, definition="Ferries sink.")
    brief = await _add(service, definition="Seen for a moment.")
    start = await _version(service)
    await CHANGES["retired"](service, kept["id"])
    await CHANGES["shadow"](service, kept["id"])
    await CHANGES["delete"](service, gone["id"])
    new = await _add(service, definition="A buoy is a ferry.")
    await CHANGES["retired"](service, brief["id"])
    await _patched(status="active")(service, brief["id"])
    end = await _version(service)
    found = await _get(service, f"{POOL}/diff?from={start}&to={end}")
    assert found == {
        "from_version": start,
        "to_version": end,
        "added": [new],
        "removed": [gone],
        "changed": [
            {
                "id": kept["id"],
                "name": kept["name"],
                "before": {"status": "active", "mode": "enforce"},
                "after": {"status": "retired", "mode": "shadow"},
            }
        ],
    }
    back = await _get(service, f"{POOL}/diff?from={end.partition('-')[0]}&to={start}")
    assert (back["added"], back["removed"]) == (found["removed"], found["added"])
    assert back["changed"][0]["before"] == found["changed"][0]["after"]
    same = await _get(service, f"{POOL}/diff?from={end}&to={end}")
    assert same["added"] == same["removed"] == same["changed"] == []


async def test_bad_diff_is_refused_by_its_field(service: Service) -> None:
    await _add(service)
    for query, field in (
        ("", "from"),
        ("?from=1", "to"),
        ("?from=x&to=1", "from"),
        ("?from=1&to=0", "to"),
        ("?from=1&to=1-", "to"),
    ):
        answer = await service.client.get(f"{POOL}/diff{query}")
        assert (answer.status_code, answer.json()["field"]) == (422, field)
    for query in ("?from=1&to=9", "?from=1-0123456789abcdef&to=1"):
        assert (await service.client.get(f"{POOL}/diff{query}")).status_code == 404


async def test_versions_are_paged_newest_first(service: Service) -> None:
    began = int(time.time())
    made = await _add(service)
    for name in ("retired", "definition", "add", "delete"):
        await CHANGES[name](service, made["id"])
    items: list[Json] = []
    before = ""
    while True:
        page = await _get(service, f"{POOL}/versions?limit=2{before}")
        items += page["items"]
        if page["next"] is None:
            break
        before = f"&before={page['next']}"
    assert [one["seq"] for one in items] == [5, 4, 3, 2, 1]
    assert items[0]["version"] == await _version(service)
    assert [one["op"] for one in items] == ["delete", "put", "put", "put", "put"]
    assert all(one["name"] == "FERRY_COUNT" for one in items)
    assert all(began <= one["time"] <= time.time() for one in items)


async def test_changes_are_read_on_from_a_number(service: Service) -> None:
    made = await _add(service)
    await CHANGES["retired"](service, made["id"])
    await CHANGES["delete"](service, made["id"])
    first = await _get(service, f"{POOL}/changes?limit=2")
    assert [one["seq"] for one in first["items"]] == [1, 2]
    rest = await _get(service, f"{POOL}/changes?since={first['next']}&limit=2")
    assert [one["op"] for one in rest["items"]] == ["delete"]
    assert rest["next"] is None
    assert (first["items"][0]["before"], first["items"][0]["after"]) == (None, made)
    assert first["items"][1]["before"] == made
    assert rest["items"][0]["after"] is None
    assert (await _get(service, f"{POOL}/changes?since=3"))["items"] == []


async def test_bad_query_is_refused_by_its_field(service: Service) -> None:
    await _add(service)
    for path, field in (
        ("changes?since=-1", "since"),
        ("changes?since=x", "since"),
        (f"changes?since={10**20}", "since"),
        ("changes?limit=0", "limit"),
        ("versions?before=0", "before"),
        ("versions?limit=1001", "limit"),
    ):
        answer = await service.client.get(f"{POOL}/{path}")
        assert (path, answer.status_code, answer.json()["field"]) == (path, 422, field)


ENDPOINTS: list[tuple[str, str, Json | None]] = [
    ("GET", "", None),
    ("DELETE", "", None),
    ("GET", "/changes", None),
    ("GET", "/versions", None),
    ("GET", "/diff?from=1&to=1", None),
    ("POST", "/rollback", {"version": 1}),
    ("GET", "/indicators", None),
    ("GET", "/indicators/search?q=ferry", None),
    ("POST", "/indicators/search", {"q": "ferry"}),
    ("GET", "/indicators/export", None),
    ("GET", f"/indicators/{STRANGER}", None),
    ("PATCH", f"/indicators/{STRANGER}", {"status": "retired"}),
    ("DELETE", f"/indicators/{STRANGER}", None),
]
CREATING: list[tuple[str, str, Json | None]] = [
    ("PUT", "", None),
    ("POST", "/indicators", FERRY),
    ("PUT", f"/indicators/{STRANGER}", FERRY),
]


async def test_pool_that_does_not_exist_is_404_everywhere(service: Service) -> None:
    for method, path, body in ENDPOINTS:
        answer = await service.client.request(method, f"/pools/nowhere{path}", json=body)
        assert (method, path, answer.status_code) == (method, path, 404)
        assert answer.json()["type"] == "urn:rectifier:problem:not-found"
    assert (await service.client.get("/pools/nowhere")).status_code == 404


async def test_bad_pool_name_is_422_everywhere(service: Service) -> None:
    for method, path, body in [*ENDPOINTS, *CREATING]:
        for name in ("Team", "te.am", "t" * 65, "t\u00ebam", "team%0A", "%20"):
            answer = await service.client.request(method, f"/pools/{name}{path}", json=body)
            assert (path, name, answer.status_code) == (path, name, 422)
            assert answer.json()["field"] == "pool"
    headers = {"Content-Type": "application/x-ndjson"}
    answer = await service.client.post(
        "/pools/Team/indicators/import", content=b"", headers=headers
    )
    assert (answer.status_code, answer.json()["field"]) == (422, "pool")


# From the command line


@pytest.fixture(scope="module")
def base_url(redis_url: str) -> Iterator[str]:
    """The URL of a server in a process of its own; it comes last, as it empties the database."""
    with sync_redis.Redis.from_url(redis_url) as client:
        client.flushall()
        environment = {"REDIS_URL": redis_url, "QDRANT_URL": ":memory:"}
        with process([sys.executable, "-m", "benchmarks.double"], environment) as started:
            yield first(started, "url")
        client.flushall()


@pytest.fixture
def run(base_url: str) -> Callable[..., Result]:
    def invoke(*arguments: object) -> Result:
        environment = {"RECTIFIER_BASE_URL": base_url, "COLUMNS": "200"}
        return CliRunner().invoke(app, ["pool", *map(str, arguments)], env=environment)

    return invoke


def _made(base_url: str, pool: str) -> Json:
    """Make a pool of one indicator, and return that."""
    answer = httpx2.post(f"{base_url}/pools/{pool}/indicators", json=FERRY, timeout=ANSWER_S)
    assert answer.status_code == 201, answer.text
    made: Json = answer.json()
    return made


def test_versions_are_shown_newest_first(run: Callable[..., Result], base_url: str) -> None:
    made = _made(base_url, "listed")
    httpx2.patch(
        f"{base_url}/pools/listed/indicators/{made['id']}",
        json={"status": "retired"},
        timeout=ANSWER_S,
    )
    header, newest, oldest = run("versions", "listed").stdout.splitlines()
    assert header.split() == ["version", "time", "op", "name", "id"]
    assert newest.split()[0].startswith("2-")
    assert oldest.split()[0].startswith("1-")
    assert oldest.split()[-3:] == ["put", "FERRY_COUNT", made["id"]]
    (last,) = json.loads(run("versions", "listed", "--limit", 1, "--json").stdout)
    assert (last["seq"], last["id"]) == (2, made["id"])


def test_rollback_from_the_command_line_is_to_the_byte(
    run: Callable[..., Result], base_url: str
) -> None:
    made = _made(base_url, "back")
    exported = run("export", "--pool", "back").stdout_bytes
    (version,) = (one["version"] for one in json.loads(run("versions", "back", "--json").stdout))
    for named in (version, "1"):
        httpx2.delete(f"{base_url}/pools/back/indicators/{made['id']}", timeout=ANSWER_S)
        done = run("rollback", "back", named)
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith("pool back: 1 written, 0 removed, now at version ")
        assert run("export", "--pool", "back").stdout_bytes == exported
    again = json.loads(run("rollback", "back", "1", "--json").stdout)
    assert (again["written"], again["removed"]) == (0, 0)


def test_stats_count_by_status_mode_and_source(run: Callable[..., Result], base_url: str) -> None:
    made = _made(base_url, "counted")
    httpx2.put(
        f"{base_url}/pools/counted/indicators/{STRANGER}",
        json={**FERRY, "mode": "shadow"},
        timeout=ANSWER_S,
    )
    httpx2.patch(
        f"{base_url}/pools/counted/indicators/{made['id']}",
        json={"status": "retired"},
        timeout=ANSWER_S,
    )
    found = json.loads(run("stats", "counted", "--json").stdout)
    assert found.pop("version").startswith("3-")
    assert found == {
        "pool": "counted",
        "indicators": 2,
        "status": {"active": 1, "retired": 1},
        "mode": {"enforce": 1, "shadow": 1},
        "source": {"api": 2},
    }
    first_line, *table = run("stats", "counted").stdout.splitlines()
    assert first_line.startswith("pool counted: 2 indicators at version 3-")
    assert ["source", "api", "2"] in [line.split() for line in table]


def test_show_shows_every_field(run: Callable[..., Result], base_url: str) -> None:
    made = _made(base_url, "shown")
    assert json.loads(run("show", "shown", made["id"], "--json").stdout) == made
    shown = run("show", "shown", made["id"]).stdout
    for text in (made["id"], *(FERRY[name] for name in FERRY if name != "examples"), "2 + 2 = 5"):
        assert text in shown


def test_command_that_cannot_be_done_ends_with_one_line(run: Callable[..., Result]) -> None:
    for arguments, said in (
        (("versions", "nowhere"), "there is no pool nowhere"),
        (("versions", "../math"), "pool name"),
        (("rollback", "nowhere", "1"), "there is no pool nowhere"),
        (("rollback", "math", "9999"), "has no version 9999"),
        (("rollback", "math", "newest"), "'newest' is no version"),
        (("stats", "nowhere"), "there is no pool nowhere"),
        (("show", "math", STRANGER), "no such indicator"),
        (("show", "math", "../.."), "not a UUID"),
    ):
        done = run(*arguments)
        assert (arguments, done.exit_code, done.stdout) == (arguments, 2, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith("rectifier: ")
        assert said in line
