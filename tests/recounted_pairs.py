"""The rows of the table of comparisons, worked out by `other_way` from the run's cells, with their verdicts.

Knows which comparison is confirmatory (sensitivity, bar − placebo) and what a lost cell could have been. Nothing of
harness. Unknown is None.
"""

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np
import other_verdicts as ov
import other_way as ow
from other_way import Cell, where
from recounted import MEASURES, RATES, SECONDS, Arms, add_per_token, mean


def comparisons(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    rows = [*_choices(arms, cells), *_shares(arms, cells), *_ratios(arms, cells)]
    family = [row for row in rows if row["label"] == "confirmatory" and row["p"] is not None]
    for row, p in zip(family, ow.holm([row["p"] for row in family]), strict=True):
        row["p_holm"] = p
    for row in rows:
        yield row | _verdict(row, arms.margins, len(family) if row["label"] == "confirmatory" else 1)


def _verdict(row: Cell, stated: Mapping[str, float], tests: int) -> Cell:
    around = ov.margin(row["unit"], stated)
    ratio = row["unit"] == "ratio"
    found: Cell = {"margin_low": around[0], "margin_high": around[1], "more_clusters": None}
    if row["estimate"] is None:
        n = row["clusters"]
        return found | {"verdict": "inconclusive", "more_clusters": ov.LEAST - n if n < ov.LEAST else None}
    p = row["p_holm"] if row["label"] == "confirmatory" else row["p"]
    narrow = (row["equivalence_low"], row["equivalence_high"])
    found["verdict"] = ov.word(row["measure"], row["estimate"] - ratio, p, narrow, around, row["clusters"])
    if found["verdict"] == "inconclusive":
        change = math.log(row["estimate"]) if ratio else row["estimate"]
        half = math.log(around[1]) if ratio else around[1]
        found["more_clusters"] = ov.further(change, row["sd"], half, row["clusters"], 0.05 / tests)
    return found


def _choices(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    part = where(cells, probe="choose", series="matched")
    for (kind, arm, against), (measure, unit) in itertools.product(arms.pairs(part), MEASURES):
        sure = measure == "sensitivity" and kind == "bar - placebo"
        d = _gain(part, arm, against, measure)
        row: Cell = {
            "probe": "choose", "measure": measure, "unit": unit, "kind": kind, "condition": arm,
            "against": against, "label": "confirmatory" if sure else "exploratory",
        } | _tested(d, ow.t_interval(d), ow.t_interval(d, 0.9)) | _lost(part, arm, against)  # fmt: skip
        if row["excluded"] or row["excluded_against"]:
            for end, sign in (("worst_low", -1), ("worst_high", 1)):
                row[end] = mean(_gain(_at_the_bound(part, arm, measure, sign), arm, against, measure))
        yield row


def places(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    """The own effect of a bar elsewhere minus that of the same bar at the first place, cluster by cluster."""
    part = where(cells, probe="choose", series="matched")
    own = {arm: against for kind, arm, against in arms.pairs(part) if kind == "bar - placebo"}
    listed = {entry["name"]: entry for entry in arms.listed}
    for measure, unit in MEASURES:
        for arm in own:
            entry = listed[arm]
            same = [a for a in own if listed[a]["bar"] == entry["bar"]
                    and listed[a].get("bar_options") == entry.get("bar_options")]  # fmt: skip
            against = same[0]
            if listed[against]["placement"] == entry["placement"]:
                continue
            gains = []
            for name in (arm, against):
                a, b = (ow.by_measure(c, measure) for c in ow.together(part, name, own[name], "logit"))
                gains.append({cluster: a[cluster] - b[cluster] for cluster in a.keys() & b.keys()})
            d = [
                gains[0][cluster] - gains[1][cluster] for cluster in sorted(gains[0].keys() & gains[1].keys())
            ]
            row = _tested(d, ow.t_interval(d), ow.t_interval(d, 0.9))
            row |= {
                "measure": measure,
                "unit": unit,
                "condition": arm,
                "against": against,
                "label": "exploratory",
            }
            row |= _verdict(row, arms.margins, 1)
            for other in ("boot_low", "boot_high", "p_holm", "sd", "mde", "label"):
                del row[other]
            yield row


def _gain(part: list[Cell], arm: str, against: str, measure: str) -> list[float]:
    a, b = (ow.by_measure(c, measure) for c in ow.together(part, arm, against, "logit"))
    return [a[cluster] - b[cluster] for cluster in sorted(a.keys() & b.keys())]


def _at_the_bound(part: list[Cell], arm: str, measure: str, sign: int) -> list[Cell]:
    """Lost cells as certain choices: those that make the difference between the arms as large, or small, as can be."""
    filled = []
    for cell in part:
        helps = (cell["side"] == "due") if measure != "bias" else False
        up = (1 if helps else -1) * (1 if cell["condition"] == arm else -1) * sign > 0
        extreme = {"excluded": False, "logit": ow.CLIP if up else -ow.CLIP, "p": float(up), "raw": float(up)}
        filled.append(cell | extreme if cell["excluded"] else cell)
    return filled


def _shares(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    acted, asked = (where(cells, probe=probe, series="matched") for probe in ("act", "ask"))
    parts = [("act", name, where(acted, side=side), mark) for name, side, mark in RATES]
    for probe, measure, part, mark in [*parts, ("ask", "accuracy", asked, "right")]:
        for kind, arm, against in arms.pairs(part):
            mine, theirs = ow.together(part, arm, against, mark)
            by = [ow.means(c, "cluster", mark) for c in (mine, theirs)]
            shared = sorted(by[0].keys() & by[1].keys())
            a, b = ([values[cluster] for cluster in shared] for values in by)
            wide, narrow = (ow.paired_shares(a, b, len(mine), level) for level in (0.95, 0.9))
            row: Cell = {
                "probe": probe, "measure": measure, "unit": "share", "kind": kind, "condition": arm,
                "against": against, "label": "exploratory",
            } | _tested([x - y for x, y in zip(a, b, strict=True)], wide, narrow)  # fmt: skip
            row |= _lost(part, arm, against)
            if len(mine) == len(shared) > 0:
                row["p_mcnemar"] = ow.mcnemar([x == 1 for x in a], [x == 1 for x in b])
            if row["excluded"] or row["excluded_against"]:
                for end, best in (("worst_low", False), ("worst_high", True)):
                    filled = [
                        cell | {"excluded": False, mark: (cell["condition"] == arm) == best}
                        if cell["excluded"]
                        else cell
                        for cell in part
                    ]
                    both = [ow.means(c, "cluster", mark) for c in ow.together(filled, arm, against, mark)]
                    row[end] = mean([both[0][k] - both[1][k] for k in both[0].keys() & both[1].keys()])
            yield row


def _ratios(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    """Tokens: mean over mean; seconds: geometric mean of paired ratios."""
    matched = where(cells, series="matched")
    acted = where(matched, probe="act")
    for measure, column in (("thinking", "thought"), ("output", "output.usage.completion_tokens")):
        if not any((cell[column] or 0) > 0 for cell in acted):
            continue
        for kind, arm, against in arms.pairs(acted):
            by = [ow.means(c, "cluster", column) for c in ow.together(acted, arm, against, column)]
            shared = sorted(by[0].keys() & by[1].keys())
            a, b = ([values[cluster] for cluster in shared] for values in by)
            wide, narrow = (ow.ratio_of_means(a, b, level) for level in (0.95, 0.9))
            logs = (
                [x / mean(a) - y / mean(b) for x, y in zip(a, b, strict=True)] if wide[0] is not None else []
            )
            d = [x - y for x, y in zip(a, b, strict=True)]
            yield _ratio(kind, arm, against, measure, logs, wide, narrow) | _lost(acted, arm, against) | {
                "p": ow.sign_flips(d), "clusters": len(d)
            }  # fmt: skip
    timed = add_per_token(ow.usable(matched))
    for probe, measure in itertools.product(sorted({c["probe"] for c in timed}), (*SECONDS, "per_token")):
        part = [cell for cell in where(timed, probe=probe) if (cell[measure] or 0) > 0]
        for kind, arm, against in arms.pairs(part):
            base = {cell["at"]: cell[measure] for cell in where(part, condition=against)}
            logs = [
                {"cluster": c["cluster"], "log": math.log(c[measure] / base[c["at"]])}
                for c in where(part, condition=arm) if c["at"] in base
            ]  # fmt: skip
            d = list(ow.means(logs, "cluster", "log").values())
            wide, narrow = (ow.geometric(d, level) for level in (0.95, 0.9))
            lost = _lost(where(matched, probe=probe), arm, against)
            yield _ratio(kind, arm, against, measure, d, wide, narrow) | lost | {"probe": probe}


def _ratio(
    kind: str, arm: str, against: str, measure: str, logs: list[float], wide: ow.Interval, narrow: ow.Interval
) -> Cell:
    return {
        "probe": "act", "measure": measure, "unit": "ratio", "kind": kind, "condition": arm, "against": against,
        "label": "exploratory",
    } | _tested(logs, wide, narrow) | {"boot_low": None, "boot_high": None, "mde": None}  # fmt: skip


def _tested(d: list[float], wide: ow.Interval, narrow: ow.Interval) -> Cell:
    return {
        "clusters": len(d), "estimate": wide[0], "low": wide[1], "high": wide[2],
        "equivalence_low": narrow[1], "equivalence_high": narrow[2], "p": ow.sign_flips(d), "p_holm": None,
        "sd": float(np.std(d, ddof=1)) if len(d) > 1 else None, "mde": ow.detectable(d),
    } | dict(zip(("boot_low", "boot_high"), ow.bca(d), strict=True))  # fmt: skip


def _lost(part: list[Cell], arm: str, against: str) -> Cell:
    count = {name: sum(c["excluded"] for c in where(part, condition=name)) for name in (arm, against)}
    return {"excluded": count[arm], "excluded_against": count[against]}
