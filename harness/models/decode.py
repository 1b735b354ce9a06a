"""Token by token: a left-padded batch of forked prompts, decoded until each is done.

Sampling is per row with the row's own seed, so a row does not depend on its neighbours' draws; the
processors are transformers' own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from transformers import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from harness.models.forward import Engine, KeyValues
from harness.parsing import first_answer_piece
from harness.types import Decoding, ModelOutput, ModelUsage, Request, Timing


@dataclass(slots=True)
class Row:
    """One cell being decoded: its request, the logits after its prompt, its keys and values."""

    request: Request
    logits: torch.Tensor
    past: KeyValues
    tokens: list[int] = field(default_factory=list)
    finish: str = ""
    times: list[float] = field(default_factory=list)
    """Seconds to each token, of a timed row."""


class Decoder:
    """Decodes rows on an Engine; stops at the model's own end tokens."""

    def __init__(self, engine: Engine, tokenizer: Any) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self.stop_ids = _stop_ids(engine.model, tokenizer)

    def decode(
        self, rows: Sequence[Row], fresh: Mapping[str, int], started: str, *, clock: float | None = None
    ) -> Iterator[tuple[str, ModelOutput]]:
        """Yields each row as it ends. `clock`: `perf_counter` at the start of a lone, timed request;
        None for a batch, which is not timed."""
        prompts = [torch.tensor(list(row.request.prompt.ids)) for row in rows]
        draws = [torch.Generator().manual_seed(row.request.seed) for row in rows]
        processors = [_processors(row.request.decoding) for row in rows]
        past, lengths = _padded([row.past for row in rows])
        width = past[0][0].shape[2]
        mask = torch.zeros(len(rows), width, dtype=torch.long, device=self._engine.device)
        for i, length in enumerate(lengths):
            mask[i, width - length :] = 1
            rows[i].past = []
        logits = torch.stack([row.logits for row in rows])
        step = 0
        while True:
            for i, row in enumerate(rows):
                if row.finish:
                    continue
                self._take(row, logits[i], prompts[i], processors[i], draws[i], clock)
                if row.finish:
                    yield row.request.cell_id, self._output(row, fresh, started, clock)
            if all(row.finish for row in rows):
                return
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
            positions = torch.tensor([[length + step] for length in lengths], device=self._engine.device)
            ids = torch.tensor([[row.tokens[-1]] for row in rows], device=self._engine.device)
            keep = torch.zeros(1, dtype=torch.long, device=self._engine.device)
            # A batch without padding needs no mask; transformers then takes its fastest path.
            padded = mask if len(set(lengths)) > 1 else None
            out, past = self._engine.forward(ids, positions, padded, past, keep)
            logits = out[:, -1].float()
            step += 1

    def _take(
        self,
        row: Row,
        logits: torch.Tensor,
        prompt: torch.Tensor,
        processors: LogitsProcessorList,
        draw: torch.Generator,
        clock: float | None,
    ) -> None:
        """Chooses the row's next token and notes when."""
        scores = logits.cpu()[None]
        if len(processors):
            so_far = torch.cat([prompt, torch.tensor(row.tokens, dtype=prompt.dtype)])[None]
            scores = processors(so_far, scores)
        if row.request.decoding.temperature > 0:
            token = int(torch.multinomial(torch.softmax(scores[0], dim=-1), 1, generator=draw))
        else:
            token = int(scores[0].argmax())
        row.tokens.append(token)
        if clock is not None:
            row.times.append(perf_counter() - clock)
        if token in self.stop_ids or self._at_stop_text(row):
            row.finish = "stop"
        elif len(row.tokens) >= row.request.decoding.max_new_tokens:
            row.finish = "length"

    def _output(self, row: Row, fresh: Mapping[str, int], started: str, clock: float | None) -> ModelOutput:
        ended = row.finish == "stop" and row.tokens[-1] in self.stop_ids
        tokens = row.tokens[:-1] if ended else row.tokens  # the end token is no part of the text
        text = self._text(tokens)
        prompt_tokens = len(row.request.prompt.ids)
        usage = ModelUsage(
            prompt_tokens=prompt_tokens,
            completion_tokens=len(row.tokens),
            cached_tokens=prompt_tokens - fresh[row.request.cell_id],
        )
        timing = Timing(started_at=started)
        if row.times:
            pieces = [self._text([token]) for token in tokens]
            answer = first_answer_piece(pieces, think_open=row.request.prompt.think_open)
            timing = Timing(
                started_at=started,
                total=row.times[-1],
                first_token=row.times[0],
                first_answer_token=None if answer is None else row.times[answer],
            )
        finish = "stop" if row.finish == "stop" else "length"
        return ModelOutput(text, tuple(row.tokens), finish, usage, timing)  # type: ignore[arg-type]

    def _at_stop_text(self, row: Row) -> bool:
        """Does the reply hold its stop text now? Only its last tokens can have brought that about."""
        stop = row.request.stop_text
        return bool(stop) and stop in self._text(row.tokens[-len(stop) - 4 :])

    def _text(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text


def _padded(branches: Sequence[KeyValues]) -> tuple[KeyValues, list[int]]:
    """Rows of different length as one batch, zeros on the left."""
    lengths = [branch[0][0].shape[2] for branch in branches]
    width = max(lengths)
    layers = []
    for layer in zip(*branches, strict=True):
        keys, values = [], []
        for (k, v), length in zip(layer, lengths, strict=True):
            pad = (0, 0, width - length, 0)
            keys.append(torch.nn.functional.pad(k, pad))
            values.append(torch.nn.functional.pad(v, pad))
        layers.append((torch.cat(keys), torch.cat(values)))
    return layers, lengths


def _processors(decoding: Decoding) -> LogitsProcessorList:
    chosen = LogitsProcessorList()
    if decoding.repetition_penalty != 1.0:
        chosen.append(RepetitionPenaltyLogitsProcessor(decoding.repetition_penalty))
    if decoding.temperature > 0:
        if decoding.temperature != 1.0:
            chosen.append(TemperatureLogitsWarper(decoding.temperature))
        if decoding.top_k:
            chosen.append(TopKLogitsWarper(decoding.top_k))
        if decoding.top_p < 1.0:
            chosen.append(TopPLogitsWarper(decoding.top_p))
    return chosen


def _stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """End tokens of the model's generation configuration and of its tokenizer."""
    ids: set[int] = set()
    for value in (getattr(model.generation_config, "eos_token_id", None), tokenizer.eos_token_id):
        if isinstance(value, int):
            ids.add(value)
        elif value:
            ids.update(value)
    return frozenset(ids)
