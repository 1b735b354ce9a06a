"""A trajectory × a set of arms → rows: T requests become T prompts per arm.

Knows conditions, the fold of a policy and prompts; knows no file and no configuration.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from harness.conditions import Condition, unfold
from harness.delivery import Delivered, requests
from harness.errors import ConfoundError, TemplateError
from harness.ledger.prompts import NotConcatenativeError, Prompts, looks_back
from harness.ledger.rows import Engine, Row, rows
from harness.statusbar.policies import Never
from harness.template import ChatTemplate
from harness.types import Sample

NEVER = "never"
MOST_TRIED = 6
"""Requests of an arm that are rendered as a whole, to hold the pieces against."""
Step = Callable[[int, int], None]
"""Told after each arm: arms done, arms in all."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A condition, and the name of the arm that it is held against (its own, for a control)."""

    condition: Condition
    control: str

    @property
    def name(self) -> str:
        return self.condition.name

    def is_control_of(self, condition: Condition) -> bool:
        """Has it the transcript of `condition`, and no bar?"""
        return self.control == self.name and self.condition.boundary == condition.boundary


@dataclass(frozen=True, slots=True)
class Bill:
    """Rows in the order of the arms, within an arm of the requests."""

    arms: tuple[Arm, ...]
    requests: int
    rows: tuple[Row, ...]
    whole: bool
    """Was every prompt rendered as one, because the template is not concatenative?"""

    def of(self, name: str) -> list[Row]:
        return [row for row in self.rows if row.condition == name]


def arms_of(conditions: Sequence[Condition]) -> tuple[Arm, ...]:
    """The conditions with what each is held against: the same transcript without the bar. That is the one whose policy
    is never to put the bar in, and for a policy that compacts the transcript an arm of its own, which is added; where
    there is none that never does, it is added, too. Controls come before what is held against them."""
    never = [each for each in conditions if each.bar is None or isinstance(each.policy, Never)]
    plain = next((each for each in never if each.boundary is None), Condition(NEVER))
    arms = [Arm(plain, plain.name)]
    for each in conditions:
        if each is plain:
            continue
        control = plain.name
        if each.boundary is not None:
            control = next((arm.name for arm in arms if arm.is_control_of(each)), "")
            if not control:
                control = each.name if each.bar is None else f"{each.name}_without_bar"
                if control != each.name:
                    arms.append(Arm(Condition(control, policy=each.policy), control))
        arms.append(Arm(each, control))
    return tuple(arms)


def bill(
    sample: Sample, template: ChatTemplate, arms: Sequence[Arm], engine: Engine, step: Step | None = None
) -> Bill:
    """The rows of every arm. `sample`: its messages are the whole trajectory, recorded replies included.

    Raises ConfoundError for a trajectory without a request, and what a bar, a placement or the template raises, with
    the arm's name before it.
    """
    ends = requests(sample.messages)
    if not ends:
        raise ConfoundError(
            f"trajectory {sample.id}: it has no request; give one with at least one message to answer"
        )
    whole = looks_back(template, sample.messages)
    if not whole:
        try:
            found = _rows(sample, template, arms, engine, ends, step, whole=False)
        except NotConcatenativeError:
            whole = True
    if whole:
        found = _rows(sample, template, arms, engine, ends, step, whole=True)
    return Bill(tuple(arms), len(ends), tuple(found), whole)


def _rows(
    sample: Sample,
    template: ChatTemplate,
    arms: Sequence[Arm],
    engine: Engine,
    ends: Sequence[int],
    step: Step | None,
    *,
    whole: bool,
) -> list[Row]:
    prompts = Prompts(template, sample.tools, sample.messages, whole=whole)
    replies = [
        prompts.reply_ids(sample.messages[end]) if end < len(sample.messages) else None for end in ends
    ]
    controls: dict[str, list[int]] = {}
    found: list[Row] = []
    for number, arm in enumerate(arms, start=1):
        with _named(arm, sample):
            delivered = list(unfold(sample, arm.condition, template.count))
            if not whole and not all(prompts.same_as_whole(each.messages) for each in _tried(delivered)):
                raise NotConcatenativeError
            own = None if arm.control == arm.name else controls[arm.control]
            made = list(rows(arm.name, delivered, prompts, arm.condition.placement, engine, own, replies))
        if own is None:
            controls[arm.name] = [row.prompt_tokens for row in made]
        found += made
        if step is not None:
            step(number, len(arms))
    template.check_exact(template.text(delivered[-1].messages, sample.tools))
    return found


def _tried(delivered: Sequence[Delivered]) -> Iterator[Delivered]:
    """The last request, and one of each kind of ending: roles of the last three messages."""
    kinds = {tuple(message.role for message in each.messages[-3:]): each for each in delivered[:-1]}
    yield delivered[-1]
    yield from list(kinds.values())[-MOST_TRIED + 1 :]


@contextmanager
def _named(arm: Arm, sample: Sample) -> Iterator[None]:
    """Puts the arm's name before what a bar, a placement or the template says."""
    try:
        yield
    except (ConfoundError, TemplateError) as error:
        raise type(error)(f"policy {arm.name}, trajectory {sample.id}: {error}") from error
