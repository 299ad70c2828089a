"""The real application, in process: real store adapter, real valkey-server, scripted endpoint."""

from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx2
from fastapi import FastAPI

from rectifier.app import create_app
from rectifier.metrics import Metrics
from rectifier.parts import Parts
from rectifier.settings import Settings
from rectifier.wiring import open_parts
from rectifier_core.embedding import Embedder
from rectifier_core.testing.embedding import HashedEmbedder

TASK = "A shop sells 17 boxes with 23 pens each. How many pens is that?"
WRONG = "17 * 23 = 340 + 41 = 381. The final answer is 381."
RIGHT = "17 * 23 = 340 + 51 = 391. The final answer is 391."

Json = dict[str, Any]


@dataclass(frozen=True)
class Service:
    """A running application and a client of it."""

    app: FastAPI
    parts: Parts
    client: httpx2.AsyncClient

    async def post(self, path: str, body: object, **headers: str) -> httpx2.Response:
        """Post JSON."""
        return await self.client.post(path, json=body, headers=headers)

    async def audit(self, content: str | None = RIGHT, **fields: object) -> Json:
        """Audit a message and return the answer, which must be one."""
        body = {"task": TASK, "message": {"agent": "solver", "content": content}, **fields}
        answer = await self.post("/audit", body)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    async def rectify(self, content: str | None = RIGHT, **fields: object) -> httpx2.Response:
        """Gate a message of run ``r``, message ``m``."""
        message = {"agent": "solver", "content": content}
        body = {"task": TASK, "message": message, "run_id": "r", "message_id": "m", **fields}
        return await self.post("/rectify", {k: v for k, v in body.items() if v is not ...})


class _Opener:
    """Opens the parts of the test at hand: one application serves them all, one after the other."""

    open_parts: Callable[[Metrics], AbstractAsyncContextManager[Parts]]


@cache
def _application() -> tuple[FastAPI, _Opener]:
    """Return the application, made once: its routes and OpenAPI document take a third of a second."""
    opener = _Opener()
    return create_app(lambda metrics: opener.open_parts(metrics)), opener


@asynccontextmanager
async def running(
    settings: Settings, *, embedder: Embedder | None = None
) -> AsyncIterator[Service]:
    """Run the application with these settings; a cheap embedder unless one is given."""
    app, opener = _application()
    opener.open_parts = lambda metrics: open_parts(
        settings, metrics, embedder=embedder or HashedEmbedder()
    )
    async with app.router.lifespan_context(app) as opened:
        state: Mapping[str, Any] = opened or {}

        async def with_state(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            scope["state"] = dict(state)
            await app(scope, receive, send)

        transport = httpx2.ASGITransport(app=with_state, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://testserver") as client:
            yield Service(app, state["parts"], client)
