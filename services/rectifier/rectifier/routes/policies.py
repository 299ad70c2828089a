"""GET /policies: the presets that a request can name."""

from dataclasses import dataclass

from fastapi import APIRouter

from rectifier.audit import EffectivePolicy
from rectifier.parts import PartsOf

router = APIRouter(tags=["policies"])


@dataclass(frozen=True, slots=True)
class Policies:
    """The presets, by name.

    Attributes:
        default: The preset of requests that name none.
        presets: What each of them sets.
        pools: Fields that a pool sets over the preset, where a request names that pool alone.
    """

    default: str
    presets: dict[str, EffectivePolicy]
    pools: dict[str, dict[str, int | float | str]]


@router.get("/policies")
async def policies(parts: PartsOf) -> Policies:
    """List the presets and what pools set over them."""
    configured = parts.configuration
    return Policies(
        default=parts.preset,
        presets={name: EffectivePolicy.of(one) for name, one in sorted(configured.presets.items())},
        pools={name: dict(fields) for name, fields in sorted(configured.pools.items())},
    )
