"""A chat model that says what a test wrote down."""

from collections.abc import Callable
from dataclasses import dataclass, field

from rectifier_core.chat import ChatReply, ChatRequest
from rectifier_core.deadline import Deadline
from rectifier_core.errors import ChatError

Line = str | ChatReply | Exception | Callable[[ChatRequest], str | ChatReply]


@dataclass(slots=True)
class ScriptedChat:
    """Answers each request with the next line of a script; in memory, without waiting.

    Attributes:
        script: Lines not yet said: a text, a whole reply, an error to raise, or a function of the
            request. After the last line every call fails as an endpoint that is gone.
        model: The model's name.
        requests: What was asked so far, in order.
    """

    script: list[Line]
    model: str = "scripted"
    requests: list[ChatRequest] = field(default_factory=list)

    @classmethod
    def of(cls, *script: Line) -> "ScriptedChat":
        """Return a chat model with these lines."""
        return cls(list(script))

    @classmethod
    def always(cls, line: Line, *, times: int = 100) -> "ScriptedChat":
        """Return a chat model that says the same line ``times`` times."""
        return cls([line] * times)

    async def complete(self, request: ChatRequest, *, deadline: Deadline) -> ChatReply:
        """Say the next line.

        Raises:
            ChatError: The script has ended, or its line is this error.
            DeadlineError: The deadline passed before.
        """
        deadline.left()
        self.requests.append(request)
        if not self.script:
            raise ChatError("the script has ended")
        line = self.script.pop(0)
        if isinstance(line, Exception):
            raise line
        said = line(request) if callable(line) else line
        return said if isinstance(said, ChatReply) else ChatReply(said, model=self.model)
