"""The plug point `Model`: what the runner knows of an engine."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from harness.types import ModelOutput, Request


class Model(Protocol):
    """An engine with its weights loaded.

    `run` takes one batch whose composition the plan fixed and yields `(cell_id, output)` as each cell is
    done, in any order. A cell that fails for good yields `finish_reason="error"`; it raises only what
    makes going on pointless.
    """

    computed_tokens: int
    """Tokens put through the engine so far, prefills and forks alike (decoding apart)."""

    @property
    def facts(self) -> dict[str, Any]:
        """For the manifest: device, dtype, threads, library versions."""

    def share_prefix(self, ids: Sequence[int]) -> None:
        """Tokens that every prompt of the run starts with: computed once for the run."""

    def run(self, requests: Sequence[Request]) -> Iterator[tuple[str, ModelOutput]]: ...

    def run_alone(self, request: Request) -> ModelOutput:
        """One `act` request with nothing else in flight and a cold cache, timed."""

    def close(self) -> None: ...
