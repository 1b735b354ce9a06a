"""Plain data → RunConfig, and the combinations of settings that are impossible.

`harness.config` says what each key means and what its value may be; this module holds one key against another.
"""

import re
from collections.abc import Mapping
from datetime import date
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from harness.config import ProbeConfig, RunConfig, first_mistake
from harness.errors import ConfigError
from harness.prices import Found, look_up


def resolve(plain: dict[str, Any], known_conditions: frozenset[str] = frozenset()) -> RunConfig:
    """The typed configuration. `known_conditions`: names that exist besides the selected ones; a series
    may list them without their being part of this run.

    Raises ConfigError with one line per call: the first mistake, its dotted key and what to do.
    """
    _check_key_names(plain)
    try:
        config = RunConfig.model_validate(plain)
    except ValidationError as error:
        raise ConfigError(first_mistake(error, "harness/config.py")) from error
    _check_conditions(config, known_conditions)
    _check_combinations(config)
    return _priced(config)


_TABLED = {
    "api.openai.com": "openai",
    "openrouter.ai": "openrouter",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gemini",
}
"""Host → provider in the price table; a server of somebody's own has no price there."""
_OWN = {"openai-chat": "openai", "openai-responses": "openai", "anthropic": "anthropic", "gemini": "gemini"}


def found_price(config: RunConfig) -> Found:
    """What the price table says about an API model whose price the configuration does not state."""
    api = config.model.api
    assert api is not None
    host = urlsplit(api.address).hostname if api.address else None
    provider = _OWN[api.provider] if host is None else _TABLED.get(host)
    if provider is None:
        return Found(None, f"no price table for {host}; state model.price.*")
    prices = config.prices
    return look_up(
        prices.file, provider, api.model,
        today=date.today(), max_age_days=prices.max_age_days, confirmed=prices.confirmed,
    )  # fmt: skip


def _priced(config: RunConfig) -> RunConfig:
    """With the price out of the table. Raises ConfigError where a cap on money needs one and there is none."""
    if config.model.api is None or config.model.price.known:
        return config
    found = found_price(config)
    if found.price is None:
        if config.max_spend is not None:
            raise ConfigError(f"max_spend={config.max_spend:g}: {found.why}")
        return config
    return config.model_copy(update={"model": config.model.model_copy(update={"price": found.price})})


_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


def _check_key_names(plain: Mapping[str, Any]) -> None:
    """Where the name of a variable is asked for somebody will one day put the key itself: it is not repeated, and
    gets into no dump of a configuration. Before anything else is looked at, whose message might show it."""
    for part in ("server", "api"):
        settings = (plain.get("model") or {}).get(part)
        name = settings.get("api_key_env") if isinstance(settings, Mapping) else None
        if name is not None and not (isinstance(name, str) and _VARIABLE.fullmatch(name)):
            raise ConfigError(
                f"model.{part}.api_key_env: expected the name of an environment variable in capital letters, digits and "
                "underscores, such as OPENAI_API_KEY; put the key into that variable, never here"
            )


def _check_conditions(config: RunConfig, known: frozenset[str]) -> None:
    selected = set(config.condition)
    if not selected:
        raise ConfigError("condition: no arm is selected; e.g. condition=[control,agent_status]")
    controls = [name for name, arm in config.condition.items() if arm.bar is None]
    if not controls:
        raise ConfigError("condition: a run needs an arm without a bar to compare with; add control")
    lists = {
        f"probe.{probe}.series.{series}.conditions": spec.conditions
        for probe, settings in config.probe.items()
        for series, spec in settings.series.items()
    }
    if config.measure == "latency":
        lists["latency.conditions"] = config.latency.conditions
    for key, names in lists.items():
        for name in names or ():
            if name not in selected | known:
                raise ConfigError(
                    f"{key}: unknown condition {name!r}; known are {', '.join(sorted(selected | known))}"
                )
        if names is not None and not selected & set(names):
            raise ConfigError(
                f"{key}: none of {', '.join(names)} is among the run's conditions {sorted(selected)}"
            )


def _check_combinations(config: RunConfig) -> None:
    if not config.probe:
        raise ConfigError("probe: no probe is on; e.g. probe=[choose] or probe=[act]")
    _check_api(config)
    if config.max_spend is not None and not config.model.price.known and config.model.api is None:
        raise ConfigError(
            f"max_spend={config.max_spend:g}: what {config.model.name} costs is not known; set model.price.currency with "
            "model.price.input_per_million and output_per_million, or with model.price.per_hour; or use max_time"
        )
    if config.sequential is not None:
        choose = config.probe.get("choose")
        if config.measure != "throughput" or choose is None or "matched" not in choose.series:
            raise ConfigError(
                "sequential: the rule looks at the matched pairs of probe `choose`, which this run lacks; add "
                "probe=[choose], or remove sequential"
            )
    greedy = config.model.decoding.source == "stated" and config.model.decoding.temperature == 0
    drawn = config.model.api is not None and not config.model.api.sampling
    if config.epochs > 1 and greedy and not drawn:
        raise ConfigError(
            "epochs > 1 with greedy decoding repeats the same reply; set model.decoding.temperature or epochs=1"
        )
    if config.measure == "latency" and "act" not in config.probe:
        raise ConfigError("measure=latency times free replies: add probe=[act]")
    if config.measure == "throughput":
        _check_choose(config)
    for probe, settings in config.probe.items():
        for series, spec in settings.series.items():
            key = f"probe.{probe}.series.{series}"
            if series == "trace":
                raise ConfigError(
                    f"{key}: a trajectory states no expectation, so that no reply to it can be scored"
                )
            if series not in ("prior_calls", "moved_limit") and spec.prior_calls is not None:
                raise ConfigError(f"{key}.prior_calls: only the series prior_calls and moved_limit have it")
            if series != "filler" and spec.filler_tokens is not None:
                raise ConfigError(f"{key}.filler_tokens: only the series filler has it")
            if series == "filler" and not spec.filler_tokens:
                raise ConfigError(f"{key}.filler_tokens: give token counts, e.g. [0, 1000]")


def _check_api(config: RunConfig) -> None:
    """What a model behind an API, and a cassette of its replies, do not go together with."""
    api = config.model.api
    if api is None:
        for key, value in (("cassette", config.cassette), ("cassette_file", config.cassette_file)):
            if value is not None:
                raise ConfigError(
                    f"{key}: only the replies of an API model are recorded (model.api); remove it"
                )
        return
    if config.model.server is not None or config.model.engine is not None:
        raise ConfigError("model.api: a model is behind an API, a server or an engine; set one of them")
    if config.cassette_file is not None and config.cassette is None:
        raise ConfigError("cassette_file: say what to do with it: cassette=record or cassette=replay")
    if config.measure == "latency" and config.cassette == "replay":
        raise ConfigError(
            "measure=latency with cassette=replay: a recorded reply has no latency; take measure=throughput, or leave the "
            "cassette out"
        )
    if api.effort is not None and api.thinking_budget is not None:
        raise ConfigError(
            "model.api.effort and model.api.thinking_budget both say how much to think; set one of them"
        )
    stated = config.model.decoding.source == "stated"
    if not stated:
        raise ConfigError(
            "model.decoding.source=model: an API has no generation configuration to read; state the parameters"
        )
    if config.model.decoding.top_k or config.model.decoding.repetition_penalty != 1.0:
        raise ConfigError(
            "model.decoding.top_k and repetition_penalty: not every API can be told; leave them at 0 and 1"
        )
    if config.sequential is not None:
        raise ConfigError(
            "sequential: the cells of an API model are computed in any order; remove it, or set max_spend"
        )
    choose = config.probe.get("choose")
    if choose is not None and choose.thoughts is not None:
        raise ConfigError(
            "probe.choose.thoughts: an API thinks before each draw by itself; remove it (model.api.draws says how many "
            "replies are drawn)"
        )


def _check_choose(config: RunConfig) -> None:
    """`choose` reads probabilities right after the prompt, or after thoughts where the model thinks."""
    choose, thinking = config.probe.get("choose"), config.model.thinking
    for name, probe in config.probe.items():
        if name != "choose" and probe.thoughts is not None:
            raise ConfigError(f"probe.{name}.thoughts: a reply has one thought, its own; remove it")
    if choose is None or config.model.api is not None:
        return
    if config.model.server is not None:
        raise ConfigError(
            "probe=choose with model.server: a server gives no exact probabilities of chosen tokens; set probe=[act], or "
            "choose a model with an offline engine"
        )
    if thinking != "off" and choose.thoughts is None:
        raise ConfigError(
            f"probe=choose with model.thinking={thinking}: the choice right after the prompt means nothing to a "
            "model that thinks first; set probe.choose.thoughts=4 (or probe=[choose_thinking]), probe=[act] or "
            "model.thinking=off"
        )
    if thinking == "off" and choose.thoughts is not None:
        raise ConfigError(
            "probe.choose.thoughts: the model does not think (model.thinking=off); remove it, or set "
            "model.thinking=native or prompted"
        )
    drawn = config.model.decoding.source == "model" or config.model.decoding.temperature > 0
    if choose.thoughts is not None and not drawn:
        raise ConfigError(
            "probe.choose.thoughts with greedy decoding draws the same thought again and again; set "
            "model.decoding.temperature or model.decoding.source=model"
        )
    if (
        choose.thoughts is None
        and choose.max_new_tokens != ProbeConfig.model_fields["max_new_tokens"].default
    ):
        raise ConfigError("probe.choose.max_new_tokens: choose generates nothing; remove it")
