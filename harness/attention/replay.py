"""A finished run's cells through transformers once more, episode by episode, with the wanted rows kept.

Replays recorded token ids in one pass instead of generating: what row t reads does not depend on how token t + 1 came
about. Cells of an episode share their transcript, so it is computed once; the masked replays of the causal check share
theirs likewise. Every replayed choice is held against its recorded probability: a capture of another model than the
run's is refused. Knows records, settings and an engine; knows no file.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.attention.capture import Hidden, Watch, register
from harness.attention.chain import Chain, signed
from harness.attention.labels import Labels
from harness.attention.regions import Regions, group_spans, regions
from harness.attention.rows import Sequenced, sequence
from harness.attention.settings import AttentionConfig
from harness.attention.sinks import SinkFinder
from harness.attention.store import CellAttention, CellInfo, Masked, Scope
from harness.attention.takers import BinTaker, Both, RowTaker, Wanted
from harness.errors import AttentionError, ProviderError
from harness.models.forward import Engine, memory_guard
from harness.models.prefix_tree import common_prefix
from harness.scorers import score_choose
from harness.types import EvalRecord

Told = Callable[[], None]
"""Called after each piece of work."""


@dataclass(frozen=True, slots=True)
class Mask:
    """One masked replay of a cell; `hidden` None is the plain one."""

    name: str
    scope: Scope
    hidden: Hidden | None

    @property
    def tokens(self) -> int:
        return sum(end - start for start, end in self.hidden.spans) if self.hidden else 0


@dataclass(slots=True)
class _Cell:
    record: EvalRecord
    sequence: Sequenced
    regions: Regions
    masks: tuple[Mask, ...]
    captured: RowTaker | None = None
    bins: BinTaker | None = None
    logprobs: dict[Mask, dict[str, float]] = field(default_factory=dict)


class Replayer:
    """Holds the loaded model. `shown`: samples that are kept token by token."""

    def __init__(
        self,
        path: Any,
        tokenizer: Any,
        settings: AttentionConfig,
        *,
        dtype: str,
        shown: frozenset[str] = frozenset(),
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`path`: folder of the weights; `tell` takes notes for the user. Raises ModelError when the model does
        not load, AttentionError when it has no such layer or head."""
        self._settings = settings
        self._engine = Engine(
            path,
            dtype=dtype,
            device=settings.device,
            threads=settings.threads,
            chunk=settings.pack_tokens,
            attention=register(),
        )
        config = self._engine.model.config.get_text_config()
        self.layers = _chosen(settings.layers, config.num_hidden_layers, "layers")
        self.heads = _chosen(settings.heads, config.num_attention_heads, "heads")
        _chosen(settings.mask.layers, config.num_hidden_layers, "mask.layers")
        self._labels = Labels(tokenizer)
        self._shown, self._tell = shown, tell
        self._chain = Chain(self._engine, Watch(layers=frozenset(self.layers), block=settings.query_block))
        self._sinks: tuple[int, ...] = ()
        self.prefix_tokens = 0

    @property
    def facts(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            **self._engine.facts,
            "sinks": list(self._sinks),
            "prefix_tokens": self.prefix_tokens,
            "computed_tokens": self._chain.computed_tokens,
            "tolerance": self.tolerance,
        }

    @property
    def tolerance(self) -> float:
        """Largest difference of a replayed log-probability that is taken for rounding."""
        exact = self._engine.facts["dtype"] == "float32"
        return self._settings.tolerance or (0.01 if exact else 1.0)

    def close(self) -> None:
        self._engine.close()

    def share(self, records: Sequence[EvalRecord]) -> None:
        """Computes what all prompts begin with and finds the sinks on it, once for every arm."""
        fixed = min(_preamble(record) for record in records)
        shared = min(common_prefix([record.prompt_ids for record in records]), fixed)
        self.prefix_tokens = shared
        if shared < 2:
            self._tell("the prompts share no beginning: no sinks are looked for")
            return
        finder = SinkFinder(shared, self._engine.windows)
        # In every layer, whichever are captured: what is a sink must not depend on what is looked at.
        Chain(self._engine, Watch(block=self._settings.query_block)).extend(
            records[0].prompt_ids[:shared], rows=range(shared), taker=finder
        )
        self._engine.rewind(0)
        self._chain.extend(records[0].prompt_ids[:shared])
        self._chain.pin()
        self._sinks = finder.found()

    def work(self, records: Sequence[EvalRecord]) -> int:
        """Pieces of work that these records will take."""
        return sum(
            1 + len(self._masks(r, sequence(r, self._labels))) for r in records if self.reason(r) is None
        )

    def reason(self, record: EvalRecord) -> str | None:
        """Why a record cannot be replayed; None when it can."""
        try:
            sequence(record, self._labels)
        except AttentionError as error:
            return str(error)
        return None

    def episode(self, records: Sequence[EvalRecord], told: Told = lambda: None) -> Iterator[CellAttention]:
        """The cells of one episode, captured. Raises AttentionError when memory does not suffice."""
        try:
            with memory_guard():
                yield from self._episode(records, told)
        except ProviderError as error:
            raise AttentionError(
                "out of memory; lower pack_tokens, query_block or shown.samples (cells captured before are kept)"
            ) from error

    def _episode(self, records: Sequence[EvalRecord], told: Told) -> Iterator[CellAttention]:
        self._chain.unwind()
        cells = [self._cell(record) for record in records]
        for cell, mask in _ordered(cells):
            if mask is None:
                self._capture(cell)
            else:
                cell.logprobs[mask] = self._chain.choice_logprobs(
                    cell.sequence.ids[: cell.sequence.stem], cell.sequence.choices, mask.hidden
                )
            told()
        for cell in cells:
            yield self._finished(cell)

    # -- one cell ------------------------------------------------------------------------------------

    def _cell(self, record: EvalRecord) -> _Cell:
        found = sequence(record, self._labels, self._settings.answer_tokens, self._settings.path_every)
        return _Cell(record, found, regions(record, found, self._sinks), self._masks(record, found))

    def _masks(self, record: EvalRecord, found: Sequenced) -> tuple[Mask, ...]:
        if not found.choices:
            return ()
        wanted = self._settings.mask
        layers = frozenset(wanted.layers) if wanted.layers is not None else None
        masks = [Mask("none", "later", None)]
        for group in wanted.groups:
            spans = group_spans(record, found, group)
            for scope in wanted.scopes if spans else ():
                masks.append(
                    Mask(group, scope, Hidden(spans, found.stem - 1 if scope == "decision" else 0, layers))
                )
        return tuple(masks)

    def _capture(self, cell: _Cell) -> None:
        settings, found = self._settings, cell.sequence
        shown = cell.record.sample_id in self._shown
        wanted = Wanted(
            regions=cell.regions.of_key,
            count=len(cell.regions.names),
            sinks=self._sinks,
            layers=self.layers,
            heads=self.heads,
            rows=tuple(row.position for row in found.rows),
            path=tuple(row.position for row in found.path),
            path_heads=settings.path_heads == "each",
            browsable=_browsable(cell.record, found, settings.shown.rows) if shown else (),
            top=settings.top_k,
            browsable_top=settings.shown.top,
            token_rows=shown,
            norm_weighted=settings.norm_weighted,
        )
        cell.captured = RowTaker(wanted, self._engine.device)
        if shown and cell.record.probe == self._settings.probes[0]:
            cell.bins = BinTaker(
                len(found.ids), settings.shown.bins, self.layers, self.heads, self._engine.device
            )
            taker: Both | RowTaker = Both(cell.captured, cell.bins)
            self._chain.extend(found.ids, rows=range(len(found.ids)), taker=taker)
        elif wanted.positions:
            self._chain.extend(found.ids, rows=wanted.positions, taker=cell.captured)

    def _finished(self, cell: _Cell) -> CellAttention:
        taken = cell.captured
        assert taken is not None
        windows = self._engine.windows
        return CellAttention(
            cell=_info(cell.record),
            tokens=cell.sequence.pieces,
            regions=cell.regions.names,
            key_region=cell.regions.of_key,
            layers=self.layers,
            heads=self.heads,
            windows=tuple(windows[layer] for layer in self.layers),
            rows=cell.sequence.rows,
            mass=taken.mass,
            entropy=taken.entropy,
            entropy_rest=taken.entropy_rest,
            top_mass=taken.top_mass,
            path=cell.sequence.path,
            path_mass=taken.path_mass,
            path_entropy=taken.path_entropy,
            norm_mass=taken.norm_mass,
            token_rows=taken.token_rows,
            bins=cell.bins.bins if cell.bins else None,
            browsable=taken.browsable,
            masking=tuple(self._masked(cell, mask) for mask in cell.masks),
            replay_error=self._replay_error(cell),
        )

    def _masked(self, cell: _Cell, mask: Mask) -> Masked:
        logprobs = cell.logprobs[mask]
        score = score_choose(cell.record.expectation, logprobs)
        if score.p_act is None or score.p_act_norm is None or score.logit_act is None:
            raise AttentionError(f"cell {cell.record.cell_id}: masked {mask.name}: {score.reason}")
        chosen = self._settings.mask.layers
        return Masked(
            mask=mask.name,
            scope=mask.scope,
            layers="all" if chosen is None or mask.hidden is None else ",".join(map(str, chosen)),
            masked_tokens=mask.tokens,
            logprobs=logprobs,
            p_act=score.p_act,
            p_act_norm=score.p_act_norm,
            logit_act=score.logit_act,
        )

    def _replay_error(self, cell: _Cell) -> float | None:
        """The largest difference between a recorded and the replayed log-probability; the asked-for choice's must
        be within the tolerance."""
        recorded = cell.sequence.recorded
        if not recorded:
            return None
        replayed = next(found for mask, found in cell.logprobs.items() if mask.hidden is None)
        expected = cell.record.expectation
        asked = f"{expected.tool}:{expected.target}"
        if abs(recorded[asked] - replayed[asked]) > self.tolerance:
            raise AttentionError(
                f"cell {cell.record.cell_id}: the run has log-probability {recorded[asked]:.3f} for {asked}, its replay "
                f"{replayed[asked]:.3f}; the run was made with other weights, another dtype, or by a version that did not "
                "record the forced ids. Run it again with this version, or set tolerance=… if the difference is rounding"
            )
        return max(abs(recorded[label] - replayed[label]) for label in recorded)


def _chosen(chosen: tuple[int, ...] | None, count: int, key: str) -> tuple[int, ...]:
    if chosen is None:
        return tuple(range(count))
    wrong = [number for number in chosen if not 0 <= number < count]
    if wrong or not chosen:
        raise AttentionError(
            f"{key}: {wrong or 'none chosen'}; the model has {count}, numbered 0 to {count - 1}"
        )
    return tuple(sorted(set(chosen)))


def _preamble(record: EvalRecord) -> int:
    """Tokens up to the end of what never changes within a run: the system prompt and the tools."""
    fixed = [span.end for span in record.spans if span.region in ("system", "tools")]
    return max(fixed, default=len(record.prompt_ids) - 1)


def _browsable(record: EvalRecord, found: Sequenced, most: int) -> tuple[int, ...]:
    """The last rows, from the follow-up on; the named rows in any case."""
    start = next((span.start for span in record.spans if span.region == "follow_up"), 0)
    last = range(max(start, len(found.ids) - most), len(found.ids))
    return tuple(sorted({*last, *(row.position for row in found.rows)}))


def _ordered(cells: Sequence[_Cell]) -> list[tuple[_Cell, Mask | None]]:
    """Captures (None) and masked replays in an order in which what they share meets."""
    jobs: list[tuple[Any, int, _Cell, Mask | None]] = []
    for number, cell in enumerate(cells):
        found = cell.sequence
        jobs.append((signed(found.ids, None), number, cell, None))
        for mask in cell.masks:
            jobs.append((signed(found.ids[: found.stem], mask.hidden), number, cell, mask))
    jobs.sort(key=lambda job: job[:2])
    return [(cell, mask) for _, _, cell, mask in jobs]


def _info(record: EvalRecord) -> CellInfo:
    return CellInfo(
        cell_id=record.cell_id,
        sample_id=record.sample_id,
        cluster=f"{record.scenario}/{record.cluster}",
        side=record.side,
        condition=record.condition,
        bar=record.bar,
        placement=record.placement,
        probe=record.probe,
        series=record.series,
        epoch=record.epoch,
        target=record.target,
        prior_calls=record.prior_calls,
        limit=record.limit,
        placebo_id=record.placebo_id,
        bar_tokens=record.bar_tokens,
    )


def by_episode(records: Sequence[EvalRecord]) -> Mapping[str, list[EvalRecord]]:
    """Records by episode, in the order of their first appearance."""
    found: dict[str, list[EvalRecord]] = {}
    for record in records:
        found.setdefault(f"{record.scenario}/{record.cluster}", []).append(record)
    return found
