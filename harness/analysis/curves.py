"""Tables of the curves: probability of the call against prior calls, and against filler length.

Knows that the curves are never pooled with the matched pairs, and that n > limit (a transcript that
already breaks the rule) is flagged apart.
"""

import pandas as pd

from harness.analysis import statistics as st
from harness.analysis.decisions import Row, arms_there
from harness.analysis.frames import Arm, RunData, by_cluster
from harness.analysis.table import Shown, Table, frame

COLUMNS: dict[str, int | None] = {
    "probe": None, "condition": None, "placement": None, "x": 0, "limit": 0, "side": None, "region": None,
    "n": 0, "excluded": 0, "clusters": 0, "p_call": 4, "low": 4, "high": 4, "raw": 4, "logit": 3,
}  # fmt: skip


def prior_calls(run: RunData) -> Table:
    """P(call) by number of prior calls, per arm and probe."""
    return Table(
        name="prior_calls",
        title="Probability of the call against prior calls",
        how_to_read=(
            "How likely the asked-for call is after n earlier calls to the same target. Below the limit "
            "the call is due, from the limit on it is forbidden; `beyond` marks transcripts that already "
            "broke the rule, to be read apart. `choose`: mean probability, Wilson interval on the effective n over "
            "clusters; `act`: share of replies with the call, Wilson interval on the effective n."
        ),
        columns=COLUMNS,
        shown=_shown("prior calls"),
        data=frame(COLUMNS, _rows(run, "prior_calls", "prior_calls")),
        absent="the run has no cells of the series `prior_calls`.",
    )


def filler(run: RunData) -> Table:
    """P(call) by filler tokens, per arm, side and probe."""
    return Table(
        name="filler",
        title="Probability of the call against context length",
        how_to_read=(
            "How likely the asked-for call is when so many tokens of unrelated turns stand before the case, per "
            "side of the rule; intervals as in the curve against prior calls."
        ),
        columns=COLUMNS,
        shown=_shown("filler tokens"),
        data=frame(COLUMNS, _rows(run, "filler", "filler_tokens")),
        absent="the run has no cells of the series `filler`.",
    )


def _shown(x: str) -> tuple[Shown, ...]:
    return (
        Shown("probe", ("probe",)), Shown("condition", ("condition",)), Shown(x, ("x",)),
        Shown("limit", ("limit",)), Shown("side", ("side",)), Shown("region", ("region",)),
        Shown("n", ("n",)), Shown("clusters", ("clusters",)), Shown("P(call)", ("p_call", "low", "high")),
        Shown("excluded", ("excluded",)),
    )  # fmt: skip


def _rows(run: RunData, series: str, x: str) -> list[Row]:
    cells = run.cells[run.cells["series"] == series]
    rows: list[Row] = []
    for probe in sorted({str(name) for name in cells["probe"]} & {"act", "choose"}):
        part = cells[cells["probe"] == probe]
        for arm in arms_there(run, part):
            mine = part[part["condition"] == arm.name]
            for key, group in mine.groupby([x, "limit", "side"]):
                rows.append(_point(group, arm, probe) | {"x": key[0], "limit": key[1], "side": key[2]})
    return rows


def _point(group: pd.DataFrame, arm: Arm, probe: str) -> Row:
    used = group[~group["excluded"]]
    beyond = bool((group["prior_calls"] > group["limit"]).any())
    row: Row = {
        "probe": probe, "condition": arm.name, "placement": arm.placement,
        "region": "beyond" if beyond else "within", "n": len(used), "excluded": len(group) - len(used),
        "clusters": int(used["cluster"].nunique()),
    }  # fmt: skip
    if probe == "act":
        rate = st.proportion(used["score.attempted"], list(used["cluster"]))
        return row | {"p_call": rate.rate, "low": rate.low, "high": rate.high}
    found = st.share_interval(by_cluster(group, arm.name, "score.p_act_norm"))
    return row | {
        "p_call": found.value, "low": found.low, "high": found.high,
        "raw": st.t_interval(by_cluster(group, arm.name, "score.p_act")).value,
        "logit": st.t_interval(by_cluster(group, arm.name, "score.logit_act")).value,
    }  # fmt: skip
