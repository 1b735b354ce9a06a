"""A run on a provider's API: its key and client first, what the API would refuse, then the model with purse and cassette.

Knows configuration, bench and run log; knows no request.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.budget import cost_of
from harness.commands.build import Bench
from harness.config import RunConfig
from harness.dialects import one_condition
from harness.errors import ConfoundError, ModelError
from harness.models.api.cassette import NAME
from harness.models.api.engine import ApiModel
from harness.models.api.keys import key_for
from harness.models.api.open import open_session, provider_class
from harness.preflight import Preflight
from harness.runlog import RunLog
from harness.runlog.rows import every_row

_DIALECTS = {
    "openai-chat": "harness.dialects.openai",
    "openai-responses": "harness.dialects.responses",
    "anthropic": "harness.dialects.anthropic",
    "gemini": "harness.dialects.gemini",
}


def check_reachable(config: RunConfig) -> None:
    """Key and client before anything is fetched or rendered. Raises ModelError."""
    api = config.model.api
    if api is None:
        return
    if config.cassette != "replay":
        key_for(api.provider, api.api_key_env, api.address)
    provider_class(api.provider)


def open_model(bench: Bench, log: RunLog) -> ApiModel:
    """The model of a run, with what earlier sessions spent. Raises ModelError, ConfigError."""
    config = bench.config
    api = config.model.api
    assert api is not None
    cassette = None
    if config.cassette is not None:
        path = Path(config.cassette_file) if config.cassette_file else log.run_dir / NAME
        cassette = (config.cassette, path)
    session = open_session(
        api, price=config.model.price, cap=config.max_spend, spent=_spent(config, log), cassette=cassette
    )
    model = ApiModel(config.model, session)
    if config.measure == "latency":
        try:
            model.check_cache(config.latency.cache)
        except ModelError:
            model.close()
            raise
    return model


def _spent(config: RunConfig, log: RunLog) -> float:
    """What the run's earlier sessions cost, failed rows included."""
    if config.max_spend is None:
        return 0.0
    costs = [cost_of(record, config.model.price) for record in every_row(log.path)]
    # An unknown cost stops the run by itself (harness/budget.py); here it must not count as 0 either.
    return config.max_spend if None in costs else sum(cost or 0.0 for cost in costs)


def alike(provider: str, preflight: Preflight) -> list[list[str]]:
    """Conditions that are one for this provider: in every sample that they share, its API makes the same conversation of
    them (it merges user turns, or takes the system prompt out).

    Raises ConfoundError for a conversation that the API would refuse, naming condition and sample.
    """
    dialect: Any = import_module(_DIALECTS[provider])
    samples: dict[tuple[str, str], dict[str, Any]] = {}
    for ready in (ready for batch in preflight.batches for ready in batch.cells):
        messages = ready.request.messages
        arms = samples.setdefault((ready.cell.sample.id, ready.cell.probe), {})
        if ready.cell.condition in arms:
            continue
        problem = dialect.illegal(messages)
        if problem is not None:
            raise ConfoundError(
                f"condition {ready.cell.condition}, sample {ready.cell.sample.id}: {provider} would refuse the conversation "
                f"({problem}); leave the condition out or choose another placement"
            )
        arms[ready.cell.condition] = dialect.merged(messages)
    return _always_one(list(samples.values()))


def _always_one(samples: list[Mapping[str, Any]]) -> list[list[str]]:
    """Groups that are one in every sample that has two or more of them."""
    apart: set[frozenset[str]] = set()
    together: set[frozenset[str]] = set()
    for arms in samples:
        group_of = {name: number for number, group in enumerate(one_condition(arms)) for name in group}
        names = sorted(arms)
        for at, first in enumerate(names):
            for second in names[at + 1 :]:
                same = first in group_of and group_of[first] == group_of.get(second)
                (together if same else apart).add(frozenset((first, second)))
    return sorted(sorted(pair) for pair in together - apart)


def said_alike(provider: str, pairs: list[list[str]]) -> list[str]:
    """One sentence per pair."""
    return [
        f"{provider} is shown the same conversation under {first} and {second}: they are one condition there, and no "
        "difference between them means anything"
        for first, second in pairs
    ]
