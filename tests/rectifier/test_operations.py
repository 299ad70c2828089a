"""What operators ask: alive, ready, figures."""

import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from rectifier.settings import Settings
from rectifier_core.valkey import BundledServer
from tests.support.service import WRONG, Service, running


async def series(service: Service) -> dict[str, float]:
    """Return every sample by its name and labels, as an exposition parser reads them."""
    answer = await service.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        " ".join(
            [sample.name, *(f"{k}={v}" for k, v in sorted(sample.labels.items()))]
        ): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_service_is_alive(checks_only: Service) -> None:
    answer = await checks_only.client.get("/livez")
    assert (answer.status_code, answer.text) == (200, "ok")


async def test_readiness_names_every_dependency(service: Service) -> None:
    answer = await service.client.get("/readyz")
    assert answer.status_code == 200
    found = answer.json()
    assert found["status"] == "ready"
    assert found["dependencies"]["store"] == found["dependencies"]["redis"] == "ok"
    assert found["judge"] == "scripted"
    assert found["indicators"] > 0


async def test_readiness_without_a_judge_says_so(checks_only: Service) -> None:
    found = (await checks_only.client.get("/readyz")).json()
    assert (found["status"], found["judge"]) == ("ready", None)


async def test_service_without_redis_is_alive_and_not_ready() -> None:
    # Not pytest's own folder: the path of a socket must stay under 108 bytes.
    with tempfile.TemporaryDirectory(prefix="vk-") as folder:
        async with AsyncExitStack() as server, AsyncExitStack() as started:
            url = await server.enter_async_context(BundledServer(Path(folder)))
            settings = Settings(redis_url=url, qdrant_url=":memory:")
            service = await started.enter_async_context(running(settings))
            await server.aclose()
            answer = await service.client.get("/readyz")
            assert answer.status_code == 503
            dependencies = answer.json()["dependencies"]
            assert (dependencies["store"], dependencies["redis"]) == ("ok", "StateError")
            assert (await service.client.get("/livez")).status_code == 200
            refused = await service.rectify()
            assert (refused.status_code, refused.json()["status"]) == (503, 503)
            assert refused.headers["retry-after"]


async def test_figures_move_with_what_happens(checks_only: Service) -> None:
    before = await series(checks_only)
    await checks_only.audit(WRONG)
    await checks_only.rectify(WRONG)
    await checks_only.post("/audit", [])
    after = await series(checks_only)
    moved = {name: after[name] - before[name] for name in before if after[name] != before[name]}
    assert moved["rectifier_http_requests_total method=POST status=2xx"] == 2
    assert moved["rectifier_http_requests_total method=POST status=4xx"] == 1
    assert moved["rectifier_verdicts_total reason=violated verdict=fail"] == 2
    assert moved["rectifier_decisions_total decision=retry reason=violated"] == 1
    assert moved["rectifier_stage_seconds_count stage=total"] == 2


async def test_callers_choose_no_label(checks_only: Service) -> None:
    before = await series(checks_only)
    await checks_only.client.request("HACK", "/livez")
    await checks_only.rectify(run_id='a\nb{c="d"}')
    await checks_only.client.get("/pools/unknown")
    assert (await series(checks_only)).keys() == before.keys()


async def test_two_services_count_apart(checks_only: Service, redis_url: str) -> None:
    await checks_only.audit()
    async with running(Settings(redis_url=redis_url, qdrant_url=":memory:")) as other:
        assert (await series(other))["rectifier_http_requests_total method=POST status=2xx"] == 0
