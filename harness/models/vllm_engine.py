"""The vLLM backend: the offline engine, driven request by request.

Token ids go in and come out; each cell is yielded the moment its last token is there, so that a killed run
loses nothing finished. vLLM batches what is in flight and reuses what its prefix cache holds. Knows no
configuration group, no log and no score.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Self

from harness.config import ModelConfig
from harness.errors import ModelError, ProviderError
from harness.models import vllm_start
from harness.models.base import Then
from harness.models.choice_walk import Ask, ChoiceWalk
from harness.parsing import first_answer_piece
from harness.types import CacheState, ModelOutput, ModelUsage, Request, Timing

MOST_WATCHED = 128
"""vLLM reports at most so many named tokens per step (`MAX_LOGPROB_TOKEN_IDS`)."""


@dataclass(slots=True)
class _Reply:
    """An `act` cell in flight."""

    request: Request
    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    """Seconds from the request to each token."""
    cached: int | None = None


@dataclass(slots=True)
class _Choice:
    """A `choose` cell in flight."""

    request: Request
    walk: ChoiceWalk
    cached: int | None = None
    """Of its first request: what was there before the cell."""


@dataclass(slots=True)
class _Step:
    """One engine request of a `choose` cell and the node that its next token belongs to."""

    cell: _Choice
    ask: Ask
    node: tuple[int, ...] | None


class VllmModel:
    """`engine`: a started `vllm` LLMEngine; `facts`: what it settled on."""

    def __init__(self, engine: Any, tokenizer: Any, facts: dict[str, Any]) -> None:
        self.tokenizer = tokenizer
        self.computed_tokens = 0
        self._engine = engine
        self._facts = facts
        self._names = itertools.count()
        self._flying: dict[str, _Reply | _Step] = {}

    @classmethod
    def from_config(cls, path: Path, tokenizer: Any, settings: ModelConfig, log_dir: Path) -> Self:
        """Raises ModelError, in one line with the setting to change, when the engine does not start."""
        engine = vllm_start.start(path, settings)
        return cls(engine, tokenizer, vllm_start.describe(engine))

    @property
    def facts(self) -> dict[str, Any]:
        return self._facts

    @property
    def cache_blocks(self) -> int | None:
        blocks: int | None = self._facts["blocks"]
        return blocks

    @property
    def cache_block(self) -> int | None:
        block: int = self._facts["block_size"]
        return block

    def check_cache(self, cache: CacheState) -> None:
        """All three states can be brought about."""

    def share_prefix(self, ids: Sequence[int]) -> None:
        if len(ids) >= (self.cache_block or 1):
            self._fill(ids)

    def close(self) -> None:
        if self._engine is not None:
            self._abort()
            self._engine.engine_core.shutdown()
            self._engine = None

    # -- a batch -------------------------------------------------------------------------------------

    def run(self, requests: Sequence[Request], then: Then | None = None) -> Iterator[tuple[str, ModelOutput]]:
        started = datetime.now(UTC).isoformat()
        waiting = list(requests)
        try:
            while waiting or self._flying:
                for request in waiting:
                    refusal = self._submit(request)
                    if refusal is not None:
                        yield request.cell_id, _refused(request, refusal, started)
                waiting = []
                for cell_id, output in self._advance(started, clock=None) if self._flying else ():
                    waiting.extend(then(cell_id, output) if then else ())
                    yield cell_id, output
        finally:
            self._abort()

    def _submit(self, request: Request) -> str | None:
        """Hands a cell to the engine; returns the engine's words when it refuses it."""
        if request.probe != "choose":
            return self._hand_over(
                lambda: self._add(_Reply(request), request.prompt.ids, self._sampling(request))
            )
        # What it asks first is one request, for the root alone: refused, it leaves nothing in flight.
        return self._hand_over(
            lambda: self._go_on(_Choice(request, ChoiceWalk(request.choices, MOST_WATCHED)))
        )

    def _hand_over(self, submit: Callable[[], None]) -> str | None:
        from vllm.exceptions import VLLMClientError

        try:
            submit()
        except (ValueError, VLLMClientError) as error:
            return " ".join(str(error).split())
        return None

    def _go_on(self, cell: _Choice) -> None:
        """Submits what the walk wants to know next."""
        before = cell.request.prompt.ids + cell.request.forced_ids
        for ask in cell.walk.asks():
            parameters = self._parameters(
                max_tokens=ask.steps,
                temperature=0.0,
                logprob_token_ids=list(ask.watched),
                ignore_eos=True,
                detokenize=False,
            )
            self._add(_Step(cell, ask, ask.path), before + ask.path, parameters)

    def _add(self, what: _Reply | _Step, ids: Sequence[int], parameters: Any) -> None:
        name = f"t{next(self._names)}"
        # vLLM gives the request a name of its own unless told otherwise; outputs carry ours.
        self._engine.add_request(name, {"prompt_token_ids": list(ids)}, parameters)
        self._flying[name] = what

    def _advance(self, started: str, clock: float | None) -> Iterator[tuple[str, ModelOutput]]:
        """One step of the engine; yields the cells that it finished."""
        with _boundary():
            outputs = self._engine.step()
        now = perf_counter()
        for output in outputs:
            what = self._flying.get(output.request_id)
            if isinstance(what, _Reply):
                done = self._hear_reply(what, output, started, clock, now)
            elif isinstance(what, _Step):
                done = self._hear_step(what, output, started)
            else:
                continue  # a last word of a request that was ended
            if done is not None:
                yield done

    def _hear_reply(
        self, reply: _Reply, output: Any, started: str, clock: float | None, now: float
    ) -> tuple[str, ModelOutput] | None:
        part = output.outputs[0]
        reply.tokens.extend(part.token_ids)
        if clock is not None:
            reply.times.extend([now - clock] * len(part.token_ids))
        if reply.cached is None:
            reply.cached = self._cached(output)
        if not output.finished:
            return None
        del self._flying[output.request_id]
        return reply.request.cell_id, self._output(reply, part.finish_reason, started)

    def _hear_step(self, step: _Step, output: Any, started: str) -> tuple[str, ModelOutput] | None:
        cell, part = step.cell, output.outputs[0]
        cached = self._cached(output) if step.node == step.ask.path else None
        if cell.cached is None:
            cell.cached = cached
        for token, values in zip(part.token_ids, part.logprobs or (), strict=False):
            if step.node is None:
                break
            found = {watched: values[watched].logprob for watched in step.ask.watched}
            step.node = cell.walk.take(step.node, found, token)
        if step.node is not None and not output.finished:
            return None
        del self._flying[output.request_id]
        if not output.finished:
            self._engine.abort_request([output.request_id])
        if step.node is not None:
            if step.node == step.ask.path:  # not one step came: to ask again would go on for ever
                return self._give_up(cell, f"vLLM ended a request with {part.finish_reason!r}", started)
            cell.walk.leave(step.node)
        if cell.walk.done:
            return cell.request.cell_id, self._chosen(cell, started)
        refusal = self._hand_over(lambda: self._go_on(cell))
        return self._give_up(cell, refusal, started) if refusal is not None else None

    def _give_up(self, cell: _Choice, why: str, started: str) -> tuple[str, ModelOutput]:
        """Ends what else is in flight for the cell; it becomes an error."""
        rest = [name for name, what in self._flying.items() if isinstance(what, _Step) and what.cell is cell]
        for name in rest:
            del self._flying[name]
        if rest:
            self._engine.abort_request(rest)
        return cell.request.cell_id, _refused(cell.request, why, started)

    def _cached(self, output: Any) -> int | None:
        """The request's tokens that the prefix cache held; counts the others as computed."""
        cached: int | None = output.num_cached_tokens
        self.computed_tokens += len(output.prompt_token_ids) - (cached or 0)
        return cached

    # -- one at a time -------------------------------------------------------------------------------

    def run_alone(self, request: Request, cache: CacheState = "cold", shared: int = 0) -> ModelOutput:
        if cache != "natural" and not self._engine.reset_prefix_cache():
            raise ProviderError(
                "vLLM did not empty its prefix cache, so the request would not have been cold"
            )
        if cache == "warm" and shared:
            self._fill(request.prompt.ids[:shared])
        started, clock = datetime.now(UTC).isoformat(), perf_counter()
        try:
            refusal = self._submit(request)
            if refusal is not None:
                raise ProviderError(refusal)
            while self._flying:
                for _, output in self._advance(started, clock):
                    self._drain()
                    return replace(output, timing=replace(output.timing, cache=cache))
            raise ProviderError("the engine ended the request without a word")
        finally:
            self._abort()

    def _fill(self, ids: Sequence[int]) -> None:
        """Computes tokens so that the prefix cache holds them; what follows is thrown away."""
        name = f"t{next(self._names)}"
        parameters = self._parameters(max_tokens=1, temperature=0.0, detokenize=False)
        self._engine.add_request(name, {"prompt_token_ids": list(ids)}, parameters)
        try:
            with _boundary():
                while self._engine.has_unfinished_requests():
                    for output in self._engine.step():
                        self._cached(output)
        finally:
            self._engine.abort_request([name])  # nothing where it has ended
        self._drain()

    def _drain(self) -> None:
        """Lets a step end that was planned ahead (async scheduling), so that it is in nobody's time. vLLM's own
        `has_unfinished_requests` does not know of it."""
        core = getattr(self._engine.engine_core, "engine_core", None)
        with _boundary():
            while self._engine.has_unfinished_requests() or getattr(core, "batch_queue", None):
                self._engine.step()

    # -- vLLM's forms --------------------------------------------------------------------------------

    def _parameters(self, **given: Any) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(output_kind=RequestOutputKind.DELTA, **given)

    def _sampling(self, request: Request) -> Any:
        decoding, drawn = request.decoding, request.decoding.temperature > 0
        return self._parameters(
            max_tokens=decoding.max_new_tokens,
            temperature=decoding.temperature,
            top_p=decoding.top_p if drawn else 1.0,
            top_k=decoding.top_k if drawn else 0,
            repetition_penalty=decoding.repetition_penalty,
            seed=request.seed if drawn else None,
            stop=[request.stop_text] if request.stop_text else None,
            include_stop_str_in_output=True,
            # Only a stop text needs the text while it grows; special tokens may be part of it.
            detokenize=bool(request.stop_text),
            skip_special_tokens=False,
        )

    def _output(self, reply: _Reply, reason: str | None, started: str) -> ModelOutput:
        tokens = reply.tokens
        ended = reason == "stop"
        text_tokens = tokens
        if ended and not (reply.request.stop_text and reply.request.stop_text in self._text(tokens[-16:])):
            text_tokens = tokens[:-1]  # the end token is no part of the text
        usage = ModelUsage(
            prompt_tokens=len(reply.request.prompt.ids),
            completion_tokens=len(tokens),
            cached_tokens=reply.cached,
        )
        timing = Timing(started_at=started)
        if reply.times:
            pieces = [self._text([token]) for token in text_tokens]
            answer = first_answer_piece(pieces, think_open=reply.request.prompt.think_open)
            timing = Timing(
                started_at=started,
                total=reply.times[-1],
                first_token=reply.times[0],
                first_answer_token=None if answer is None else reply.times[answer],
            )
        if reason not in ("stop", "length"):
            return _refused(reply.request, f"vLLM ended the reply with {reason!r}", started)
        return ModelOutput(
            self._text(text_tokens), tuple(tokens), "stop" if ended else "length", usage, timing
        )

    def _chosen(self, cell: _Choice, started: str) -> ModelOutput:
        length = len(cell.request.prompt.ids)
        usage = ModelUsage(
            prompt_tokens=length,
            completion_tokens=None,
            cached_tokens=None if cell.cached is None else min(cell.cached, length),
        )
        return ModelOutput(
            "", (), "choice", usage, Timing(started_at=started), choice_logprobs=cell.walk.totals()
        )

    def _text(self, tokens: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(
            list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def _abort(self) -> None:
        """Ends what is still in flight: the caller has gone, or the engine has failed."""
        flying, self._flying = list(self._flying), {}
        if flying and self._engine is not None:
            self._engine.abort_request(flying)
            with contextlib.suppress(ProviderError, ModelError):
                self._drain()


def _refused(request: Request, why: str, started: str) -> ModelOutput:
    usage = ModelUsage(prompt_tokens=len(request.prompt.ids), completion_tokens=None)
    return ModelOutput("", (), "error", usage, Timing(started_at=started), error=why)


_NO_MEMORY = ("out of memory", "outofmemory", "can't allocate memory", "not enough memory")


@contextlib.contextmanager
def _boundary() -> Iterator[None]:
    """What an engine can die of while it works, told in one line: no memory fails the batch, the rest the run."""
    from vllm.v1.engine.exceptions import EngineDeadError

    try:
        yield
    except (MemoryError, RuntimeError, EngineDeadError) as error:
        words = " ".join(str(error).split())[:200] or type(error).__name__
        if isinstance(error, MemoryError) or any(sign in words.lower() for sign in _NO_MEMORY):
            raise ProviderError(
                f"out of memory ({words}): lower model.engine.max_num_seqs or model.batch_clusters"
            ) from error
        raise ModelError(
            f"the vLLM engine failed ({words}); finished cells are kept: give the same command again"
        ) from error
