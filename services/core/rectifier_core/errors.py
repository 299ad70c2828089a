"""Errors of the services, one small tree.

RectifierError
├── InputError                 a value from outside is not acceptable
├── NotFoundError              a named thing does not exist
├── ConflictError              the request contradicts what is stored
└── UnavailableError           a dependency did not answer as it should
    ├── StoreError             the indicator store
    │   └── StoreMismatchError   its collection was made with another embedding model
    ├── StateError             Redis: runs, attempts, idempotency, the queue
    ├── EmbeddingError         the embedding model
    ├── ChatError              a chat endpoint
    │   └── ChatTimeoutError     it did not answer in time
    ├── ChatBusyError          a chat endpoint has more to do than fits into the deadline
    └── DeadlineError          the request's own deadline passed
"""


class RectifierError(Exception):
    """Root of the tree."""


class InputError(RectifierError):
    """A value from outside is not acceptable.

    Attributes:
        field: Where it is, dotted (``message.content``), or None for the whole.
    """

    def __init__(self, detail: str, *, field: str | None = None) -> None:
        super().__init__(detail)
        self.field = field


class NotFoundError(RectifierError):
    """A named thing does not exist (or belongs to another tenant)."""


class ConflictError(RectifierError):
    """The request contradicts what is stored.

    Attributes:
        kind: A stable word for the conflict, e.g. ``in_progress``.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class UnavailableError(RectifierError):
    """A dependency did not answer as it should; trying again may help.

    Attributes:
        retry_after: Seconds after which another try makes sense, where that is known.
    """

    def __init__(self, detail: str, *, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class StoreError(UnavailableError):
    """The indicator store did not answer."""


class StoreMismatchError(StoreError):
    """The store's collection was made with another embedding model or dimension."""


class StateError(UnavailableError):
    """Redis did not answer."""


class EmbeddingError(UnavailableError):
    """The embedding model did not answer."""


class ChatError(UnavailableError):
    """A chat endpoint did not answer as it should.

    Attributes:
        calls: Requests that were sent in vain.
    """

    def __init__(self, detail: str, *, retry_after: float | None = None, calls: int = 1) -> None:
        super().__init__(detail, retry_after=retry_after)
        self.calls = calls


class ChatTimeoutError(ChatError):
    """A chat endpoint did not answer in time."""


class ChatBusyError(UnavailableError):
    """A chat endpoint has more to do than fits into the deadline.

    No ``ChatError``: that one says something of the judge, and a policy may let a message pass
    without it. This one says that the service is full, and the message must come again.
    """


class DeadlineError(UnavailableError):
    """The request's own deadline passed."""
