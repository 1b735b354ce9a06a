"""Plan → requests: every prompt of a run rendered and proved before any model runs.

Knows prompts, choices and decoding; knows no engine. What a run would measure wrongly (a template that
changes more than the bar, choices that cannot be told apart, a prompt longer than the model takes) ends
here, in one line. Only a length of a series over length that the model does not take is left out, and told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from harness.choices import ChoiceBuilder
from harness.conditions import Condition
from harness.errors import ConfigError, ConfoundError
from harness.models.prefix_tree import common_prefix
from harness.plan import Batch, Cell
from harness.prompt import Arm, render_arms
from harness.state import derive
from harness.statusbar import Placebo
from harness.statusbar.base import misfit
from harness.template import THINK_CLOSE, ChatTemplate
from harness.types import Decoding, Request, Sample

_CLOSING = f"\n{THINK_CLOSE}\n\n"
"""What at most stands between a drawn thought and a choice."""
_LENGTH_KEYS = {"filler": "filler_tokens", "prior_calls": "prior_calls", "moved_limit": "prior_calls"}
"""The key of a series that makes its prompts longer."""
_SHORTENED = {"filler": "filler tokens", "moved_limit": "prior calls"}
"""Series that are run up to what fits the model → what their lengths are."""
Length = tuple[str, int]
"""A series over length and one of its lengths."""


@dataclass(frozen=True, slots=True)
class ReadyCell:
    """A cell with its request; the prompt's text is dropped (its ids say all of it)."""

    cell: Cell
    request: Request
    bar_text: str
    placebo_id: int | None
    shared: int = 0
    """Leading tokens of the prompt that all arms of its sample share in this run, the last one never."""


@dataclass(frozen=True, slots=True)
class ReadyBatch:
    number: int
    cells: tuple[ReadyCell, ...]


@dataclass(frozen=True, slots=True)
class Preflight:
    """All requests of a run, and the tokens that every prompt starts with."""

    batches: tuple[ReadyBatch, ...]
    shared_prefix: tuple[int, ...]
    left_out: tuple[str, ...] = ()
    """One sentence for each length that the model does not take; all its cells are left out of the batches."""

    @property
    def cell_order(self) -> list[str]:
        return [ready.request.cell_id for batch in self.batches for ready in batch.cells]


def prepare(
    plan: Sequence[Batch],
    template: ChatTemplate,
    conditions: Sequence[Condition],
    decoding: Mapping[str, Decoding],
    *,
    thoughts: int | None = None,
    max_tokens: int | None = None,
) -> Preflight:
    """Requests for every cell of the plan. `thoughts`: drawn per `choose` cell before its choices;
    `max_tokens`: what the model takes of prompt and reply together, None for no limit.

    A length of series `filler` or `moved_limit` of which any cell does not fit the model is left out whole, in
    every probe and arm; batches keep their numbers. Raises ConfoundError or TemplateError at the first sample whose
    arms are not comparable, and ConfigError at the first of another series that does not fit the model, or when
    nothing is left of a probe's series.
    """
    by_name = {condition.name: condition for condition in conditions}
    wanted: dict[str, dict[str, Condition]] = {}
    for cell in (cell for batch in plan for cell in batch.cells):
        wanted.setdefault(cell.sample.id, {})[cell.condition] = by_name[cell.condition]
    maker = _Maker(template, _chooser(plan, template, thoughts), decoding, thoughts or 0, max_tokens)
    checked: set[str] = set()
    ready: list[ReadyBatch] = []
    too_long: dict[Length, str] = {}
    arms: dict[str, Mapping[str, Arm]] = {}
    told_apart = _ToldApart({each.name for each in conditions if isinstance(each.bar, Placebo)})
    for batch in plan:
        # One sample may go over several batches, one arm in each; no other is needed again.
        kept = {cell.sample.id for cell in batch.cells}
        arms = {sample_id: known for sample_id, known in arms.items() if sample_id in kept}
        cells = []
        for cell in batch.cells:
            if cell.sample.id not in arms:
                here = list(wanted[cell.sample.id].values())
                _check_claims(cell.sample, here)
                rendered = render_arms(template, cell.sample, here)
                arms[cell.sample.id] = _light(rendered, template, checked)
                told_apart.read(cell.sample.id, arms[cell.sample.id])
            cells.append(maker.ready(cell, arms[cell.sample.id]))
            problem = maker.misfit(cells[-1])
            if problem and cell.sample.series not in _SHORTENED:
                raise ConfigError(problem)
            if problem:
                too_long.setdefault(_length(cell), problem)
        ready.append(ReadyBatch(batch.number, tuple(cells)))
    told_apart.check()
    ready = _without(ready, too_long)
    prompts = [cell.request.prompt.ids for batch in ready for cell in batch.cells]
    shared = _shared(prompts) if prompts else 0
    told = tuple(_told(length, max_tokens or 0) for length in sorted(too_long))
    return Preflight(tuple(ready), prompts[0][:shared] if prompts else (), told)


def _check_claims(sample: Sample, conditions: Sequence[Condition]) -> None:
    """Raises ConfoundError for a bar that cannot be on this sample what its options say."""
    state = derive(sample.messages, sample.tools)
    for condition in conditions:
        problem = misfit(condition.bar, state, sample.rules)
        if problem is not None:
            raise ConfoundError(f"condition {condition.name}, sample {sample.id}: {problem}")


class _ToldApart:
    """Do the prompts of any two conditions differ in some sample that they share? Two placebos need not: bars of one length
    and form have the same. Not frozen: it is read sample by sample."""

    def __init__(self, placebos: set[str]) -> None:
        self._placebos = placebos
        self._alike: dict[tuple[str, str], set[str]] = {}
        """Two conditions → ids of the samples so far, in each of which their prompts were equal."""
        self._differ: set[tuple[str, str]] = set()

    def read(self, sample_id: str, arms: Mapping[str, Arm]) -> None:
        """Takes one sample's arms in."""
        hashes = {name: arm.prompt.prompt_hash for name, arm in arms.items()}
        for pair in combinations(sorted(hashes), 2):
            if pair in self._differ or self._placebos.issuperset(pair):
                continue
            if hashes[pair[0]] == hashes[pair[1]]:
                self._alike.setdefault(pair, set()).add(sample_id)
            else:
                self._differ.add(pair)
                self._alike.pop(pair, None)

    def check(self) -> None:
        """Raises ConfoundError for two conditions that are one."""
        for (first, second), samples in sorted(self._alike.items()):
            where = "the one sample" if len(samples) == 1 else f"all {len(samples)} samples"
            raise ConfoundError(
                f"conditions {first} and {second} send the same prompts in {where} of this run, so that no difference "
                f"between them can come out; leave one of them out, or take samples on which they differ"
            )


def _length(cell: Cell) -> Length:
    sample = cell.sample
    return sample.series, sample.filler_tokens if sample.series == "filler" else sample.prior_calls


def _without(batches: Sequence[ReadyBatch], too_long: Mapping[Length, str]) -> list[ReadyBatch]:
    """The batches without the cells of these lengths. Raises ConfigError when a probe's series ends up empty."""
    left: dict[tuple[str, str], int] = {}
    for ready in (ready for batch in batches for ready in batch.cells):
        place = (ready.cell.probe, ready.cell.sample.series)
        left[place] = left.get(place, 0) + (_length(ready.cell) not in too_long)
    for (_, series), cells in left.items():
        if not cells:
            raise ConfigError(too_long[min(length for length in too_long if length[0] == series)])
    kept = []
    for batch in batches:
        cells_left = tuple(ready for ready in batch.cells if _length(ready.cell) not in too_long)
        if cells_left:
            kept.append(ReadyBatch(batch.number, cells_left))
    return kept


def _told(length: Length, most: int) -> str:
    series, number = length
    what = _SHORTENED[series]
    if number == 1:
        return f"series {series}: 1 {what[:-1]} does not fit the model's {most} tokens and is left out"
    return f"series {series}: {number} {what} do not fit the model's {most} tokens and are left out"


def _chooser(plan: Sequence[Batch], template: ChatTemplate, thoughts: int | None) -> ChoiceBuilder | None:
    if all(cell.probe != "choose" for batch in plan for cell in batch.cells):
        return None
    if thoughts:
        # After a closed thought the reply goes on as it does after an empty one.
        return ChoiceBuilder(ChatTemplate(template.tokenizer, "off", template.keep_reasoning))
    return ChoiceBuilder(template)


def _shared(prompts: Sequence[Sequence[int]]) -> int:
    """Leading tokens that all prompts share. The last token of a prompt is never shared: its logits are
    read."""
    return min(common_prefix(prompts), min(map(len, prompts)) - 1)


def _light(arms: Mapping[str, Arm], template: ChatTemplate, checked: set[str]) -> Mapping[str, Arm]:
    """Drops the texts; one text of each arm is held against the tokenizer itself first."""
    for name, arm in arms.items():
        if name not in checked:
            template.check_exact(arm.prompt.text)
            checked.add(name)
    return {name: replace(arm, prompt=replace(arm.prompt, text="")) for name, arm in arms.items()}


@dataclass(frozen=True, slots=True)
class _Maker:
    """A cell and its sample's arms → its request."""

    template: ChatTemplate
    chooser: ChoiceBuilder | None
    decoding: Mapping[str, Decoding]
    thoughts: int
    max_tokens: int | None

    def ready(self, cell: Cell, arms: Mapping[str, Arm]) -> ReadyCell:
        arm = arms[cell.condition]
        request = Request(
            cell_id=cell.id,
            probe=cell.probe,
            prompt=arm.prompt,
            decoding=self.decoding[cell.probe],
            seed=cell.seed,
            messages=arm.messages,
            tools=cell.sample.tools,
        )
        if cell.probe == "choose" and self.chooser is not None:
            choices = self.chooser.build(cell.sample)
            request = replace(request, forced_ids=choices.forced, choices=choices.choices)
            if self.thoughts:
                request = replace(request, thoughts=self.thoughts, stop_text=THINK_CLOSE)
        shared = _shared([other.prompt.ids for other in arms.values()])
        return ReadyCell(cell, request, arm.bar_text, arm.placebo_id, shared)

    def misfit(self, ready: ReadyCell) -> str | None:
        """What is wrong when the cell needs more tokens than the model takes; None when it fits."""
        cell, request = ready.cell, ready.request
        prompt, after = len(request.prompt.ids), 0
        if request.probe != "choose" or request.thoughts:
            after += request.decoding.max_new_tokens
        if request.choices:
            after += len(request.forced_ids) + max(map(len, request.choices.values()))
        if request.thoughts:
            after += self.template.count(_CLOSING)
        if self.max_tokens is None or prompt + after <= self.max_tokens:
            return None
        series, length = _length(cell)
        key = f"probe.{cell.probe}.series.{series}"
        what, lower = key, f"lower probe.{cell.probe}.max_new_tokens"
        if part := _LENGTH_KEYS.get(series):
            what, lower = f"{key}.{part}: {length}", f"leave {length} out of {key}.{part}"
        if series in _SHORTENED:
            lower = f"no length of the series is left; give shorter ones in {key}.{part}"
        return (
            f"{what} needs {prompt + after} tokens (prompt {prompt}, then up to {after}; {cell.condition}), the model "
            f"takes {self.max_tokens}; {lower}, or raise model.engine.max_model_len where the model can take more"
        )
