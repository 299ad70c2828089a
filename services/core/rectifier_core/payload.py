"""An indicator as fields for JSON, and back: what the store and the change stream hold."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rectifier_core.errors import StoreError
from rectifier_core.indicator import Example, Indicator, IndicatorId, Mode, Status


def payload_of(indicator: Indicator) -> dict[str, Any]:
    """Return every field of ``indicator``, and its content hash."""
    return {
        **asdict(indicator),
        "examples": [asdict(example) for example in indicator.examples],
        "status": indicator.status.value,
        "mode": indicator.mode.value,
        "content_hash": indicator.content_hash,
    }


def indicator_of(payload: Mapping[str, Any]) -> Indicator:
    """Return the indicator that `payload_of` wrote; fields of a later version are left out.

    Raises:
        StoreError: It is not one of ours.
    """
    try:
        return Indicator(
            id=IndicatorId(str(payload["id"])),
            pool=payload["pool"],
            name=payload["name"],
            definition=payload["definition"],
            trigger_condition=payload["trigger_condition"],
            risk_alert=payload["risk_alert"],
            examples=tuple(
                Example(task=one["task"], message=one["message"], violated=one["violated"])
                for one in payload["examples"]
            ),
            status=Status(payload["status"]),
            mode=Mode(payload["mode"]),
            source=payload["source"],
            licence=payload["licence"],
            tenant=payload["tenant"],
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise StoreError("a stored indicator cannot be read; was it written by another?") from exc
