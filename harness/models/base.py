"""The plug point `Model`: what the runner knows of an engine."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from harness.config import ModelConfig
from harness.types import CacheState, ModelOutput, Request

Then = Callable[[str, ModelOutput], Sequence[Request]]
"""(cell id, its output) → requests that follow from it."""


def in_passes(
    once: Callable[[Sequence[Request]], Iterator[tuple[str, ModelOutput]]],
    requests: Sequence[Request],
    then: Then | None,
) -> Iterator[tuple[str, ModelOutput]]:
    """For engines that take no request while they work: what follows is a pass of its own."""
    waiting = list(requests)
    while waiting:
        following: list[Request] = []
        for cell_id, output in once(waiting):
            following.extend(then(cell_id, output) if then else ())
            yield cell_id, output
        waiting = following


class Model(Protocol):
    """An engine with its weights loaded.

    `run` takes one batch whose composition the plan fixed and yields `(cell_id, output)` as each cell is
    done, in any order. A cell that fails for good yields `finish_reason="error"`; it raises only what
    makes going on pointless.
    """

    computed_tokens: int
    """Tokens put through the engine so far, prefills and forks alike (decoding apart)."""

    @classmethod
    def from_config(cls, path: Path, tokenizer: Any, settings: ModelConfig, log_dir: Path) -> Self:
        """Loads or reaches the engine. `path`: the folder with weights or at least the tokenizer; a process
        that is started keeps its log in `log_dir`. Raises ModelError in one line that names the cause
        and the setting to change."""

    @property
    def cache_block(self) -> int | None:
        """Tokens in a block of the engine's prefix cache, for the ledger; None: no cache of blocks."""

    @property
    def cache_blocks(self) -> int | None:
        """Blocks that the cache holds, where that is known."""

    @property
    def facts(self) -> dict[str, Any]:
        """For the manifest: device, dtype, threads, library versions."""

    def share_prefix(self, ids: Sequence[int]) -> None:
        """Tokens that every prompt of the run starts with: computed once for the run."""

    def check_cache(self, cache: CacheState) -> None:
        """Raises ModelError when this engine cannot bring about that cache state."""

    def run(self, requests: Sequence[Request], then: Then | None = None) -> Iterator[tuple[str, ModelOutput]]:
        """`then` is told of each output as it comes; the requests that it returns belong to the batch, too."""

    def run_alone(self, request: Request, cache: CacheState = "cold", shared: int = 0) -> ModelOutput:
        """One `act` request with nothing else in flight, timed. `cache`: the state to bring about first;
        `shared`: leading tokens of the prompt that all arms of the sample share (for `warm`)."""

    def close(self) -> None: ...
