"""Plain data → RunConfig, and the combinations of settings that are impossible.

`harness.config` says what each key means and what its value may be; this module holds one key against another.
"""

from typing import Any

from pydantic import ValidationError

from harness.config import ProbeConfig, RunConfig, first_mistake
from harness.errors import ConfigError


def resolve(plain: dict[str, Any], known_conditions: frozenset[str] = frozenset()) -> RunConfig:
    """The typed configuration. `known_conditions`: names that exist besides the selected ones; a series
    may list them without their being part of this run.

    Raises ConfigError with one line per call: the first mistake, its dotted key and what to do.
    """
    try:
        config = RunConfig.model_validate(plain)
    except ValidationError as error:
        raise ConfigError(first_mistake(error, "harness/config.py")) from error
    _check_conditions(config, known_conditions)
    _check_combinations(config)
    return config


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
    if config.max_spend is not None and not config.model.price.known:
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
    if config.epochs > 1 and greedy:
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


def _check_choose(config: RunConfig) -> None:
    """`choose` reads probabilities right after the prompt, or after thoughts where the model thinks."""
    choose, thinking = config.probe.get("choose"), config.model.thinking
    for name, probe in config.probe.items():
        if name != "choose" and probe.thoughts is not None:
            raise ConfigError(f"probe.{name}.thoughts: a reply has one thought, its own; remove it")
    if choose is None:
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
