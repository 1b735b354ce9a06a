"""The backend for providers' APIs: cells → requests → ModelOutputs, with as many in flight as the provider bears.

The conversation goes out as messages; the provider renders it. The prompt's token ids are those of a reference
tokenizer and say how long the bar and its placebo are there; the provider's own counts are recorded beside them.
Knows no provider's format, no scorer and no run folder.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import perf_counter, sleep
from typing import Any, Self
from urllib.parse import urlsplit

from harness.config import ApiConfig, ModelConfig
from harness.errors import ModelError, ProviderError, RunLogError
from harness.models.api.base import Answer, Call
from harness.models.api.chances import chances_of
from harness.models.api.faults import ThrottledError, fault_of, limits_of
from harness.models.api.open import open_session
from harness.models.api.outputs import Asked, answered, chose, failed
from harness.models.api.purse import SpentError
from harness.models.api.replies import chosen, drawn_logprobs
from harness.models.api.session import Session
from harness.models.api.wire import Attempt, trying
from harness.models.base import Then, in_passes
from harness.models.server_faults import StatusError, persist
from harness.models.server_sockets import Headway
from harness.types import CacheState, ModelOutput, Request, Timing

_LEAVE_S = 1.0
"""What is in flight has this long to end when a run is left."""
_LOCKED_OUT = (401, 402, 403)
"""No other request would fare better."""


class ApiModel:
    """A model behind a provider's API. Closes its session when closed."""

    independent = True
    """Cells do not share a computation: any of them may be computed at any time, also when others are finished."""

    def __init__(self, settings: ModelConfig, session: Session) -> None:
        assert settings.api is not None
        self.computed_tokens = 0
        self.spent_out = False
        """Whether the last run ended because the next request would not have fitted the spend cap."""
        self._settings = settings
        self._api: ApiConfig = settings.api
        self._session = session
        self._served: set[str] = set()
        self._no_chances = not self._api.logprobs
        self._halted = Event()
        self._batches: dict[Event, Sequence[Future[ModelOutput | None]]] = {}

    @classmethod
    def from_config(cls, path: Path, tokenizer: Any, settings: ModelConfig, log_dir: Path) -> Self:
        """A model without spend cap and cassette. Raises ModelError where no key or client is to be had."""
        if settings.api is None:
            raise ModelError(
                "model._target_ is that of an API model; set model.api.provider and model.api.model"
            )
        return cls(settings, open_session(settings.api, price=settings.price))

    @property
    def cache_block(self) -> int | None:
        """No provider tells of the blocks of its cache."""
        return None

    @property
    def cache_blocks(self) -> int | None:
        return None

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "backend": "api",
            "kind": self._api.provider,
            "model": self._api.model,
            "served": sorted(self._served),
            "host": urlsplit(self._api.address).hostname if self._api.address else self._api.provider,
            "prompt_cache": self._api.prompt_cache,
            "concurrency": self._api.concurrency,
            **self._session.facts,
        }

    def share_prefix(self, ids: Sequence[int]) -> None:
        """Nothing to do: what a provider's cache keeps is its own affair."""

    def check_cache(self, cache: CacheState) -> None:
        if self._session.replays:
            raise ModelError(
                "measure=latency with cassette=replay: a recorded reply has no latency; take measure=throughput, or leave "
                "the cassette out"
            )
        if cache != "natural":
            raise ModelError(
                f"latency.cache={cache}: a provider's prompt cache cannot be emptied or filled from here; use "
                "latency.cache=natural (model.api.prompt_cache says whether prompts are cached at all)"
            )

    def halt(self) -> None:
        """No new cell begins; those in flight are finished, for they are paid for."""
        self._halted.set()

    def close(self) -> None:
        """Ends what is in flight."""
        self._session.closing.set()
        for abandoned, futures in list(self._batches.items()):
            self._leave(abandoned, futures)
        self._session.provider.close()
        self._session.wire.close()

    # -- cells ----------------------------------------------------------------------------------------------

    def run(self, requests: Sequence[Request], then: Then | None = None) -> Iterator[tuple[str, ModelOutput]]:
        """As Model.run. Ends early, without a word about the cells that are left, when halted or when the next
        request does not fit the spend cap (`spent_out`). Raises ModelError when the provider does not let us in."""
        yield from in_passes(self._run, requests, then)

    def _run(self, requests: Sequence[Request]) -> Iterator[tuple[str, ModelOutput]]:
        self._check(requests)
        self._halted.clear()
        self.spent_out = False
        abandoned = Event()
        pool = ThreadPoolExecutor(self._api.concurrency, thread_name_prefix="tailgauge-api")
        waiting = {pool.submit(self._begin, request, abandoned): request.cell_id for request in requests}
        self._batches[abandoned] = list(waiting)
        try:
            for future in as_completed(waiting):
                output = future.result()
                if output is not None:
                    self._note(output)
                    yield waiting[future], output
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            self._leave(abandoned, list(waiting))
            self._batches.pop(abandoned, None)

    def _begin(self, request: Request, abandoned: Event) -> ModelOutput | None:
        """One cell; None when it is not to be computed any more."""
        if self._halted.is_set() or abandoned.is_set():
            return None
        try:
            return self._cell(request, abandoned, timed=False)
        except SpentError:
            self.spent_out = True
            self._halted.set()
            return None
        except ModelError:
            self._halted.set()  # in this thread: before another cell begins
            raise

    def run_alone(self, request: Request, cache: CacheState = "natural", shared: int = 0) -> ModelOutput:
        """As Model.run_alone; only `natural` is to be had. A try that broke off is thrown away, its time too."""
        self.check_cache(cache)
        self._check([request])
        try:
            output = self._cell(request, self._session.closing, timed=True)
        except SpentError:
            self.spent_out = True
            raise ModelError("the next request does not fit max_spend any more; raise it to go on") from None
        self._note(output)
        return replace(output, timing=replace(output.timing, cache=cache))

    def _note(self, output: ModelOutput) -> None:
        usage = output.usage
        prompt = usage.prompt_tokens if usage.reported_prompt_tokens is None else usage.reported_prompt_tokens
        self.computed_tokens += prompt - (usage.cached_tokens or 0)
        if output.provider and output.provider.model:
            self._served.add(output.provider.model)

    def _leave(self, abandoned: Event, futures: Sequence[Future[Any]]) -> None:
        """Ends what is in flight when a run is left early: the interpreter waits for its threads. Again and again,
        for one of them may just be opening a connection."""
        abandoned.set()
        end = perf_counter() + _LEAVE_S
        for future in futures:
            future.cancel()
        while perf_counter() < end and not all(future.done() for future in futures):
            self._session.wire.cut()
            sleep(0.02)

    def _check(self, requests: Sequence[Request]) -> None:
        """Refuses what no API can do, before anything is sent."""
        for request in requests:
            if request.thoughts:
                raise ModelError(
                    "probe.choose.thoughts: an API thinks before each draw by itself; remove it (model.api.draws says how "
                    "many replies are drawn)"
                )
            if not request.messages:
                raise ModelError("a model behind an API needs the conversation, which this request has not")

    def _cell(self, request: Request, abandoned: Event, *, timed: bool) -> ModelOutput:
        asked = Asked(self._api.prompt_cache)
        try:
            if request.choices:
                return self._choose(request, abandoned, asked)
            answer = self._ask(self.call_of(request), f"{request.cell_id}#0", abandoned, asked)
        except ProviderError as error:
            if isinstance(error, StatusError) and error.status in _LOCKED_OUT:
                raise ModelError(f"{self._api.provider}: {error}; nothing else was asked") from None
            return failed(request, asked, str(error))
        except SpentError:
            if not asked.tries:
                raise
            # Some of the cell is paid for: its row says so, and it is computed anew under a higher cap.
            self.spent_out = True
            self._halted.set()
            return failed(request, asked, "max_spend was reached within the cell")
        output = answered(request, asked)
        if not timed:
            return output
        timing = Timing(asked.started, answer.total, answer.first_token, answer.first_answer_token)
        return replace(output, timing=timing)

    def _choose(self, request: Request, abandoned: Event, asked: Asked) -> ModelOutput:
        """Probabilities of the choices: read off one forced call, or counted over draws."""
        labels = sorted(request.choices)
        call = self.call_of(request)
        first = self._ask_first(call, request, abandoned, asked)
        told = chances_of(first, labels) if not self._no_chances else None
        if told is not None:
            return chose(answered(request, asked), told, "logprobs")
        plain = replace(call, logprobs=False)
        for draw in range(1, self._api.draws):
            seed = None if plain.seed is None else _seed(plain.seed, draw)
            self._ask(replace(plain, seed=seed), f"{request.cell_id}#{draw}", abandoned, asked)
        counts: dict[str, int] = {}
        for answer in asked.answers:
            label = chosen(answer, labels) or ""
            counts[label] = counts.get(label, 0) + 1
        return chose(answered(request, asked), drawn_logprobs(counts, labels), "draws", counts)

    def _ask_first(self, call: Call, request: Request, abandoned: Event, asked: Asked) -> Answer:
        """The first draw, with token probabilities where the model has them; a model that refuses them is not asked
        for them again."""
        label = f"{request.cell_id}#0"
        if not call.logprobs:
            return self._ask(call, label, abandoned, asked)
        try:
            return self._ask(call, label, abandoned, asked)
        except StatusError as error:
            if error.status != 400 or "logprob" not in str(error).lower():
                raise
        self._no_chances = True
        return self._ask(replace(call, logprobs=False), label, abandoned, asked)

    # -- requests -------------------------------------------------------------------------------------------

    def call_of(self, request: Request) -> Call:
        """What is asked of the provider for a cell."""
        api, decoding = self._api, request.decoding
        choose = bool(request.choices)
        return Call(
            model=api.model,
            messages=request.messages,
            tools=request.tools,
            max_tokens=decoding.max_new_tokens,
            temperature=(1.0 if choose else decoding.temperature) if api.sampling else None,
            top_p=decoding.top_p if api.sampling and decoding.top_p < 1 and not choose else None,
            seed=request.seed % 2**31 if api.sampling else None,
            effort=api.effort,
            thinking_budget=api.thinking_budget,
            forced=choose,
            logprobs=choose and not self._no_chances,
            prompt_cache=api.prompt_cache,
            keep_reasoning=self._settings.keep_reasoning,
        )

    def _ask(self, call: Call, label: str, abandoned: Event, asked: Asked) -> Answer:
        """One answered request, whatever it takes. Raises ProviderError with the last reason, SpentError when a try
        would not fit the purse."""
        session = self._session
        body = session.provider.body(call)
        most = session.price.most_of(_longest(body), call.max_tokens) or 0.0
        mark = hashlib.sha256(f"{session.run}|{label}|{call.logprobs}".encode()).hexdigest()

        def given_up() -> bool:
            return abandoned.is_set() or session.closing.is_set()

        def attempt() -> Answer:
            with session.gate.slot(given_up):
                return self._try(
                    body, Attempt(mark, label, Headway(self._api.timeout_s), given_up), most, asked
                )

        answer = persist(attempt, self._api.retries, abandoned)
        asked.answers.append(answer)
        return answer

    def _try(self, body: Mapping[str, Any], attempt: Attempt, most: float, asked: Asked) -> Answer:
        session = self._session
        session.purse.set_aside(most, attempt.given_up)
        asked.tries += 1
        cost: float | None = 0.0
        fault: ProviderError
        try:
            with trying(attempt):
                answer = session.provider.ask(body)
            cost = self._cost(answer)
            session.gate.answered(limits_of(attempt.headers))
            if session.cassette:
                session.cassette.keep(attempt)
            return answer
        except (ModelError, RunLogError):
            raise
        except Exception as error:
            fault = fault_of(error, attempt, session.redact, self._api.timeout_s)
            if attempt.status == 200:
                # The provider had begun to answer: perhaps billed, so all of it stays set aside.
                cost = None
                asked.broken += 1
        finally:
            session.purse.settle(most, cost)
        if isinstance(fault, ThrottledError):
            session.gate.refused(fault.retry_after)
        if isinstance(fault, StatusError) and session.cassette:
            session.cassette.keep(attempt)
        # Outside of the handler: a client's exception holds the request, and with it the key.
        raise fault

    def _cost(self, answer: Answer) -> float | None:
        usage = answer.usage
        if usage.input_tokens is None:
            return None
        return self._session.price.of_tokens(
            usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.cache_written_tokens
        )


def _longest(body: Mapping[str, Any]) -> int:
    """No tokenizer makes more tokens of a text than it has bytes; what the provider's own template adds to a message
    is less than its JSON."""
    return len(json.dumps(body, ensure_ascii=False).encode())


def _seed(seed: int, draw: int) -> int:
    """Another seed for each draw, the same in every arm."""
    return int.from_bytes(hashlib.sha256(f"{seed}|{draw}".encode()).digest()[:4], "big") % 2**31
