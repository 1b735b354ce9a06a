"""(Sample, Condition) → messages. The only place where a bar enters a prompt.

Knows bars, placements and policies; knows no tokenizer (it is given a function that counts tokens) and no model.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from harness.delivery import Delivered, Delivery, Injection, InjectionRules
from harness.errors import ConfigError, ConfoundError
from harness.objects import changed
from harness.statusbar.base import BarContext, StatusBar, StatusText
from harness.statusbar.placebo import Placebo
from harness.statusbar.placements import Placement
from harness.statusbar.policies import Boundary, Replace, UpdatePolicy
from harness.types import Message, Sample


@dataclass(frozen=True, slots=True)
class Condition:
    """One arm. The control has neither bar nor placement; a control of a compacted transcript has the policy alone."""

    name: str
    bar: StatusBar | None = None
    placement: Placement | None = None
    policy: UpdatePolicy = field(default_factory=Replace)
    rules: InjectionRules = field(default_factory=InjectionRules)

    def __post_init__(self) -> None:
        if (self.bar is None) != (self.placement is None):
            raise ConfigError(
                f"condition.{self.name}: a bar needs a placement and a placement needs a bar; "
                "set both or neither (neither is the control)"
            )

        if self.bar is not None and not isinstance(getattr(self.bar, "name", None), str):
            raise ConfigError(f"condition.{self.name}.bar: a bar class needs `name: ClassVar[str]`")

    def stands_in_for(self, other: "Condition") -> bool:
        """Is this the placebo of `other`'s bar at the same place, under the same policy?"""
        return (
            isinstance(self.bar, Placebo)
            and self.bar.of == other.bar
            and (self.placement, self.policy, self.rules) == (other.placement, other.policy, other.rules)
        )

    def is_variant_of(self, other: "Condition") -> bool:
        """Is it the other's bar changed, with a line left out, say, at the same place under the same policy?"""
        inner = None if isinstance(self.bar, Placebo) else getattr(self.bar, "of", None)
        return (
            inner is not None
            and inner == other.bar
            and (self.placement, self.policy, self.rules) == (other.placement, other.policy, other.rules)
        )

    @property
    def bar_name(self) -> str:
        return self.bar.name if self.bar else "none"

    @property
    def placement_name(self) -> str:
        return self.placement.name if self.placement else "none"

    def compacted_control(self, every: Iterable["Condition"]) -> str | None:
        """The name of the arm among `every` that has the same transcript and no bar."""
        bare = (other.name for other in every if other.bar is None and other.boundary == self.boundary)
        return next(bare, None)

    def entry(self, every: Iterable["Condition"]) -> dict[str, Any]:
        """The arm as a manifest lists it, with what differs from the defaults; a placebo names the arm that it stands
        in for, an arm of a compacted transcript its control."""
        every = tuple(every)
        more = {
            "policy": self.policy.name if self.policy != Replace() else None,
            "policy_options": changed(self.policy),
            "rules": changed(self.rules),
            "bar_options": changed(self.bar),
            "placement_options": changed(self.placement),
            "placebo_of": next((other.name for other in every if self.stands_in_for(other)), None),
            "control": self.compacted_control(every) if self.boundary else None,
            "variant_of": next((other.name for other in every if self.is_variant_of(other)), None),
        }
        entry = {"name": self.name, "bar": self.bar_name, "placement": self.placement_name}
        return entry | {key: value for key, value in more.items() if value}

    @property
    def boundary(self) -> Boundary | None:
        """The policy, where it compacts the transcript that the arm shares with its own control."""
        return self.policy if isinstance(self.policy, Boundary) else None


@dataclass(frozen=True, slots=True)
class Treated:
    """A sample's messages under one condition, and the newest copy of the bar in them."""

    messages: tuple[Message, ...]
    bar: StatusText | None
    base: tuple[Message, ...] = ()
    """The messages without any copy."""
    injections: tuple[Injection, ...] = ()
    """All copies in them, oldest first."""


def cluster_index(cluster: str) -> int:
    """The number at the end of a cluster's name (`matched/c007` → 7), so that neighbours take turns
    through the placebo texts; a name without one is hashed."""
    digits = cluster[len(cluster.rstrip("0123456789")) :]
    return int(digits) if digits else zlib.crc32(cluster.encode())


def context_of(sample: Sample, count_tokens: Callable[[str], int]) -> BarContext:
    """What a framework would have at hand at this decision point."""
    return BarContext(
        rules=sample.rules,
        cluster_index=cluster_index(sample.cluster),
        decoys=sample.decoys,
        count_tokens=count_tokens,
        sample_id=sample.id,
        cluster=sample.cluster,
    )


def unfold(sample: Sample, condition: Condition, count_tokens: Callable[[str], int]) -> Iterator[Delivered]:
    """A transcript of T requests under one condition: T prompts, each with the copies that stand in it by then."""
    delivery = Delivery(condition.bar, condition.placement, condition.policy, condition.rules)
    return delivery.unfold(sample.messages, sample.tools, context_of(sample, count_tokens))


def apply(sample: Sample, condition: Condition, count_tokens: Callable[[str], int]) -> Treated:
    """Messages of `sample` under `condition` at its decision point, the last request. Raises ConfoundError when no
    copy of the bar is in them: an arm that silently equals the control would dilute the effect."""
    delivery = Delivery(condition.bar, condition.placement, condition.policy, condition.rules)
    last = delivery.last(sample.messages, sample.tools, context_of(sample, count_tokens))
    if last is None:
        raise ConfoundError(f"sample {sample.id}: it ends with the assistant, so there is nothing to ask for")
    base = last.base if condition.boundary else sample.messages
    if condition.bar is None:
        return Treated(base, None, base)
    if not last.injections:
        raise ConfoundError(f"condition {condition.name}: no bar is drawn for sample {sample.id}")
    return Treated(last.messages, last.injections[-1].bar, base, last.injections)
