"""The service with the embedder's double, in a process: settings come from the environment.

    python -m benchmarks.double

It prints ``{"url": ...}`` once it listens.
"""

import json
import socket
import sys

import uvicorn

from rectifier import logs
from rectifier.app import create_app
from rectifier.settings import Settings
from rectifier.wiring import open_parts
from rectifier_core.testing.embedding import HashedEmbedder

DIMENSION = 384


def main() -> None:
    """Serve until SIGTERM."""
    logs.configure("error")
    settings = Settings()
    app = create_app(
        lambda metrics: open_parts(settings, metrics, embedder=HashedEmbedder(DIMENSION))
    )
    config = uvicorn.Config(app, log_config=None, access_log=False)
    # Listening before it is announced: the first requests wait until the service has started.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        sys.stdout.write(json.dumps({"url": url}) + "\n")
        sys.stdout.flush()
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
