"""Presets through the service: which calls a judge gets, what they say, and what comes of them."""

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cost import TOKENS_AIM, Variant, case_of, measured, released, stratified
from benchmarks.replay import agent_steps
from rectifier.policy import PRESETS
from rectifier_core.indicator import Indicator, indicator_id
from rectifier_core.testing.embedding import HashedEmbedder
from rectifier_core.testing.scripted_endpoint import ChatCall, Reply, ScriptedEndpoint
from tests.support.service import Json, Service

POOL = "harbour"
TASK = 'A ferry "North" leaves at noon.\nWhen does it arrive?'
ROLE = 'Navigator\n"first mate"'
TEXT = "The ferry sails against the tide, so it arrives at dusk."
SCENARIO = ["ferry schedule", "tide"]
ACTION = ["adds the delay", "names a time"]
QUERY = "Problem Scenario: ferry schedule, tide. Agent Action: adds the delay, names a time"
TOPICS = (
    *("ferry", "tide", "delay", "schedule", "harbour", "anchor", "cargo"),
    *("crew", "pilot", "quay", "rope", "sail", "storm", "wind"),
)

FAULT = ("arrives at dusk", "It arrives at three.", "YES, the answer becomes three.")

JUDGED = sorted(set(PRESETS) - {"checks"})
KINDS = {
    "fast": ["judge"],
    "paper-v2": ["keywords", "rerank", "judge"],
    "paper-v1": ["keywords", "judge"],
    "code": ["keywords", "judge"],
    "reference": ["keywords", *["judge"] * 5],
    "random": ["judge"],
    "generic": ["judge"],
    "checks": [],
}


@dataclass
class Panel:
    """A judge that answers each call in the form it asks for, and violates so many indicators."""

    violated: int = 0
    undecided: int = 0
    limit: int = 5
    keywords: str = field(
        default_factory=lambda: json.dumps({"problem_scenario": SCENARIO, "agent_action": ACTION})
    )
    _areas: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def __call__(self, call: ChatCall) -> Reply:
        match kind(call):
            case "keywords":
                return Reply(self.keywords)
            case "rerank":
                return Reply.json({"ids": numbers(call)[::-1][: self.limit]})
            case _ if is_single(call):
                return self._one(self._place(call))
            case _:
                return self._ballot(numbers(call)[: self.limit])

    def _place(self, call: ChatCall) -> int:
        """Return which of its message's areas of concern is asked for, from 1."""
        area, message, _ = unsealed(call)
        areas = self._areas[message]
        if area not in areas:
            areas.append(area)
        return areas.index(area) + 1

    def _one(self, place: int) -> Reply:
        if self.violated < place <= self.violated + self.undecided:
            return Reply("it depends")
        evidence, suggestion, impact = FAULT
        flaw = {
            "evidence_quote": evidence,
            "analysis": "The speed is misread.",
            "suggestion": suggestion,
            "impact_assessment": impact,
        }
        return Reply.json(
            (flaw if place <= self.violated else {}) | {"is_flawed": place <= self.violated}
        )

    def _ballot(self, asked: list[int]) -> Reply:
        evidence, correction, impact = FAULT
        fault = {"evidence": evidence, "correction": correction, "impact": impact}
        accused = [{"id": number} | fault for number in asked[: self.violated]]
        return Reply.json({"clean": asked[self.violated + self.undecided :], "violated": accused})


def kind(call: ChatCall) -> str:
    opening = call.system.splitlines()[0]
    for name, words in (
        ("keywords", "You extract"),
        ("rerank", "You choose"),
        ("judge", "You audit"),
    ):
        if opening.startswith(words):
            return name
    raise AssertionError(opening)


def is_single(call: ChatCall) -> bool:
    return "one area of concern" in call.system.splitlines()[0]


def kinds(endpoint: ScriptedEndpoint) -> list[str]:
    return [kind(call) for call in endpoint.calls]


def judge_calls(endpoint: ScriptedEndpoint) -> list[ChatCall]:
    return [call for call in endpoint.calls if kind(call) == "judge"]


def unsealed(call: ChatCall) -> list[str]:
    """Return what stands before the message, the message, and what stands after it."""
    before, sealed, after = re.split(r"^DATA-[0-9a-f]{16}$", call.user, flags=re.MULTILINE)
    return [before, json.loads(sealed), after]


def numbers(call: ChatCall) -> list[int]:
    return [int(number) for number in re.findall(r"^(\d+)\. ", call.user, re.MULTILINE)]


def listed(call: ChatCall) -> list[str]:
    """Return the names of the pool's indicators in the order in which they are shown."""
    return re.findall(r"^\d+\. (NAME_\d+):", call.user, re.MULTILINE)


def _made(count: int = 26) -> list[Indicator]:
    made = []
    for n in range(count):
        name, definition = f"NAME_{n:02d}", f"Definition {n:02d} of what goes wrong."
        # Two of the fourteen topics each: every query word stands in some trigger.
        topics = f"{TOPICS[n % 14]} {TOPICS[(5 * n + 1) % 14]}"
        trigger = f"When case {n:02d} has {topics}."
        made.append(
            Indicator(
                id=indicator_id(
                    tenant="default",
                    pool=POOL,
                    name=name,
                    definition=definition,
                    trigger_condition=trigger,
                ),
                pool=POOL,
                name=name,
                definition=definition,
                trigger_condition=trigger,
                risk_alert=f"Alert {n:02d}: look at the chart.",
            )
        )
    return made


INDICATORS = _made()
BY_NAME = {one.name: one for one in INDICATORS}


@pytest.fixture
async def harbour(service: Service, endpoint: ScriptedEndpoint) -> Service:
    """The service with a pool of 26 indicators and a judge that calls all clean."""
    endpoint.script(Panel())
    await service.parts.pools.put(INDICATORS)
    await service.parts.live.refresh()
    return service


async def _audit(service: Service, policy: object, text: str = TEXT) -> Json:
    message = {"agent": "mate", "role": ROLE, "content": text}
    body = {"task": TASK, "message": message, "pool": POOL, "policy": policy}
    answer = await service.post("/audit", body)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


# --- calls


def test_every_preset_is_named_here() -> None:
    assert set(KINDS) == set(PRESETS)


@pytest.mark.parametrize("preset", sorted(KINDS))
async def test_a_preset_makes_its_calls_and_no_other(
    preset: str, harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    answer = await _audit(harbour, preset)
    assert kinds(endpoint) == KINDS[preset]
    assert answer["usage"]["calls"] == len(KINDS[preset])
    assert {call.body["temperature"] for call in endpoint.calls} <= {0}
    assert answer["policy"]["preset"] == preset
    assert answer["degraded"] == []


@pytest.mark.parametrize(
    ("preset", "shown"),
    [
        ("fast", [11]),
        ("paper-v2", [20, 5]),
        ("paper-v1", [5]),
        ("code", [3]),
        ("random", [5]),
        ("generic", [1]),
    ],
)
async def test_a_call_shows_as_many_indicators_as_the_preset_says(
    preset: str, shown: list[int], harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    await _audit(harbour, preset)
    counts = [len(numbers(call)) for call in endpoint.calls if kind(call) != "keywords"]
    assert counts == shown


@pytest.mark.parametrize("preset", ["paper-v1", "paper-v2", "code", "reference"])
async def test_every_attempt_is_retrieved_anew(
    preset: str, harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(Panel(violated=5))
    for text in (TEXT, f"Again: {TEXT}"):
        answer = await harbour.rectify(text, pool=POOL, policy=preset)
        assert answer.json()["decision"] == "retry"
    assert kinds(endpoint) == KINDS[preset] * 2


# --- what a prompt says


@pytest.mark.parametrize("preset", JUDGED)
async def test_every_prompt_holds_task_role_and_the_sealed_message_last(
    preset: str, harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    await _audit(harbour, preset)
    for call in endpoint.calls:
        before, message, after = unsealed(call)
        assert f"Task: {json.dumps(TASK)}\n" in before
        assert f"Role: {json.dumps(ROLE)}\n" in before
        assert message == TEXT
        assert TEXT not in before + after + call.system
        assert TASK not in call.system


@pytest.mark.parametrize("preset", ["paper-v2", "paper-v1", "code", "random"])
async def test_the_judge_sees_name_definition_trigger_and_risk_alert(
    preset: str, harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    await _audit(harbour, preset)
    for call in endpoint.calls:
        for name in listed(call):
            one = BY_NAME[name]
            parts = (one.definition, one.trigger_condition, one.risk_alert)
            assert all(part in call.user for part in parts)
    assert listed(judge_calls(endpoint)[0])


async def test_fast_shows_name_definition_and_trigger(
    harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    await _audit(harbour, "fast")
    [call] = endpoint.calls
    assert len(listed(call)) == 10
    for name in listed(call):
        assert BY_NAME[name].definition in call.user
        assert BY_NAME[name].trigger_condition in call.user


async def test_reference_shows_one_trigger_and_risk_alert_a_call(
    harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    answer = await _audit(harbour, "reference")
    asked = []
    for call in judge_calls(endpoint):
        [one] = [one for one in INDICATORS if one.trigger_condition in call.user]
        assert one.risk_alert in call.user
        assert one.definition not in call.user
        assert one.name not in call.user
        assert (
            set(call.schema["properties"]) >= {"evidence_quote", "analysis"} if call.schema else 1
        )
        asked.append(one.id)
    assert sorted(asked) == sorted(hit["indicator_id"] for hit in answer["retrieval"]["candidates"])


async def test_random_asks_first_whether_an_indicator_applies(
    harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(
        lambda call: Reply.json({"not_applying": numbers(call), "clean": [], "violated": []})
    )
    answer = await _audit(harbour, "random")
    [call] = endpoint.calls
    assert "whether it applies" in call.system
    assert (answer["verdict"], answer["reason"], answer["pass_rate"]) == ("pass", "clean", 1.0)


async def test_generic_asks_the_general_indicator_alone(
    harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    answer = await _audit(harbour, "generic")
    assert listed(endpoint.calls[0]) == []
    assert answer["retrieval"]["active"] == ["general:rest"]
    assert answer["retrieval"]["candidates"] == []


@pytest.mark.parametrize("preset", ["fast", "paper-v2", "paper-v1", "random"])
async def test_the_message_alone_decides_the_order_of_indicators(
    preset: str, harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    texts = [TEXT, TEXT, *(f"{TEXT} Draft {draft}." for draft in "abcd")]
    for text in texts:
        await _audit(harbour, preset, text)
    orders = [listed(call) for call in judge_calls(endpoint)]
    assert orders[0] == orders[1]
    assert len(set(map(tuple, orders))) > 2
    assert any(order != sorted(order) for order in orders)


async def test_the_reranked_are_shown_in_an_order_of_the_message_too(
    harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    for text in (TEXT, TEXT, f"{TEXT} Or later."):
        await _audit(harbour, "paper-v2", text)
    first, same, other = (listed(call) for call in endpoint.calls if kind(call) == "rerank")
    assert first == same
    assert first != other
    assert set(first) == set(other)


# --- retrieval


@pytest.mark.parametrize("preset", ["paper-v2", "paper-v1", "code", "reference"])
async def test_paper_presets_search_by_cosine_with_the_trigger_alone(
    preset: str, harbour: Service
) -> None:
    found = (await _audit(harbour, preset))["retrieval"]
    assert found["query"] == QUERY
    embedder = HashedEmbedder()
    [query] = await embedder.embed([QUERY])
    cosines = (await embedder.embed([one.trigger_condition for one in INDICATORS])) @ query
    expected = {
        one.name: pytest.approx(float(cosine), abs=1e-5)
        for one, cosine in zip(INDICATORS, cosines, strict=True)
    }
    hits = found["candidates"]
    assert len(hits) == PRESETS[preset].k_cand
    assert all(hit["score"] == expected[hit["name"]] for hit in hits)
    assert [hit["score"] for hit in hits] == pytest.approx(
        sorted(cosines)[::-1][: len(hits)], abs=1e-5
    )


@pytest.mark.parametrize("preset", ["fast", "checks"])
async def test_fast_and_checks_search_with_task_and_message(preset: str, harbour: Service) -> None:
    found = (await _audit(harbour, preset))["retrieval"]
    assert found["query"] == f"{TASK}\n{TEXT}"
    assert found["mode"] == "hybrid"


@pytest.mark.parametrize("preset", ["random", "generic"])
async def test_random_and_generic_search_for_nothing(preset: str, harbour: Service) -> None:
    assert (await _audit(harbour, preset))["retrieval"]["query"] is None


async def test_an_unreadable_keyword_reply_is_the_query_and_is_reported(
    harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(Panel(keywords="ferry and tide"))
    answer = await _audit(harbour, "paper-v2")
    assert answer["retrieval"]["query"] == "ferry and tide"
    assert answer["degraded"] == ["keywords_unreadable"]
    assert answer["verdict"] == "pass"


async def test_the_reranked_are_asked_and_no_other(
    harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    answer = await _audit(harbour, "paper-v2")
    _, rerank, judge = endpoint.calls
    assert set(listed(judge)) == set(listed(rerank)[::-1][:5])
    assert set(answer["retrieval"]["active"]) == {BY_NAME[name].id for name in listed(judge)}


async def test_a_rerank_that_names_none_leaves_the_nearest(
    harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(Panel(limit=0))
    answer = await _audit(harbour, "paper-v2")
    nearest = [hit["name"] for hit in answer["retrieval"]["candidates"][:5]]
    assert set(listed(judge_calls(endpoint)[0])) == set(nearest)


async def test_random_draws_the_same_for_the_same_message(harbour: Service) -> None:
    draws = [
        frozenset((await _audit(harbour, "random", text))["retrieval"]["active"])
        for text in (TEXT, TEXT, *(f"{TEXT} {n}" for n in "abcde"))
    ]
    assert draws[0] == draws[1]
    assert len(set(draws)) > 3


# --- the gate

PASS, FAIL, NONE = "pass", "fail", "indeterminate"
TWO_THIRDS = pytest.approx(2 / 3)

# tau (None: the preset's), violated, undecided; verdict, reason, pass rate (...: whatever it is)
Row = tuple[float | None, int, int, str, str, Any]
GATE: dict[str, list[Row]] = {
    "fast": [
        (None, 0, 0, PASS, "clean", 1.0),
        (None, 1, 0, PASS, "tolerated", 0.8),
        (None, 2, 0, PASS, "tolerated", 0.6),
        (None, 3, 0, FAIL, "violated", 0.4),
        (None, 5, 0, FAIL, "violated", 0.0),
        (1.0, 1, 0, FAIL, "violated", 0.8),
    ],
    "paper-v2": [
        (None, 0, 0, PASS, "clean", 1.0),
        (None, 2, 0, PASS, "tolerated", 0.6),
        (None, 3, 0, FAIL, "violated", 0.4),
        (None, 2, 1, NONE, "indeterminate", None),
        (None, 3, 1, FAIL, "violated", ...),
        (None, 0, 5, NONE, "indeterminate", None),
        (1.0, 1, 0, FAIL, "violated", 0.8),
        (0, 5, 0, PASS, "tolerated", 0.0),
    ],
    "paper-v1": [
        (None, 0, 0, PASS, "clean", 1.0),
        (None, 1, 0, FAIL, "violated", 0.8),
        (None, 0, 1, NONE, "indeterminate", None),
        (None, 1, 1, FAIL, "violated", ...),
        (0.6, 2, 0, PASS, "tolerated", 0.6),
        (0.6, 3, 0, FAIL, "violated", 0.4),
    ],
    "code": [
        (None, 0, 0, PASS, "clean", 1.0),
        (None, 1, 0, FAIL, "violated", TWO_THIRDS),
        (0.6, 1, 0, PASS, "tolerated", TWO_THIRDS),
        (0.6, 2, 0, FAIL, "violated", pytest.approx(1 / 3)),
    ],
    "reference": [
        (None, 0, 0, PASS, "clean", 1.0),
        (None, 1, 0, FAIL, "violated", 0.8),
        (None, 0, 1, NONE, "indeterminate", None),
        (None, 1, 1, FAIL, "violated", ...),
        (0.6, 2, 0, PASS, "tolerated", 0.6),
        (0.6, 3, 0, FAIL, "violated", 0.4),
    ],
    "random": [
        (None, 0, 0, PASS, "clean", 1.0),
        (None, 1, 0, FAIL, "violated", 0.8),
        (0.6, 2, 0, PASS, "tolerated", 0.6),
        (0.6, 3, 0, FAIL, "violated", 0.4),
    ],
    "generic": [
        (None, 0, 0, PASS, "clean", 1.0),
        (None, 1, 0, FAIL, "violated", 0.0),
        (None, 0, 1, NONE, "indeterminate", None),
        (0.6, 1, 0, FAIL, "violated", 0.0),
    ],
    "checks": [(None, 5, 0, PASS, "no_judge", 1.0)],
}


@pytest.mark.parametrize("preset", sorted(GATE))
async def test_the_gate_counts_violated_against_tau(
    preset: str, harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    for row in GATE[preset]:
        tau, violated, undecided, verdict, reason, rate = row
        endpoint.script(Panel(violated=violated, undecided=undecided))
        policy = preset if tau is None else {"preset": preset, "tau": tau}
        answer = await _audit(harbour, policy)
        assert (answer["verdict"], answer["reason"]) == (verdict, reason), row
        assert rate is ... or answer["pass_rate"] == rate, row
        assert (answer["feedback"] is not None) == (verdict == FAIL), row


# --- the paper's ablations


@pytest.mark.parametrize("preset", JUDGED)
async def test_a_message_is_rejected_after_as_many_retries_as_allowed(
    preset: str, harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(Panel(violated=5))
    for max_retries in (0, 2, 4):
        fields = {
            "policy": {"preset": preset, "max_retries": max_retries},
            "message_id": f"allowed-{max_retries}",
            "pool": POOL,
        }
        drafts = [f"Draft {n}: {TEXT}" for n in "abcde"[: max_retries + 1]]
        answers = [(await harbour.rectify(draft, **fields)).json() for draft in drafts]
        assert [one["decision"] for one in answers] == ["retry"] * max_retries + ["reject"]
        assert [one["retries_left"] for one in answers] == list(range(max_retries, -1, -1))
        assert answers[-1]["reason"] == "budget_spent"


@pytest.mark.parametrize("preset", ["paper-v2", "paper-v1", "code", "reference", "random"])
async def test_as_many_indicators_are_asked_as_k_act_says(
    preset: str, harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    for k_act in (3, 8):
        made = len(endpoint.calls)
        endpoint.script(Panel(limit=k_act))
        answer = await _audit(harbour, {"preset": preset, "k_act": k_act})
        judged = [call for call in endpoint.calls[made:] if kind(call) == "judge"]
        assert len(answer["retrieval"]["active"]) == k_act
        assert sum(1 if is_single(call) else len(numbers(call)) for call in judged) == k_act
        expected = 20 if preset == "paper-v2" else k_act
        assert len(answer["retrieval"]["candidates"]) == expected


@pytest.mark.parametrize("k_act", [3, 8])
async def test_the_model_is_told_how_many_it_may_choose(
    k_act: int, harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(Panel(limit=10))
    answer = await _audit(harbour, {"preset": "fast", "k_act": k_act})
    await _audit(harbour, {"preset": "paper-v2", "k_act": k_act})
    assert len(answer["retrieval"]["active"]) == k_act
    choosing = [call.system for call in endpoint.calls if "at most" in call.system]
    assert len(choosing) == 2
    assert all(f"at most {k_act}" in system for system in choosing)


async def test_more_active_than_candidates_is_refused_where_the_judge_selects(
    harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    body = {"task": TASK, "message": {"content": TEXT}, "pool": POOL}
    for preset in ("fast", "paper-v2"):
        policy = {"preset": preset, "k_cand": 3}
        answer = await harbour.post("/audit", {**body, "policy": policy})
        assert (answer.status_code, answer.json()["field"]) == (422, "policy.k_act")
    assert endpoint.calls == []


@pytest.mark.parametrize("base", ["paper-v1", "paper-v2"])
async def test_random_and_generic_are_overrides_of_a_paper_preset_too(
    base: str, harbour: Service, endpoint: ScriptedEndpoint
) -> None:
    unsearched = {"preset": base, "query": "none", "select": "none"}
    drawn = await _audit(harbour, {**unsearched, "retrieval": "random", "audit": "applies"})
    general = await _audit(harbour, {**unsearched, "retrieval": "general"})
    assert kinds(endpoint) == ["judge", "judge"]
    assert drawn["retrieval"]["active"]
    assert general["retrieval"]["active"] == ["general:rest"]


# --- what it costs


async def test_fast_asks_once_for_less_than_half_the_tokens_of_paper_v2(shared: Path) -> None:
    steps = stratified(agent_steps(shared / "data" / "trajectories.jsonl"), 12)
    snapshot = await released()
    fast, paper = [
        await measured(Variant(preset, preset), [case_of(step, preset) for step in steps], snapshot)
        for preset in ("fast", "paper-v2")
    ]
    assert (fast.calls, paper.calls) == (1, 3)
    assert fast.tokens <= TOKENS_AIM * paper.tokens
