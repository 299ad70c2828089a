"""Policies: presets, overrides, and what contradicts itself."""

import pytest

from rectifier.policy import PRESETS, Policy, resolve
from rectifier_core.errors import InputError


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_makes_sense(name: str) -> None:
    assert resolve(name, default="fast") == PRESETS[name]


def test_request_overrides_pool_and_pool_overrides_preset() -> None:
    policy = resolve({"k_act": 3}, default="fast", pool_defaults={"tau": 1.0, "k_act": 4})
    assert (policy.preset, policy.tau, policy.k_act) == ("fast", 1.0, 3)


def test_candidates_follow_active_where_nothing_selects() -> None:
    assert resolve({"preset": "paper-v1", "k_act": 8}, default="fast").k_cand == 8


def test_listed_candidates_stay_where_nothing_is_audited() -> None:
    assert resolve("checks", default="fast").k_cand == 5


@pytest.mark.parametrize(
    ("requested", "field"),
    [
        ("no-such", "policy.preset"),
        ({"preset": "no-such"}, "policy.preset"),
        ({"tau": 1.5}, "policy.tau"),
        ({"tau": float("nan")}, "policy.tau"),
        ({"k_act": 21}, "policy.k_act"),
        ({"k_cand": 3, "k_act": 4}, "policy.k_act"),
        ({"k_act": 0}, "policy.k_act"),
        ({"audit": "batch"}, "policy.audit"),
        ({"query": "none"}, "policy.query"),
        ({"colour": 1}, "policy.colour"),
    ],
)
def test_refusal_names_the_field(requested: str | dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as refused:
        resolve(requested, default="fast")
    assert refused.value.field == field


def test_hash_tells_policies_apart_and_nothing_else() -> None:
    assert Policy("fast").hash == Policy("fast").hash
    assert Policy("fast").hash != Policy("fast", tau=0.5).hash
