"""`tailgauge ledger`: what a bar costs under each update policy over a trajectory, from token ids alone."""

import argparse
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from harness import __version__, compose
from harness.commands import console
from harness.commands.build import local_folder, weights_spec
from harness.commands.parts import node
from harness.conditions import Condition
from harness.config import ConditionConfig
from harness.dataset import content_hash, expand, load_scenario
from harness.errors import ConfigError
from harness.ledger import (
    Bill,
    Crossing,
    NamedPrice,
    Total,
    arms_of,
    bill,
    crossing,
    cumulative,
    money,
    totals,
)
from harness.ledger.made_up import made_up
from harness.ledger.rows import Engine
from harness.ledger.settings import LedgerConfig, resolve
from harness.ledger.totals import price_bases
from harness.runlog.files import FolderLock, atomic_file, disk_error, remove_leftovers
from harness.runlog.identity import config_digest, plain_config, safe_name
from harness.statusbar.base import file_digest
from harness.statusbar.truncation import cut_results
from harness.template import ChatTemplate
from harness.types import Sample
from harness.weights import load_tokenizer
from harness.weights import resolve as resolve_weights

UNKNOWN = "–"
_GROUPS = ("bar", "placement")
_OPERATIONAL = {"results", "name"}


@dataclass(frozen=True, slots=True)
class _Source:
    """The trajectory, and what the manifest says of where it comes from."""

    sample: Sample
    facts: Mapping[str, Any]
    label: str
    """For the folder's name."""
    bar_file: str | None = None
    """Hash of the file that the bar is made from, where there is one."""


@dataclass(frozen=True, slots=True)
class _Result:
    """Everything that is written and shown."""

    config: LedgerConfig
    bill: Bill
    totals: list[Total]
    prices: tuple[NamedPrice, ...]
    crossings: list[Crossing]


def main(parsed: argparse.Namespace) -> int:
    config = resolve(_composed(parsed.overrides))
    source = _cut(_source(config, parsed.trace), config.scenario.cut_results)
    conditions = _conditions(config)
    source = replace(source, bar_file=file_digest(conditions[0].bar))
    folder = Path(config.results) / "ledger" / _name(config, source, conditions)
    template = _template(config)
    arms = arms_of(conditions)
    with console.cells("conditions") as step:
        made = bill(source.sample, template, arms, _engine(config), step)
    result = _result(config, made)
    _write(folder, result, source, template)
    _show(result, source)
    console.out.print(str(folder), markup=False)
    return 0


# -- what is asked for ---------------------------------------------------------------------------------


def _composed(overrides: Sequence[str]) -> dict[str, Any]:
    """What `conf/ledger.yaml` and the overrides say, as plain data."""
    with compose.hydra_mistakes(), compose.opened() as hydra:
        configured = frozenset(hydra.config_loader.get_group_options("scenario"))
        settable = [
            each if each.partition("=")[0] in _GROUPS else compose.settable(each, configured)
            for each in overrides
        ]
        return compose.composed(hydra, "ledger", settable)


def _conditions(config: LedgerConfig) -> tuple[Condition, ...]:
    """One condition per policy, and `never`."""
    names = config.policies if "never" in config.policies else ("never", *config.policies)
    described = {}
    for name in names:
        rules = None if name == "never" else config.rules
        policy = node("policy", name) | config.options.get(name, {})
        described[safe_name(name)] = ConditionConfig(
            bar=config.bar, placement=config.placement, policy=policy, rules=rules
        )
    return compose.build_conditions(described)


def _source(config: LedgerConfig, trace: str | None) -> _Source:
    if trace is None:
        return _without_trace(config)
    if config.requests is not None:
        raise ConfigError("requests is for a made-up trajectory; leave it out beside --trace")
    from harness.traces import load, oddities, samples  # only where a trace is read

    path, number = _trace_of(trace)
    found = load(path)
    if number >= len(found):
        raise ConfigError(
            f"--trace {trace}: it holds {len(found)} trajectories; give {path}:0 to :{len(found) - 1}"
        )
    trajectory = found[number]
    decisions = samples(trajectory)
    if not decisions:
        raise ConfigError(f"--trace {trace}: trajectory {trajectory.id} has no request; name another")
    for odd in oddities(trajectory.messages):
        console.note(f"--trace {trace}: {odd.sentence}; it is billed as it stands")
    facts = {
        "kind": "trace",
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "number": number,
        "id": trajectory.id,
    }
    # The last decision point, and the reply to it where one is recorded.
    sample = replace(decisions[-1], id=trajectory.id, messages=tuple(trajectory.messages))
    return _Source(sample, facts, f"{path.stem}-{number}")


def _trace_of(trace: str) -> tuple[Path, int]:
    """`FILE` or `FILE:N`, N from 0 as in the trajectories' ids. A file whose own name ends like that goes before."""
    name, colon, number = trace.rpartition(":")
    if colon and number.isdecimal() and not Path(trace).exists():
        path, which = Path(name), int(number)
    else:
        path, which = Path(trace), 0
    if not path.is_file():
        raise ConfigError(
            f"--trace {trace}: no such file {path}; give a file of trajectories, or FILE:N for its N-th"
        )
    return path, which


def _without_trace(config: LedgerConfig) -> _Source:
    if config.requests is not None:
        sample = made_up(config.requests)
        return _Source(sample, {"kind": "made_up", "requests": config.requests}, sample.id)
    scenario = load_scenario(config.scenario.file)
    sample = expand(scenario, series="matched", clusters=1, seed=config.seed)[0]
    facts = {"kind": "scenario", "scenario": content_hash(scenario), "id": sample.id}
    return _Source(sample, facts, Path(config.scenario.file).stem)


def _cut(source: _Source, limit: int | None) -> _Source:
    """The trajectory with its long results cut, as a run cuts them in every arm."""
    if limit is None:
        return source
    messages = cut_results(source.sample.messages, limit)
    if messages == source.sample.messages:
        raise ConfigError(
            f"scenario.cut_results={limit}: no tool result of {source.sample.id} is longer, so that nothing is cut; lower it"
        )
    return replace(source, sample=replace(source.sample, messages=messages))


def _engine(config: LedgerConfig) -> Engine:
    return Engine(config.block_size, config.blocks, keeps_replies=config.replies == "cached")


def _template(config: LedgerConfig) -> ChatTemplate:
    """The tokenizer and chat template of the model, fetched where it is not on this machine."""
    folder = local_folder(config.model)
    if folder is None:
        with console.weights() as report:
            folder = resolve_weights(weights_spec(config.model), report).path
    return ChatTemplate(load_tokenizer(folder), config.model.thinking, config.model.keep_reasoning)


def _name(config: LedgerConfig, source: _Source, conditions: Sequence[Condition]) -> str:
    if config.name is not None:
        return safe_name(config.name)
    arm = conditions[0]
    plain = _identity(config, source)
    return safe_name(f"{source.label}-{arm.bar_name}-{arm.placement_name}-{config_digest(plain)}")


def _identity(config: LedgerConfig, source: _Source) -> dict[str, Any]:
    """What decides the numbers, as plain data; the file that a bar is made from by its hash."""
    settings = config.model_dump(mode="json", by_alias=True, exclude=_OPERATIONAL)
    if settings["scenario"]["cut_results"] is None:
        del settings["scenario"]["cut_results"]  # came later; folders from before keep their name
    made_from = {"bar_file": source.bar_file} if source.bar_file else {}
    return plain_config({"config": settings, "trajectory": dict(source.facts), **made_from})


# -- what comes out ------------------------------------------------------------------------------------


def _result(config: LedgerConfig, made: Bill) -> _Result:
    prices = tuple(NamedPrice(name, price.as_of, price) for name, price in config.prices.items())
    if config.model.price.by_token:
        prices = (NamedPrice(config.model.name, "", config.model.price), *prices)
    names = {arm.name for arm in made.arms}
    pair = config.crossover
    crossings = []
    if pair is not None and set(pair) <= names:
        bases = price_bases(config.cached_weight, prices)
        crossings = [crossing(made, *pair, weight, basis) for basis, weight in bases.items()]
    return _Result(config, made, totals(made, config.cached_weight), prices, crossings)


def _write(folder: Path, result: _Result, source: _Source, template: ChatTemplate) -> None:
    """All files; each takes the place of the one before once it is whole."""
    from harness.analysis import ledger_figure, ledger_tables  # pandas and matplotlib; only now

    config = result.config
    tables = [
        ledger_tables.requests_table([asdict(row) for row in result.bill.rows]),
        ledger_tables.totals_table(
            [asdict(t) for t in result.totals], config.block_size, config.cached_weight
        ),
        ledger_tables.money_table(money(result.totals, result.prices)),
        ledger_tables.crossing_table(
            [asdict(each) | {"sentence": each.sentence} for each in result.crossings]
        ),
    ]
    texts = {f"{table.name}.csv": table.to_csv() for table in tables}
    texts["totals.md"] = "# Ledger\n\n" + "\n".join(table.to_markdown() for table in tables[1:])
    texts["manifest.json"] = _manifest(result, source, template)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(folder, error, "nothing was written") from error
    lock = FolderLock(folder)
    try:
        remove_leftovers(folder)
        for name, text in texts.items():
            with atomic_file(folder / name) as handle:
                handle.write(text.encode())
        try:
            ledger_figure.draw(
                _curves(result), folder / "cost", weight=config.cached_weight, block=config.block_size,
                title=_title(result, source),
                note=result.crossings[0].sentence if result.crossings else "",
            )  # fmt: skip
        except OSError as error:
            raise disk_error(folder / "cost.png", error, "the tables are written") from error
    finally:
        lock.release()


def _curves(result: _Result) -> list[Any]:
    from harness.analysis.ledger_figure import Curve

    sums = {
        arm.name: cumulative(result.bill.of(arm.name), result.config.cached_weight)
        for arm in result.bill.arms
    }
    return [
        Curve(
            arm.name,
            sums[arm.name],
            None
            if arm.control == arm.name
            else [a - b for a, b in zip(sums[arm.name], sums[arm.control], strict=True)],
        )
        for arm in result.bill.arms
    ]


def _title(result: _Result, source: _Source) -> str:
    return f"{_bar(result.config)} over {source.sample.id}: {result.bill.requests} requests"


def _bar(config: LedgerConfig) -> str:
    bar, place = (str(each.get("_target_", "")).rpartition(".")[2] for each in (config.bar, config.placement))
    return f"{bar} at {place}"


def _manifest(result: _Result, source: _Source, template: ChatTemplate) -> str:
    backend = template.tokenizer.backend_tokenizer.to_str()
    facts = {
        "format": 1,
        "harness": __version__,
        **_identity(result.config, source),
        "requests": result.bill.requests,
        "messages": len(source.sample.messages),
        "tokenizer": {
            "model": result.config.model.name,
            "sha256": hashlib.sha256(backend.encode()).hexdigest(),
            "template": template.hash,
        },
        "cache": asdict(_engine(result.config)),
        "rendered": "whole" if result.bill.whole else "by pieces, held against whole prompts",
        "controls": {arm.name: arm.control for arm in result.bill.arms},
    }
    return json.dumps(facts, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _show(result: _Result, source: _Source) -> None:
    """The totals that decide, and the crossings; all columns are in the files."""
    ruled = any(total.kept_out_dedupe or total.kept_out_budget for total in result.totals)
    left = any(total.left_over for total in result.totals)
    grid = RichTable(
        title=f"{_title(result, source)}, blocks of {result.config.block_size}", title_justify="left"
    )
    headers = (
        "condition",
        "put in",
        "resent",
        "stale",
        "shown of drawn",
        "outdated",
        *(("left over",) if left else ()),
        *(("kept out",) if ruled else ()),
    )
    weighed = f"re-billed + {result.config.cached_weight:g} × cached"
    for place, header in enumerate((*headers, "bar tokens", "re-billed", "cached", weighed, "extra")):
        grid.add_column(header, justify="left" if place == 0 else "right", overflow="fold")
    for total in result.totals:
        kept_out = (str(total.kept_out_dedupe + total.kept_out_budget),) if ruled else ()
        grid.add_row(
            total.condition,
            f"{total.put_in}",
            UNKNOWN if total.resent_share is None else f"{total.resent_share:.0%}",
            f"{total.stale_mean:.1f}",
            f"{total.shown}/{total.drawn}" if total.drawn else UNKNOWN,
            f"{total.outdated}",
            *((str(total.left_over),) if left else ()),
            *kept_out,
            f"{total.bar_tokens:,}",
            f"{total.rebilled_in_blocks:,}",
            f"{total.cached_tokens:,}",
            f"{total.weighed_tokens:,.0f}",
            UNKNOWN if total.extra_weighed_tokens is None else f"{total.extra_weighed_tokens:,.0f}",
        )
    console.out.print(grid)
    for each in result.crossings:
        console.out.print(f"- {each.sentence}", markup=False)
    for total in result.totals:
        if total.drawn and not total.put_in and total.control != total.condition:
            at = "1 request" if total.drawn == 1 else f"{total.drawn} requests"
            console.note(
                f"{total.condition}: the bar had something to say at {at} and never came before the model; this policy "
                "has no effect here"
            )
