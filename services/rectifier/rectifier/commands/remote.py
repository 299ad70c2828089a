"""A running service, as commands talk to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import httpx2

from rectifier.settings import LOOPBACK, own_url
from rectifier_core.errors import InputError, RectifierError, UnavailableError

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 300.0  # a batch of an import may wait for the embedding model


class Remote:
    """A client of one service; it raises `RectifierError`, whose text says what to do."""

    def __init__(self, base_url: str, api_key: str | None) -> None:
        """Connect at the first request.

        Raises:
            InputError: ``base_url`` is not the URL of an HTTP service; empty, it is the service
                that this environment describes.
        """
        base_url = base_url or own_url()
        self._base_url = base_url
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            url = httpx2.URL(base_url)
            if url.scheme not in {"http", "https"} or not url.host:
                raise InputError(f"{base_url!r} is no URL such as http://127.0.0.1:8700")
            self._client = httpx2.Client(
                base_url=url,
                headers=headers,
                timeout=httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
                trust_env=url.host not in LOOPBACK,  # a proxy does not know this machine
            )
        except (httpx2.InvalidURL, UnicodeEncodeError) as exc:
            raise InputError("the base URL or the API key cannot be sent") from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def get(self, path: str, **query: str | int) -> Any:  # any JSON
        """Return the JSON at ``path``."""
        with self._errors():
            return _answer(self._client.get(path, params=query))

    def post(self, path: str, content: bytes, *, media_type: str) -> Any:  # any JSON
        """Send a body, and return the JSON of the answer."""
        with self._errors():
            headers = {"Content-Type": media_type}
            return _answer(self._client.post(path, content=content, headers=headers))

    def stream(self, path: str) -> Iterator[bytes]:
        """Yield the body at ``path`` as it comes."""
        with self._errors(), self._client.stream("GET", path) as response:
            if not response.is_success:
                response.read()
                raise _refusal(response)
            yield from response.iter_bytes()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except httpx2.TimeoutException as exc:
            raise UnavailableError(f"{self._base_url} did not answer in time") from exc
        except httpx2.TransportError as exc:
            raise UnavailableError(
                f"no service answers at {self._base_url}; start one with `rectifier serve`, "
                "or name another with --base-url or RECTIFIER_BASE_URL"
            ) from exc
        except httpx2.HTTPError as exc:
            raise UnavailableError(f"{self._base_url} does not answer as HTTP") from exc


def _answer(response: httpx2.Response) -> Any:
    if not response.is_success:
        raise _refusal(response)
    try:
        return response.json()
    except ValueError as exc:
        raise UnavailableError("what answers there is no rectifier") from exc


def _refusal(response: httpx2.Response) -> RectifierError:
    try:
        problem = response.json()
        detail = str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        return UnavailableError(
            f"what answers there is no rectifier: it says HTTP {response.status_code}"
        )
    if response.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return InputError(f"{detail}; set RECTIFIER_API_KEY to a key of the service")
    if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        return UnavailableError(f"{detail}; try again")
    field = problem.get("field")
    return InputError(f"{field}: {detail}" if field else detail)
