"""What can go wrong with a provider: any client's exception → one clear reason, tried again or not, without a key.

Read from what the transport saw (status, headers) before what a client made of it, so that one rule holds for all of
them. Tried again: a broken or silent connection, 408, 409, 429, 5xx, an answer that is no reply in the provider's own
format. Final: any other 4xx. Nothing is tried again for what the model said.
"""

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from harness.errors import ProviderError
from harness.models.api.wire import Attempt
from harness.models.server_faults import Redactor, RefusedError, StatusError, TransportError, silence

_AGAIN = {408, 409, 425, 429}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AGAIN_WORDS = (
    "overload",
    "server",
    "internal",
    "timeout",
    "unavailable",
    "rate_limit",
    "rate limit",
    "exhausted",
    "deadline",
)
_SILENCE_KEY = "model.api.timeout_s"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a response's headers say about the rate limit; None where they do not."""

    retry_after: float | None = None
    """Seconds to wait before anything else is asked."""
    remaining: int | None = None
    """Requests left in the window, or 0 where the tokens are used up."""
    reset: float | None = None
    """Seconds until there are more."""


class ThrottledError(TransportError):
    """The provider asks for less: 429, or 529 (Anthropic: overloaded)."""


def fault_of(error: Exception, attempt: Attempt, redact: Redactor, silence_s: float) -> ProviderError:
    """The fault that ended this try. `silence_s`: the time-out, for its message."""
    if isinstance(error, ProviderError):
        return silence(silence_s, _SILENCE_KEY) if attempt.headway.stalled else error
    own = next((each for each in _chain(error) if isinstance(each, ProviderError)), None)
    if own is not None:
        return own
    if attempt.headway.stalled:
        return silence(silence_s, _SILENCE_KEY)
    broken = next((each for each in _chain(error) if isinstance(each, httpx2.TransportError)), None)
    if broken is not None:
        return _broken(broken, redact, silence_s)
    if attempt.status is not None and attempt.status >= 400:
        return _status(error, attempt, redact)
    said = _words(error)
    if attempt.status is None:
        # Nothing was sent, or nothing came back that HTTP knows: another try would end in the same way.
        return ProviderError(f"the provider's client did not take the request: {redact(said)}")
    body = getattr(error, "body", None) or getattr(error, "details", None)
    if attempt.status == 200 and body:
        # An error object sent within a stream: HTTP 200 had gone out before the provider failed.
        reason = f"the provider ended its stream with an error: {redact(said)}"
        return TransportError(reason) if _worth_another(error, said) else ProviderError(reason)
    return TransportError(f"malformed reply from the provider: {redact(said) or type(error).__name__}")


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    return chain


def _broken(error: httpx2.TransportError, redact: Redactor, silence_s: float) -> TransportError:
    causes = _chain(error)
    if isinstance(error, httpx2.ConnectTimeout):
        return TransportError("no connection to the provider within the time-out")
    if isinstance(error, httpx2.TimeoutException):
        return silence(silence_s, _SILENCE_KEY)
    if any(isinstance(each, ConnectionRefusedError) for each in causes):
        return RefusedError("connection refused: nobody listens at the provider's address")
    if any(isinstance(each, ConnectionResetError) for each in causes):
        return TransportError("the connection was reset by the provider")
    return TransportError(f"the connection broke: {redact(str(error)) or type(error).__name__}")


def _status(error: Exception, attempt: Attempt, redact: Redactor) -> ProviderError:
    status = attempt.status or 0
    reason = f"HTTP {status} from the provider: {redact(_words(error))}"
    if status in (429, 529):
        return ThrottledError(reason, _asked_wait(attempt, error))
    if status in _AGAIN or status >= 500:
        return TransportError(reason, _asked_wait(attempt, error))
    return StatusError(reason, status)


def _asked_wait(attempt: Attempt, error: Exception) -> float | None:
    """Seconds that the provider asks us to wait: from its headers, or from its words (Gemini's RetryInfo)."""
    told = limits_of(attempt.headers)
    if told.retry_after is not None:
        return told.retry_after
    if told.remaining == 0 and told.reset is not None:
        return told.reset
    return _retry_delay(getattr(error, "details", None))


def _retry_delay(details: Any) -> float | None:
    if isinstance(details, Mapping):
        delay = details.get("retryDelay")
        if isinstance(delay, str):
            return span(delay)
        details = list(details.values())
    if isinstance(details, list):
        return next((found for each in details if (found := _retry_delay(each)) is not None), None)
    return None


def _worth_another(error: Exception, said: str) -> bool:
    code = getattr(error, "code", None) or getattr(error, "status_code", None)
    # A client may put the 200 with which the stream began there.
    if str(code).isdigit() and int(str(code)) >= 400:
        return int(str(code)) in _AGAIN or int(str(code)) >= 500
    kind = f"{code} {getattr(error, 'type', '')} {said}".lower()
    return any(word in kind for word in _AGAIN_WORDS)


def _words(error: Exception) -> str:
    """The provider's message, in whichever of the usual forms it came; never the whole of a page of HTML."""
    body = getattr(error, "body", None)
    if body is None:
        body = getattr(error, "details", None)
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        if isinstance(inner, Mapping):
            kind = inner.get("type") or inner.get("status") or inner.get("code")
            text = inner.get("message") or inner.get("detail")
            return ": ".join(str(each) for each in (kind, text) if each) or str(inner)
        return str(inner)
    return re.sub(r"<[^>]{0,200}>", " ", str(body or error))


# -- headers -------------------------------------------------------------------------------------------


def limits_of(headers: Mapping[str, str]) -> Limits:
    """The rate limit as `headers` (names in lower case) tell it: `retry-after` in its forms (RFC 9110, 10.2.3),
    `retry-after-ms`, OpenAI's `x-ratelimit-*`, Anthropic's `anthropic-ratelimit-*`. Times of day are held against
    the response's own `date`, so that a clock that is wrong here or there does not matter."""
    waits = [
        _number(headers.get("retry-after-ms"), 0.001),
        _number(headers.get("retry-after")),
        _until(headers.get("retry-after"), headers),
    ]
    retry_after = next((wait for wait in waits if wait is not None), None)
    windows: list[tuple[int, float | None]] = []
    for kind in ("requests", "tokens", "input-tokens", "output-tokens"):
        for remaining, again in (
            (f"x-ratelimit-remaining-{kind}", f"x-ratelimit-reset-{kind}"),
            (f"anthropic-ratelimit-{kind}-remaining", f"anthropic-ratelimit-{kind}-reset"),
        ):
            left = _number(headers.get(remaining))
            if left is not None:
                windows.append((int(left), _reset(headers.get(again), headers)))
    if not windows:
        return Limits(retry_after)
    left, reset = min(windows, key=lambda each: (each[0], -(each[1] or 0.0)))
    return Limits(retry_after, left, reset)


def span(text: str) -> float | None:
    """`1s`, `6m0s`, `20ms`, `34.5s` → seconds; None for what is no such text."""
    parts = _SPAN.findall(text)
    if not parts or _SPAN.sub("", text).strip():
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _reset(text: str | None, headers: Mapping[str, str]) -> float | None:
    if not text:
        return None
    number = _number(text)
    if number is not None:
        # Some gateways give the moment as seconds since 1970.
        return max(0.0, number - _now(headers)) if number > 1e9 else number
    seconds = span(text)
    return seconds if seconds is not None else _until(text, headers)


def _number(text: str | None, unit: float = 1.0) -> float | None:
    try:
        number = math.nan if text is None else float(text.strip())
    except ValueError:
        return None
    return max(0.0, number) * unit if math.isfinite(number) else None


def _until(text: str | None, headers: Mapping[str, str]) -> float | None:
    moment = _moment(text)
    return None if moment is None else max(0.0, moment - _now(headers))


def _now(headers: Mapping[str, str]) -> float:
    """The provider's time of day where it tells it, else ours."""
    told = _moment(headers.get("date"))
    return time.time() if told is None else told


def _moment(text: str | None) -> float | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError):
        return None
