"""What a provider, or the way to it, can do to one request. Each is what a real one has been seen to do."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Status:
    """An HTTP status in the API's own error form. `headers` are added to the usual ones."""

    code: int
    message: str = "the service is not available"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Reset:
    """A TCP reset after so many events of the stream (0: before the response)."""

    after: int = 2


@dataclass(frozen=True)
class Cut:
    """The stream ends in good order, but early: after so many events."""

    after: int = 2


@dataclass(frozen=True)
class Trickle:
    """The right answer, so many bytes at a time, with a pause between them."""

    size: int = 3
    pause: float = 0.0005


@dataclass(frozen=True)
class Malformed:
    """An event in the middle of the stream whose data is no JSON."""

    after: int = 2
    data: bytes = b'event: content_block_delta\ndata: {"id": "chunk", "cho\n\n'


@dataclass(frozen=True)
class WrongType:
    """A gateway's page instead of a stream: HTTP 200, text/html."""

    page: bytes = b"<html><head><title>Sign in</title></head><body>Welcome to the proxy</body></html>"


@dataclass(frozen=True)
class Duplicates:
    """Every event is sent twice."""


@dataclass(frozen=True)
class Skewed:
    """The right answer, with a `Date` that is so many seconds off."""

    seconds: float = 86_400.0


@dataclass(frozen=True)
class Silence:
    """The head of the stream, so many events, then nothing for `seconds`."""

    after: int = 1
    seconds: float = 5.0


Fault = Status | Reset | Cut | Trickle | Malformed | WrongType | Duplicates | Skewed | Silence
