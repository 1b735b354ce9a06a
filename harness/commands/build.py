"""Configuration → the objects of a run: weights, template, conditions, plan, requests, model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.utils import get_class

from harness.compose import build_arms
from harness.conditions import Condition
from harness.config import DecodingConfig, ModelConfig, RunConfig
from harness.dataset import Scenario, content_hash, load_scenario
from harness.errors import ConfigError, ModelError
from harness.models.base import Model
from harness.plan import build_plan
from harness.preflight import Preflight, prepare
from harness.statusbar.base import file_digest
from harness.template import ChatTemplate
from harness.types import Decoding
from harness.weights import Progress, ResolvedWeights, WeightsSpec, available, load_tokenizer, resolve


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything of a run but the loaded model."""

    config: RunConfig
    scenario: Scenario
    weights: ResolvedWeights
    template: ChatTemplate
    conditions: tuple[Condition, ...]
    preflight: Preflight

    @property
    def inputs(self) -> dict[str, Any]:
        """Hashes of what the configuration only names; a run resumes on exactly these. A model behind an API has no
        weights here: those are the reference tokenizer's."""
        bars = {c.name: digest for c in self.conditions if (digest := file_digest(c.bar))}
        return {
            "scenario": content_hash(self.scenario),
            "template": self.template.hash,
            "weights": self.weights.sha256 or self.weights.revision,
            **({"bars": bars} if bars else {}),
        }


def build(config: RunConfig, report: Progress) -> Bench:
    """Resolves weights (fetching them if need be), renders and proves every prompt."""
    scenario = load_scenario(config.scenario.file)
    conditions = build_arms(config.condition)
    weights = resolve(weights_spec(config.model), report)
    template, preflight = prompts(config, scenario, conditions, weights.path)
    return Bench(config, scenario, weights, template, conditions, preflight)


def prompts(
    config: RunConfig, scenario: Scenario, conditions: Sequence[Condition], folder: Path
) -> tuple[ChatTemplate, Preflight]:
    """Every prompt of a run, rendered and proved with the tokenizer and chat template of a model's folder."""
    template = ChatTemplate(load_tokenizer(folder), config.model.thinking, config.model.keep_reasoning)
    choose = config.probe.get("choose")
    preflight = prepare(
        build_plan(config, scenario, template.count),
        template,
        conditions,
        _decodings(config, folder),
        thoughts=choose.thoughts if choose else None,
        max_tokens=_context(config.model, folder),
    )
    return template, preflight


def weights_spec(model: ModelConfig) -> WeightsSpec:
    return WeightsSpec(
        embedded=model.embedded,
        hub=model.hub,
        path=model.path,
        revision=model.revision,
        mirror=model.mirror if model.embedded else None,
    )


def local_folder(model: ModelConfig) -> Path | None:
    """The model's folder when it is on this machine already; fetches nothing."""
    if model.path:
        return Path(model.path) if Path(model.path).is_dir() else None
    for status in available():
        if status.name == (model.hub or model.embedded) and status.state == "ready" and status.path:
            return _snapshot(model) if model.hub else status.path
    return None


def _snapshot(model: ModelConfig) -> Path:
    from huggingface_hub import snapshot_download  # heavy; only for hub ids

    return Path(snapshot_download(model.hub, revision=model.revision, local_files_only=True))


def load_model(bench: Bench, log_dir: Path) -> Model:
    """The engine that `model._target_` names, with the run's weights; what it starts logs into `log_dir`."""
    settings = bench.config.model
    try:
        backend: type[Model] = get_class(settings.target)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"model._target_={settings.target}: no such backend ({error})") from error
    except Exception as error:
        # Hydra wraps whatever the module raised while it was imported.
        raise ModelError(f"model._target_={settings.target}: {error}") from error
    model: Model = backend.from_config(bench.weights.path, bench.template.tokenizer, settings, log_dir)
    if bench.config.measure == "latency":
        try:
            model.check_cache(bench.config.latency.cache)
        except ModelError:
            model.close()
            raise
    return model


def _context(model: ModelConfig, folder: Path) -> int | None:
    """Tokens of prompt and reply that fit the model; None where its folder does not say."""
    if model.engine is not None and model.engine.max_model_len is not None:
        return model.engine.max_model_len
    try:
        own = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    most = own.get("max_position_embeddings")
    return most if isinstance(most, int) else None


def _decodings(config: RunConfig, folder: Path) -> dict[str, Decoding]:
    """Decoding parameters of each probe of the run."""
    settings = config.model.decoding
    stated = _from_model(folder, settings) if settings.source == "model" else settings.model_dump()
    sampling = {k: stated[k] for k in ("temperature", "top_p", "top_k", "repetition_penalty")}
    return {
        name: Decoding(max_new_tokens=probe.max_new_tokens, **sampling)
        for name, probe in config.probe.items()
    }


def _from_model(folder: Path, fallback: DecodingConfig) -> Mapping[str, Any]:
    """The model's own generation configuration. Absent keys have transformers' documented defaults."""
    path = folder / "generation_config.json"
    try:
        own = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"model.decoding.source=model: {path} cannot be read; state the parameters instead"
        ) from error
    if not own.get("do_sample", False):
        return {**fallback.model_dump(), "temperature": 0.0}
    return {
        "temperature": own.get("temperature") or 1.0,
        "top_p": own.get("top_p") or 1.0,
        "top_k": own.get("top_k") or 50,
        "repetition_penalty": own.get("repetition_penalty") or 1.0,
    }
