"""The pools' endpoints, as a client meets them."""

import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rectifier_core.interchange import LINE_LIMIT
from tests.support.service import Json, Service

NDJSON = "application/x-ndjson"
PATH = "/pools/harbour/indicators"
STRANGER = str(uuid.UUID(int=7))

FERRY: Json = {
    "name": "FERRY_COUNT",
    "definition": "Ferries are counted twice over a tide.",
    "trigger_condition": "When ferries and tides are counted.",
}


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


async def _import(service: Service, content: bytes, *, pool: str = "harbour") -> Json:
    answer = await service.client.post(
        f"/pools/{pool}/indicators/import", content=content, headers={"Content-Type": NDJSON}
    )
    assert answer.status_code == 200, answer.text
    done: Json = answer.json()
    return done


async def _found(service: Service, by: str = "words") -> list[str]:
    found = await _get(service, f"{PATH}/search?q=ferries+counted+over+tides&by={by}")
    return [hit["id"] for hit in found["items"]]


def _lines(*rows: Json) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


async def test_created_pool_is_listed_until_it_is_deleted(service: Service) -> None:
    assert (await service.client.put("/pools/new")).json()["active"] == 0
    assert (await service.client.put("/pools/new")).status_code == 200
    assert "new" in [one["pool"] for one in (await _get(service, "/pools"))["items"]]
    assert (await service.client.delete("/pools/new")).status_code == 204
    assert (await service.client.get("/pools/new")).status_code == 404
    assert (await service.client.delete("/pools/new")).status_code == 404


async def test_deleted_pool_takes_its_indicators_along(service: Service) -> None:
    made = await _add(service)
    await service.client.delete("/pools/harbour")
    assert (await service.client.get(f"{PATH}/{made['id']}")).status_code == 404
    assert (await service.client.get(f"{PATH}/search?q=ferries")).status_code == 404


async def test_indicator_is_added_once_and_found_at_once(service: Service) -> None:
    made = await _add(service)
    assert (await _add(service))["id"] == made["id"]
    assert await _get(service, f"{PATH}/{made['id']}") == made
    assert await _found(service) == [made["id"]]


async def test_every_change_makes_a_new_version(service: Service) -> None:
    before = (await service.client.put("/pools/harbour")).json()["version"]
    await _add(service)
    after = (await _get(service, "/pools/harbour"))["version"]
    await _add(service)
    assert before != after == (await _get(service, "/pools/harbour"))["version"]


async def test_names_may_repeat(service: Service) -> None:
    made = await _add(service)
    other = await _add(service, definition="Ferries are forgotten at high tide.")
    assert other["id"] != made["id"]
    assert other["name"] == made["name"]


async def test_put_edits_in_place(service: Service) -> None:
    made = await _add(service)
    edited = {**FERRY, "definition": "Barges are taken for other vessels."}
    answer = await service.client.put(f"{PATH}/{made['id']}", json=edited)
    assert answer.status_code == 200
    assert answer.json()["id"] == made["id"]
    found = await _get(service, f"{PATH}/search?q=barges&by=words")
    assert [hit["id"] for hit in found["items"]] == [made["id"]]


@pytest.mark.parametrize("by", ["hybrid", "trigger", "meaning", "words"])
async def test_every_ranking_finds_what_fits_best(service: Service, by: str) -> None:
    made = await _add(service)
    assert (await _found(service, by))[0] == made["id"]


@pytest.mark.parametrize("status", ["retired", "candidate"])
async def test_only_active_indicators_are_found(service: Service, status: str) -> None:
    made = await _add(service)
    url = f"{PATH}/{made['id']}"
    assert (await service.client.patch(url, json={"status": status})).json()["status"] == status
    assert await _found(service) == []
    assert (await _get(service, "/pools/harbour"))[status] == 1
    await service.client.patch(url, json={"status": "active"})
    assert await _found(service) == [made["id"]]


async def test_deleted_indicator_is_gone(service: Service) -> None:
    made = await _add(service)
    url = f"{PATH}/{made['id']}"
    assert (await service.client.delete(url)).status_code == 204
    assert await _found(service) == []
    for method in ("GET", "DELETE"):
        assert (await service.client.request(method, url)).status_code == 404


async def test_pages_hold_every_indicator_once_sorted_by_id(service: Service) -> None:
    ids: list[str] = []
    after = ""
    while True:
        page = await _get(service, f"/pools/math/indicators?limit=5{after}")
        ids += [one["id"] for one in page["items"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert ids == sorted(set(ids))
    assert len(ids) == (await _get(service, "/pools/math"))["active"]


async def test_search_by_post_takes_a_text_too_long_for_a_url(service: Service) -> None:
    made = await _add(service)
    body = {"q": "ferries and tides, counted. " * 5_000, "limit": 1, "by": "words"}
    answer = await service.post(f"{PATH}/search", body)
    assert [hit["id"] for hit in answer.json()["items"]] == [made["id"]]


async def test_what_does_not_exist_is_404(service: Service) -> None:
    for method, path in (
        ("GET", "/pools/nowhere"),
        ("DELETE", "/pools/nowhere"),
        ("GET", "/pools/nowhere/indicators"),
        ("GET", "/pools/nowhere/indicators/export"),
        ("GET", "/pools/nowhere/indicators/search?q=ferries"),
        ("GET", f"/pools/nowhere/indicators/{STRANGER}"),
        ("DELETE", f"/pools/nowhere/indicators/{STRANGER}"),
        ("GET", f"/pools/math/indicators/{STRANGER}"),
    ):
        answer = await service.client.request(method, path)
        assert (method, path, answer.status_code) == (method, path, 404)
        assert answer.headers["content-type"] == "application/problem+json"


async def test_bad_pool_name_is_refused_by_its_field(service: Service) -> None:
    for name in ("Team", "te am", "te.am", "t" * 65, "t\u00ebam", "team%0A"):
        for method in ("GET", "PUT", "DELETE"):
            answer = await service.client.request(method, f"/pools/{name}")
            assert (answer.status_code, answer.json()["field"]) == (422, "pool")


async def test_bad_search_is_refused_by_its_field(service: Service) -> None:
    for query, field in (
        ("", "q"),
        ("?q=", "q"),
        ("?q=a&limit=0", "limit"),
        ("?q=a&limit=101", "limit"),
        ("?q=a&by=luck", "by"),
    ):
        answer = await service.client.get(f"{PATH}/search{query}")
        assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_import_takes_good_lines_and_names_the_others(service: Service) -> None:
    content = b"\n".join(
        [
            json.dumps(FERRY).encode(),
            b"{broken",
            b"",
            json.dumps(FERRY).encode(),
            b'{"name": "NO_DEFINITION"}',
            b'{"name": "LONG", "definition": "' + b"x" * LINE_LIMIT + b'"}',
            b"\xff\xfe",
            json.dumps({**FERRY, "definition": "Ferries sink."}).encode(),
        ]
    )
    done = await _import(service, content)
    assert (done["created"], done["refused"]) == (2, 5)
    assert [reason["line"] for reason in done["reasons"]] == [2, 4, 5, 6, 7]
    assert done["reasons"][1]["reason"] == "duplicate of line 1"
    assert not any("xxx" in reason["reason"] for reason in done["reasons"])
    assert len(await _found(service)) == 2


async def test_import_again_changes_nothing(service: Service) -> None:
    await _import(service, _lines(FERRY))
    version = (await _get(service, "/pools/harbour"))["version"]
    assert (await _import(service, _lines(FERRY)))["unchanged"] == 1
    assert (await _get(service, "/pools/harbour"))["version"] == version


async def test_import_leaves_reference_solutions_behind(service: Service) -> None:
    row = {**FERRY, "metadata": {"solution": "forty-two"}, "ground_truth": "forty-two"}
    await _import(service, _lines(row))
    answer = await service.client.get(f"{PATH}/export")
    assert "forty-two" not in answer.text


async def test_import_makes_the_snapshot_once(service: Service) -> None:
    rows = [{**FERRY, "definition": f"Ferry {n} is counted twice."} for n in range(350)]
    held = service.parts.live.current
    done = await _import(service, _lines(*rows))
    assert done["created"] == 350
    assert service.parts.live.current is not held
    assert len(service.parts.live.current) == len(held) + 350


async def test_import_of_another_media_type_is_refused(service: Service) -> None:
    answer = await service.post(f"{PATH}/import", FERRY)
    assert answer.status_code in {415, 422}


async def test_audits_go_on_while_an_import_waits_for_its_sender(service: Service) -> None:
    audited: list[str] = []

    async def body() -> AsyncIterator[bytes]:
        yield _lines(*({**FERRY, "definition": f"Ferry {n} sinks."} for n in range(150)))
        audited.append((await service.audit())["verdict"])
        yield _lines(FERRY)

    answer = await service.client.post(
        f"{PATH}/import", content=body(), headers={"Content-Type": NDJSON}
    )
    assert answer.json()["created"] == 151
    assert audited == ["pass"]


@pytest.mark.timeout(120)
async def test_export_of_the_released_pool_comes_back_byte_by_byte(
    service: Service, shared: Path
) -> None:
    file = shared / "data" / "indicators_released_math.jsonl"
    done = await _import(service, file.read_bytes(), pool="released")
    assert (done["created"], done["refused"]) == (2_000, 0)
    url = "/pools/released/indicators/export"
    exported = (await service.client.get(url)).content
    assert (await _import(service, exported, pool="released"))["unchanged"] == 2_000
    assert (await service.client.get(url)).content == exported
