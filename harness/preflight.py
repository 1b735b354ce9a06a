"""Plan → requests: every prompt of a run rendered and proved before any model runs.

Knows prompts, choices and decoding; knows no engine. What a run would measure wrongly (a template that
changes more than the bar, choices that cannot be told apart) ends here, in one line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.choices import ChoiceBuilder
from harness.conditions import Condition
from harness.models.prefix_tree import common_prefix
from harness.plan import Batch, Cell
from harness.prompt import Arm, render_arms
from harness.template import ChatTemplate
from harness.types import Decoding, Request


@dataclass(frozen=True, slots=True)
class ReadyCell:
    """A cell with its request; the prompt's text is dropped (its ids say all of it)."""

    cell: Cell
    request: Request
    bar_text: str
    placebo_id: int | None


@dataclass(frozen=True, slots=True)
class ReadyBatch:
    number: int
    cells: tuple[ReadyCell, ...]


@dataclass(frozen=True, slots=True)
class Preflight:
    """All requests of a run, and the tokens that every prompt starts with."""

    batches: tuple[ReadyBatch, ...]
    shared_prefix: tuple[int, ...]

    @property
    def cell_order(self) -> list[str]:
        return [ready.request.cell_id for batch in self.batches for ready in batch.cells]


def prepare(
    plan: Sequence[Batch],
    template: ChatTemplate,
    conditions: Sequence[Condition],
    decoding: Mapping[str, Decoding],
) -> Preflight:
    """Requests for every cell of the plan. Raises ConfoundError or TemplateError at the first sample
    whose arms are not comparable."""
    by_name = {condition.name: condition for condition in conditions}
    chooser = ChoiceBuilder(template) if any(c.probe == "choose" for b in plan for c in b.cells) else None
    checked: set[str] = set()
    ready = []
    for batch in plan:
        wanted: dict[str, dict[str, Condition]] = {}
        for cell in batch.cells:
            wanted.setdefault(cell.sample.id, {})[cell.condition] = by_name[cell.condition]
        arms: dict[str, Mapping[str, Arm]] = {}
        cells = []
        for cell in batch.cells:
            if cell.sample.id not in arms:
                arms[cell.sample.id] = _light(
                    render_arms(template, cell.sample, list(wanted[cell.sample.id].values())),
                    template,
                    checked,
                )
            cells.append(_ready(cell, arms[cell.sample.id][cell.condition], chooser, decoding))
        ready.append(ReadyBatch(batch.number, tuple(cells)))
    prompts = [cell.request.prompt.ids for batch in ready for cell in batch.cells]
    # The last token of a prompt is never shared: its logits are read.
    shared = min(common_prefix(prompts), min(map(len, prompts)) - 1) if prompts else 0
    return Preflight(tuple(ready), prompts[0][:shared] if prompts else ())


def _light(arms: Mapping[str, Arm], template: ChatTemplate, checked: set[str]) -> Mapping[str, Arm]:
    """Drops the texts; one text of each arm is held against the tokenizer itself first."""
    for name, arm in arms.items():
        if name not in checked:
            template.check_exact(arm.prompt.text)
            checked.add(name)
    return {name: replace(arm, prompt=replace(arm.prompt, text="")) for name, arm in arms.items()}


def _ready(
    cell: Cell, arm: Arm, chooser: ChoiceBuilder | None, decoding: Mapping[str, Decoding]
) -> ReadyCell:
    request = Request(
        cell_id=cell.id, probe=cell.probe, prompt=arm.prompt, decoding=decoding[cell.probe], seed=cell.seed
    )
    if cell.probe == "choose" and chooser is not None:
        choices = chooser.build(cell.sample)
        request = replace(request, forced_ids=choices.forced, choices=choices.choices)
    return ReadyCell(cell, request, arm.bar_text, arm.placebo_id)
