"""`tailgauge preview`: any bar on any sample, as the model gets it, and its bill. Needs no model.

With the model's tokenizer at hand (cached or local) the prompt is shown as its chat template prints it, with
token counts; without one, as plain messages, and the placebo is fitted to word counts.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.markup import escape
from rich.rule import Rule
from rich.style import Style
from rich.table import Table
from rich.text import Text

from harness import traces
from harness.analysis.html import visible
from harness.commands import console, parts, recordings
from harness.commands.build import local_folder
from harness.commands.preview_page import write_page
from harness.commands.preview_view import Bill, Shown, View, kind, view, words
from harness.compose import build_arms, compose
from harness.conditions import Condition
from harness.config import RunConfig
from harness.dataset import load_scenario
from harness.errors import ConfigError
from harness.plan import build_plan
from harness.prompt import BAR, STALE_BAR
from harness.statusbar.placebo import Placebo
from harness.statusbar.placements import Tail
from harness.statusbar.policies import Replace
from harness.template import ChatTemplate
from harness.types import Sample
from harness.weights import load_tokenizer

BLOCK = 16
"""Tokens per block of the prefix cache where the model's configuration does not say: vLLM's default on a GPU."""
_STYLES = {
    BAR: "bold black on yellow", STALE_BAR: "black on bright_black", "template": "dim", "system": "blue",
    "tools": "dim blue", "user": "green", "follow_up": "bold green", "assistant": "cyan", "call": "magenta",
    "result": "default",
}  # fmt: skip
_MARGINS = {BAR: ("▶", "◀"), STALE_BAR: ("▷", "◁")}
"""Colours do not survive a pipe; these do."""


def main(parsed: argparse.Namespace) -> int:
    config = compose(parsed.overrides)
    if parsed.samples < 1:
        raise ConfigError(f"--samples {parsed.samples}: expected 1 or more")
    own = any((parsed.bar, parsed.placement, parsed.policy, parsed.options))
    conditions = _named(parsed) if own else build_arms(config.condition)
    template = _template(config)
    samples = _requests(parsed.trace, parsed.samples) if parsed.trace else None
    if samples is None:
        samples = _samples(config, template.count if template else words, parsed.samples)
    block = getattr(config.model.engine, "block_size", None) or BLOCK
    lenient = own or parsed.trace is not None
    views = [view(sample, conditions, template, block, lenient) for sample in samples]
    for shown in views:
        _show(shown, template is not None, block)
    if parsed.html:
        written = write_page(Path(parsed.html), views, config.model.name if template else None, block)
        console.out.print(str(written), markup=False)
    return 0


def _template(config: RunConfig) -> ChatTemplate | None:
    folder = local_folder(config.model)
    if folder is None:
        console.note(
            f"the tokenizer of {config.model.name} is not on this machine yet: messages are shown without the chat "
            "template and lengths are words (`tailgauge run` fetches it)"
        )
        return None
    return ChatTemplate(load_tokenizer(folder), config.model.thinking, config.model.keep_reasoning)


def _named(parsed: argparse.Namespace) -> tuple[Condition, ...]:
    """The control, the named bar's own placebo and the bar, at one place and under one policy."""
    bar = parts.part("bar", parsed.bar or "agent_status", parsed.options)
    placement = parts.part("placement", parsed.placement) if parsed.placement else Tail()
    policy = parts.part("policy", parsed.policy) if parsed.policy else Replace()
    name = " ".join((parsed.bar or "agent_status", *parsed.options))
    return (
        Condition("control", policy=policy),
        Condition(f"placebo of {name}", Placebo(bar), placement, policy),
        Condition(name, bar, placement, policy),
    )


def _samples(config: RunConfig, count: Callable[[str], int], wanted: int) -> list[Sample]:
    plan = build_plan(config, load_scenario(config.scenario.file), count)
    found = {cell.sample.id: cell.sample for batch in plan for cell in batch.cells}
    return list(found.values())[:wanted]


def _requests(trace: str, wanted: int) -> Sequence[Sample]:
    """The last requests of a recorded trajectory: of the first one where `trace` names none."""
    trajectory = recordings.trajectories(trace)[0]
    samples = traces.samples(trajectory)
    if not samples:
        raise ConfigError(f"--trace {trace}: trajectory {trajectory.id} has no request")
    return samples[-wanted:]


# -- the terminal ----------------------------------------------------------------------------------------


def _show(shown: View, exact: bool, block: int) -> None:
    side = f"  ({shown.side})" if shown.side else ""
    console.out.print(Rule(escape(f"{shown.sample}{side}")))
    for arm in shown.arms:
        title = arm.name
        if exact and arm.bill:
            title += f": {arm.bill.prompt} tokens, {arm.bill.added} of them the bar's"
        console.out.print(Rule(escape(title), align="left", style="cyan"))
        if arm.refused:
            console.out.print(f"not shown: {arm.refused}", markup=False)
        _print_marked(arm)
    console.out.print(_table(shown, exact, block))


def _print_marked(arm: Shown) -> None:
    text = Text(end="")
    for run in arm.runs:
        before, after = ("", "") if console.out.is_terminal else _MARGINS.get(run.region, ("", ""))
        text.append(
            f"{before}{visible(run.text)}{after}", Style.parse(_STYLES.get(kind(run.region), "default"))
        )
    console.out.print(text)
    console.out.print()


def _table(shown: View, exact: bool, block: int) -> Table:
    unit = "tokens" if exact else "words"
    about = f"; an engine that keeps the prompt before it in blocks of {block}" if exact else ""
    table = Table(caption=f"{unit} of request {shown.requests}{about}", caption_justify="left")
    headers = (
        "condition",
        "prompt",
        "newest copy",
        "copies",
        "over control",
        "cached",
        "billed anew",
        "against control",
    )
    for number, header in enumerate(headers):
        table.add_column(header, justify="right" if number else "left")
    for arm in shown.arms:
        table.add_row(escape(arm.name), *(figures(arm.bill) if arm.bill else ["–"] * (len(headers) - 1)))
    return table


def figures(bill: Bill) -> list[str]:
    """The bill's figures as texts, in the order of the table."""
    signed = "–" if bill.over_control is None else f"{bill.over_control:+,}"
    plain = (bill.prompt, bill.newest, bill.copies, bill.added, bill.cached, bill.billed)
    return [*("–" if value is None else f"{value:,}" for value in plain), signed]
