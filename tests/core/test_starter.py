"""The starter pools are complete, distinct and right in what they show."""

import re
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

from rectifier_core.indicator import Indicator
from rectifier_core.starter import POOLS, starter_indicators

INDICATORS = starter_indicators()
BY_NAME = {indicator.name: indicator for indicator in INDICATORS}
SUM = re.compile(r"(?<![\w^])[\d .*+/()-]+(?:=[\d .*+/()-]+)+(?![\w%^{])")


def messages(indicator: Indicator, *, violated: bool) -> list[str]:
    return [one.message for one in indicator.examples if one.violated is violated]


def values(chain: str) -> list[float]:
    """Return what each side of ``a = b = c`` comes to; nothing where a side is no plain sum."""
    try:
        return [eval(side) for side in chain.strip(" .").split("=")]  # digits and signs alone
    except (SyntaxError, TypeError):
        return []


def sums(message: str) -> list[list[float]]:
    return [sides for found in SUM.finditer(message) if (sides := values(found[0]))]


def function(text: str, name: str) -> Callable[..., Any]:
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(block, scope)
    return scope[name]  # type: ignore[no-any-return]


def test_every_pool_holds_ten_to_twelve() -> None:
    assert set(POOLS) == {"math", "code", "research", "planning", "service", "team"}
    counts = Counter(indicator.pool for indicator in INDICATORS)
    assert all(10 <= counts[pool] <= 12 for pool in POOLS)
    assert len(INDICATORS) >= 60


@pytest.mark.parametrize("indicator", INDICATORS, ids=lambda one: one.name)
def test_indicator_says_what_when_and_how_to_check(indicator: Indicator) -> None:
    assert re.fullmatch(r"[A-Z]+(_[A-Z]+)*", indicator.name)
    assert len(indicator.name) <= 40
    assert indicator.trigger_condition.startswith("When the problem involves ")
    assert 40 <= len(indicator.definition) <= 400
    assert 40 <= len(indicator.trigger_condition) <= 400
    assert 40 <= len(indicator.risk_alert) <= 400
    assert {one.violated for one in indicator.examples} == {True, False}
    assert all(len(one.task) + len(one.message) <= 600 for one in indicator.examples)
    assert (indicator.source, indicator.licence) == ("starter", "Apache-2.0")


def test_names_and_ids_are_unique_over_all_pools() -> None:
    assert len(BY_NAME) == len({indicator.id for indicator in INDICATORS}) == len(INDICATORS)


def test_no_two_definitions_share_most_of_their_words() -> None:
    words = {one.name: set(re.findall(r"\w{4,}", one.definition.lower())) for one in INDICATORS}
    for (one, left), (other, right) in combinations(words.items(), 2):
        assert len(left & right) / len(left | right) < 0.35, (one, other)


def test_ids_depend_on_the_tenant_alone() -> None:
    assert starter_indicators() == INDICATORS
    others = starter_indicators(tenant="acme")
    assert {one.tenant for one in others} == {"acme"}
    assert not {one.id for one in others} & {one.id for one in INDICATORS}


def test_sums_in_right_examples_hold() -> None:
    right = [
        sides
        for indicator in INDICATORS
        for message in messages(indicator, violated=False)
        for sides in sums(message)
    ]
    assert len(right) >= 15
    for sides in right:
        assert sides == pytest.approx([sides[0]] * len(sides))


@pytest.mark.parametrize("name", ["ARITHMETIC_SLIP", "REVIEW_APPROVES_ERROR"])
def test_sum_of_a_wrong_example_does_not_hold(name: str) -> None:
    (message,) = messages(BY_NAME[name], violated=True)
    assert any(max(sides) != min(sides) for sides in sums(message))


@pytest.mark.parametrize(
    ("name", "violated", "function_name", "arguments", "right"),
    [
        ("LOOP_STOPS_ONE_SHORT", True, "sum_to", (4,), 10),
        ("LOOP_STOPS_ONE_SHORT", False, "sum_below", (4,), 6),
        ("EXAMPLE_CONTRADICTED", True, "shift", ("abc",), "bca"),
        ("EXAMPLE_CONTRADICTED", False, "shift", ("abc",), "bca"),
        ("EMPTY_INPUT_NOT_HANDLED", False, "largest", ([],), None),
        ("REMOVED_WHILE_ITERATING", True, "drop_even", ([2, 4, 5],), [5]),
        ("REMOVED_WHILE_ITERATING", False, "drop_even", ([2, 4, 5],), [5]),
        ("FRACTION_TRUNCATED", True, "average", ([1, 2],), 1.5),
        ("FRACTION_TRUNCATED", False, "middle", (1, 4), 2),
        ("SIGNATURE_CHANGED", False, "area", (2, 3), 6),
        ("API_DOES_NOT_EXIST", False, "backwards", ([1, 2],), [2, 1]),
    ],
)
def test_example_code_is_wrong_exactly_where_it_is_said_to_be(
    name: str, violated: bool, function_name: str, arguments: tuple[Any, ...], right: object
) -> None:
    (message,) = messages(BY_NAME[name], violated=violated)
    result = function(message, function_name)(*arguments)
    assert (result != right) is violated


@pytest.mark.parametrize(
    ("name", "function_name", "argument", "error"),
    [
        ("EMPTY_INPUT_NOT_HANDLED", "largest", [], ValueError),
        ("API_DOES_NOT_EXIST", "backwards", "abc", AttributeError),
    ],
)
def test_example_code_raises_where_it_is_said_to(
    name: str, function_name: str, argument: object, error: type[Exception]
) -> None:
    (message,) = messages(BY_NAME[name], violated=True)
    with pytest.raises(error):
        function(message, function_name)(argument)


@pytest.mark.parametrize("violated", [True, False])
def test_example_median_changes_its_argument_only_where_violated(violated: bool) -> None:
    values = [3, 1, 2]
    (message,) = messages(BY_NAME["CALLER_ARGUMENT_MUTATED"], violated=violated)
    assert function(message, "median")(values) == 2
    assert (values != [3, 1, 2]) is violated


@pytest.mark.parametrize(
    "indicator", [one for one in INDICATORS if one.pool == "code"], ids=lambda one: one.name
)
def test_example_code_compiles(indicator: Indicator) -> None:
    for one in indicator.examples:
        for block in re.findall(r"```python\n(.*?)```", one.message, re.DOTALL):
            compile(block, "example", "exec")
