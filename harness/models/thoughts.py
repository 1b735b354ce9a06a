"""`choose` after thinking: draw thoughts, close them, read the choices' probabilities after each.

Over any Model: the thoughts as free replies that end at the closing mark, and as soon as a cell's last one is
there the choices after prompt and thought. Probabilities are averaged over the thoughts, not their logs. The rule
for a thought without an end of its own, which is flagged as cut (and as censored where the limit cut it inside its
block: only there is its length a lower bound):

| thought | closed by |
| --- | --- |
| cut by the limit, or the reply ended before the mark | the mark on a line of its own |
| the reply opened no thinking block at all | the empty block in its place; what was written is not kept |
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from harness.models.base import Model
from harness.parsing import ThinkingCount
from harness.types import ModelOutput, ModelUsage, Request, Thought

OPENING = "<think>"
GAP = "\n\n"
"""What stands between a closed thought and what follows, in every thinking template that is supported."""


@dataclass(frozen=True, slots=True)
class Codec:
    """The tokenizer's two directions, no special token added, and how thinking is counted."""

    encode: Callable[[str], tuple[int, ...]]
    decode: Callable[[Sequence[int]], str]
    count: Callable[[ModelOutput, bool], ThinkingCount]
    """(reply, did the prompt open the block?) → thinking tokens strictly between the marks."""


@dataclass(frozen=True, slots=True)
class _Drawn:
    output: ModelOutput
    closed: tuple[int, ...]
    """Ids of the thought with its end and the gap after it."""
    cut: bool
    tokens: int
    censored: bool = False


@dataclass(slots=True)
class _Cell:
    request: Request
    thoughts: "dict[int, _Drawn]" = field(default_factory=dict)
    chosen: dict[int, ModelOutput] = field(default_factory=dict)


def thought_seed(seed: int, number: int) -> int:
    """Seed of one thought of a cell; the same in every arm of a sample, as the cell's own is."""
    digest = hashlib.sha256(f"{seed}|thought|{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def choose_after_thinking(
    model: Model, requests: Sequence[Request], codec: Codec
) -> Iterator[tuple[str, ModelOutput]]:
    """Outputs of `choose` requests with `thoughts` above 0. A cell one of whose requests failed for good is
    an error as a whole: an average over fewer thoughts would be another measurement."""
    cells = {request.cell_id: _Cell(request) for request in requests}
    draws = {
        f"{request.cell_id}|thought {number}": (request.cell_id, number)
        for request in requests
        for number in range(request.thoughts)
    }
    asks = {name.replace("|thought ", "|after thought "): place for name, place in draws.items()}
    failed: set[str] = set()

    def then(name: str, output: ModelOutput) -> list[Request]:
        """A cell's choices are asked for as soon as its last thought is there."""
        if name not in draws or output.finish_reason == "error":
            return []
        cell_id, number = draws[name]
        cell = cells[cell_id]
        cell.thoughts[number] = _closed(output, cell.request, codec)
        if cell_id in failed or len(cell.thoughts) < cell.request.thoughts:
            return []
        return [_ask(cell, f"{cell_id}|after thought {number}", number) for number in cell.thoughts]

    for name, output in model.run([_draw(cells[cell], name, n) for name, (cell, n) in draws.items()], then):
        cell_id, number = draws.get(name) or asks[name]
        if cell_id in failed:
            continue
        if output.finish_reason == "error":
            failed.add(cell_id)
            yield cell_id, output
        elif name in asks:
            cell = cells[cell_id]
            cell.chosen[number] = output
            if len(cell.chosen) == cell.request.thoughts:
                yield cell_id, _averaged(cell)


def _draw(cell: _Cell, name: str, number: int) -> Request:
    """The request that draws one thought."""
    request = cell.request
    return replace(
        request,
        cell_id=name,
        probe="act",
        seed=thought_seed(request.seed, number),
        forced_ids=(),
        choices={},
        thoughts=0,
    )


def _closed(output: ModelOutput, request: Request, codec: Codec) -> _Drawn:
    """The thought by the rule above."""
    mark, text, ids = request.stop_text, output.text, output.token_ids
    count = codec.count(output, request.prompt.think_open)
    tokens = count.tokens or 0
    if not request.prompt.think_open and OPENING not in text:
        return _Drawn(output, codec.encode(f"{OPENING}{GAP}{mark}{GAP}"), True, 0)
    if mark not in text:
        kept = ids[:-1] if output.finish_reason == "stop" else ids
        tail = "" if text.endswith("\n") else "\n"
        censored = count.censored and output.finish_reason == "length"
        return _Drawn(output, kept + codec.encode(f"{tail}{mark}{GAP}"), True, tokens, censored)
    return _Drawn(output, spelt_closed(ids, text, mark, codec.encode, codec.decode), False, tokens)


def spelt_closed(
    ids: tuple[int, ...],
    text: str,
    mark: str,
    encode: Callable[[str], tuple[int, ...]],
    decode: Callable[[Sequence[int]], str],
) -> tuple[int, ...]:
    """Ids of a thought that closed itself, up to its mark and with the gap behind it. `text`: what `ids` say."""
    kept = text[: text.index(mark) + len(mark)]
    # Where the last token holds more than the mark's end the thought is spelt anew.
    return ids + encode(GAP) if kept == text == decode(ids) else encode(kept + GAP)


def _ask(cell: _Cell, name: str, number: int) -> Request:
    """The request for the choices after one closed thought."""
    request, closed = cell.request, cell.thoughts[number].closed
    prompt = replace(request.prompt, ids=request.prompt.ids + closed, text="", think_open=False)
    return replace(request, cell_id=name, prompt=prompt, thoughts=0, stop_text="")


def _averaged(cell: _Cell) -> ModelOutput:
    labels = sorted(cell.request.choices)
    thoughts, logs = [], []
    for number in range(cell.request.thoughts):
        drawn = cell.thoughts[number]
        logprobs = cell.chosen[number].choice_logprobs or {}
        values = tuple(logprobs[label] for label in labels)
        logs.append(values)
        thoughts.append(Thought(drawn.output.token_ids, drawn.cut, drawn.tokens, values, drawn.censored))
    first = cell.thoughts[0].output
    usage = ModelUsage(
        prompt_tokens=len(cell.request.prompt.ids),
        completion_tokens=sum(len(thought.token_ids) for thought in thoughts),
        cached_tokens=first.usage.cached_tokens,
    )
    return ModelOutput(
        "",
        (),
        "choice",
        usage,
        first.timing,
        choice_logprobs={label: _log_mean([row[i] for row in logs]) for i, label in enumerate(labels)},
        thoughts=tuple(thoughts),
    )


def _log_mean(logs: Sequence[float]) -> float:
    """Log of the mean of exp(logs), safe for very small probabilities."""
    top = max(logs)
    if top == -math.inf:
        return top
    return top + math.log(sum(math.exp(value - top) for value in logs) / len(logs))
