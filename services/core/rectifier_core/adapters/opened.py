"""What is opened before use and closed after: the context manager of such adapters."""

from types import TracebackType
from typing import Protocol, Self


class Opened(Protocol):
    """Opens at the start of ``async with`` and closes at its end."""

    async def open(self) -> None:
        """Make it ready for use."""
        ...

    async def close(self) -> None:
        """Let go of what ``open`` took."""
        ...

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
