"""Lua scripts of ``lua/``: several steps that Redis takes as one."""

import asyncio
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis

from rectifier_core.adapters.redis_client import translated
from rectifier_core.deadline import Deadline
from rectifier_core.errors import DeadlineError


class Script:
    """One script; it is sent again where Redis has forgotten it."""

    def __init__(self, redis: Redis, name: str) -> None:
        """Read ``lua/NAME.lua``; nothing is sent yet. ``redis`` decodes responses."""
        source = files(__package__).joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")
        self._run = redis.register_script(source)

    # What a script returns stands in its first lines: text, numbers, None and lists of these.
    async def __call__(
        self,
        keys: Sequence[str],
        arguments: Sequence[str | int],
        *,
        deadline: Deadline | None = None,
    ) -> Any:
        """Run it.

        Args:
            keys: Of one cluster slot.
            arguments: As its first lines say.
            deadline: How long Redis has for it, where that is less than its own limit.

        Raises:
            DeadlineError: Redis had not answered at the deadline; it may have run the script.
            StateError: Redis did not answer, or the script failed.
        """
        try:
            async with asyncio.timeout(None if deadline is None else deadline.left()):
                with translated():
                    return await self._run(keys=keys, args=arguments)
        except TimeoutError as exc:
            raise DeadlineError("Redis had not answered at the deadline") from exc
