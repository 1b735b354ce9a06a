"""The typed configuration: one frozen object, everything resolved, unknown keys refused.

Knows no Hydra: `harness.compose` resolves groups and overrides into plain data, this module says what
that data means and which combinations are impossible.
"""

from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from harness.budget import Amount, Price, seconds_of
from harness.types import CacheState, ProbeName, Series, ThinkingMode


def _no_bool(value: Any) -> Any:
    """YAML's `true` is no number, though Python takes it for 1."""
    if isinstance(value, bool):
        raise ValueError("expected a number, not true or false")
    return value


Int = Annotated[int, BeforeValidator(_no_bool)]
Seconds = Annotated[
    float, BeforeValidator(lambda value: value if isinstance(value, float) else seconds_of(value))
]
"""Given as text with its unit (`90s`, `30m`, `2h`, `1h30m`), kept as seconds."""


class FrozenConfig(BaseModel):
    """A part of a configuration: frozen, and an unknown key is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, strict=False)


class DecodingConfig(FrozenConfig):
    """How `act` and `ask` draw tokens. `source: model` takes temperature, top_p, top_k and repetition penalty
    from the model's own generation configuration; `stated` takes what stands here."""

    source: Literal["stated", "model"] = "stated"
    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: Int = Field(default=0, ge=0)
    repetition_penalty: float = Field(default=1.0, gt=0)


class EngineConfig(FrozenConfig):
    """Arguments of the vLLM engine, offline and `vllm serve` alike; None leaves vLLM's own choice."""

    max_model_len: Int | None = Field(default=None, ge=16)
    """Most tokens of prompt and reply together; less needs less memory."""
    max_num_seqs: Int | None = Field(default=None, ge=1)
    max_num_batched_tokens: Int | None = Field(default=None, ge=16)
    block_size: Int | None = Field(default=None, ge=1)
    """Tokens in a block of the prefix cache: smaller ones reuse more."""
    tensor_parallel_size: Int = Field(default=1, ge=1)
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """Share of a GPU's memory that vLLM takes."""
    cpu_cache_gb: Int = Field(default=4, ge=1)
    """Memory for keys and values on a CPU, in GiB."""
    cpu_cores: str | None = None
    """Cores that a CPU build binds its threads to, such as `0-1`; None: all of this process."""
    enforce_eager: bool | None = None
    async_scheduling: bool | None = None
    """On, vLLM plans a step while the one before still runs: more throughput, and the end of one lone request
    can then reach into the next one's time."""
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    seed: Int = 0


class ServerConfig(FrozenConfig):
    """An OpenAI-compatible server as the engine. Without `address` Tailgauge starts `vllm serve` and stops
    it again."""

    address: str | None = None
    """Such as `http://localhost:8000/v1`."""
    kind: Literal["vllm", "sglang", "llamacpp", "ollama", "other"] = "vllm"
    """What is not the same everywhere: how a cold start is asked for, which fields a chunk has."""
    api: Literal["chat", "completions"] = "completions"
    """`completions` takes token ids, so that the proved prompt is the computed one. `chat` takes messages
    and lets the server render them; the prompt's length is then held against the proved one."""
    model: str | None = None
    """The server's name for the model; None: the only one that it lists."""
    port: Int | None = Field(default=None, ge=1, le=65535)
    """Port of a server that Tailgauge starts; None: a free one."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key, never the key itself."""
    concurrency: Int = Field(default=8, ge=1)
    """Requests in flight in a batched run."""
    timeout_s: float = Field(default=120, gt=0)
    """Longest time without new text or token within one request; keep-alives do not count."""
    start_timeout_s: float = Field(default=600, gt=0)
    retries: Int = Field(default=4, ge=0, le=20)
    """Further tries after 429, 5xx, a time-out or a lost connection; no other answer is tried again."""
    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    """Parsers that a started `vllm serve` uses in its chat API."""


class ApiConfig(FrozenConfig):
    """A model behind a provider's API, reached by the provider's own client. The weights that `model.embedded`, `hub`
    or `path` names are then only those of a reference tokenizer: it gives placebos their length, no more."""

    provider: Literal["openai-chat", "openai-responses", "anthropic", "gemini"]
    """`openai-chat` is what OpenRouter and most other servers speak, too (with `address`)."""
    model: str = Field(min_length=1)
    """The provider's name for the model, best with its date."""
    address: str | None = None
    """Null: the provider's own, such as https://api.openai.com/v1."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key, never the key itself; null: the provider's usual one. A key
    that is not there is looked for in the keyring, under the service `tailgauge` and this name."""
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """How much the model shall think, in the provider's own levels; null: its own default."""
    thinking_budget: Int | None = Field(default=None, ge=0)
    """Most thinking tokens, where the provider counts in tokens; 0: none."""
    prompt_cache: bool | None = None
    """Caching of prompts switched on (true) or off (false) on purpose; null: as the provider does it."""
    sampling: bool = True
    """False leaves temperature, top_p and seed out: models that think often refuse them. The provider's own sampling
    is then unknown, and replies are drawn."""
    logprobs: bool = True
    """`choose`: ask for token probabilities where the API has them; without them choices are drawn."""
    draws: Int = Field(default=8, ge=1, le=1000)
    """`choose` without token probabilities: so many replies are drawn per cell, each paid for."""
    concurrency: Int = Field(default=16, ge=1, le=1024)
    """Most requests in flight; fewer while the provider asks for less."""
    timeout_s: float = Field(default=300, gt=0)
    """Longest time without anything new within one request."""
    retries: Int = Field(default=6, ge=0, le=20)
    """Further tries after 408, 409, 429, 5xx, a time-out, a lost connection or a reply that is no reply."""


class PricesConfig(FrozenConfig):
    """Where the price of an API model comes from when `model.price` is not stated."""

    file: str | None = None
    """A price table (see conf/prices.yaml); null: the packaged one."""
    max_age_days: Int = Field(default=120, ge=1)
    """A line older than this is refused."""
    confirmed: bool = False
    """True uses older lines, too: somebody has looked."""


class ModelConfig(FrozenConfig):
    """Which weights, on which engine. `embedded`, `hub` or `path` says where the weights come from. A path
    or a hub id given on top of a chosen model replaces its weights and its name, so that one override
    (`model.path=…`) is enough and no run goes by another model's name."""

    target: str = Field(alias="_target_")
    name: str
    embedded: str | None = None
    hub: str | None = None
    revision: str | None = None
    path: str | None = None
    mirror: str | None = None
    thinking: ThinkingMode = "off"
    keep_reasoning: bool = True
    """False drops the history's reasoning in all arms alike."""
    decoding: DecodingConfig = DecodingConfig()
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: str = "auto"
    threads: Int | None = Field(default=None, ge=1)
    pack_tokens: Int = Field(default=1024, ge=16)
    """Most tokens in one forward pass."""
    batch_clusters: Int = Field(default=1, ge=1)
    """Clusters that are computed as one batch; more decode faster and need more memory."""
    engine: EngineConfig | None = None
    """For the vLLM backends."""
    server: ServerConfig | None = None
    api: ApiConfig | None = None
    price: Price = Price()

    @model_validator(mode="before")
    @classmethod
    def _replace_weights(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        embedded, hub, path = (data.get(key) for key in ("embedded", "hub", "path"))
        if isinstance(path, str) and (embedded or hub):
            return {**data, "embedded": None, "hub": None, "name": PurePath(path).name}
        if isinstance(hub, str) and embedded:
            return {**data, "embedded": None, "name": PurePath(hub).name}
        return data

    @model_validator(mode="after")
    def _has_weights(self) -> "ModelConfig":
        if not (self.embedded or self.hub or self.path):
            raise ValueError("set model.path=/a/folder or model.hub=owner/name")
        return self


class ScenarioConfig(FrozenConfig):
    """`file`: name of a scenario in `./scenarios` or the packaged ones, or a path."""

    file: str
    cut_results: Int | None = Field(default=None, ge=20)
    """Characters beyond which a tool result is cut, in all arms alike (head two thirds, tail one third); null: none."""


class InjectionConfig(FrozenConfig):
    """What may keep a copy out although its policy wants it (harness/delivery.py)."""

    dedupe: bool = False
    max_tokens: Int | None = Field(default=None, ge=1)


class ConditionConfig(FrozenConfig):
    """Hydra `_target_` objects; bar and placement both null is the control."""

    bar: dict[str, Any] | None = None
    placement: dict[str, Any] | None = None
    policy: dict[str, Any] | None = None
    """When over many requests the bar is put in; null: only its newest copy is in the context."""
    rules: InjectionConfig | None = None


class SeriesConfig(FrozenConfig):
    """`clusters`: independently drawn episodes. `conditions`: arms, None for all of the run."""

    clusters: Int = Field(ge=1)
    conditions: tuple[str, ...] | None = None
    prior_calls: tuple[int, ...] | None = None
    filler_tokens: tuple[int, ...] | None = None


class ProbeConfig(FrozenConfig):
    """One probe over one or more series of samples. `max_new_tokens` is τ: the limit of a reply (`act`, `ask`) or
    of each thought (`choose`), the same in every arm and at every length."""

    series: dict[Series, SeriesConfig] = Field(min_length=1)
    max_new_tokens: Int = Field(default=64, ge=1)
    thoughts: Int | None = Field(default=None, ge=4)
    """`choose` on a model that thinks: thoughts drawn per cell, over which the probabilities are averaged."""


class LatencyConfig(FrozenConfig):
    """The sequential pass of `measure=latency`."""

    samples: Int = Field(ge=1)
    conditions: tuple[str, ...]
    cache: CacheState = "cold"
    warmups: Int = Field(default=1, ge=0)
    """Requests thrown away before the first timed one."""


class ModelsConfig(FrozenConfig):
    """Several models in one experiment, one run each (and pass), compared at the end."""

    small: tuple[str, ...] = Field(min_length=1)
    """Choices of `conf/model`: the models that the bar is to help."""
    large: tuple[str, ...] = Field(min_length=1)
    """Those that they are held against."""
    passes: tuple[tuple[str, ...], ...] = Field(default=((),), min_length=1)
    """Overrides of each run of every model, such as [measure=latency]."""


class MarginConfig(FrozenConfig):
    """Differences too small to matter, stated before the run: what lies within is called equivalent."""

    logit: float = Field(default=0.5, gt=0, strict=True, allow_inf_nan=False)
    """Sensitivity and bias, in log-odds; over a series also the change from its one end to the other."""
    share: float = Field(default=0.1, gt=0, lt=1, strict=True)
    """Rates and probabilities: 0.1 is ten points."""
    ratio: float = Field(default=1.25, gt=1, strict=True, allow_inf_nan=False)
    """Tokens and seconds: from 1 ÷ ratio to ratio."""


class SequentialConfig(FrozenConfig):
    """Stopping as soon as every confirmatory comparison is settled, by a test that may be looked at any time."""

    least: Int = Field(default=8, ge=8)
    """Clusters before the first look."""


_OPERATIONAL: dict[str, tuple[str, ...]] = {
    "engine": ("max_num_seqs", "gpu_memory_utilization", "cpu_cache_gb", "cpu_cores"),
    "server": (
        "address", "port", "api_key_env", "concurrency", "timeout_s", "start_timeout_s", "retries",
    ),
    "api": ("address", "api_key_env", "concurrency", "timeout_s", "retries"),
}  # fmt: skip
"""Parts of `model` whose listed keys say where and with how much room a run is computed: a run that ran out of
memory or time goes on under others. The manifest's `engine` tells what was used."""
_LATER: dict[tuple[str, ...], Any] = {
    ("model", "engine"): None,
    ("model", "server"): None,
    ("model", "api"): None,
    ("probe", "act", "thoughts"): None,
    ("probe", "choose", "thoughts"): None,
    ("latency", "warmups"): 1,
    ("sequential",): None,
    ("scenario", "cut_results"): None,
}
"""Keys that came after a run was published, and the value that means what was before. At that value they
are left out of the digest, so that old runs keep their name and resume."""


class RunConfig(FrozenConfig):
    """Everything that decides the results of a run. `results` only says where they go."""

    experiment: str
    seed: Int
    epochs: Int = Field(ge=1)
    measure: Literal["throughput", "latency"]
    results: str = Field(min_length=1)
    model: ModelConfig
    scenario: ScenarioConfig
    condition: dict[str, ConditionConfig]
    probe: dict[ProbeName, ProbeConfig]
    latency: LatencyConfig
    margins: MarginConfig = MarginConfig()
    sequential: SequentialConfig | None = None
    tracker: dict[str, Any] | None = None
    """Where the finished run is logged to, e.g. `{_target_: harness.export.mlflow.Tracker}`."""
    max_time: Seconds | None = None
    """Most time of one session, the engine's start included (`90s`, `30m`, `1h30m`): the run stops between batches
    when the next one would go beyond. The same command goes on from there."""
    max_spend: Amount | None = Field(default=None, gt=0)
    """Most money of the run, earlier sessions included, in the currency of `model.price`; stops as `max_time` does."""
    models: ModelsConfig | None = None
    """Instead of the one `model`; this object is then of one of them."""
    prices: PricesConfig = PricesConfig()
    cassette: Literal["record", "replay"] | None = None
    """API models: keep every response in a file, or take them from one instead of asking the provider."""
    cassette_file: str | None = None
    """Null: `cassette.jsonl` in the run folder."""

    def digested(self) -> dict[str, Any]:
        """Plain data without what cannot change a result: the key under which runs are told apart."""
        plain = self.model_dump(mode="json", by_alias=True)
        del plain["results"], plain["max_time"], plain["max_spend"], plain["margins"], plain["tracker"]
        del plain["model"]["mirror"], plain["model"]["price"]
        del plain["prices"], plain["cassette"], plain["cassette_file"], plain["models"]
        for part, keys in _OPERATIONAL.items():
            for key in keys if plain["model"][part] else ():
                del plain["model"][part][key]
        for arm in plain["condition"].values():
            for key in ("policy", "rules"):
                if arm[key] is None:
                    del arm[key]
        for path, before in _LATER.items():
            holder = plain
            for key in path[:-1]:
                holder = holder.get(key) or {}
            if path[-1] in holder and holder[path[-1]] == before:
                del holder[path[-1]]
        return plain


def first_mistake(error: ValidationError, keys_in: str) -> str:
    """The first mistake as `key: what; what to do`. `keys_in`: the file that explains every key."""
    mistake = error.errors()[0]
    key = ".".join(str(part) for part in mistake["loc"] if part != "FrozenConfig")
    given = mistake.get("input")
    match mistake["type"]:
        case "extra_forbidden":
            return f"{key}: unknown key; remove it or look up its name in {keys_in}"
        case "missing":
            return f"{key}: missing; it has no default"
        case _:
            shown = "" if isinstance(given, dict) else f" (got {given!r})"
            return f"{key}: {mistake['msg'].removeprefix('Value error, ')}{shown}"
