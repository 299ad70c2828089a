"""What is in shadow is asked and recorded, and decides nothing."""

import json

import pytest

from rectifier.policy import PRESETS
from rectifier_core.testing.scripted_endpoint import ChatCall, Reply, ScriptedEndpoint
from tests.support.service import Json, Service

MESSAGE = "Both pumps together take 9 hours."
INDICATORS = ["RATES_ADDED", "TIMES_SWAPPED", "UNIT_LOST"]


def accusing(name: str) -> object:
    """Return a judge that clears every indicator but the one of this name, which it accuses."""

    def judge(call: ChatCall) -> Reply:
        lines = [line.partition(". ") for line in call.user.splitlines()]
        names = {int(n): rest for n, dot, rest in lines if dot and n.isdigit()}
        accused = [n for n, rest in names.items() if rest.startswith(name)]
        clean = [n for n in names if n not in accused and "general" not in names[n]]
        violated = [
            {"id": n, "evidence": "9 hours", "correction": "2 hours", "impact": "the answer is 2"}
            for n in accused
        ]
        return Reply.json({"clean": clean, "violated": violated})

    return judge


async def stored(service: Service) -> dict[str, str]:
    """Store three indicators in pool ``pumps``; return their ids by name."""
    await service.client.put("/pools/pumps")
    ids = {}
    for name in INDICATORS:
        body = {"name": name, "definition": f"{name}: pumps and hours are confused."}
        ids[name] = (await service.post("/pools/pumps/indicators", body)).json()["id"]
    return ids


async def gated(service: Service, **policy: object) -> Json:
    answer = await service.rectify(MESSAGE, pool="pumps", policy={"tau": 1.0, **policy})
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


async def test_violated_indicator_counts_when_enforced(
    service: Service, endpoint: ScriptedEndpoint
) -> None:
    await stored(service)
    endpoint.script(accusing("RATES_ADDED"))  # type: ignore[arg-type]
    assert (await gated(service))["decision"] == "retry"


@pytest.mark.parametrize("preset", ["fast", "paper-v1", "reference"])
async def test_violated_indicator_in_shadow_is_recorded_and_does_not_count(
    service: Service, endpoint: ScriptedEndpoint, preset: str
) -> None:
    ids = await stored(service)
    url = f"/pools/pumps/indicators/{ids['RATES_ADDED']}"
    assert (await service.client.patch(url, json={"mode": "shadow"})).status_code == 200
    endpoint.script(accusing("RATES_ADDED"))  # type: ignore[arg-type]
    query = {} if preset == "fast" else {"query": "message"}
    if preset == "reference":
        endpoint.script(accusing_alone)
    answer = await gated(service, preset=preset, **query)
    assert (answer["decision"], answer["would_be"]) == ("pass", "retry")
    assert "2 hours" in answer["would_feedback"]
    assert answer["feedback"] is None
    assert ids["RATES_ADDED"] not in answer["audit"]["retrieval"]["active"]
    in_shadow = [one for one in answer["audit"]["findings"] if one["in_shadow"]]
    assert [one["indicator_id"] for one in in_shadow] == [ids["RATES_ADDED"]]
    assert answer["audit"]["pass_rate"] == 1.0


def accusing_alone(call: ChatCall) -> Reply:
    """Answer in the first release's format: accuse the indicator of this name, clear the others."""
    accuses = "RATES_ADDED" in call.user
    return Reply(
        json.dumps(
            {
                "evidence_quote": "9 hours" if accuses else "N/A",
                "analysis": "times were added" if accuses else "N/A",
                "suggestion": "2 hours" if accuses else "N/A",
                "impact_assessment": "YES, 2" if accuses else "NO",
                "is_flawed": accuses,
            }
        )
    )


async def test_policies_are_listed_with_their_fields(service: Service) -> None:
    found = (await service.client.get("/policies")).json()
    assert found["default"] == "fast"
    assert set(found["presets"]) == set(PRESETS)
    assert found["presets"]["paper-v2"]["select"] == "rerank"
    assert found["pools"]["code"] == {"tau": 1.0}


async def test_pool_code_tolerates_no_violation_by_default(service: Service) -> None:
    assert (await service.audit(pool="code"))["tau"] == 1.0
    assert (await service.audit(pool="code", policy={"tau": 0.5}))["tau"] == 0.5
    assert (await service.audit(pool=["code", "math"]))["tau"] == 0.6
