"""The table of paired comparisons between arms, with a verdict each: bar − placebo, bar − control, and what lies beside.

Knows which comparison is confirmatory (sensitivity, bar − placebo of the same placement; Holm-corrected
as one family), and that clusters are the unit. Pairs are formed at the decision points both arms have. Ratios of
tokens and seconds are `ratios`'.
"""

from collections.abc import Callable, Sequence

import pandas as pd

from harness.analysis import statistics as st
from harness.analysis.decisions import ACT_MEASURES, MATCHED, Row
from harness.analysis.frames import KEYS, RunData, by_cluster, choose_by_cluster, common, placebo_for
from harness.analysis.pairs import Pair, lost, pairs
from harness.analysis.ratios import ratio_rows
from harness.analysis.sequential import look
from harness.analysis.table import Shown, Table, frame, known
from harness.analysis.verdicts import LEVEL, MIN_CLUSTERS, Evidence, Margins, decide, few_clusters, margins_of
from harness.types import LOGIT_BOUND

COLUMNS: dict[str, int | None] = {
    "probe": None, "measure": None, "unit": None, "kind": None, "condition": None, "against": None,
    "placement": None, "label": None, "verdict": None, "clusters": 0, "estimate": 3, "low": 3, "high": 3,
    "boot_low": 3, "boot_high": 3, "p": 6, "p_holm": 6, "p_mcnemar": 6, "margin_low": 3, "margin_high": 3,
    "equivalence_low": 3, "equivalence_high": 3, "more_clusters": 0, "excluded": 0, "excluded_against": 0,
    "worst_low": 3, "worst_high": 3, "sd": 3, "mde": 3, "note": None,
}  # fmt: skip
CHOOSE_MEASURES = (("sensitivity", "logit"), ("bias", "logit"), ("delta_p", "probability"))
MANY, OWN = 48, ("bar - placebo", "bar - bar")
"""Comparisons beyond which a figure shows those of these kinds alone."""
_READ = [
    *KEYS, "condition", "cluster", "side", "excluded", "score.logit_act", "score.p_act", "score.p_act_norm",
    *(mark for _, _, mark in ACT_MEASURES), "right",
]  # fmt: skip
"""Columns of the cells that a comparison reads; cells are copied for every pair, and have five times as many."""
_WORST = {"sensitivity": (1, -1), "bias": (-1, -1), "delta_p": (1, -1)}
"""For each measure the sign of a lost cell's log-odds, due and forbidden, that makes it largest."""


def comparisons(run: RunData) -> Table:
    """Paired differences and ratios with interval, permutation p, Holm p for the confirmatory family, and verdict."""
    rows: list[Row] = []
    chosen, acted, asked = (run.part(probe, MATCHED)[_READ] for probe in ("choose", "act", "ask"))
    for measure, unit in CHOOSE_MEASURES:
        rows += [_choose_row(chosen, pair, measure, unit) for pair in pairs(run.arms, chosen)]
    for measure, side, mark in ACT_MEASURES:
        cells = acted[acted["side"] == side]
        rows += [_share_row(cells, pair, "act", measure, mark) for pair in pairs(run.arms, cells)]
    rows += [_share_row(asked, pair, "ask", "accuracy", "right") for pair in pairs(run.arms, asked)]
    rows += ratio_rows(run)
    margins = margins_of(run.manifest)
    if run.manifest.get("sequential"):
        _looked(rows, chosen, margins)
    else:
        _correct(rows)
    rows = [row | _judged(row, margins) for row in rows]
    return Table(
        name="comparisons",
        title="Comparisons between conditions, with verdicts (paired, clusters as the unit)",
        how_to_read=(
            "Each row is one condition minus (of tokens and seconds: divided by) another at the same decision points. "
            "`bar - placebo` is what the bar's content does; `bar - control` adds what any text at that place does. "
            + _among_bars(rows)
            + "p: sign-flip permutation over clusters; p (Holm) is given for the confirmatory family, fixed in advance; "
            "every other row is exploratory and its p is not corrected. Verdict: `equivalent` where the 90 % interval "
            "lies within the margin (two one-sided tests at 5 %), else `better` or `worse` where p (Holm in the "
            "family) is below .05, else `inconclusive`, with the number of further clusters that would settle it in "
            "80 % of cases if difference and spread are as observed. Fewer tokens and less time count as better; bias "
            f"is only more or less cautious. No verdict below {MIN_CLUSTERS} clusters. MDE: the smallest true "
            "difference found in 80 % of cases at α = .05 before Holm (paired t, observed spread). Brackets: 95 % "
            "intervals, Student's t; of shares Wilson's of both arms put together (Newcombe). Where p and interval "
            "disagree, p decides; inconclusive is not `no effect`. `lost`: cells of the two conditions that failed for "
            "good, and the range of the difference had they come out at either extreme (ratios have none)."
        ),
        columns=COLUMNS,
        shown=(
            Shown("measure", ("measure",)), Shown("comparison", ("kind",)),
            Shown("condition", ("condition",)), Shown("minus", ("against",)), Shown("verdict", ("verdict",)),
            Shown("more clusters", ("more_clusters",)),
            Shown("clusters", ("clusters",)), Shown("difference", ("estimate", "low", "high")),
            Shown("unit", ("unit",)), Shown("p", ("p",)), Shown("p (Holm)", ("p_holm",)),
            Shown("margin", ("margin_high",)), Shown("90 % from", ("equivalence_low",)), Shown("to", ("equivalence_high",)),
            Shown("MDE", ("mde",)), Shown("lost", ("excluded",)), Shown("lost of the other", ("excluded_against",)),
            Shown("worst case from", ("worst_low",), rare=True), Shown("to", ("worst_high",), rare=True),
            Shown("label", ("label",)), Shown("note", ("note",)),
        ),
        data=frame(COLUMNS, rows),
        absent="no two conditions were measured at the same decision points.",
        notes=_unpaired(run),
    )  # fmt: skip


def drawn(data: pd.DataFrame) -> pd.DataFrame:
    """The comparisons that the figure shows: all with an estimate; of more than `MANY` those of bars with their
    placebos and with each other, so that it stays a figure that one can print."""
    data = data[data["estimate"].notna()]
    return data if len(data) <= MANY else data[data["kind"].isin(OWN)]


def _among_bars(rows: Sequence[Row]) -> str:
    """What a comparison of two bars is, where there is one."""
    if all(row["kind"] != "bar - bar" for row in rows):
        return ""
    return (
        "`bar - bar` sets a bar beside the first form of it at the same place; the two may differ in length. "
    )


def _unpaired(run: RunData) -> tuple[str, ...]:
    alone = [arm.name for arm in run.arms if arm.role == "bar" and placebo_for(arm, run.arms) is None]
    notes = (f"No placebo at the same placement, so the bar's own effect is unknown: {', '.join(alone)}.",)
    return notes if alone else ()


def choose_differences(cells: pd.DataFrame, arm: str, against: str, measure: str) -> "pd.Series[float]":
    """Per-cluster difference `arm` − `against` of a `choose` measure, over the decision points both have."""
    both = common(cells, arm, against, "score.logit_act")
    frame_ = choose_by_cluster(both).pivot(index="cluster", columns="condition", values=measure)
    if arm not in frame_.columns or against not in frame_.columns:
        return pd.Series(dtype="float64")
    return (frame_[arm] - frame_[against]).astype("float64").dropna()


def _choose_row(cells: pd.DataFrame, pair: Pair, measure: str, unit: str) -> Row:
    cells = cells[cells["condition"].isin([pair.arm.name, pair.against.name])]

    def difference(part: pd.DataFrame) -> "pd.Series[float]":
        return choose_differences(part, pair.arm.name, pair.against.name, measure)

    d = difference(cells)
    confirmatory = measure == "sensitivity" and pair.kind == "bar - placebo"
    narrow = st.t_interval(d, LEVEL)
    row = pair.row("choose", measure, unit) | _tested(d, st.t_interval(d), narrow) | lost(cells, pair)
    row |= _worst_case(row, lambda best: difference(_imputed_choice(cells, pair, measure, best)))
    return row | {"label": "confirmatory" if confirmatory else "exploratory"}


def _share_row(cells: pd.DataFrame, pair: Pair, probe: str, measure: str, mark: str) -> Row:
    cells = cells[cells["condition"].isin([pair.arm.name, pair.against.name])]
    both = common(cells, pair.arm.name, pair.against.name, mark)
    mine, other = (by_cluster(both, name, mark) for name in (pair.arm.name, pair.against.name))
    d = (mine - other).dropna()
    a, b, count = mine.loc[d.index], other.loc[d.index], len(both) // 2
    wide, narrow = st.share_difference(a, b, count), st.share_difference(a, b, count, LEVEL)
    row = pair.row(probe, measure, "share") | _tested(d, wide, narrow) | lost(cells, pair)
    if len(both) == 2 * len(d):  # one pair per cluster: the exact test of the pairs is valid
        row["p_mcnemar"] = st.mcnemar_p(a, b)

    def difference(best: bool) -> "pd.Series[float]":
        filled = _imputed_share(cells, pair, mark, best)
        there = common(filled, pair.arm.name, pair.against.name, mark)
        return (by_cluster(there, pair.arm.name, mark) - by_cluster(there, pair.against.name, mark)).dropna()

    return row | _worst_case(row, difference) | {"label": "exploratory"}


def _tested(d: "pd.Series[float]", found: st.Estimate, narrow: st.Estimate) -> Row:
    boot_low, boot_high = st.bootstrap_interval(d) or (None, None)
    return {
        "clusters": found.n, "estimate": found.value, "low": found.low, "high": found.high,
        "boot_low": boot_low, "boot_high": boot_high, "p": st.sign_flip_p(d), "sd": found.sd,
        "equivalence_low": narrow.low, "equivalence_high": narrow.high,
        "mde": st.minimum_detectable(found.sd, found.n), "note": few_clusters(found.n, 1),
    }  # fmt: skip


def _worst_case(row: Row, difference: Callable[[bool], "pd.Series[float]"]) -> Row:
    """The mean difference with every lost cell at either extreme; nothing where none was lost."""
    if not (row["excluded"] or row["excluded_against"]):
        return {}
    return {
        "worst_low": st.t_interval(difference(False)).value,
        "worst_high": st.t_interval(difference(True)).value,
    }


def _imputed_choice(cells: pd.DataFrame, pair: Pair, measure: str, best: bool) -> pd.DataFrame:
    """Lost cells at the bound of the log-odds that makes the difference largest (`best`) or smallest."""
    due, forbidden = _WORST[measure]
    sign = cells["side"].map({"due": due, "forbidden": forbidden}).astype("float64")
    sign *= 1 if best else -1
    sign = sign.where(cells["condition"] == pair.arm.name, -sign)
    filled, gone = cells.copy(), cells["excluded"]
    filled.loc[gone, "score.logit_act"] = LOGIT_BOUND * sign[gone]
    for name in ("score.p_act", "score.p_act_norm"):
        filled.loc[gone, name] = (sign[gone] > 0).astype("float64")
    filled["excluded"] = False
    return filled


def _imputed_share(cells: pd.DataFrame, pair: Pair, mark: str, best: bool) -> pd.DataFrame:
    """Lost cells as 1 in the arm and 0 in the other (`best`), or the reverse."""
    mine = cells["condition"] == pair.arm.name
    filled = cells.copy()
    filled[mark] = filled[mark].astype("float64").mask(cells["excluded"], (mine == best).astype("float64"))
    filled["excluded"] = False
    return filled


def _correct(rows: list[Row]) -> None:
    """Fill `p_holm` for the confirmatory family, and say where it has too few clusters to pass."""
    family = [row for row in rows if row["label"] == "confirmatory"]
    adjusted = st.holm([p if isinstance(p := row["p"], float) else None for row in family])
    tests = sum(p is not None for p in adjusted)
    for row, p in zip(family, adjusted, strict=True):
        row["p_holm"] = p
        row["family"] = max(tests, 1)
        row["note"] = few_clusters(int(str(row["clusters"])), tests)


def _judged(row: Row, margins: Margins) -> Row:
    """The verdict on a row that is otherwise whole."""
    found = evidence(row)
    verdict = decide(found, margins)
    low, high = margins.bounds(found.unit)
    more = None if row.get("looked") else verdict.more_clusters  # the counts are those of a fixed number
    return {"verdict": verdict.word, "more_clusters": more, "margin_low": low, "margin_high": high}


def _looked(rows: list[Row], cells: pd.DataFrame, margins: Margins) -> None:
    """A run that was looked at after every cluster: the confirmatory family by the anytime-valid test, Bonferroni
    between its members; every other p assumes that the number of clusters was fixed, and gets no verdict."""
    family = [row for row in rows if row["label"] == "confirmatory"]
    for row in rows:
        row["note"] = "looked at after every cluster: p holds for a fixed number only, no verdict"
        row |= {"fixed": True, "looked": True}
    for row in family:
        d = choose_differences(cells, str(row["condition"]), str(row["against"]), "sensitivity")
        now = look(d, margins.logit, len(family))
        low, high = now.interval or (None, None)
        row |= {
            "p": now.p, "p_holm": min(1.0, now.p * len(family)), "low": low, "high": high, "equivalence_low": low,
            "equivalence_high": high, "family": len(family), "fixed": False,
            "note": "anytime-valid p and interval (confidence sequence), Bonferroni",
        }  # fmt: skip


def evidence(row: Row) -> Evidence:
    """A row of the table as what `decide` wants to know; p after Holm where the row is confirmatory."""
    confirmatory = row["label"] == "confirmatory"
    low, high = known(row, "equivalence_low"), known(row, "equivalence_high")
    return Evidence(
        measure=str(row["measure"]),
        unit=str(row["unit"]),
        estimate=known(row, "estimate"),
        sd=known(row, "sd"),
        clusters=int(str(row["clusters"])),
        p=None if row.get("fixed") else known(row, "p_holm" if confirmatory else "p"),
        equivalence=None if low is None or high is None or row.get("fixed") else (low, high),
        alpha=st.ALPHA / int(str(row.get("family", 1))),
    )
