"""`tailgauge preview`: every condition's prompt with the bar marked. Needs no model.

With the model's tokenizer at hand (cached or local) the prompt is shown as its chat template prints it, with
token counts; without one, as plain messages, and the placebo is fitted to word counts.
"""

import argparse
from collections.abc import Callable

from rich.rule import Rule
from rich.text import Text

from harness.commands import console
from harness.commands.build import local_folder
from harness.compose import build_conditions, compose
from harness.conditions import Condition, apply
from harness.config import RunConfig
from harness.dataset import load_scenario
from harness.errors import ConfigError
from harness.plan import build_plan
from harness.prompt import render_arms
from harness.template import ChatTemplate
from harness.types import Message, Sample
from harness.weights import load_tokenizer

_BAR_STYLE = "bold black on yellow"


def main(parsed: argparse.Namespace) -> int:
    config = compose(parsed.overrides)
    if parsed.samples < 1:
        raise ConfigError(f"--samples {parsed.samples}: expected 1 or more")
    conditions = build_conditions(config.condition)
    template = _template(config)
    count = template.count if template else _words
    for sample in _samples(config, count, parsed.samples):
        side = f"  ({sample.expectation.side})" if sample.expectation else ""
        console.out.print(Rule(f"{sample.id}{side}"))
        if template:
            _show_rendered(sample, conditions, template)
        else:
            _show_messages(sample, conditions)
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


def _words(text: str) -> int:
    return len(text.split())


def _samples(config: RunConfig, count: Callable[[str], int], wanted: int) -> list[Sample]:
    plan = build_plan(config, load_scenario(config.scenario.file), count)
    found = {cell.sample.id: cell.sample for batch in plan for cell in batch.cells}
    return list(found.values())[:wanted]


def _show_rendered(sample: Sample, conditions: tuple[Condition, ...], template: ChatTemplate) -> None:
    for name, arm in render_arms(template, sample, conditions).items():
        prompt = arm.prompt
        title = f"{name}: {len(prompt.ids)} tokens, {prompt.bar_tokens} of them the bar's"
        console.out.print(Rule(title, align="left", style="cyan"))
        _print_marked(prompt.text, arm.bar_text)


def _show_messages(sample: Sample, conditions: tuple[Condition, ...]) -> None:
    for condition in conditions:
        treated = apply(sample, condition, _words)
        console.out.print(Rule(condition.name, align="left", style="cyan"))
        _print_marked("\n".join(_plain(m) for m in treated.messages), treated.bar.text if treated.bar else "")


def _plain(message: Message) -> str:
    calls = "".join(f"\n  → {call.name}({dict(call.arguments)})" for call in message.tool_calls)
    return f"[{message.role}] {message.content}{calls}"


def _print_marked(text: str, bar: str) -> None:
    """Colours do not survive a pipe; the arrows at the margin do."""
    before, _, after = text.partition(bar) if bar else (text, "", "")
    console.out.print(before, markup=False, end="")
    if bar:
        marked = bar if console.out.is_terminal else f"▶{bar}◀"
        console.out.print(Text(marked, style=_BAR_STYLE), end="")
        console.out.print(after, markup=False, end="")
    console.out.print()
