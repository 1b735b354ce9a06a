"""(Sample, Condition) → messages. The only place where a bar enters a prompt.

Knows bars and placements; knows no tokenizer (it is given a function that counts tokens) and no model.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass

from harness.errors import ConfigError, ConfoundError
from harness.state import derive
from harness.statusbar.base import BarContext, StatusBar, StatusText
from harness.statusbar.placebo import Placebo
from harness.statusbar.placements import Placement
from harness.types import Message, Sample


@dataclass(frozen=True, slots=True)
class Condition:
    """One arm. The control has neither bar nor placement."""

    name: str
    bar: StatusBar | None = None
    placement: Placement | None = None

    def __post_init__(self) -> None:
        if (self.bar is None) != (self.placement is None):
            raise ConfigError(
                f"condition.{self.name}: a bar needs a placement and a placement needs a bar; "
                "set both or neither (neither is the control)"
            )

        if self.bar is not None and not isinstance(getattr(self.bar, "name", None), str):
            raise ConfigError(f"condition.{self.name}.bar: a bar class needs `name: ClassVar[str]`")

    def stands_in_for(self, other: "Condition") -> bool:
        """Is this the placebo of `other`'s bar at the same place?"""
        return (
            isinstance(self.bar, Placebo)
            and self.bar.of == other.bar
            and self.placement_name == other.placement_name
        )

    @property
    def bar_name(self) -> str:
        return self.bar.name if self.bar else "none"

    @property
    def placement_name(self) -> str:
        return self.placement.name if self.placement else "none"


@dataclass(frozen=True, slots=True)
class Treated:
    """A sample's messages under one condition, and the bar that was drawn."""

    messages: tuple[Message, ...]
    bar: StatusText | None


def cluster_index(cluster: str) -> int:
    """The number at the end of a cluster's name (`matched/c007` → 7), so that neighbours take turns
    through the placebo texts; a name without one is hashed."""
    digits = cluster[len(cluster.rstrip("0123456789")) :]
    return int(digits) if digits else zlib.crc32(cluster.encode())


def apply(sample: Sample, condition: Condition, count_tokens: Callable[[str], int]) -> Treated:
    """Messages of `sample` under `condition`. Raises ConfoundError when the bar cannot be drawn for
    this sample: an arm that silently equals the control would dilute the effect."""
    if condition.bar is None or condition.placement is None:
        return Treated(sample.messages, None)
    context = BarContext(
        rules=sample.rules,
        cluster_index=cluster_index(sample.cluster),
        decoys=sample.decoys,
        count_tokens=count_tokens,
    )
    bar = condition.bar.draw(derive(sample.messages), context)
    if bar is not None and not isinstance(bar, StatusText):
        raise ConfigError(
            f"condition {condition.name}: {type(condition.bar).__name__}.draw must return a StatusText or None"
        )
    if bar is None:
        raise ConfoundError(f"condition {condition.name}: no bar is drawn for sample {sample.id}")
    return Treated(condition.placement.place(sample.messages, bar.text), bar)
