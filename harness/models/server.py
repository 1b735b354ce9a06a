"""The backend for OpenAI-compatible servers: vLLM, SGLang, llama.cpp, Ollama and the like.

Sends requests by the vendor's client, streamed, and turns what comes back into ModelOutputs. Through `completions`
the proved token ids are the prompt. Through `chat` the server renders the conversation itself, which is proved
too: by vLLM's own `/tokenize` before anything is generated, elsewhere by the prompt length that it reports.
What differs between servers stands in `server_dialects`, what a stream means in `server_stream`, what is tried
again in `server_faults`, how a server is reached in `server_client` and started in `serve`. Tool calls are not
read here at all.
"""

import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock
from time import perf_counter
from typing import Any, Self

from harness.config import ModelConfig, ServerConfig
from harness.errors import ConfoundError, ModelError, ProviderError
from harness.models.serve import ServerProcess, serve_vllm
from harness.models.server_client import Connection, key_from, reach
from harness.models.server_dialects import DIALECTS, wire_messages, wire_tools
from harness.models.server_faults import Redactor, persist
from harness.models.server_stream import Reply, Streamed, assemble, read_stream
from harness.types import CacheState, ModelOutput, ModelUsage, Request, Timing

_REASONING_FIELD = "completion_tokens_details.reasoning_tokens"


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
        self._lock = Lock()
        self._surplus: int | None = None
        """Tokens by which the server's count of a chat prompt exceeds the proved one, the run's constant."""

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
            **({"chat_prompt_surplus": self._surplus} if self._surplus is not None else {}),
        }

    def share_prefix(self, ids: Sequence[int]) -> None:
        """Nothing to do: a server finds shared prefixes by itself."""

    def check_cache(self, cache: CacheState) -> None:
        self._dialect.check_cache(cache, self._server.api)

    def close(self) -> None:
        """Ends what is in flight and stops the server if it was started here."""
        self._closing.set()
        self._connection.close()
        if self._started:
            self._started.stop()

    # -- requests -------------------------------------------------------------------------------------------

    def run(self, requests: Sequence[Request]) -> Iterator[tuple[str, ModelOutput]]:
        """As Model.run. At most `server.concurrency` requests are in flight; no latency is taken."""
        self._check(requests)
        abandoned = Event()
        pool = ThreadPoolExecutor(self._server.concurrency, thread_name_prefix="tailgauge-server")
        try:
            waiting = {pool.submit(self._cell, r, abandoned): r.cell_id for r in requests}
            for future in as_completed(waiting):
                output = future.result()
                self._count(output)
                yield waiting[future], output
        finally:
            # Left early (Ctrl-C, a failure of the log): what is in flight ends by itself, quickly.
            abandoned.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def run_alone(self, request: Request, cache: CacheState = "cold", shared: int = 0) -> ModelOutput:
        """As Model.run_alone. A try that broke off is thrown away whole, its time too."""
        self.check_cache(cache)
        self._check([request])
        output = self._cell(request, self._closing, cache=cache, shared=shared, timed=True)
        self._count(output)
        return output

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
                self._prove_rendering(request)

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
            # A new salt for each try: a broken one may have filled the cache under its own.
            salt = secrets.token_urlsafe(32) if self._dialect.salted and cache != "natural" else None
            if cache == "warm" and shared > 0:
                self._connection.guarded(lambda: self._warm(request, shared, salt))
            cold = cache == "cold"
            return self._connection.guarded(lambda: self._once(request, salt, cold, timed, abandoned))

        try:
            return persist(attempt, self._server.retries, abandoned)
        except ProviderError as error:
            usage = ModelUsage(prompt_tokens=len(request.prompt.ids), completion_tokens=None)
            return ModelOutput("", (), "error", usage, Timing(_now()), error=str(error))

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
        self, request: Request, salt: str | None, cold: bool, timed: bool, abandoned: Event
    ) -> ModelOutput:
        body = self._body(request, salt, cold)
        chat = self._server.api == "chat"
        create = self._client.chat.completions.create if chat else self._client.completions.create
        look_for = request.stop_text if self._dialect.keep_stop is None else ""
        started, clock = _now(), perf_counter()
        with create(**body) as chunks:
            streamed = read_stream(chunks, clock, look_for, abandoned.is_set)
        reply = assemble(streamed, think_open=request.prompt.think_open, chat=chat, decode=self._decode)
        self._prove_length(request, streamed)
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
            body |= {"tools": wire_tools(request.tools), "tool_choice": "auto"}
        extra |= {"messages": self._wire(request), "chat_template_kwargs": self._template_options()}
        return {**body, "messages": [], "extra_body": extra}

    def _wire(self, request: Request) -> list[dict[str, Any]]:
        return wire_messages(
            request.messages, self._dialect.history_reasoning, keep_reasoning=self._settings.keep_reasoning
        )

    def _template_options(self) -> dict[str, Any]:
        # Always explicit: templates and servers disagree about the default.
        return {"enable_thinking": self._settings.thinking == "native"}

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
        reasoning = streamed.count(*_REASONING_FIELD.split("."))
        usage = ModelUsage(
            prompt_tokens=len(request.prompt.ids),
            completion_tokens=streamed.count("completion_tokens") if reply.ids is None else len(ids),
            cached_tokens=streamed.count("prompt_tokens_details", "cached_tokens"),
            reasoning_counted_by="retokenised" if reply.ids is None else None,
            reported_reasoning_tokens=reasoning,
            reported_reasoning_field=_REASONING_FIELD if reasoning is not None else None,
            reported_prompt_tokens=streamed.count("prompt_tokens"),
        )
        timing = Timing(started)
        if timed:
            timing = Timing(started, streamed.ended_at, reply.first_token, reply.first_answer_token)
        return ModelOutput(reply.text, ids, streamed.finish_reason, usage, timing)

    # -- the prompt that was computed is the proved one ---------------------------------------------------

    def _prove_rendering(self, request: Request) -> None:
        """vLLM only: the ids that its own template makes of the conversation. Raises ConfoundError."""
        body: dict[str, Any] = {
            "model": self._model,
            "messages": self._wire(request),
            "add_generation_prompt": True,
            "chat_template_kwargs": self._template_options(),
        }
        if request.tools:
            body["tools"] = wire_tools(request.tools)
        tokenize = f"{self._connection.root}/tokenize"
        try:
            answer = self._connection.post(tokenize, body)
        except ProviderError as error:
            raise ModelError(f"{tokenize}: the prompt cannot be proved ({error})") from None
        tokens = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(tokens, list):
            raise ModelError(f"{tokenize}: no token ids in the answer; use model.server.api=completions")
        ours, theirs = request.prompt.ids, tuple(tokens)
        if ours != theirs:
            same = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
            at = min(len(ours), len(theirs)) if same is None else same
            raise ConfoundError(
                f"cell {request.cell_id}: the server renders another prompt than the proved one, first at token {at} "
                f"({self._shown(theirs, at)} instead of {self._shown(ours, at)}); use model.server.api=completions "
                "or serve the model with its own chat template"
            )

    def _shown(self, ids: Sequence[int], at: int) -> str:
        return f"{ids[at]} {self._decode([ids[at]])!r}" if at < len(ids) else "the end"

    def _prove_length(self, request: Request, streamed: Streamed) -> None:
        """The server's own count against the proved prompt: equal for token ids; for a conversation always
        by the same surplus, since a template's fixed part may be counted otherwise. Raises ProviderError."""
        reported = streamed.count("prompt_tokens")
        if reported is None:
            return
        proved = len(request.prompt.ids)
        expected = proved
        if self._server.api == "chat":
            with self._lock:
                if self._surplus is None:
                    self._surplus = reported - proved
                expected = proved + self._surplus
        if reported != expected:
            raise ProviderError(
                f"the server renders another prompt than the proved one ({reported} tokens instead of {expected})"
            )


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
