"""A case: what is to be audited, and how."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rectifier.judge import Question
from rectifier.policy import Policy
from rectifier_core.indicator import DEFAULT_TENANT, Indicator, IndicatorId, Mode
from rectifier_core.message import Message

CONTEXT_CHARS = 32_000  # of earlier messages that the judge sees


@dataclass(frozen=True, slots=True)
class Case:
    """What is to be audited, and how.

    Attributes:
        task: Q, the question or goal of the run.
        message: The output.
        policy: The effective policy.
        context: Earlier messages, newest last.
        message_schema: A JSON Schema that the content must satisfy, checked itself.
        pools: Where to look; None for every pool of the tenant.
        tenant: Whose indicators.
        attempt: From 0.
        again: Indicators that this message violated at the attempt before.
        shadow_pools: Pools whose indicators are asked and not counted.
    """

    task: str
    message: Message
    policy: Policy
    context: tuple[str, ...] = ()
    message_schema: Mapping[str, Any] | None = None
    pools: tuple[str, ...] | None = None
    tenant: str = DEFAULT_TENANT
    attempt: int = 0
    again: tuple[IndicatorId, ...] = ()
    shadow_pools: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """What is audited."""
        return self.message.audited_text

    @property
    def shown_context(self) -> tuple[str, ...]:
        """The newest messages of the context, whole ones, as many as the judge sees."""
        left, kept = CONTEXT_CHARS, []
        for text in reversed(self.context):
            left -= len(text)
            if left < 0:
                break
            kept.append(text)
        return tuple(reversed(kept))

    @property
    def question(self) -> Question:
        """What the judge is asked about."""
        return Question(
            task=self.task,
            role=self.message.role,
            text=self.text,
            context=self.shown_context,
            attempt=self.attempt,
        )

    def is_in_shadow(self, indicator: Indicator) -> bool:
        """Return whether the indicator is asked and not counted."""
        return indicator.mode is Mode.SHADOW or indicator.pool in self.shadow_pools
