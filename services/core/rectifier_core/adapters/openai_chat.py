"""A chat model behind an OpenAI-compatible ``/chat/completions`` endpoint."""

import asyncio
import contextlib
import functools
import json
import random

from rectifier_core.adapters.completion import read_completion
from rectifier_core.adapters.dialect import RUNGS, Feature, spoken, written
from rectifier_core.adapters.openai_endpoint import Answer, Failure, OpenAiEndpoint
from rectifier_core.chat import CallObserver, CallOutcome, ChatReply, ChatRequest, Usage
from rectifier_core.deadline import Deadline
from rectifier_core.errors import (
    ChatBusyError,
    ChatError,
    ChatTimeoutError,
    DeadlineError,
    UnavailableError,
)

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 4.0
RECONNECT_PAUSE_S = 0.05
# A retry with less time than this before the deadline is not worth its cost.
SHORTEST_CALL_S = 0.1

# Statuses that servers answer a request with that they do not understand. 500 and 501 are among
# them: a grammar that cannot be built is an internal error to some.
NOT_UNDERSTOOD = frozenset({400, 404, 415, 422, 500, 501})


class OpenAiChat:
    """Asks one model, in the strictest form of structured output that its endpoint takes.

    That form is found by asking: a refused field is left out from then on, for all who ask this
    model at this endpoint. No seed and no ``name`` is sent. A request costs at most
    ``request.max_calls`` calls, whatever they are spent on: fields refused, or failures retried.
    """

    def __init__(
        self, endpoint: OpenAiEndpoint, model: str, *, observe: CallObserver | None = None
    ) -> None:
        """Name the model.

        Args:
            endpoint: Opened and closed by whoever made it.
            model: As the endpoint names it.
            observe: Told of every request that is sent.
        """
        self._endpoint = endpoint
        self._model = model
        self._observe = observe
        self._dialect = endpoint.dialect(model)
        self._read = functools.partial(read_completion, model=model)

    @property
    def model(self) -> str:
        """The model's name."""
        return self._model

    async def complete(self, request: ChatRequest, *, deadline: Deadline) -> ChatReply:
        """Ask once, at temperature 0 where that is taken, and return the reply whatever it says.

        Raises:
            ChatBusyError: The queue for the endpoint does not fit into the deadline;
                ``retry_after`` says when it may.
            ChatTimeoutError: No reply before the deadline or the endpoint's own timeout.
            ChatError: The endpoint refused or failed; ``calls`` says how often it was asked,
                ``retry_after`` when it may answer, as far as it is known.
        """
        call = self._endpoint.begin()
        calls = 0
        failures = 0
        suspects: frozenset[Feature] = frozenset()
        while True:
            features = spoken(request, self._dialect.refused | suspects)
            result = await self._endpoint.ask(
                self._encoded(request, features, calls),
                self._read,
                call=call,
                deadline=deadline,
                tell=functools.partial(self._tell, request),
                is_retry=failures > 0,
            )
            if isinstance(result, Answer):
                # It worked without them, so they were what an unexplained refusal was about.
                self._dialect.learn(suspects)
                return _counted(result.value, calls + 1)
            calls += result.was_sent
            if _is_filtered(result):
                return ChatReply("", is_refused=True, model=self._model, usage=Usage(calls=calls))
            refused = _refused(result, features)
            guess = _suspected(result, features)
            self._dialect.learn(refused)
            if calls >= request.max_calls:
                raise _error(result, calls) from result.cause
            if refused:
                continue
            if guess:
                suspects |= guess
            else:
                failures += 1
                await self._pause(result, failures, calls, deadline)

    def _encoded(self, request: ChatRequest, features: list[Feature], calls: int) -> bytes:
        body = written(request, self._model, features)
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        # Raised here, because the caught error holds the prompt.
        raise ChatError("the prompt cannot be encoded", calls=calls)

    def _tell(self, request: ChatRequest, outcome: CallOutcome, seconds: float) -> None:
        if self._observe is not None:
            self._observe(request.kind, outcome, seconds)

    async def _pause(self, failure: Failure, failures: int, calls: int, deadline: Deadline) -> None:
        if not failure.may_pass:
            raise _error(failure, calls) from failure.cause
        pause = _pause_seconds(failure, failures)
        try:
            has_time = pause + SHORTEST_CALL_S <= deadline.left()
        except DeadlineError:
            has_time = False
        if not has_time or not self._endpoint.may_retry():
            raise _error(failure, calls) from failure.cause
        await asyncio.sleep(pause)


def _refused(failure: Failure, features: list[Feature]) -> frozenset[Feature]:
    if failure.status not in NOT_UNDERSTOOD:
        return frozenset()
    refused = failure.explanation.refused(features)
    # An internal error that names a sampling field is hardly about it.
    return refused & set(RUNGS) if failure.status == 500 else refused


def _suspected(failure: Failure, features: list[Feature]) -> frozenset[Feature]:
    # Some servers refuse a format with nothing but "invalid argument".
    if failure.status not in {400, 422} or failure.explanation.is_about_size:
        return frozenset()
    return frozenset(features) & set(RUNGS)


def _is_filtered(failure: Failure) -> bool:
    return failure.outcome == "refused" and failure.explanation.is_about_content


def _counted(reply: ChatReply, calls: int) -> ChatReply:
    if calls == 1:
        return reply
    usage = reply.usage + Usage(calls=calls - 1)
    return ChatReply(reply.text, reply.is_cut, reply.is_refused, reply.model, usage)


def _error(failure: Failure, calls: int) -> UnavailableError:
    if failure.is_busy:
        return ChatBusyError(failure.detail, retry_after=failure.retry_after)
    kind = ChatTimeoutError if failure.outcome == "timeout" else ChatError
    return kind(failure.detail, retry_after=failure.retry_after, calls=calls)


def _pause_seconds(failure: Failure, failures: int) -> float:
    jitter = random.random()  # noqa: S311 - spreads retries, hides nothing
    if failure.retry_after is not None:
        return failure.retry_after * (1 + jitter / 10) + RECONNECT_PAUSE_S * jitter
    if failure.outcome == "lost" and not failure.is_blamed:
        return RECONNECT_PAUSE_S * jitter
    pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (failures - 1))
    return pause * (0.5 + jitter / 2)
