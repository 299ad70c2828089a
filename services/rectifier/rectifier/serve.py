"""Serving: one process, one loop, one socket; SIGTERM finishes what is under way."""

import socket

import structlog
import uvicorn

from rectifier.app import create_app
from rectifier.settings import Settings
from rectifier.wiring import open_parts
from rectifier_core.errors import InputError

BACKLOG = 2_048
KEEP_ALIVE_S = 75

log = structlog.get_logger()


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        InputError: The address cannot be listened on.
    """
    listener = _listener(settings)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    config = uvicorn.Config(
        create_app(lambda metrics: open_parts(settings, metrics)),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=round(settings.shutdown_s),
        h11_max_incomplete_event_size=64 * 1024,
    )
    server = _Announcing(config, f"http://{shown}:{port}")
    with listener:
        server.run(sockets=[listener])
    if not server.started:
        raise InputError("the service did not start; the line above says why")


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
