"""Whole runs against a provider on loopback: configuration, prompts, engine, run log."""

import hashlib
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from api_server import KEY, ApiServer, Reply, Seen, Speaker

from harness.commands.api_session import open_model
from harness.commands.build import Bench, build
from harness.compose import compose
from harness.lots import run_lots
from harness.runlog import RunLog, read_records
from harness.runner import Setting, Tally
from harness.scorers import score_record
from harness.types import EvalRecord

SPEAKERS: Mapping[str, tuple[str, str]] = {
    "openai-chat": ("openai_server", "ChatSpeaker"),
    "openai-responses": ("openai_server", "ResponsesSpeaker"),
    "anthropic": ("anthropic_server", "AnthropicSpeaker"),
    "gemini": ("gemini_server", "GeminiSpeaker"),
}
VARIABLE = "TAILGAUGE_TEST_KEY"
_DEFAULTS = ("probe=[act_small]", "condition=[control,placebo,agent_status]")
_BENCHES: dict[tuple[str, ...], Bench] = {}


def speaker(provider: str) -> Speaker:
    module, name = SPEAKERS[provider]
    made: Speaker = getattr(import_module(module), name)()
    return made


def says(seen: Seen) -> Reply:
    """What the model says: fixed by the conversation, whatever happened on the way, and different from one to another."""
    digest = hashlib.sha256(json.dumps(seen.body, sort_keys=True).encode()).digest()
    tokens = len(json.dumps(seen.body)) // 4
    counts = {
        "input_tokens": tokens,
        "cached_tokens": 64 * (digest[1] % 3),
        "output_tokens": 20 + digest[2] % 50,
        "reasoning_tokens": digest[3] % 20,
    }
    match digest[0] % 4:
        case 0:
            return Reply(calls=(("phone_call", {"merchant": "Xfinity", "reason": "bill"}),), **counts)
        case 1:
            return Reply(
                calls=(("reply", {"text": "I can't call them again: the limit is reached."}),), **counts
            )
        case 2:
            return Reply(text="I can't call them again today, since the limit is reached.", **counts)
        case _:
            return Reply(text="Should I call them about your bill or about the outage, and when?", **counts)


def overrides(provider: str, address: str, tiny: Path, *more: str) -> list[str]:
    return [
        f"model={'openai' if provider == 'openai-responses' else provider}", f"model.api.address={address}",
        f"model.api.api_key_env={VARIABLE}", f"model.path={tiny}", "model.name=api-test", "model.api.timeout_s=3",
        "model.api.effort=null", "model.api.thinking_budget=null",
        *(default for default in _DEFAULTS if not any(each.startswith(default.partition("=")[0] + "=") for each in more)),
        *more,
    ]  # fmt: skip


def bench(provider: str, address: str, tiny: Path, *more: str) -> Bench:
    """A run's bench; prompts are rendered once per kind of run, since only the address changes."""
    config = compose(overrides(provider, address, tiny, *more))
    key = tuple(
        each for each in overrides("", "", tiny, *more) if each.startswith(("probe", "condition", "epochs"))
    )
    if key not in _BENCHES:
        _BENCHES[key] = build(config, lambda *_: None)
    known = _BENCHES[key]
    return Bench(config, known.scenario, known.weights, known.template, known.conditions, known.preflight)


def setting(made: Bench) -> Setting:
    return Setting(
        scenario=made.scenario.name,
        model=made.config.model.name,
        thinking="off",
        bars={c.name: (c.bar_name, c.placement_name) for c in made.conditions},
        template=made.template,
        score=score_record,
    )


def compute(made: Bench, folder: Path) -> Tally:
    """What a run computes, without its tables and figures."""
    tally = Tally()
    with RunLog.open(folder, {"who": "test"}, made.config.digested()) as log:
        model = open_model(made, log)
        try:
            run_lots(made.preflight, model, log, setting(made), progress=lambda *_: None, tally=tally)
        finally:
            model.close()
    return tally


def told(folder: Path) -> dict[str, Any]:
    """cell → what a table is made of; not times, ids of requests and how many tries it took."""
    return {record.cell_id: _told(record) for record in read_records(folder)}


def _told(record: EvalRecord) -> Any:
    output = record.output
    return (output.text, output.finish_reason, output.usage, output.error, record.score, record.parsed)


def serve(provider: str, **options: Any) -> ApiServer:
    return ApiServer(speaker(provider), options.pop("reply", says), **options)


__all__ = ["KEY", "VARIABLE", "bench", "compute", "overrides", "says", "serve", "setting", "speaker", "told"]
