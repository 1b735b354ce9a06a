"""Estimates for a run that has not been made: its time, its new tokens, and the differences it can find.

Knows finished runs ("pilots") as folders, and the new design as plain counts; knows no configuration, no tokenizer and
no model. What no pilot shows and no assumption states is None.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from harness.analysis import power
from harness.analysis import statistics as st
from harness.analysis.comparisons import choose_differences
from harness.analysis.costs import OUTPUT
from harness.analysis.decisions import ACT_MEASURES, MATCHED
from harness.analysis.frames import RunData, load
from harness.analysis.pairs import Pair
from harness.analysis.verdicts import MIN_CLUSTERS, Margins
from harness.errors import ReportError

MANY_CLUSTERS = 4_000
"""Simulated clusters from which the spread of a difference of shares is taken."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """What is taken for granted where no pilot says it. `sd`: spread of the clusters' differences in sensitivity
    (logits). `rate`: share of forbidden-side replies that keep the rule without the bar. `icc`: how alike the replies
    of one cluster and arm are."""

    sd: float = 1.0
    rate: float = 0.5
    icc: float = 0.3


@dataclass(frozen=True, slots=True)
class Work:
    """What takes time: prompt tokens put through the model, and tokens generated."""

    prompt: float
    new: float


@dataclass(frozen=True, slots=True)
class Pilot:
    """A finished run as a source of estimates. `work` and `seconds`: of all its sessions, the engine's start apart;
    `start`: the longest of those."""

    path: Path
    manifest: Mapping[str, Any]
    prompt: float
    """Prompt tokens before prefix sharing."""
    work: Work
    seconds: float
    start: float
    run: RunData | None
    """None where the folder has no samples.parquet: then it tells of speed alone."""


def read_pilot(folder: Path, manifest: Mapping[str, Any]) -> Pilot:
    """The pilot in a run folder. Raises ReportError when its manifest has no finished session."""
    found = manifest.get("throughput")
    if not isinstance(found, Mapping) or not found.get("seconds") or not found.get("cells"):
        raise ReportError(
            f"{folder}: no finished session is in its manifest; name a run that has computed cells"
        )
    sessions = manifest.get("sessions") or []
    try:
        starts = [_seconds(each) - float(each["seconds"]) for each in sessions]
        prompt, computed, new, seconds = (
            float(found[key]) for key in ("prompt_tokens", "computed_tokens", "new_tokens", "seconds")
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ReportError(
            f"{folder}/manifest.json: its sessions or throughput are not whole ({error}); restore it, or name another run"
        ) from error
    return Pilot(
        path=folder,
        manifest=manifest,
        prompt=prompt,
        work=Work(computed, new),
        seconds=seconds,
        start=max([0.0, *starts]),
        run=load(folder) if (folder / "samples.parquet").is_file() else None,
    )


def _seconds(session: Mapping[str, Any]) -> float:
    ended, started = (datetime.fromisoformat(str(session[key])) for key in ("ended", "started"))
    return (ended - started).total_seconds()


# -- time --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds per prompt token and per new token, by least squares over the pilots (relative errors)."""

    prompt: float
    new: float


@dataclass(frozen=True, slots=True)
class Seconds:
    """`expected` is None where one pilot cannot tell; `high` is None where no pilot generated anything."""

    expected: float | None
    low: float
    high: float | None


def speed(pilots: Sequence[tuple[Work, float]]) -> Speed | None:
    """The two rates that fit (work, seconds) best, neither below 0; None from fewer than two pilots."""
    if len(pilots) < 2:
        return None
    seconds = np.array([spent for _, spent in pilots])
    work = np.array([[each.prompt, each.new] for each, _ in pilots]) / seconds[:, None]
    found, _ = nnls(work, np.ones(len(pilots)))
    return Speed(float(found[0]), float(found[1]))


def estimate_seconds(pilots: Sequence[tuple[Work, float]], wanted: Work) -> Seconds | None:
    """Time of `wanted`, if it is a sum of so much per prompt token and so much per new token, neither below 0.

    One pilot does not tell the two apart, but it bounds them: if all of its time went into prompts, or all into new
    tokens, the wanted time is its own times the one ratio of work or the other, and in between otherwise. Several
    pilots each give such bounds; what all allow is the range (where they contradict each other, what lies between
    them), stretched to the least-squares estimate. None without a pilot.
    """
    bounds = [bound for work, seconds in pilots if (bound := _bounds(work, seconds, wanted)) is not None]
    if not bounds:
        return None
    highs = [high for _, high in bounds if high is not None]
    low = max(low for low, _ in bounds)
    high = min(highs, default=None)
    if high is not None:
        low, high = sorted((low, high))
    fitted = speed(pilots)
    if fitted is None or (wanted.new and not fitted.new and not fitted.prompt):
        return Seconds(low if high is not None and math.isclose(low, high) else None, low, high)
    expected = fitted.prompt * wanted.prompt + fitted.new * wanted.new
    return Seconds(expected, min(low, expected), None if high is None else max(high, expected))


def _bounds(work: Work, seconds: float, wanted: Work) -> tuple[float, float | None] | None:
    by_prompt = wanted.prompt / work.prompt if work.prompt else None
    if not work.new:
        # Nothing was generated: only the prompts' share is known.
        return (
            None if by_prompt is None else (by_prompt * seconds, None if wanted.new else by_prompt * seconds)
        )
    by_new = wanted.new / work.new
    if by_prompt is None:
        return by_new * seconds, None
    return min(by_prompt, by_new) * seconds, max(by_prompt, by_new) * seconds


# -- new tokens --------------------------------------------------------------------------------------------


def expected_draw(pilots: Sequence[Pilot], probe: str, series: str, condition: str, tau: int) -> float | None:
    """Mean tokens of one reply (or thought) under the limit `tau`: from the pilot with most such cells in the same
    series, else in any. None where no pilot has them, or the pilot had a lower limit that cut replies."""
    for same_series in (True, False):
        best: tuple[int, float] | None = None
        for cells in (pilot.run.cells for pilot in pilots if pilot.run is not None):
            mine = cells[(cells["probe"] == probe) & (cells["condition"] == condition) & ~cells["excluded"]]
            mine = mine[mine["series"] == series] if same_series else mine
            mean = _mean_draw(mine, probe, tau)
            if mean is not None and (best is None or len(mine) > best[0]):
                best = len(mine), mean
        if best is not None:
            return best[1]
    return None


def _mean_draw(cells: pd.DataFrame, probe: str, tau: int) -> float | None:
    draws = cells["thoughts"] if probe == "choose" else pd.Series(1.0, index=cells.index)
    known = cells[OUTPUT].notna() & (draws > 0)
    tokens, draws, limit = cells[OUTPUT][known], draws[known], cells["decoding.max_new_tokens"][known]
    if tokens.empty or not draws.sum():
        return None
    each = tokens / draws
    if bool(((limit < tau) & (each >= limit)).any()):
        return None
    return float(np.minimum(tokens, draws * tau).sum() / draws.sum())


# -- what can be found -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Effect:
    """What a design can say about one comparison. `mde`: smallest true difference that it finds in 80 % of runs at
    α = .05, Holm's first step among `tests` included. `for_…`: clusters at which a difference as large as the margin,
    or half of it, is found, or none at all is shown to be equivalent, each in 80 % of runs. None: not known."""

    measure: str
    unit: str
    condition: str
    against: str
    placement: str
    label: str
    clusters: int
    tests: int
    sd: float | None
    source: str
    mde: float | None
    margin: float
    for_margin: int | None
    for_half: int | None
    for_equivalence: int | None
    note: str = ""


def sensitivity_effects(
    clusters: Mapping[Pair, int], pilots: Sequence[Pilot], assumed: Assumed, stated: bool, margins: Margins
) -> list[Effect]:
    """One per confirmatory comparison: sensitivity, bar − placebo. `stated`: the user gave `sd`, which then comes
    before any pilot's."""
    found = []
    for pair, number in clusters.items():
        sd, source = assumed.sd, "spread as stated" if stated else "spread assumed"
        if not stated and (seen := _pilot_sd(pilots, pair)) is not None:
            sd, source = seen[0], f"spread from {seen[1]}"
        blank = Effect(
            "sensitivity", "logit", pair.arm.name, pair.against.name, pair.arm.placement, "confirmatory",
            number, len(clusters), sd, source, None, margins.logit, None, None, None,
        )  # fmt: skip
        alpha = st.ALPHA / len(clusters)
        found.append(replace(_needed(blank, sd, alpha), mde=_least(sd, number, alpha)))
    return [_guarded(effect) for effect in found]


def _least(sd: float, clusters: int, alpha: float) -> float | None:
    """Smallest difference that is found in 80 % of runs, to a thousandth of `sd`."""
    if clusters < 3:
        return None
    high = 0.05  # doubled, not cut down from far above, where the noncentral t has no value
    while power.detecting(high, 1.0, clusters, alpha) < st.POWER:
        high *= 2
    low = high / 2
    while high - low > 1e-3:
        middle = (low + high) / 2
        enough = power.detecting(middle, 1.0, clusters, alpha) >= st.POWER
        low, high = (low, middle) if enough else (middle, high)
    return high * sd


def compliance_effects(
    sizes: Mapping[Pair, tuple[int, ...]],
    pilots: Sequence[Pilot],
    assumed: Assumed,
    stated: bool,
    margins: Margins,
) -> list[Effect]:
    """One per comparison of free answers on the forbidden side, bar − placebo (exploratory). `sizes`: forbidden-side
    cells of each cluster and arm. The rate is that of the arm compared with."""
    found = []
    for pair, cells in sizes.items():
        rate, source = assumed.rate, "as stated" if stated else "assumed"
        if not stated and (seen := _pilot_rate(pilots, pair.against.name)) is not None:
            rate, source = seen[0], f"from {seen[1]}"
        design = power.ShareDesign(len(cells), cells, rate, assumed.icc)
        sd = _share_sd(design)
        blank = Effect(
            "compliance", "share", pair.arm.name, pair.against.name, pair.arm.placement, "exploratory",
            len(cells), 1, sd, f"rate {rate:.2f} {source}", None, margins.share, None, None, None,
        )  # fmt: skip
        mde = power.detectable_share(design) if len(cells) >= MIN_CLUSTERS else None
        blind = "even the largest change is found in fewer than 80 % of runs" if mde is None else ""
        found.append(replace(_needed(blank, sd, st.ALPHA), mde=None if mde is None else abs(mde), note=blind))
    return [_guarded(effect) for effect in found]


def _share_sd(design: power.ShareDesign) -> float:
    """Spread of the clusters' differences where there is no effect, by simulation with a fixed seed."""
    many = replace(design, clusters=MANY_CLUSTERS)
    first, second = power.draw_shares(many, 0.0, 1, np.random.default_rng(st.SEED))
    return float((first - second).std(ddof=1))


def _needed(effect: Effect, sd: float, alpha: float) -> Effect:
    """Clusters, never below those that a verdict needs."""
    counts = (
        power.clusters_to_detect(effect.margin, sd, alpha),
        power.clusters_to_detect(effect.margin / 2, sd, alpha),
        power.clusters_for_equivalence(0.0, sd, effect.margin),
    )
    margin, half, equal = (None if count is None else max(count, MIN_CLUSTERS) for count in counts)
    return replace(effect, for_margin=margin, for_half=half, for_equivalence=equal)


def _guarded(effect: Effect) -> Effect:
    """Below `MIN_CLUSTERS` there is no verdict, so nothing can be found."""
    if effect.clusters >= MIN_CLUSTERS:
        return effect
    return replace(effect, mde=None, note=f"below {MIN_CLUSTERS} clusters there is no verdict")


def _pilot_sd(pilots: Sequence[Pilot], pair: Pair) -> tuple[float, str] | None:
    """Spread of the clusters' differences in sensitivity, from the pilot with most clusters (3 or more): the column
    `sd` of its comparisons."""
    best: tuple[int, float, str] | None = None
    for pilot in pilots:
        if pilot.run is None:
            continue
        chosen = pilot.run.part("choose", MATCHED)
        found = st.t_interval(choose_differences(chosen, pair.arm.name, pair.against.name, "sensitivity"))
        if found.n >= 3 and found.sd and (best is None or found.n > best[0]):
            best = found.n, found.sd, f"{pilot.path.name} ({found.n} clusters)"
    return None if best is None else best[1:]


def _pilot_rate(pilots: Sequence[Pilot], condition: str) -> tuple[float, str] | None:
    """Compliance of an arm in the pilot with most cells, one success and one failure added (Laplace): a rate of 0 or
    1 would mean a spread of 0."""
    _, side, mark = ACT_MEASURES[0]
    best: tuple[int, float, str] | None = None
    for pilot in pilots:
        if pilot.run is None:
            continue
        cells = pilot.run.part("act", MATCHED)
        mine = cells[(cells["side"] == side) & (cells["condition"] == condition) & ~cells["excluded"]]
        if len(mine) and (best is None or len(mine) > best[0]):
            rate = (float(mine[mark].sum()) + 1) / (len(mine) + 2)
            best = len(mine), rate, f"{pilot.path.name} ({len(mine)} cells)"
    return None if best is None else best[1:]
