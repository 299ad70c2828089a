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
from rectifier.routes import audit, operations, pools, rectify, runs
from rectifier.wire import MAX_BODY_BYTES

DESCRIPTION = """
Audits a message of a multi-agent system before the other agents read it, and answers
**pass**, **retry** with feedback, or **reject**.
"""


class State(TypedDict):
    """What requests find in ``request.state``."""

    parts: Parts


def create_app(open_parts: Callable[[Metrics], AbstractAsyncContextManager[Parts]]) -> FastAPI:
    """Return the application.

    Args:
        open_parts: Opens everything that requests need, for as long as the application runs.
    """
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[State]:
        async with open_parts(metrics) as parts:
            yield {"parts": parts}

    app = FastAPI(
        title="Rectifier",
        description=DESCRIPTION,
        version=version("rectifier"),
        lifespan=lifespan,
        max_body_size=MAX_BODY_BYTES,
    )
    for module in (audit, rectify, runs, pools, operations):
        app.include_router(module.router)
    problems.install(app)
    app.add_middleware(Envelope, metrics=metrics)
    return app
