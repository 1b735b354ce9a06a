"""How often the verdicts lie, how often the intervals cover, and whether the power is as planned: by simulation.

Data: clusters with random effects of their own and random treatment effects, of unequal size (1 to 8 cells per arm),
rates .02, .05, .3 and .5 and a continuous outcome, intra-class correlations 0, .3 and .8, 8 to 200 clusters. Every
simulated comparison goes through the functions that judge real ones (harness/analysis/{statistics,verdicts,power}.py).

Limits: false `better` or `worse` under the null at most 5 % plus two simulation errors; 95 % intervals cover at least
93 % (rates, and differences of rates under the null and under an effect) and 93 to 97 % (continuous) from 12 clusters
on; differences that a design is said to find in 80 % of runs are found in 75 to 85 %; `equivalent` is said of a
difference as large as the margin in at most 5 % plus two simulation errors. Of so many checks some would fail by
chance alone, so what misses its limit is simulated again, ten times as often, and that decides.

    python benchmarks/calibration.py [--runs 1000] [--out FOLDER]

Prints one line per setting and, last, one line of JSON; exits 1 when a limit is missed.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from harness.analysis import power
from harness.analysis import statistics as st
from harness.analysis.verdicts import LEVEL, Evidence, Margins, decide

CLUSTERS = (8, 12, 20, 50, 200)
RATES = (0.02, 0.05, 0.3, 0.5)
CORRELATIONS = (0.0, 0.3, 0.8)
SIZES = (1, 2, 3, 4, 5, 6, 7, 8)
"""Cells per arm in a cluster, repeated in turn."""
MARGINS = Margins()
RISE = {0.02: 0.1, 0.05: 0.2, 0.3: 0.5, 0.5: 0.8}
"""Rate under an effect, for the coverage of rates and of differences that are not 0."""
AGAIN = 10
"""How much oftener a setting is simulated that missed its limit."""


@dataclass(frozen=True, slots=True)
class Found:
    """One checked share of simulated runs. `least` and `most` are its limits, simulation errors included."""

    outcome: str
    correlation: float
    clusters: int
    what: str
    share: float
    runs: int
    least: float
    most: float

    @property
    def ok(self) -> bool:
        return self.least <= self.share <= self.most


Check = Callable[[int, np.random.Generator], float]
"""(simulated runs, random numbers) → share of them in which something was so."""


# -- the worlds ------------------------------------------------------------------------------------------------


def continuous(
    clusters: int, correlation: float, effect: float, runs: int, rng: np.random.Generator
) -> st.Floats:
    """Paired cluster differences (runs × clusters) of an outcome whose cells have variance 1: a cluster's own level,
    a treatment effect that varies (standard deviation .5) around `effect`, and noise averaged over its cells."""
    sizes = np.resize(SIZES, clusters)
    shape = (runs, clusters)
    own = effect + rng.normal(0, 0.5, shape)
    # A cluster's level is in both arms and cancels; what correlates within an arm of a cluster does not.
    noise = math.sqrt(correlation) * rng.standard_normal((2, *shape))
    noise += math.sqrt(1 - correlation) * rng.standard_normal((2, *shape)) / np.sqrt(sizes)
    return np.asarray(own + noise[0] - noise[1])


def spread(clusters: int, correlation: float) -> float:
    """Standard deviation of `continuous`'s differences, in closed form."""
    inverse = float(np.mean(1 / np.resize(SIZES, clusters)))
    return math.sqrt(0.25 + 2 * (correlation + (1 - correlation) * inverse))


def shares(
    design: power.ShareDesign, effect: float, runs: int, rng: np.random.Generator
) -> Iterator[tuple[st.Floats, st.Floats]]:
    first, second = power.draw_shares(design, effect, runs, rng)
    yield from zip(first, second, strict=True)


# -- what is checked ---------------------------------------------------------------------------------------------


def verdict(measure: str, unit: str, d: st.Floats, wide: st.Estimate, narrow: st.Estimate) -> str:
    low, high = narrow.low, narrow.high
    within = None if low is None or high is None else (low, high)
    found = Evidence(measure, unit, wide.value, wide.sd, wide.n, st.sign_flip_p(d), within)
    return decide(found, MARGINS).word


def judged_mean(d: st.Floats) -> str:
    return verdict("sensitivity", "logit", d, st.t_interval(d), st.t_interval(d, LEVEL))


def judged_share(a: st.Floats, b: st.Floats, cells: int) -> str:
    wide, narrow = st.share_difference(a, b, cells), st.share_difference(a, b, cells, LEVEL)
    return verdict("compliance", "share", a - b, wide, narrow)


def covers(found: st.Estimate, truth: float) -> bool:
    return found.low is not None and found.high is not None and found.low - 1e-9 <= truth <= found.high + 1e-9


def of_means(clusters: int, correlation: float) -> Iterator[tuple[str, Check]]:
    effect = st.minimum_detectable(spread(clusters, correlation), clusters) or 0.0

    def drawn(change: float, runs: int, rng: np.random.Generator) -> st.Floats:
        return continuous(clusters, correlation, change, runs, rng)

    def wrong(runs: int, rng: np.random.Generator) -> float:
        return _share(judged_mean(d) in ("better", "worse") for d in drawn(0.0, runs, rng))

    def negligible(runs: int, rng: np.random.Generator) -> float:
        return _share(judged_mean(d) == "equivalent" for d in drawn(MARGINS.logit, runs, rng))

    def covered(runs: int, rng: np.random.Generator) -> float:
        return _share(covers(st.t_interval(d), 0.3) for d in drawn(0.3, runs, rng))

    def detected(runs: int, rng: np.random.Generator) -> float:
        return _share((st.sign_flip_p(d) or 1.0) < st.ALPHA for d in drawn(effect, runs, rng))

    yield from (
        ("false verdict", wrong),
        ("false equivalence", negligible),
        ("coverage", covered),
        ("power", detected),
    )


def of_shares(rate: float, clusters: int, correlation: float) -> Iterator[tuple[str, Check]]:
    design = power.ShareDesign(clusters, SIZES, rate, correlation)
    sizes = np.resize(SIZES, clusters)
    labels, cells = np.repeat(np.arange(clusters), sizes).tolist(), int(sizes.sum())
    effect = power.detectable_share(design)

    def wrong(runs: int, rng: np.random.Generator) -> float:
        return _share(
            judged_share(a, b, cells) in ("better", "worse") for a, b in shares(design, 0.0, runs, rng)
        )

    def negligible(runs: int, rng: np.random.Generator) -> float:
        drawn = shares(design, MARGINS.share, runs, rng)
        return _share(judged_share(a, b, cells) == "equivalent" for a, b in drawn)

    def difference(change: float) -> Check:
        def covered(runs: int, rng: np.random.Generator) -> float:
            drawn = shares(design, change, runs, rng)
            return _share(covers(st.share_difference(a, b, cells), change) for a, b in drawn)

        return covered

    def covered(runs: int, rng: np.random.Generator) -> float:
        found = (st.proportion(_cells(b, sizes), labels) for _, b in shares(design, 0.0, runs, rng))
        return _share(covers(st.Estimate(f.rate, f.low, f.high, None, f.clusters), rate) for f in found)

    def mean_covered(runs: int, rng: np.random.Generator) -> float:
        return _share(covers(st.share_interval(b, cells), rate) for _, b in shares(design, 0.0, runs, rng))

    def detected(runs: int, rng: np.random.Generator) -> float:
        return _share(
            (st.sign_flip_p(a - b) or 1.0) < st.ALPHA for a, b in shares(design, effect or 0.0, runs, rng)
        )

    yield "false verdict", wrong
    yield "false equivalence", negligible
    yield "coverage of the rate", covered
    yield "coverage of the clusters' mean", mean_covered
    yield "coverage of no difference", difference(0.0)
    yield "coverage of a difference", difference(RISE[rate] - rate)
    if effect is not None:
        yield "power", detected


def _cells(share: st.Floats, sizes: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]") -> st.Floats:
    """One row per cell, 1 or 0, from the clusters' shares."""
    ones = np.rint(share * sizes).astype(int)
    return np.concatenate([np.arange(size) < count for size, count in zip(sizes, ones, strict=True)]).astype(
        float
    )


def _share(hits: Iterator[bool]) -> float:
    return float(np.mean(list(hits)))


def limits(outcome: str, what: str, clusters: int, runs: int) -> tuple[float, float]:
    """Least and most share that is allowed, simulation errors included where the issue of chance is one-sided."""
    if what.startswith("false"):
        return 0.0, st.ALPHA + 2 * math.sqrt(st.ALPHA * (1 - st.ALPHA) / runs)
    if what == "power":
        return st.POWER - 0.05, st.POWER + 0.05
    if clusters < 12:
        return 0.0, 1.0
    return 0.93, 0.97 if outcome == "continuous" else 1.0


# -- running ----------------------------------------------------------------------------------------------------


def settings() -> Iterator[tuple[str, float, int, Iterator[tuple[str, Check]]]]:
    for correlation in CORRELATIONS:
        for clusters in CLUSTERS:
            yield "continuous", correlation, clusters, of_means(clusters, correlation)
            for rate in RATES:
                yield f"rate {rate:g}", correlation, clusters, of_shares(rate, clusters, correlation)


def measured(outcome: str, correlation: float, clusters: int, what: str, check: Check, runs: int) -> Found:
    """The share, simulated again where it missed its limit. The seed is the setting's own."""
    for times in (runs, runs * AGAIN):
        seed = [ord(letter) for letter in f"{outcome}|{correlation}|{clusters}|{what}|{times}"]
        found = Found(
            outcome, correlation, clusters, what, check(times, np.random.default_rng(seed)), times,
            *limits(outcome, what, clusters, times),
        )  # fmt: skip
        if found.ok:
            break
    return found


def summary(found: list[Found]) -> list[dict[str, object]]:
    """Per outcome and number of clusters: the worst of each share over the correlations."""
    rows = []
    for outcome in dict.fromkeys(f.outcome for f in found):
        for clusters in CLUSTERS:
            here = [f for f in found if f.outcome == outcome and f.clusters == clusters]
            row: dict[str, object] = {"outcome": outcome, "clusters": clusters}
            for name, pick in (
                ("false verdict", max),
                ("false equivalence", max),
                ("coverage", min),
                ("power", min),
            ):
                row[name] = pick((f.share for f in here if f.what.startswith(name)), default=None)
            row["power, most"] = max((f.share for f in here if f.what == "power"), default=None)
            rows.append(row)
    return rows


def markdown(rows: list[dict[str, object]]) -> str:
    """The table of the README's method section."""
    head = [
        "outcome",
        "clusters",
        "false better or worse",
        "false equivalent",
        "coverage of 95 %",
        "power at the MDE",
    ]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        low, high = row["power"], row["power, most"]
        power_text = "–" if low is None else f"{low:.2f} to {high:.2f}"
        shown = [f"{row[name]:.3f}" for name in ("false verdict", "false equivalence", "coverage")]
        lines.append([str(row["outcome"]), str(row["clusters"]), *shown, power_text])
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000, help="simulated runs per check (default 1000)")
    parser.add_argument("--out", type=Path, help="also write calibration.json and calibration.md there")
    asked = parser.parse_args()
    begun, found = time.perf_counter(), []
    for outcome, correlation, clusters, checks in settings():
        mine = [measured(outcome, correlation, clusters, what, check, asked.runs) for what, check in checks]
        found += mine
        told = ", ".join(f"{f.what} {f.share:.3f}{'' if f.ok else ' MISSED'}" for f in mine)
        print(f"{outcome}, correlation {correlation:g}, {clusters} clusters: {told}", flush=True)
    missed = [asdict(f) for f in found if not f.ok]
    rows = summary(found)
    result = {
        "name": "calibration",
        "settings": len(CLUSTERS) * len(CORRELATIONS) * (1 + len(RATES)),
        "checks": len(found),
        "again": sum(f.runs > asked.runs for f in found),
        "runs": asked.runs,
        "worst_false_verdict": max(f.share for f in found if f.what == "false verdict"),
        "worst_false_equivalence": max(f.share for f in found if f.what == "false equivalence"),
        "worst_coverage": min(f.share for f in found if f.what.startswith("coverage") and f.clusters >= 12),
        "power": [pick(f.share for f in found if f.what == "power") for pick in (min, max)],
        "seconds": round(time.perf_counter() - begun, 1),
        "limit": {
            "false_verdict": "0.05 + 2 simulation errors",
            "coverage": [0.93, 0.97],
            "power": [0.75, 0.85],
        },
        "missed": missed,
        "ok": not missed,
    }
    if asked.out:
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "calibration.md").write_text(markdown(rows), encoding="utf-8")
        whole = result | {"found": [asdict(f) for f in found]}
        (asked.out / "calibration.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
