"""Runs on a real valkey-server, driven without a judge."""

import json
from dataclasses import dataclass
from typing import Any

from rectifier.policy import Policy
from rectifier.runs import Answered, Claim, MessageRef, Runs
from rectifier_core.deadline import Deadline
from rectifier_core.message import Message


@dataclass(frozen=True)
class Driver:
    """Claims and commits messages of one run with few words."""

    runs: Runs
    run_id: str = "r"
    tenant: str = "t"

    async def claim(
        self,
        text: str = "a",
        *,
        id_: str = "m",
        attempt: int | None = None,
        within: float = 30.0,
        task: str = "task",
        fallback_of: str | None = None,
        pool: str = "math",
    ) -> Claim | Answered:
        """Claim an attempt at ``text``."""
        return await self.runs.claim(
            MessageRef(self.tenant, self.run_id, id_),
            content_hash=text,
            attempt=attempt,
            task_hash=task,
            deadline=Deadline.after(within),
            fallback_of=fallback_of,
            pool=pool,
        )

    async def claimed(self, text: str = "a", **options: Any) -> Claim:
        """Claim an attempt, which must be free."""
        claim = await self.claim(text, **options)
        assert isinstance(claim, Claim)
        return claim

    async def commit(
        self,
        claim: Claim,
        decision: str = "pass",
        *,
        text: str = "a",
        expected: int | None = None,
        gamma: int = 2,
        max_retries: int = 3,
    ) -> bytes:
        """Commit a decision; the answer names message, attempt and text."""
        opened = {"message": claim.ref.message_id, "attempt": claim.attempt, "text": text}
        record = {
            "agent": "solver",
            "reason": "clean",
            "verdict": "pass",
            "pass_rate": 1.0,
            "feedback": f"mend {text}",
        }
        return await self.runs.commit(
            claim,
            decision=decision,
            answer=json.dumps(opened)[:-1].encode(),
            record=record,
            previous=f"findings of {text}".encode(),
            policy=Policy("fast", gamma=gamma, max_retries=max_retries),
            task="Add 17 and 23.",
            message=Message(text, "solver", "the role"),
            expected_messages=expected,
        )

    async def decide(
        self, decision: str = "pass", text: str = "a", *, id_: str = "m", **options: Any
    ) -> dict[str, Any]:
        """Claim and commit, and return the answer."""
        claim = await self.claimed(text, id_=id_)
        answer: dict[str, Any] = json.loads(
            await self.commit(claim, decision, text=text, **options)
        )
        return answer
