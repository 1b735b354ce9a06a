"""One request of one condition in the ledger, and how a trajectory's requests become rows.

Knows prompts as pieces and what was delivered; knows no price.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.cache import PrefixLedger, found_in_cache
from harness.delivery import Delivered, Growing, Injection
from harness.ledger.pieces import History, Prompt
from harness.ledger.prompts import Prompts
from harness.statusbar.placements import Placement


@dataclass(frozen=True, slots=True)
class Row:
    """All token counts are of this request alone. None: unknown, or there is nothing to count."""

    condition: str
    request: int
    """From 1."""
    messages: int
    """Of the base transcript, which holds no copy."""
    prompt_tokens: int
    bar_tokens: int
    """What all copies add to the prompt, their message wrappers included."""
    newest_tokens: int | None
    """What the newest copy adds; None: there is no copy."""
    copies: int
    """In the context."""
    stale_copies: int
    """Copies before the newest."""
    put_in: int
    """Copies that came in with this request."""
    resent: int
    """Of these, the ones whose text is that of the copy that came in before."""
    kept_out_dedupe: int
    """Copies that were due and kept out, since their text was in the transcript already."""
    kept_out_budget: int
    """Copies that were due and kept out, since the transcript would have grown over the limit."""
    drawn: bool
    """Did the bar have something to say?"""
    up_to_date: bool | None
    """Does the newest copy say what the bar says now? None: there is no copy, or the bar has nothing to say."""
    shared_tokens: int
    """The longest prefix in common with any earlier request of this condition (and its reply, where those are kept)."""
    rebilled_tokens: int
    """Prompt tokens after that prefix: what a cache of single tokens would have to compute."""
    cached_tokens: int
    """Prompt tokens that an engine's cache of whole blocks holds."""
    rebilled_in_blocks: int
    """Prompt tokens that it does not hold."""
    output_tokens: int | None
    """Of the reply that the transcript records; None: none is recorded."""


@dataclass(frozen=True, slots=True)
class Engine:
    """The prefix cache: tokens per block, most blocks kept (None: no eviction), and whether what the model writes is
    kept like what it reads, as vLLM does; a provider's cache may hold prompts alone."""

    block: int
    blocks: int | None = None
    keeps_replies: bool = False


def rows(
    condition: str,
    delivered: Iterable[Delivered],
    prompts: Prompts,
    placement: Placement | None,
    engine: Engine,
    control: Sequence[int] | None,
    replies: Sequence[tuple[int, ...] | None],
) -> Iterator[Row]:
    """`control`: prompt tokens of each request of the same transcript without the bar; None: this is it.
    `replies`: token ids of the recorded reply to each request."""
    cache = _Cache(prompts, engine)
    sent = _Sent()
    growing = None if placement is None else Growing(placement)
    for number, request in enumerate(delivered):
        prompt, reply = prompts.of(request.messages), replies[number]
        shared, cached = cache.visit(prompt, reply)
        put_in, resent = sent.take(request)
        without = None if control is None else control[number]
        kept_out = request.kept_out
        yield Row(
            condition=condition,
            request=number + 1,
            messages=len(request.base),
            prompt_tokens=prompt.tokens,
            bar_tokens=0 if without is None else prompt.tokens - without,
            newest_tokens=_newest(request, prompt, prompts, growing, without),
            copies=len(request.injections),
            stale_copies=max(len(request.injections) - 1, 0),
            put_in=put_in,
            resent=resent,
            kept_out_dedupe=kept_out.count("dedupe"),
            kept_out_budget=kept_out.count("max_tokens"),
            drawn=request.drawn is not None,
            up_to_date=_up_to_date(request),
            shared_tokens=shared,
            rebilled_tokens=prompt.tokens - shared,
            cached_tokens=cached,
            rebilled_in_blocks=prompt.tokens - cached,
            output_tokens=None if reply is None else len(reply),
        )


def _up_to_date(request: Delivered) -> bool | None:
    if request.drawn is None or not request.injections:
        return None
    return request.injections[-1].bar.said == request.drawn.said


def _newest(
    request: Delivered, prompt: Prompt, prompts: Prompts, growing: Growing | None, control: int | None
) -> int | None:
    if growing is None or not request.injections:
        return None
    if len(request.injections) == 1 and control is not None:
        return prompt.tokens - control
    without = prompts.of(growing.of(request.base, request.injections[:-1]))
    return prompt.tokens - without.tokens


class _Cache:
    """What earlier requests of one condition left behind. Not frozen: it is the fold's own working memory."""

    def __init__(self, prompts: Prompts, engine: Engine) -> None:
        self._prompts = prompts
        self._engine = engine
        self._history = History(prompts.pieces)
        self._evicting = PrefixLedger(engine.block, engine.blocks) if engine.blocks else None

    def visit(self, prompt: Prompt, reply: tuple[int, ...] | None) -> tuple[int, int]:
        """Tokens of the longest shared prefix, and tokens that the engine has in its cache; `reply` comes after."""
        shared = self._history.visit(prompt)
        cached = found_in_cache(shared, prompt.tokens, self._engine.block)
        if self._evicting is not None:
            cached = self._evicting.visit(self._ids(prompt))
        if self._engine.keeps_replies and reply:
            whole = self._prompts.followed_by(prompt, reply)
            self._history.visit(whole)
            if self._evicting is not None:
                self._evicting.visit(self._ids(whole))
        return shared, cached

    def _ids(self, prompt: Prompt) -> list[int]:
        return [int(token) for token in self._prompts.pieces.ids(prompt.pieces)]


class _Sent:
    """Which copies are new in a request, and which of them say what the one before said."""

    def __init__(self) -> None:
        self._seen: tuple[Injection, ...] = ()
        self._last: str | None = None
        self._length = 0

    def take(self, request: Delivered) -> tuple[int, int]:
        if len(request.base) < self._length:
            self._last = None  # the transcript was compacted, and the copy before went with it
        before = {id(injection) for injection in self._seen}
        new = [injection for injection in request.injections if id(injection) not in before]
        resent = 0
        for injection in new:
            resent += injection.bar.text == self._last
            self._last = injection.bar.text
        self._seen, self._length = request.injections, len(request.base)
        return len(new), resent
