"""Serving: one process, one loop, one socket; SIGTERM finishes what is under way."""

import asyncio
import signal
import socket
import sys
from types import FrameType
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from rectifier.app import BODY_TIMEOUT_S, create_app
from rectifier.head import BoundedHeadProtocol
from rectifier.settings import Settings
from rectifier.wiring import open_parts
from rectifier_core.errors import InputError

BACKLOG = 2_048
KEEP_ALIVE_S = 75

log = structlog.get_logger()


def serve(settings: Settings, *, body_timeout: float = BODY_TIMEOUT_S) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        settings: What the deployment set.
        body_timeout: Seconds that a client may take to send a body of a few kilobytes.

    Raises:
        RectifierError: The address cannot be listened on, or a part cannot be opened.
    """
    app = create_app(lambda metrics: open_parts(settings, metrics), body_timeout=body_timeout)
    state: dict[str, Any] = {}

    async def with_state(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"] = state.copy()
        await app(scope, receive, send)

    config = uvicorn.Config(
        with_state,
        http=BoundedHeadProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=round(settings.shutdown_s),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn raises the signal again once it has finished what was under way.
        signal.signal(number, _stopped)
    with (
        _listener(settings) as listener,
        asyncio.Runner(loop_factory=config.get_loop_factory()) as runner,
    ):
        runner.run(_serve(app, state, config, listener))


async def _serve(
    app: FastAPI, state: dict[str, Any], config: uvicorn.Config, listener: socket.socket
) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    # Opened here and not by uvicorn, which would log a failure with its stack and exit.
    async with app.router.lifespan_context(app) as opened:
        state.update(opened or {})
        await _Announcing(config, f"http://{shown}:{port}").serve(sockets=[listener])


def _stopped(_: int, __: FrameType | None) -> None:
    sys.exit(0)


class _Announcing(uvicorn.Server):
    """Says where it listens, once it does."""

    def __init__(self, config: uvicorn.Config, url: str) -> None:
        super().__init__(config)
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            log.info("listening", url=self._url, docs=f"{self._url}/docs")


def _listener(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        detail = f"cannot listen on {settings.host}:{settings.port}: {error.strerror}"
        raise InputError(f"{detail}; set RECTIFIER_PORT to a free port", field="port") from error
    return listener
