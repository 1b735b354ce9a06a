"""A record of the run log → the token sequence to replay and the rows that are wanted of it.

Row t is the one that helps to predict token t + 1; a decision is therefore looked for one position before the token
that states it. In a free reply it is the row of the first answer token, in every arm: there the model turns to a call or
to prose, while the row before a tool's name stands inside a call that was begun, and not every arm begins one. Knows
records and token texts; knows no model, no region and no array.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.attention.labels import Labels, token_at
from harness.attention.store import Row
from harness.errors import AttentionError
from harness.models.thoughts import spelt_closed
from harness.parsing import first_answer_piece, thinking_pieces
from harness.template import THINK_CLOSE
from harness.types import EvalRecord, Thought


@dataclass(frozen=True, slots=True)
class Sequenced:
    """One cell as it is replayed."""

    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    """The text of each token."""
    prompt: int
    """Tokens of the prompt."""
    stem: int
    """Tokens before the choices (probe `choose`), or before the reply."""
    rows: tuple[Row, ...]
    path: tuple[Row, ...]
    thinking: tuple[tuple[int, int], ...]
    """Token ranges of the generated thinking, without its marks."""
    answer: tuple[int, int]
    """Token range of the answer; in `choose` what the asked-for choice begins with."""
    forced: tuple[int, int]
    """Token range that the `choose` probe prescribes."""
    choices: Mapping[str, tuple[int, ...]]
    """Choice → ids behind the stem; empty but for `choose`."""
    recorded: Mapping[str, float]
    """Choice → recorded log-probability after the very tokens of `ids`."""


def sequence(
    record: EvalRecord, labels: Labels, answer_tokens: Sequence[int] = (), every: int = 1
) -> Sequenced:
    """`answer_tokens`: numbers of answer tokens, from 0, whose rows are kept besides the decision's; `every`: step
    along the path.

    Raises AttentionError when the record holds nothing to replay.
    """
    if record.probe == "choose":
        return _choice(record, labels, every)
    return _reply(record, labels, answer_tokens, every)


# -- choose --------------------------------------------------------------------------------------------


def _choice(record: EvalRecord, labels: Labels, every: int) -> Sequenced:
    thought, recorded = _thought(record)
    thinking = _closed(thought, labels) if thought else ()
    prompt = record.prompt_ids
    stem = prompt + thinking + record.forced_ids
    asked = f"{record.expectation.tool}:{record.expectation.target}"
    if asked not in record.choices:
        raise AttentionError(
            f"cell {record.cell_id}: its choices have no {asked!r}; the row cannot be replayed"
        )
    parts = _parting(record, asked)
    ids = stem + record.choices[asked][:parts]
    pieces = labels.pieces(ids + record.choices[asked][parts:])
    rows = [Row("decision", len(stem) - 1, record.expectation.tool)]
    if parts:
        rows.append(Row("value", len(ids) - 1, record.expectation.target))
    inside = thinking_pieces(pieces[len(prompt) : len(prompt) + len(thinking)], think_open=record.think_open)
    ranges = tuple((len(prompt) + a, len(prompt) + b) for a, b in inside)
    path = [
        Row("thinking", position - 1, pieces[position]) for a, b in ranges for position in range(a, b, every)
    ]
    return Sequenced(
        ids=ids,
        pieces=tuple(pieces[: len(ids)]),
        prompt=len(prompt),
        stem=len(stem),
        rows=tuple(rows),
        path=tuple(path),
        thinking=ranges,
        answer=(len(stem), len(ids)),
        forced=(len(stem) - len(record.forced_ids), len(stem)),
        choices=record.choices,
        recorded=recorded,
    )


def _thought(record: EvalRecord) -> tuple[Thought | None, Mapping[str, float]]:
    """The first thought that closed itself, and the log-probabilities after it."""
    if not record.output.thoughts:
        return None, record.output.choice_logprobs or {}
    for thought in record.output.thoughts:
        if not thought.cut and len(thought.logprobs) == len(record.choices):
            return thought, dict(zip(sorted(record.choices), thought.logprobs, strict=True))
    raise AttentionError(
        f"cell {record.cell_id}: each of its thoughts was cut; nothing shows what it would have decided"
    )


def _closed(thought: Thought, labels: Labels) -> tuple[int, ...]:
    """The thought's ids as the run put them before the choices."""
    text = labels.decode(thought.token_ids)
    return spelt_closed(thought.token_ids, text, THINK_CLOSE, labels.encode, labels.decode)


def _parting(record: EvalRecord, asked: str) -> int:
    """Tokens of the asked-for choice before it parts from the same tool with another value; 0: there is none."""
    own, prefix = record.choices[asked], f"{record.expectation.tool}:"
    shared = [
        next((i for i, (a, b) in enumerate(zip(own, ids, strict=False)) if a != b), 0)
        for label, ids in record.choices.items()
        if label != asked and label.startswith(prefix)
    ]
    return max(shared, default=0)


# -- act and ask ---------------------------------------------------------------------------------------


def _reply(record: EvalRecord, labels: Labels, answer_tokens: Sequence[int], every: int) -> Sequenced:
    prompt, reply = record.prompt_ids, record.output.token_ids
    if not reply:
        raise AttentionError(
            f"cell {record.cell_id}: its reply has no token ids; only such replies can be replayed"
        )
    start = len(prompt)
    pieces = labels.pieces(prompt + reply)
    own = pieces[start:]
    inside = thinking_pieces(own, think_open=record.think_open)
    thinking = {i for a, b in inside for i in range(a, b)}
    first = first_answer_piece(own, think_open=record.think_open)
    rows = []
    if first is not None:
        rows.append(Row("decision", start + first - 1, own[first]))
        call = _call(record, own, first)
        if call is not None and call[0] != first:
            rows.append(Row("call", start + call[0] - 1, call[1]))
        taken = {row.position for row in rows}
        rows += [
            Row("answer", start + first + i - 1, own[first + i])
            for i in answer_tokens
            if first + i < len(own) and start + first + i - 1 not in taken
        ]
    answer = range(first, len(own), every) if first is not None else ()
    path = [Row("thinking", start + i - 1, own[i]) for a, b in inside for i in range(a, b, every)]
    path += [Row("answer", start + i - 1, own[i]) for i in answer if i not in thinking]
    end = start + len(reply) - 1  # the last token predicts nothing that was recorded
    return Sequenced(
        ids=(prompt + reply)[:end],
        pieces=tuple(pieces[:-1]),
        prompt=start,
        stem=start,
        rows=tuple(sorted(rows, key=lambda row: row.position)),
        path=tuple(path),
        thinking=tuple((start + a, min(start + b, end)) for a, b in inside if start + a < end),
        answer=(start + first, end) if first is not None and start + first < end else (end, end),
        forced=(start, start),
        choices={},
        recorded={},
    )


def _call(record: EvalRecord, own: Sequence[str], first: int) -> tuple[int, str] | None:
    """Number of the reply's token that begins the name of its first call, and that name; None without a call."""
    calls = [call for call in (record.parsed.tool_calls if record.parsed else ()) if not call.in_reasoning]
    if not calls:
        return None
    name, text = calls[0].name, "".join(own)
    lead = sum(len(piece) for piece in own[:first])
    # Prose may quote the name before the call states it.
    stated = re.compile(rf'"name"\s*:\s*"{re.escape(name)}"').search(text, lead)
    at = stated.end() - len(name) - 2 if stated else text.find(f'"{name}"', lead)
    return (token_at(own, at + 1), name) if at >= 0 else None
