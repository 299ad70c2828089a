"""The FastAPI application: routes, errors and lifespan round the parts that wiring opens."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from typing import TypedDict

from fastapi import FastAPI

from rectifier import problems
from rectifier.envelope import Envelope
from rectifier.metrics import Metrics
from rectifier.parts import Parts
from rectifier.routes import audit, history, operations, policies, pools, rectify, runs

BODY_TIMEOUT_S = 30.0

DESCRIPTION = """
Audits a message of a multi-agent system before the other agents read it, and answers
**pass**, **retry** with feedback, or **reject**.
"""


class State(TypedDict):
    """What requests find in ``request.state``."""

    parts: Parts


def create_app(
    open_parts: Callable[[Metrics], AbstractAsyncContextManager[Parts]],
    *,
    body_timeout: float = BODY_TIMEOUT_S,
) -> FastAPI:
    """Return the application.

    Args:
        open_parts: Opens everything that requests need, for as long as the application runs.
        body_timeout: Seconds that a client may take to send a body of a few kilobytes.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[State]:
        # Also builds the routes, which FastAPI otherwise does during the first request.
        app.openapi()
        async with open_parts(Metrics()) as parts:
            yield {"parts": parts}

    app = FastAPI(
        title="Rectifier",
        description=DESCRIPTION,
        version=version("rectifier"),
        lifespan=lifespan,
        redirect_slashes=False,
    )
    for module in (audit, rectify, runs, pools, history, policies, operations):
        app.include_router(module.router)
    problems.install(app)
    app.add_middleware(Envelope, body_timeout=body_timeout)
    return app
