"""What can go wrong between a client and a server: one clear reason each, tried again or not, never with a key.

Tried again is what the transport did (no or a broken answer, a time-out) and what a server says of its own
state (429, 5xx). What a server says of the request (any other 4xx), a stream that speaks another protocol and
a reply that is merely not to our liking are final. The faults carry no cause: a client library's exception
holds the request and the server's words, and with them perhaps the key.
"""

import random
import re
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from threading import Event
from typing import Any, TypeVar

import openai
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_when_event_set,
    wait_exponential,
    wait_random,
)
from tenacity.nap import sleep_using_event

from harness.errors import ProviderError

FIRST_WAIT_S = 0.5
"""Wait before the second try; it doubles from try to try. Up to as much is added at random."""
MAX_WAIT_S = 30.0
MAX_RETRY_AFTER_S = 120.0
"""A server that asks for more patience is asked again after this long."""
_LONGEST = 300
"""Characters of a server's own words that a reason keeps."""
_SECRET_HEAD = 8
MASK = "***"

T = TypeVar("T")


class TransportError(ProviderError):
    """The attempt broke off or the server was not in a state to answer; the next may do better."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RefusedError(TransportError):
    """Nobody listens at the address."""


class StatusError(ProviderError):
    """The server refused the request itself, with an HTTP status that is not tried again."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Redactor:
    """Text without the key: whole, or the beginning of it that a server may quote."""

    def __init__(self, key: str | None) -> None:
        self._pattern: re.Pattern[str] | None = None
        if key:
            forms = [re.escape(key)]
            if len(key) >= 2 * _SECRET_HEAD:
                forms += [re.escape(key[:_SECRET_HEAD]) + r"[^\s\"',;]*", re.escape(key[-_SECRET_HEAD:])]
            self._pattern = re.compile("|".join(forms))

    def __repr__(self) -> str:
        return "Redactor()"

    def __call__(self, text: str) -> str:
        """`text` on one line, without the key, cut to a readable length."""
        return " ".join(self.whole(text).split())[:_LONGEST]

    def whole(self, text: str) -> str:
        """`text` as it is, without the key."""
        return self._pattern.sub(MASK, text) if self._pattern else text


def classify(error: Exception, redact: Redactor, silence_s: float) -> ProviderError:
    """The fault that a client's exception stands for. `silence_s`: the time-out, for its message."""
    if isinstance(error, openai.APITimeoutError):
        return silence(silence_s)
    if isinstance(error, openai.APIConnectionError):
        return _connection(error, redact)
    if isinstance(error, openai.APIStatusError):
        reason = f"HTTP {error.status_code} from the server: {redact(_words(error.body))}"
        if error.status_code == 429 or error.status_code >= 500:
            return TransportError(reason, _retry_after(error.response.headers))
        return StatusError(reason, error.status_code)
    if isinstance(error, openai.APIError):
        return _inside_stream(error, redact)
    # The SSE decoder's own: a line that is no JSON, or no text at all.
    return ProviderError(f"malformed stream from the server: {redact(str(error))}")


def silence(silence_s: float, key: str = "model.server.timeout_s") -> TransportError:
    """Nothing came, or nothing but keep-alives and empty chunks, for longer than `key` allows."""
    return TransportError(f"the server was silent for {silence_s:g} s ({key})")


def _connection(error: openai.APIConnectionError, redact: Redactor) -> TransportError:
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    if any(isinstance(each, ConnectionRefusedError) for each in chain):
        return RefusedError("connection refused: nobody listens at the server's address")
    if any(isinstance(each, ConnectionResetError) for each in chain):
        return TransportError("the connection was reset by the server")
    cause = redact(str(chain[1])) if len(chain) > 1 else ""
    return TransportError(f"the connection broke: {cause or 'no reason given'}")


def _inside_stream(error: openai.APIError, redact: Redactor) -> ProviderError:
    """An error object sent within a stream: HTTP 200 had gone out before the server failed."""
    reason = f"the server ended its stream with an error: {redact(error.message)}"
    code = error.code or ""
    if code.isdigit():
        again = int(code) == 429 or int(code) >= 500
    else:
        kind = f"{code} {error.type or ''}".lower()
        again = any(word in kind for word in ("server", "overload", "timeout", "unavailable", "rate_limit"))
    return TransportError(reason) if again else ProviderError(reason)


def _words(body: object) -> str:
    """The server's message, in whichever of the usual forms it came."""
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        if isinstance(inner, Mapping):
            inner = inner.get("message") or inner.get("detail") or inner
        return str(inner)
    return str(body) if body else "no reason given"


def _retry_after(headers: Mapping[str, Any]) -> float | None:
    """Seconds from a Retry-After header in either of its forms (RFC 9110, 10.2.3)."""
    raw = str(headers.get("retry-after") or "").strip()
    if not raw:
        return None
    try:
        return max(0.0, float(raw))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(raw).timestamp() - time.time())
    except ValueError:
        return None


def _wait(state: RetryCallState) -> float:
    fault = state.outcome.exception() if state.outcome is not None else None
    asked = getattr(fault, "retry_after", None)
    if asked is not None:
        # Never earlier than asked for; a little later, so that waiting requests do not return as one.
        patience = min(float(asked), MAX_RETRY_AFTER_S)
        return patience + random.uniform(0, 0.1 * patience)
    doubling = wait_exponential(multiplier=FIRST_WAIT_S, max=MAX_WAIT_S)
    return (doubling + wait_random(0, FIRST_WAIT_S))(state)


def persist(attempt: Callable[[], T], retries: int, abandoned: Event, *, insist: bool = True) -> T:
    """What `attempt` returns, tried again after each TransportError, at most `retries` times more.
    `abandoned` ends waiting and trying; without `insist` a refused connection is final. Raises ProviderError
    with the last reason."""
    retrying = Retrying(
        stop=stop_after_attempt(retries + 1) | stop_when_event_set(abandoned),
        wait=_wait,
        retry=retry_if_exception(
            lambda error: (
                isinstance(error, TransportError) and (insist or not isinstance(error, RefusedError))
            )
        ),
        sleep=sleep_using_event(abandoned),
        reraise=True,
    )
    try:
        return retrying(attempt)
    except TransportError as fault:
        last = str(fault)
    tries = retrying.statistics["attempt_number"]
    raise ProviderError(f"{last} (tried {tries} times)" if tries > 1 else last)
