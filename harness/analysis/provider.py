"""What a provider's API says of the requests of each condition: its own counts beside the reference tokenizer's, tries,
refusals, cache, thinking, which model was served.

Knows the columns that only a run on an API fills; reads them from the run's own file, since no other table needs them.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pyarrow import parquet

from harness.analysis import statistics as st
from harness.analysis.decisions import Row, arms_there
from harness.analysis.frames import Arm, RunData, control_for
from harness.analysis.table import Shown, Table, frame

COLUMNS: dict[str, int | None] = {
    "probe": None, "condition": None, "n": 0, "failed": 0, "refused": 0, "requests": 0, "tries_more": 0, "broken": 0,
    "prompt_tokens": 1, "bar_tokens": 1, "n_pairs": 0, "bar_reported": 1, "bar_low": 1, "bar_high": 1,
    "cached_share": 3, "cache_written": 1, "n_reasoning": 0, "reasoning": 1, "choices_by": None, "served": None,
}  # fmt: skip
_USAGE = "output.usage."
_READ = ["cell_id", "sample_id", "scenario", "cluster", "condition", "probe", "epoch", "bar_tokens", "output.finish_reason",
         "output.provider", f"{_USAGE}reported_prompt_tokens", f"{_USAGE}cached_tokens", f"{_USAGE}cache_written_tokens",
         f"{_USAGE}reported_reasoning_tokens"]  # fmt: skip
_SHORT = {
    f"{_USAGE}reported_prompt_tokens": "prompt", f"{_USAGE}cached_tokens": "cached",
    f"{_USAGE}cache_written_tokens": "written", f"{_USAGE}reported_reasoning_tokens": "reasoning",
    "output.finish_reason": "finish", "output.provider": "facts",
}  # fmt: skip
_POINT = ["probe", "sample_id", "epoch"]
_COUNTS = ("refused", "requests", "tries", "broken")


def provider(run: RunData) -> Table | None:
    """One row per probe and condition; None for a run on an engine of ours."""
    cells = _cells(run)
    if cells is None:
        return None
    rows = [
        _row(run, cells[cells["probe"] == probe], str(probe), arm)
        for probe in dict.fromkeys(cells["probe"])
        for arm in arms_there(run, cells[cells["probe"] == probe])
    ]
    return Table(
        name="provider",
        title="What the provider says of the requests",
        how_to_read=(
            "Tokens of the bar stand twice: as the reference tokenizer counts them, by which the placebo got its length, "
            "and as the provider bills them (its count of the prompt less that of the control, paired by sample; brackets: "
            "95 %, clusters as the unit). Bar and placebo are of one length by the former alone. Tokens are means per "
            "request; `counted`: cells whose thinking the provider counts. `unanswered tries`: those that were tried again, "
            "or the last of a cell that failed; `broken`: those of them that ended within an answer and may have been "
            "billed. Unknown is never 0."
        ),
        columns=COLUMNS,
        shown=(
            Shown("probe", ("probe",)), Shown("condition", ("condition",)), Shown("cells", ("n",)),
            Shown("failed", ("failed",)), Shown("refused", ("refused",)), Shown("requests", ("requests",)),
            Shown("unanswered tries", ("tries_more",)), Shown("broken", ("broken",)),
            Shown("prompt tokens", ("prompt_tokens",)), Shown("bar, reference", ("bar_tokens",)),
            Shown("bar, provider", ("bar_reported", "bar_low", "bar_high")),
            Shown("cached share", ("cached_share",)), Shown("cache-written", ("cache_written",)),
            Shown("thinking tokens", ("reasoning",)), Shown("counted", ("n_reasoning",)),
            Shown("choices by", ("choices_by",), rare=True),
            Shown("served model", ("served",)),
        ),
        data=frame(COLUMNS, rows),
        absent="the run was not on a provider's API.",
    )  # fmt: skip


def _cells(run: RunData) -> pd.DataFrame | None:
    path = run.path / "samples.parquet"
    with parquet.ParquetFile(path) as file:
        if not set(_READ) <= set(file.schema_arrow.names):
            return None
        cells = file.read(columns=_READ).to_pandas().rename(columns=_SHORT)
    cells = cells[cells["facts"].notna()].copy()
    if cells.empty:
        return None
    # As in frames.py: two scenarios may both have an episode "e01".
    cells["cluster"] = cells["scenario"].astype(str) + "/" + cells["cluster"].astype(str)
    facts: list[Mapping[str, Any]] = [json.loads(text) for text in cells["facts"]]
    for name in _COUNTS:
        cells[name] = [int(each[name]) for each in facts]
    cells["served"] = [each.get("model") for each in facts]
    cells["choices_by"] = [_choices_by(each) for each in facts]
    for name in ("prompt", "cached", "written", "reasoning"):
        # A cell of several draws counts all of them; its requests are alike.
        cells[name] = pd.to_numeric(cells[name], errors="coerce") / cells["requests"].where(
            cells["requests"] > 0
        )
    return pd.DataFrame(cells)


def _choices_by(facts: Mapping[str, Any]) -> str | None:
    source = facts.get("choice_source")
    return f"{facts['requests']} draws" if source == "draws" else source


def _row(run: RunData, cells: pd.DataFrame, probe: str, arm: Arm) -> Row:
    mine = cells[cells["condition"] == arm.name]
    answered = mine[mine["finish"] != "error"]
    control = control_for(arm, run.arms)
    between = _difference(cells, arm.name, control.name) if control and control.name != arm.name else None
    known = answered[answered["cached"].notna() & answered["prompt"].notna()]
    thought = answered["reasoning"].dropna()
    return {
        "probe": probe, "condition": arm.name, "n": len(mine), "failed": int((mine["finish"] == "error").sum()),
        "refused": int(mine["refused"].sum()), "requests": int(mine["requests"].sum()),
        "tries_more": int((mine["tries"] - mine["requests"]).sum()), "broken": int(mine["broken"].sum()),
        "prompt_tokens": _mean(answered["prompt"]), "bar_tokens": _mean(answered["bar_tokens"]),
        "n_pairs": between[0] if between else None, "bar_reported": between[1].value if between else None,
        "bar_low": between[1].low if between else None, "bar_high": between[1].high if between else None,
        "cached_share": float(known["cached"].sum() / known["prompt"].sum()) if known["prompt"].sum() else None,
        "cache_written": _mean(answered["written"]), "n_reasoning": len(thought), "reasoning": _mean(thought),
        "choices_by": _joined(answered["choices_by"]), "served": _joined(answered["served"]),
    }  # fmt: skip


def _difference(cells: pd.DataFrame, name: str, control: str) -> tuple[int, st.Estimate] | None:
    """Pairs, and the mean difference of the provider's count of the prompt, over clusters."""
    known = cells[cells["prompt"].notna()]
    mine, other = (known[known["condition"] == each].set_index(_POINT) for each in (name, control))
    both = mine.join(other["prompt"].rename("prompt_control"), how="inner")
    if both.empty:
        return None
    d = (both["prompt"] - both["prompt_control"]).groupby(both["cluster"]).mean()
    return len(both), st.t_interval(d)


def _mean(values: "pd.Series[float]") -> float | None:
    known = values.dropna()
    return float(np.mean(known)) if len(known) else None


def _joined(values: "pd.Series[str]") -> str | None:
    """The values that occur, the most frequent first."""
    counts: Sequence[tuple[str, int]] = Counter(str(value) for value in values.dropna()).most_common()
    return ", ".join(name for name, _ in counts) or None
