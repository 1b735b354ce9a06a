"""What a scorer is. Knows recorded data alone: no model, no prompt, no condition."""

from typing import Protocol

from harness.types import EvalRecord, Score


class Scorer(Protocol):
    """Anything that turns one recorded cell into a Score, so that a run can be scored again without a
    model."""

    def __call__(self, record: EvalRecord) -> Score:
        """The verdict on `record`, from everything but its own `score` field. Deterministic; never raises."""
        ...
