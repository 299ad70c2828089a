"""What the overhead benchmark measures, each served by one process: the service, and its floor.

    python -m benchmarks.served rectifier|floor --judge URL --data-dir FOLDER [--indicators FILE]

The floor is a bare FastAPI handler with the same request body that makes one chat call through the
same client. Both print ``{"url": ...}`` once they listen.
"""

import argparse
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import SecretStr

from rectifier import logs
from rectifier.app import create_app
from rectifier.metrics import Metrics
from rectifier.parts import Parts
from rectifier.settings import Settings
from rectifier.wire import AuditRequest
from rectifier.wiring import open_chat, open_parts
from rectifier_core.chat import ChatRequest
from rectifier_core.deadline import Deadline
from rectifier_core.embedding import Vectors, unit
from rectifier_core.indicator import Indicator
from rectifier_core.interchange import read

SYSTEM = "You audit one message of a team of agents before the others read it."


class FreeEmbedder:
    """Costs nothing: the same unit vector for every text, but while indicators are stored."""

    model = "free"
    dimension = 384

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._constant: Vectors | None = None

    def fix(self) -> None:
        """Give every text the same vector from now on."""
        self._constant = unit(self._random.standard_normal((16, self.dimension), np.float32))

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return a unit vector for each text."""
        if self._constant is not None:
            return self._constant[: len(texts)]
        return unit(self._random.standard_normal((len(texts), self.dimension), np.float32))


def rectifier_app(settings: Settings, indicators: Path | None) -> FastAPI:
    """Return the service with a zero-cost embedder and these indicators."""

    @asynccontextmanager
    async def opened(metrics: Metrics) -> AsyncIterator[Parts]:
        embedder = FreeEmbedder()
        async with open_parts(settings, metrics, embedder=embedder) as parts:
            if indicators is not None:
                with indicators.open("rb") as lines:
                    found = read(lines, pool="released", tenant="default", source="import")
                    await parts.pools.put([one for one in found if isinstance(one, Indicator)])
                await parts.live.refresh()
            embedder.fix()
            yield parts

    def opener(metrics: Metrics) -> AbstractAsyncContextManager[Parts]:
        return opened(metrics)

    return create_app(opener)


def floor_app(settings: Settings) -> FastAPI:
    """Return the floor: the same body in, one chat call, its text out."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with open_chat(settings) as chat:
            yield {"chat": chat}

    app = FastAPI(lifespan=lifespan)

    @app.post("/audit")
    async def audit(body: AuditRequest, request: Request) -> Response:
        asked = ChatRequest("judge", SYSTEM, f"{body.task}\n{body.message.content}")
        reply = await request.state.chat.complete(asked, deadline=Deadline.after(45))
        answer = json.dumps({"text": reply.text})
        return Response(answer, media_type="application/json")

    return app


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("app", choices=["rectifier", "floor"])
    parser.add_argument("--judge", required=True, help="base URL of the scripted endpoint")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--indicators", type=Path)
    given = parser.parse_args()
    logs.configure("warning")
    settings = Settings(
        data_dir=given.data_dir,
        judge_model="scripted",
        openai_base_url=given.judge,
        openai_api_key=SecretStr("scripted"),
    )
    app = (
        rectifier_app(settings, given.indicators)
        if given.app == "rectifier"
        else floor_app(settings)
    )
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False)
    _Announcing(config).run()


class _Announcing(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            sys.stdout.write(json.dumps({"url": f"http://127.0.0.1:{port}"}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
