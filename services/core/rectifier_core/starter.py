"""The starter pools: indicators that ship with this package, so that a new service can audit."""

from importlib import resources

from rectifier_core import interchange
from rectifier_core.errors import InputError
from rectifier_core.indicator import DEFAULT_TENANT, Indicator

POOLS = ("math", "code", "research", "planning", "service", "team")


def starter_indicators(*, tenant: str = DEFAULT_TENANT) -> list[Indicator]:
    """Return the indicators of all starter pools, pool by pool as in `POOLS`.

    Args:
        tenant: Whose they become; their ids depend on it.

    Raises:
        InputError: The installed files are damaged.
    """
    return [indicator for pool in POOLS for indicator in _pool(pool, tenant)]


def _pool(pool: str, tenant: str) -> list[Indicator]:
    file = resources.files("rectifier_core") / "starter" / f"{pool}.jsonl"
    indicators = []
    with file.open("rb") as lines:
        for result in interchange.read(lines, pool=pool, tenant=tenant, source="starter"):
            if isinstance(result, interchange.Refused):
                raise InputError(f"starter pool {pool}, line {result.line}: {result.reason}")
            indicators.append(result)
    return indicators
