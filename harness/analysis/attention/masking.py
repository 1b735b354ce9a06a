"""The causal check: what masking a span does to the probability of acting, per condition, and against the placebo.

Knows the definitions of sensitivity (log-odds of acting when due minus when forbidden) and bias (minus their mean),
per cluster. Only matched clusters with both sides count, and only cells that have the mask.
"""

from dataclasses import dataclass

import numpy as np

from harness.analysis import statistics as st
from harness.analysis.attention import paired
from harness.analysis.attention.frames import AttentionData, Floats, arms
from harness.analysis.decisions import Row
from harness.analysis.frames import SIDES
from harness.analysis.pairs import Pair, pairs
from harness.analysis.table import Shown, Table, frame
from harness.attention.store import Masked

PLAIN = "none"
ENDS = ("", "_low", "_high")
MEASURES = ("sensitivity", "bias")
COLUMNS: dict[str, int | None] = {
    "probe": None, "condition": None, "placement": None, "mask": None, "scope": None, "layers": None, "clusters": 0,
    "masked_tokens": 1, **{f"p_{side}{when}": 4 for side in SIDES for when in ("", "_masked")},
    **{f"p_{side}_change{end}": 4 for side in SIDES for end in ENDS},
    **{
        f"{measure}{end}": 5 if end.endswith("_p") else 4
        for measure in MEASURES
        for end in ("", "_masked", "_change", "_change_low", "_change_high", "_change_boot_low", "_change_boot_high",
                    "_change_p")
    },
    "label": None, "note": None,
}  # fmt: skip
DIFFERENCE_COLUMNS: dict[str, int | None] = {
    "probe": None, "comparison": None, "condition": None, "against": None, "placement": None, "mask": None, "scope": None,
    "layers": None, "measure": None, "clusters": 0, **{k: 4 for k in paired.TESTED if k != "clusters"}, "p": 6,
    "label": None, "note": None,
}  # fmt: skip
_ABSENT = (
    "no captured cell of probe `choose` was replayed with a span masked on both sides of a matched pair."
)
_SCOPES = (
    "Scope `later`: every row behind the span is kept from reading it, so that no later token can carry its "
    "content on; scope `decision`: only the rows that the probabilities are read from (secondary: the rows "
    "between have read the span). `records` hides every call of the counted tool together with its result."
)
_SAME = (
    "With the bar hidden from every later row in all layers, and its placebo of equal length hidden likewise, the two arms "
    "are one and the same prompt: that row of mask `bar`, scope `later`, layers `all` is minus the bar's effect in the main "
    "report, whatever the model does. It shows that the mask works, and nothing more; scope `decision`, single layers and "
    "the other masks are what can surprise."
)
_THOUGHTS = (
    "These cells think first: the recorded thought (the first that closed itself, of those that were drawn) was written "
    "with everything in view and may repeat what is hidden. Change is what hiding adds after it."
)


@dataclass(frozen=True, slots=True)
class Mask:
    """One way of masking."""

    mask: str
    scope: str
    layers: str


@dataclass(frozen=True, slots=True)
class Effect:
    """Per cluster, sides in the order of SIDES. `logit`, `p`, `masked_logit`, `masked_p`: (clusters, 2)."""

    clusters: tuple[str, ...]
    logit: Floats
    p: Floats
    masked_logit: Floats
    masked_p: Floats
    masked_tokens: float

    def change(self, measure: str) -> Floats:
        """(clusters,) masked minus plain."""
        return of_logits(self.masked_logit, measure) - of_logits(self.logit, measure)


def of_logits(logits: Floats, measure: str) -> Floats:
    """(clusters,) sensitivity or bias from (clusters, 2) log-odds of acting."""
    due, forbidden = logits[:, SIDES.index("due")], logits[:, SIDES.index("forbidden")]
    return np.asarray(due - forbidden if measure == "sensitivity" else -(due + forbidden) / 2)


def masks(data: AttentionData, probe: str) -> list[Mask]:
    """Every mask of a probe's cells, in order of appearance, all scopes `later` before the others."""
    found = dict.fromkeys(
        Mask(masked.mask, masked.scope, masked.layers)
        for cell in data.cells
        if cell.cell.probe == probe
        for masked in cell.masking
        if masked.mask != PLAIN
    )
    return sorted(found, key=lambda mask: mask.scope != "later")


def effect(
    data: AttentionData, condition: str, probe: str, mask: Mask, only: frozenset[str] | None = None
) -> Effect | None:
    """What a mask does in a condition, in the clusters that have it on both sides (and are in `only`)."""
    found: dict[str, dict[str, list[tuple[Masked, Masked]]]] = {}
    for cell in data.select(condition, probe):
        plain = next((m for m in cell.masking if m.mask == PLAIN), None)
        masked = next((m for m in cell.masking if Mask(m.mask, m.scope, m.layers) == mask), None)
        if plain and masked:
            found.setdefault(cell.cell.cluster, {}).setdefault(cell.cell.side, []).append((plain, masked))
    whole = sorted(
        c for c, sides in found.items() if set(SIDES) <= set(sides) and (only is None or c in only)
    )
    if not whole:
        return None
    values = np.array(
        [[np.mean([_numbers(*pair) for pair in found[c][side]], axis=0) for side in SIDES] for c in whole]
    )
    logit, p, masked_logit, masked_p, tokens = (values[..., i] for i in range(5))
    return Effect(tuple(whole), logit, p, masked_logit, masked_p, float(tokens.mean()))


def _numbers(plain: Masked, masked: Masked) -> tuple[float, ...]:
    return plain.logit_act, plain.p_act_norm, masked.logit_act, masked.p_act_norm, float(masked.masked_tokens)


def masking(data: AttentionData) -> Table:
    """P(act), sensitivity and bias with and without each mask, and their change."""
    rows = [
        _row(probe, arm.name, arm.placement, mask, found)
        for probe in data.probes
        for mask in masks(data, probe)
        for arm in arms(data)
        if (found := effect(data, arm.name, probe, mask))
    ]
    return Table(
        name="masking",
        title="What masking a span changes (the causal check; exploratory)",
        how_to_read=(
            "The cell is replayed with one span hidden from attention; everything else is as it was. P(act): "
            "probability of the asked-for call, renormalised over the choices. Sensitivity (natural-log odds, "
            "due minus forbidden): how far the model tells the two apart; bias: caution overall. Change: masked "
            "minus unmasked, 95 % t intervals over clusters (BCa intervals in the CSV), p by sign-flip "
            f"permutation, not corrected. `bar` masks the bar, or the placebo in the placebo's arm. {_SCOPES} "
            "Masking is an intervention, but a crude one: a model has not been trained on holes in its context, "
            "so hold a bar's change against its placebo's (next table)."
        ),
        notes=thinking_notes(data),
        columns=COLUMNS,
        shown=(
            Shown("probe", ("probe",)), Shown("condition", ("condition",)), Shown("mask", ("mask",)),
            Shown("scope", ("scope",)), Shown("layers", ("layers",)), Shown("clusters", ("clusters",)),
            Shown("P(act), due", ("p_due",)), Shown("masked", ("p_due_masked",)),
            Shown("P(act), forbidden", ("p_forbidden",)), Shown("masked", ("p_forbidden_masked",)),
            Shown("change of sensitivity", ("sensitivity_change", "sensitivity_change_low", "sensitivity_change_high")),
            Shown("p", ("sensitivity_change_p",)),
            Shown("change of bias", ("bias_change", "bias_change_low", "bias_change_high")),
            Shown("p", ("bias_change_p",)), Shown("note", ("note",), rare=True),
        ),
        data=frame(COLUMNS, rows),
        absent=_ABSENT,
    )  # fmt: skip


def thinking_notes(data: AttentionData) -> tuple[str, ...]:
    """What must be said of a masked replay behind a recorded thought."""
    thinks = any(cell.masking and any(row.kind == "thinking" for row in cell.path) for cell in data.cells)
    return (_THOUGHTS,) if thinks else ()


def _row(probe: str, condition: str, placement: str, mask: Mask, found: Effect) -> Row:
    row: Row = {
        "probe": probe, "condition": condition, "placement": placement, **_keys(mask), "clusters": len(found.clusters),
        "masked_tokens": found.masked_tokens, "label": paired.EXPLORATORY,
    }  # fmt: skip
    for i, side in enumerate(SIDES):
        before, after = found.p[:, i], found.masked_p[:, i]
        change = st.t_interval(after - before)
        row |= {f"p_{side}": float(before.mean()), f"p_{side}_masked": float(after.mean())}
        row |= dict(
            zip(
                (f"p_{side}_change{end}" for end in ENDS),
                (change.value, change.low, change.high),
                strict=True,
            )
        )
    for measure in MEASURES:
        test = paired.tested(found.change(measure))
        row |= {
            measure: float(of_logits(found.logit, measure).mean()),
            f"{measure}_masked": float(of_logits(found.masked_logit, measure).mean()),
            f"{measure}_change": test["estimate"],
            **{f"{measure}_change_{key}": test[key] for key in ("low", "high", "boot_low", "boot_high", "p")},
            "note": test["note"],
        }
    return row


def _keys(mask: Mask) -> Row:
    return {"mask": mask.mask, "scope": mask.scope, "layers": mask.layers}


def masking_differences(data: AttentionData) -> Table:
    """Change under a mask in the bar's arm minus the change in its placebo's arm."""
    rows = [
        row
        for probe in data.probes
        for mask in masks(data, probe)
        for pair in pairs(arms(data))
        if pair.kind.endswith("- placebo")
        for row in _difference_rows(data, probe, mask, pair)
    ]
    return Table(
        name="masking_differences",
        title="How much of a mask's effect is the bar's content (exploratory)",
        how_to_read=(
            "Change under the mask in the bar's arm minus the change under the same mask in the arm of the "
            "placebo of the same placement, per cluster: for mask `bar` what losing the bar's content does "
            "beyond losing a text of its length. Intervals: 95 % t and BCa over clusters; p: sign-flip "
            f"permutation, not corrected. {_SCOPES} {_SAME}"
        ),
        columns=DIFFERENCE_COLUMNS,
        shown=(
            Shown("probe", ("probe",)), Shown("condition", ("condition",)), Shown("minus", ("against",)),
            Shown("mask", ("mask",)), Shown("scope", ("scope",)), Shown("layers", ("layers",)),
            Shown("measure", ("measure",)), Shown("clusters", ("clusters",)),
            Shown("difference of changes [t]", ("estimate", "low", "high")),
            Shown("[BCa bootstrap]", ("estimate", "boot_low", "boot_high")), Shown("p", ("p",)),
            Shown("MDE", ("mde",)), Shown("note", ("note",), rare=True),
        ),
        data=frame(DIFFERENCE_COLUMNS, rows),
        absent="no bar and its placebo were both replayed with a span masked on both sides of the same matched pair.",
    )  # fmt: skip


def _difference_rows(data: AttentionData, probe: str, mask: Mask, pair: Pair) -> list[Row]:
    both = [effect(data, name, probe, mask) for name in (pair.arm.name, pair.against.name)]
    shared = frozenset.intersection(*(frozenset(found.clusters) if found else frozenset() for found in both))
    mine, other = (effect(data, name, probe, mask, shared) for name in (pair.arm.name, pair.against.name))
    if not mine or not other:
        return []
    rows: list[Row] = []
    for measure in MEASURES:
        row: Row = {
            "probe": probe, "comparison": pair.kind, "condition": pair.arm.name, "against": pair.against.name,
            "placement": pair.arm.placement, **_keys(mask), "measure": measure, "label": paired.EXPLORATORY,
        }  # fmt: skip
        rows.append(row | paired.tested(mine.change(measure) - other.change(measure)))
    return rows
