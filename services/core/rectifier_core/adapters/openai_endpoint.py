"""An OpenAI-compatible endpoint: one client, bounded concurrency, a breaker and a retry budget."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import httpx2
from openai import (
    APIConnectionError,
    APIStatusError,
    AsyncOpenAI,
    Omit,
    OpenAIError,
)
from pydantic import SecretStr

from rectifier_core.adapters.completion import UnreadableError
from rectifier_core.adapters.dialect import Dialect, Explanation, explained
from rectifier_core.adapters.opened import Opened
from rectifier_core.adapters.pooled_client import AnswerTooLongError, PooledClient
from rectifier_core.adapters.retry_after import seconds_to_wait
from rectifier_core.breaker import Breaker, Call, RetryBudget
from rectifier_core.chat import CallOutcome
from rectifier_core.deadline import Deadline
from rectifier_core.errors import DeadlineError, InputError
from rectifier_core.slots import NoSlotError, Slots

LONGEST_ANSWER = 4 * 2**20  # bytes
TIMEOUT_S = 30.0
CONCURRENCY = 32
DEFAULT_BASE_URL = "https://api.openai.com/v1"

TRANSIENT = frozenset({408, 429, 500, 502, 503, 504, 529})
SPENT_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})

Headers = dict[str, str | Omit]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a call brought.

    Attributes:
        value: What was read from the answer's body.
    """

    value: T


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call brought nothing.

    Attributes:
        outcome: What happened.
        detail: The same in words, without anything of prompt or reply.
        was_sent: False where the request never left.
        may_pass: True where the same request may succeed a little later.
        is_busy: True where the endpoint's queue, not the endpoint, took the time.
        is_blamed: True where it tells against the endpoint. Not so: an endpoint that asks to wait
            is alive, a caller in a hurry must not close it to the others, and a connection that
            broke may only have been an old one.
        retry_after: Seconds that the endpoint asks to wait, or that its breaker or queue tells.
        status: HTTP status, where there was one.
        explanation: What the endpoint says about a refused request.
        cause: The client's error, where it holds nothing of prompt or reply.
    """

    outcome: CallOutcome
    detail: str
    was_sent: bool = True
    may_pass: bool = False
    is_busy: bool = False
    is_blamed: bool = True
    retry_after: float | None = None
    status: int | None = None
    explanation: Explanation = field(default_factory=Explanation)
    cause: BaseException | None = None


class OpenAiEndpoint(Opened):
    """What the models behind one base URL share. Open it before use; it belongs to one loop.

    The openai client does one request at a time and never retries: whoever asks decides that,
    within the budget kept here.
    """

    def __init__(
        self,
        base_url: str | None,
        api_key: SecretStr | None,
        *,
        timeout: float = TIMEOUT_S,
        concurrency: int = CONCURRENCY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep the settings; nothing is connected before ``open``.

        Args:
            base_url: Up to and without ``/chat/completions``; None is OpenAI's own.
            api_key: Sent as the bearer token; None where the endpoint asks for none.
            timeout: Seconds for one request, less where a deadline leaves less.
            concurrency: Requests under way at once; more wait their turn.
            clock: Seconds that never go back, for the breaker.

        Raises:
            InputError: The URL is no HTTP URL, or the key cannot be a header.
        """
        self._base_url = checked_url(base_url or DEFAULT_BASE_URL)
        self._url = f"{self._base_url}/chat/completions"
        self._headers = checked_headers(api_key)
        self._timeout = timeout
        self._concurrency = concurrency
        self._slots = Slots(concurrency)
        self._breaker = Breaker(clock=clock)
        self._budget = RetryBudget(capacity=2.0 * concurrency)
        self._dialects: dict[str, Dialect] = {}
        self._client: PlainClient | None = None

    async def open(self) -> None:
        """Make the client; the first request connects."""
        if self._client is None:
            self._client = PlainClient(
                self._base_url,
                self._headers,
                connections=self._concurrency,
                longest_answer=LONGEST_ANSWER,
            )

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def dialect(self, model: str) -> Dialect:
        """Return what is known of ``model``, the same object for all who use it."""
        return self._dialects.setdefault(model, Dialect())

    def begin(self) -> Call:
        """Begin a call: the requests that are made in its name fail but once for the breaker."""
        return self._breaker.begin()

    def may_retry(self) -> bool:
        """Take one retry out of the budget; False where it is spent."""
        return self._budget.spend()

    async def ask(
        self,
        content: bytes,
        read: Callable[[bytes], T],
        *,
        call: Call,
        deadline: Deadline,
        tell: Callable[[CallOutcome, float], None],
        is_retry: bool = False,
    ) -> Answer[T] | Failure:
        """Post one chat request, once.

        Args:
            content: The request's JSON.
            read: Reads the answer's body, or raises ``UnreadableError``.
            call: What the request belongs to.
            deadline: Bounds the wait for a slot and the request.
            tell: Is told how the request ended, and its seconds, where it was sent.
            is_retry: True for a repeated request: it pays nothing into the retry budget.
        """
        client = self._client
        if client is None:
            return Failure("failed", "the chat endpoint is not open", was_sent=False)
        if wait := self._breaker.refuses_for:
            return _resting(wait)
        waited = await self._wait_for_slot(deadline)
        if isinstance(waited, Failure):
            return waited
        started = time.monotonic()
        try:
            if not self._breaker.admit(call):
                return _resting(self._breaker.refuses_for)
            if not is_retry:
                self._budget.earn()
            result = await self._ask_timed(
                client, content, read, deadline, waited=waited, is_retry=is_retry
            )
        except BaseException as exc:
            self._breaker.undecided(call)
            if isinstance(exc, asyncio.CancelledError):
                tell("cancelled", time.monotonic() - started)
            raise
        finally:
            self._slots.give_back(time.monotonic() - started)
        self._report(result, call)
        if isinstance(result, Answer) or result.was_sent:
            outcome = "answered" if isinstance(result, Answer) else result.outcome
            tell(outcome, time.monotonic() - started)
        return result

    async def _wait_for_slot(self, deadline: Deadline) -> float | Failure:
        try:
            return await self._slots.take(within=deadline.left())
        except NoSlotError as exc:
            return _busy(exc.wait)
        except TimeoutError:
            return _busy(self._slots.expected_wait)
        except DeadlineError as exc:
            return Failure("timeout", LATE, was_sent=False, cause=exc)

    async def _ask_timed(
        self,
        client: AsyncOpenAI,
        content: bytes,
        read: Callable[[bytes], T],
        deadline: Deadline,
        *,
        waited: float,
        is_retry: bool,
    ) -> Answer[T] | Failure:
        try:
            left = deadline.left()
        except DeadlineError as exc:
            return _busy(None) if waited else Failure("timeout", LATE, was_sent=False, cause=exc)
        try:
            async with asyncio.timeout(min(left, self._timeout)):
                answer = await client.post(self._url, content=content, cast_to=httpx2.Response)
            return Answer(read(answer.content))
        except TimeoutError as exc:
            if left >= self._timeout:
                return Failure("timeout", SLOW, cause=exc)
            # Most of the time went by in the queue: too little was left to blame the rest.
            is_busy = waited > left
            return Failure("timeout", LATE, is_blamed=False, is_busy=is_busy, cause=exc)
        except UnreadableError as exc:
            detail = "the chat endpoint's answer is not as specified"
            return Failure("failed", detail, may_pass=True, cause=exc)
        except APIStatusError as exc:
            return _from_status(exc)
        except APIConnectionError as exc:
            return _from_connection(exc, is_retry=is_retry)
        except (OpenAIError, ValueError):
            # Without the cause: what the client did not foresee may hold anything.
            return Failure("failed", "the chat endpoint cannot be asked")

    def _report(self, result: Answer[T] | Failure, call: Call) -> None:
        if isinstance(result, Answer) or result.outcome == "refused":
            self._breaker.succeeded()
        elif result.was_sent and result.is_blamed:
            self._breaker.failed(call)
        else:
            self._breaker.undecided(call)


BUSY = "the chat endpoint has more to do than fits into the deadline"
LATE = "the chat endpoint did not answer before the deadline"
SLOW = "the chat endpoint did not answer within its timeout"
RESTING = "the chat endpoint failed several times in a row and is left alone for a while"


class PlainClient(AsyncOpenAI):
    """The SDK's client with headers that are made once, and none from the environment."""

    def __init__(
        self, base_url: str, headers: Headers, *, connections: int, longest_answer: int
    ) -> None:
        """Make it; the first request connects.

        Args:
            base_url: As ``checked_url`` returns it.
            headers: As ``checked_headers`` returns them.
            connections: Connections at once, 1 or more.
            longest_answer: Bytes of an answer that are read; a longer one is an error.
        """
        self._fixed_headers = headers
        super().__init__(
            base_url=base_url,
            api_key="in the headers",
            max_retries=0,
            http_client=PooledClient(
                base_url, connections=connections, longest_answer=longest_answer
            ),
        )

    @property
    def default_headers(self) -> Headers:
        """What every request carries."""
        return self._fixed_headers


def checked_url(base_url: str) -> str:
    """Return ``base_url`` without slashes at its end.

    Raises:
        InputError: It is no plain HTTP URL.
    """
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL as exc:
        raise InputError("the endpoint's base URL is no URL") from exc
    if (
        url.scheme not in {"http", "https"}
        or not url.host
        or url.query
        or url.fragment
        or url.userinfo
    ):
        raise InputError("the endpoint's base URL is no plain http or https URL")
    return base_url.rstrip("/")


def checked_headers(api_key: SecretStr | None) -> Headers:
    """Return the headers of every request to an endpoint with this key.

    Raises:
        InputError: The key cannot be a header.
    """
    key = api_key.get_secret_value().strip() if api_key is not None else ""
    if not (key.isascii() and key.isprintable()):
        raise InputError("the endpoint's API key holds characters that no header takes")
    return {
        "Accept": "application/json",
        # A compressed answer could not be bounded before it is unpacked.
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "User-Agent": "rectifier",
        "Authorization": f"Bearer {key or 'none'}",
    }


def _busy(wait: float | None) -> Failure:
    return Failure("limited", BUSY, was_sent=False, is_busy=True, retry_after=wait)


def _resting(wait: float) -> Failure:
    return Failure("failed", RESTING, was_sent=False, retry_after=wait)


def _from_status(error: APIStatusError) -> Failure:
    # Without the cause: its text is the endpoint's message, which may quote the prompt.
    status = error.status_code
    headers = error.response.headers
    explanation = explained(error.body)
    is_transient = (
        status in TRANSIENT
        and headers.get("x-should-retry") != "false"
        and explanation.code not in SPENT_CODES
    )
    wait = seconds_to_wait(headers) if is_transient else None
    outcome: CallOutcome = "failed" if status >= 500 else "refused"
    return Failure(
        "limited" if status == 429 or wait is not None else outcome,
        f"the chat endpoint answered {status}",
        may_pass=is_transient,
        is_blamed=status != 429,
        retry_after=wait,
        status=status,
        explanation=explanation,
    )


def _from_connection(error: APIConnectionError, *, is_retry: bool) -> Failure:
    # The error itself carries the request, with prompt and key; its cause does not.
    cause = error.__cause__
    match cause:
        case AnswerTooLongError():
            return Failure("failed", "the chat endpoint's answer is too long", cause=cause)
        case httpx2.ConnectError():
            detail = "the chat endpoint cannot be reached"
            return Failure("lost", detail, may_pass=True, cause=cause)
        case _:
            detail = "the connection to the chat endpoint broke"
            return Failure("lost", detail, may_pass=True, is_blamed=is_retry, cause=cause)
