"""The backend for OpenAI-compatible servers: vLLM, SGLang, llama.cpp, Ollama and the like.

Sends requests by the vendor's client, streamed, and turns what comes back into ModelOutputs. Through `completions`
the proved token ids are the prompt. Through `chat` the server renders the conversation itself, which is proved
too: by vLLM's own `/tokenize` before anything is generated, elsewhere by the prompt length that it reports.
What differs between servers stands in `server_dialects`, what a stream means in `server_stream`, what is tried
again in `server_faults`, the proofs in `server_proof`, how a server is reached in `server_client`, how its streams
are cut in `server_sockets` and how it is started in `serve`. Tool calls are not read here at all.
"""

import secrets
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from time import perf_counter, sleep
from typing import Any, Self

from harness.config import ModelConfig, ServerConfig
from harness.dialects.openai import wire_messages, wire_tools
from harness.errors import ModelError, ProviderError
from harness.models.base import Then, in_passes
from harness.models.serve import ServerProcess, serve_vllm
from harness.models.server_client import Connection, key_from, reach
from harness.models.server_dialects import DIALECTS
from harness.models.server_faults import Redactor, TransportError, persist
from harness.models.server_proof import PromptProof
from harness.models.server_sockets import Headway
from harness.models.server_stream import Reply, Streamed, assemble, read_stream
from harness.types import CacheState, ModelOutput, ModelUsage, Request, Timing

_REASONING_FIELDS = ("completion_tokens_details.reasoning_tokens", "reasoning_tokens")
"""Where a provider's figure may stand in its usage: OpenAI's place, SGLang's."""
_PIECES_EACH = 4
"""A parser may make so many chunks of one token; a server that sends more does not keep to max_tokens."""
_LEAVE_S = 1.0
"""What is in flight has this long to end when a batch is left."""


class ServerModel:
    """A model behind an address. `tokenizer`: of the same model, for what a server gives as text alone.

    Build it with `from_config`; `started` is the process that it stops when closed. Raises ModelError when
    the server cannot be reached or does not serve the model.
    """

    def __init__(
        self,
        tokenizer: Any,
        settings: ModelConfig,
        address: str,
        *,
        started: ServerProcess | None = None,
    ) -> None:
        self.computed_tokens = 0
        self._tokenizer = tokenizer
        self._settings = settings
        self._server = settings.server or ServerConfig()
        self._dialect = DIALECTS[self._server.kind]
        self._started = started
        self._closing = Event()
        self._connection = Connection(address, self._server, self._closing)
        self._client = self._connection.client
        self._model, self._facts = reach(self._connection, self._server.model, self._dialect.version_path)
        self._proof = PromptProof(
            self._connection, self._model, chat=self._server.api == "chat", decode=self._decode
        )
        self._batches: dict[Event, Collection[Future[ModelOutput]]] = {}

    @classmethod
    def from_config(cls, path: Path, tokenizer: Any, settings: ModelConfig, log_dir: Path) -> Self:
        """Reaches the server of `settings.server.address`, or starts `vllm serve` with the weights in `path`
        and its log in `log_dir`. Raises ModelError when nobody answers, the key is not taken, the model is
        not served, or the settings ask for what such a server cannot do."""
        server = settings.server or ServerConfig()
        _check_settings(settings, server)
        started = None
        if server.address is None:
            key = key_from(server.api_key_env)
            started = serve_vllm(path, settings, log_dir, key, redact=Redactor(key))
        try:
            address = started.address if started else str(server.address)
            return cls(tokenizer, settings, address, started=started)
        except BaseException:
            if started:
                started.stop()
            raise

    @property
    def cache_block(self) -> int | None:
        """Known of a started vLLM whose `engine.block_size` is stated; of other servers it is not."""
        engine = self._settings.engine
        return engine.block_size if self._started and engine else None

    @property
    def cache_blocks(self) -> int | None:
        """Not told by any server."""
        return None

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "backend": "server",
            "kind": self._server.kind,
            "api": self._server.api,
            "address": self._connection.address,
            "model": self._model,
            "started": self._started is not None,
            **({"arguments": self._started.arguments} if self._started else {}),
            **self._facts,
            **self._proof.facts,
        }

    def share_prefix(self, ids: Sequence[int]) -> None:
        """Nothing to do: a server finds shared prefixes by itself."""

    def check_cache(self, cache: CacheState) -> None:
        self._dialect.check_cache(cache, self._server.api)

    def close(self) -> None:
        """Ends what is in flight and stops the server if it was started here."""
        self._closing.set()
        for abandoned, futures in list(self._batches.items()):
            self._leave(abandoned, futures)
        self._connection.close()
        if self._started:
            self._started.stop()

    # -- requests -------------------------------------------------------------------------------------------

    def run(self, requests: Sequence[Request], then: Then | None = None) -> Iterator[tuple[str, ModelOutput]]:
        """As Model.run, what follows in a pass of its own."""
        yield from in_passes(self._run, requests, then)

    def _run(self, requests: Sequence[Request]) -> Iterator[tuple[str, ModelOutput]]:
        """One pass. At most `server.concurrency` requests are in flight; no latency is taken."""
        self._check(requests)
        abandoned = Event()
        waiting: dict[Future[ModelOutput], str] = {}
        self._batches[abandoned] = waiting
        pool = ThreadPoolExecutor(self._server.concurrency, thread_name_prefix="tailgauge-server")
        try:
            for request in requests:
                waiting[pool.submit(self._cell, request, abandoned)] = request.cell_id
            for future in as_completed(waiting):
                output = future.result()
                self._count(output)
                yield waiting[future], output
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            self._leave(abandoned, waiting)
            self._batches.pop(abandoned, None)

    def _leave(self, abandoned: Event, futures: Collection[Future[ModelOutput]]) -> None:
        """Ends what is in flight when a batch is left early (Ctrl-C, a failure of the log): the interpreter
        waits for its threads. Again and again, for one of them may just be opening a connection."""
        abandoned.set()
        end = perf_counter() + _LEAVE_S
        for future in futures:
            future.cancel()
        while perf_counter() < end and not all(future.done() for future in futures):
            self._connection.cut()
            sleep(0.02)

    def run_alone(self, request: Request, cache: CacheState = "cold", shared: int = 0) -> ModelOutput:
        """As Model.run_alone. A try that broke off is thrown away whole, its time too."""
        self.check_cache(cache)
        self._check([request])
        output = self._cell(request, self._closing, cache=cache, shared=shared, timed=True)
        self._count(output)
        return replace(output, timing=replace(output.timing, cache=cache))

    def _count(self, output: ModelOutput) -> None:
        self.computed_tokens += output.usage.prompt_tokens - (output.usage.cached_tokens or 0)

    def _check(self, requests: Sequence[Request]) -> None:
        """Refuses what no server of this kind can do, before anything is sent."""
        for request in requests:
            if request.probe == "choose" or request.choices or request.thoughts:
                raise ModelError(
                    "probe=choose needs the offline engine (another model=…): a server gives no exact "
                    "probabilities of chosen tokens; use probe=[act]"
                )
            self._dialect.check_decoding(request.decoding)
            if self._server.api == "chat" and not request.messages:
                raise ModelError("model.server.api=chat needs the conversation, which this request has not")
        if self._server.api == "chat" and self._dialect.renders:
            for request in requests:
                self._proof.rendering(request, self._conversation(request))

    def _cell(
        self,
        request: Request,
        abandoned: Event,
        *,
        cache: CacheState = "natural",
        shared: int = 0,
        timed: bool = False,
    ) -> ModelOutput:
        def attempt() -> ModelOutput:
            if abandoned.is_set():
                raise TransportError("the run was stopped")
            # A new salt for each try: a broken one may have filled the cache under its own.
            salt = secrets.token_urlsafe(32) if self._dialect.salted and cache != "natural" else None
            if cache == "warm" and shared > 0:
                self._connection.guarded(lambda: self._warm(request, shared, salt))
            cold = cache == "cold"
            with Headway(self._server.timeout_s) as headway:
                return self._connection.guarded(
                    lambda: self._once(request, self._body(request, salt, cold), timed, abandoned, headway),
                    headway,
                )

        try:
            self._check_room(request)
            return persist(attempt, self._server.retries, abandoned)
        except ProviderError as error:
            usage = ModelUsage(prompt_tokens=len(request.prompt.ids), completion_tokens=None)
            return ModelOutput("", (), "error", usage, Timing(_now()), error=str(error))

    def _check_room(self, request: Request) -> None:
        """Raises ProviderError for what does not fit into the server, where it says how much does."""
        room, prompt, new = (
            self._facts.get("max_model_len"),
            len(request.prompt.ids),
            request.decoding.max_new_tokens,
        )
        if room is not None and prompt + new > room:
            more = "model.engine.max_model_len" if self._started else "its max_model_len"
            raise ProviderError(
                f"the prompt of {prompt} tokens and {new} new ones do not fit into the server's {room}: raise {more}, "
                "or lower the probe's max_new_tokens"
            )

    def _warm(self, request: Request, shared: int, salt: str | None) -> None:
        """Computes the shared tokens, and nothing else, under the salt that the timed request will have."""
        self._client.completions.create(
            model=self._model,
            prompt=list(request.prompt.ids[:shared]),
            max_tokens=1,
            temperature=0,
            extra_body={"cache_salt": salt},
        )

    def _once(
        self, request: Request, body: dict[str, Any], timed: bool, abandoned: Event, headway: Headway
    ) -> ModelOutput:
        chat = self._server.api == "chat"
        create = self._client.chat.completions.create if chat else self._client.completions.create
        look_for = request.stop_text if self._dialect.keep_stop is None else ""
        started, clock = _now(), perf_counter()
        with create(**body) as chunks:
            headway.follow(chunks.response)
            streamed = read_stream(
                chunks,
                clock,
                look_for,
                most=_PIECES_EACH * (request.decoding.max_new_tokens + 1),
                given_up=abandoned.is_set,
                headway=headway.made,
            )
        reply = assemble(streamed, think_open=request.prompt.think_open, chat=chat, decode=self._decode)
        self._proof.length(request, streamed.count("prompt_tokens"))
        return self._output(reply, streamed, request, started, timed)

    def _body(self, request: Request, salt: str | None, cold: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": request.decoding.max_new_tokens,
            "temperature": request.decoding.temperature,
            "top_p": request.decoding.top_p,
            "seed": request.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.stop_text and self._dialect.keep_stop is not None:
            body["stop"] = [request.stop_text]
        extra = self._dialect.extra(request, salt, cold=cold)
        if self._server.api == "completions":
            # Beside the client's typed fields: it would look at each of some thousand ids.
            return {**body, "prompt": "", "extra_body": {**extra, "prompt": list(request.prompt.ids)}}
        if request.tools:
            body["tool_choice"] = "auto"
        return {**body, "messages": [], "extra_body": {**extra, **self._conversation(request)}}

    def _conversation(self, request: Request) -> dict[str, Any]:
        """The fields that become the prompt when a server renders it."""
        messages = wire_messages(
            request.messages, self._dialect.history_reasoning, keep_reasoning=self._settings.keep_reasoning
        )
        return {
            "messages": messages,
            # Always explicit: templates and servers disagree about the default.
            "chat_template_kwargs": {"enable_thinking": self._settings.thinking == "native"},
            **({"tools": wire_tools(request.tools)} if request.tools else {}),
        }

    def _decode(self, ids: Sequence[int]) -> str:
        return str(
            self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        )

    def _output(
        self, reply: Reply, streamed: Streamed, request: Request, started: str, timed: bool
    ) -> ModelOutput:
        ids = reply.ids
        if ids is None:
            ids = tuple(self._tokenizer(reply.text, add_special_tokens=False)["input_ids"])
        figures = ((streamed.count(*name.split(".")), name) for name in _REASONING_FIELDS)
        reasoning, field = next(((n, name) for n, name in figures if n is not None), (None, None))
        usage = ModelUsage(
            prompt_tokens=len(request.prompt.ids),
            completion_tokens=streamed.count("completion_tokens") if reply.ids is None else len(ids),
            cached_tokens=streamed.count("prompt_tokens_details", "cached_tokens"),
            reasoning_counted_by="retokenised" if reply.ids is None else None,
            reported_reasoning_tokens=reasoning,
            reported_reasoning_field=field,
            reported_prompt_tokens=streamed.count("prompt_tokens"),
        )
        timing = Timing(started)
        if timed:
            timing = Timing(started, streamed.ended_at, reply.first_token, reply.first_answer_token)
        return ModelOutput(reply.text, ids, streamed.finish_reason, usage, timing)


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _check_settings(settings: ModelConfig, server: ServerConfig) -> None:
    if server.address is None and server.kind != "vllm":
        raise ModelError(
            f"model.server.kind={server.kind}: only vllm is started here; start the server and set model.server.address"
        )
    if server.api == "completions" and not DIALECTS[server.kind].token_prompts:
        raise ModelError(f"a server of kind {server.kind} takes no token ids; set model.server.api=chat")
    if server.api == "chat" and settings.thinking == "prompted":
        raise ModelError(
            "model.thinking=prompted opens the reply itself, which a chat API cannot; set model.server.api=completions"
        )
    if server.api == "chat" and server.address is None and server.tool_call_parser is None:
        raise ModelError(
            "model.server.api=chat: a started vllm serve offers tools only with model.server.tool_call_parser "
            "(hermes for Qwen models)"
        )
