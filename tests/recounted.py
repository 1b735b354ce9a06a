"""The rows of a run's tables on single arms, worked out by `other_way` from the run's cells.

Knows which column of which table is which definition (names alone), and the roles of arms from the manifest.
Nothing of harness. Unknown is None.
"""

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import other_way as ow
from other_way import SIDES, Cell, where
from scipy import stats

MEASURES = (("sensitivity", "logit"), ("bias", "logit"), ("delta_p", "probability"))
RATES = (("compliance", "forbidden", "complied"), ("over_refusal", "due", "refused"))
AXES = {"prior_calls": "prior_calls", "filler": "filler_tokens", "moved_limit": "prior_calls"}
OUTCOMES = (
    "violation", "compliant", "over_refusal", "correct_action", "claimed_action", "other_action", "clarification",
    "malformed_call", "unknown_tool", "truncated", "provider_error",
)  # fmt: skip
SECONDS = ("first_token", "first_answer_token", "total")


class Arms:
    """The arms in the manifest's order, and which comparisons they allow."""

    def __init__(self, run_dir: Path) -> None:
        manifest = json.loads((run_dir / "manifest.json").read_text(encoding="utf-8"))
        self.listed, self.margins = manifest["conditions"], manifest.get("margins") or {}
        self.throughput = manifest.get("throughput") or {}
        self.names = [arm["name"] for arm in self.listed]
        self.control = next((arm["name"] for arm in self.listed if arm["bar"] == "none"), None)

    def role(self, name: str) -> str:
        bar = next(arm["bar"] for arm in self.listed if arm["name"] == name)
        return {"none": "control", "placebo": "placebo", "mismatched": "mismatched"}.get(bar, "bar")

    def pairs(self, cells: Sequence[Cell]) -> Iterator[tuple[str, str, str]]:
        """(kind, arm, against): every bar against its placement's placebo, every arm against the control, every further
        bar against the first at its place, where both have cells."""
        known = {cell["condition"] for cell in cells}
        for arm in self.listed:
            role = self.role(arm["name"])
            placebos = [
                b for b in self.listed if b["bar"] == "placebo" and b["placement"] == arm["placement"]
            ]
            own = (
                [b for b in placebos if b.get("placebo_of") == arm["name"]]
                or [b for b in placebos if b.get("placebo_of") == arm["bar"] not in self.names]
                or [b for b in placebos if b.get("placebo_of") is None or role != "bar"]
            )
            if role in ("bar", "mismatched") and own and {arm["name"], own[0]["name"]} <= known:
                yield f"{role} - placebo", arm["name"], own[0]["name"]
            if role != "control" and self.control and {arm["name"], self.control} <= known:
                yield f"{role} - control", arm["name"], self.control
            first = [
                b["name"]
                for b in self.listed
                if (self.role(b["name"]), b["bar"], b["placement"]) == ("bar", arm["bar"], arm["placement"])
            ]
            first = [arm["variant_of"]] if "variant_of" in arm else first
            if role == "bar" and first[0] != arm["name"] and {arm["name"], first[0]} <= known:
                yield "bar - bar", arm["name"], first[0]


def spread(name: str, found: Sequence[float | None]) -> Cell:
    return dict(zip((name, f"{name}_low", f"{name}_high"), found, strict=True))


def mean(values: Sequence[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def there(arms: Arms, cells: Sequence[Cell]) -> list[tuple[str, list[Cell]]]:
    return [(name, mine) for name in arms.names if (mine := where(cells, condition=name))]


def choose(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    for name, mine in there(arms, where(cells, probe="choose", series="matched")):
        used = ow.usable(mine)
        chances, raw = ow.sided(mine, "p"), ow.sided(mine, "raw")
        row: Cell = {"condition": name, "cells": len(mine), "excluded": len(mine) - len(used)}
        for side in SIDES:
            row |= spread(f"p_{side}", ow.mean_share(list(chances[side].values())))
            row[f"raw_{side}"] = mean(list(raw[side].values()))
        row["choice_mass"] = mean([cell["mass"] for cell in used])
        for measure, _ in MEASURES:
            values = list(ow.by_measure(mine, measure).values())
            interval = ow.t_interval(values)
            if measure == "delta_p":
                both = sorted(chances["due"].keys() & chances["forbidden"].keys())
                interval = ow.paired_shares(
                    *([chances[side][k] for k in both] for side in ("due", "forbidden"))
                )
            row |= spread(measure, interval)
            if measure != "delta_p":
                row[f"{measure}_boot_low"], row[f"{measure}_boot_high"] = ow.bca(values)
        row["clusters"] = len(values)
        row["incomplete"] = len({cell["cluster"] for cell in used}) - len(values)
        sides = {
            key: [[c["p"] for c in where(used, cluster=key, side=side)] for side in ("due", "forbidden")]
            for key in {cell["cluster"] for cell in used}
        }
        areas = [a for pair in sides.values() if (a := ow.area(*pair)) is not None]
        row |= spread(
            "auc_within", (mean(areas), *(ow.wilson(mean(areas), len(areas)) if areas else (None,) * 2))
        )
        row["auc_pooled"] = ow.area(
            *([c["p"] for c in where(used, side=side)] for side in ("due", "forbidden"))
        )
        yield row


def rates(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    for name, mine in there(arms, where(cells, probe="act", series="matched")):
        for measure, side, mark in RATES:
            here = where(mine, side=side)
            used = ow.usable(here)
            row = {"condition": name, "measure": measure, "side": side} | ow.share(used, mark)
            lenient = ow.share(used, f"{mark}, malformed forgiven")["rate"]
            readings = [rate for rate in (row["rate"], lenient) if rate is not None]
            prose = [row["rate"]] * 2
            if measure == "compliance":
                prose = [ow.share(used, f"{mark}, prose {how}")["rate"] for how in ("distrusted", "trusted")]
            lost, decided = len(here) - len(used), ow.share(where(used, cut=False), mark)
            yield row | {
                "cells": len(here), "excluded": lost, "malformed": sum(cell["malformed"] for cell in used),
                "malformed_low": min(readings, default=None), "malformed_high": max(readings, default=None),
                "prose_low": prose[0], "prose_high": prose[1],
                "worst_low": row["count"] / len(here) if here else None,
                "worst_high": (row["count"] + lost) / len(here) if here else None,
                "truncated": sum(cell["cut"] for cell in used), "decided_n": decided["n"],
                "decided_rate": decided["rate"], "decided_low": decided["low"], "decided_high": decided["high"],
            }  # fmt: skip


def detection(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    """d′ and criterion by their closed form, with half a success and one cell added to each side."""
    for name, mine in there(arms, where(cells, probe="act", series="matched")):
        made = {side: [cell["acted"] for cell in where(ow.usable(mine), side=side)] for side in SIDES}
        (f, nf), (h, nd) = ((sum(made[side]), len(made[side])) for side in SIDES)
        rates_ = [count / n if n else None for count, n in ((h, nd), (f, nf))]
        zh, zf = stats.norm.ppf((h + 0.5) / (nd + 1)), stats.norm.ppf((f + 0.5) / (nf + 1))
        shown = min(nd, nf) >= 20
        yield {
            "condition": name, "n_due": nd, "acted_due": h, "n_forbidden": nf, "acted_forbidden": f,
            "hit_rate": rates_[0], "false_alarm_rate": rates_[1],
            "delta_p": None if None in rates_ else rates_[0] - rates_[1],  # type: ignore[operator]
            "d_prime": zh - zf if shown else None, "criterion": -(zh + zf) / 2 if shown else None,
        }  # fmt: skip


def ask(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    asked = where(cells, probe="ask")
    for series in {cell["series"] for cell in asked}:
        axis = AXES.get(series)
        for name, arm in there(arms, where(asked, series=series)):
            for x in sorted({cell[axis] for cell in arm}) if axis else (None,):
                mine = where(arm, **({axis: x} if axis else {}))
                base = {"series": series, "x": x, "condition": name}
                sides = [side for side in SIDES if where(mine, side=side)]
                for side in sides:
                    yield base | {"side": side} | _answers(where(mine, side=side))
                if len(sides) == 2:
                    yield base | {"side": "both"} | _answers(mine)
                    yield base | {"side": "whole pair"} | _whole_pairs(mine)


def _answers(mine: list[Cell]) -> Cell:
    used = ow.usable(mine)
    found = ow.share(used, "right")
    several, cut = sum(cell["several"] for cell in used), sum(cell["cut"] for cell in used)
    answers = [cell["score.answer"] for cell in used if cell["score.answer"] is not None]
    return found | {
        "cells": len(mine), "excluded": len(mine) - len(used), "mean_answer": mean(answers), "several": several,
        "no_number": len(used) - len(answers) - several - cut, "truncated": cut,
        "several_right": (found["count"] + several) / len(used) if used else None,
    }  # fmt: skip


def _whole_pairs(mine: list[Cell]) -> Cell:
    """A pair is right when all its cells are; one that lost a side is out."""
    pairs = {(cell["cluster"], cell["epoch"]) for cell in mine}
    kept = []
    for cluster, epoch in pairs:
        used = ow.usable(where(mine, cluster=cluster, epoch=epoch))
        if {cell["side"] for cell in used} == set(SIDES):
            kept.append({"cluster": cluster, "right": all(cell["right"] for cell in used)})
    return ow.share(kept, "right") | {"cells": len(pairs), "excluded": len(pairs) - len(kept)}


def tokens(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    for probe, series in sorted({(cell["probe"], cell["series"]) for cell in cells}):
        part = where(cells, probe=probe, series=series)
        for name, mine in there(arms, part):
            used = ow.usable(mine)
            thought = [cell for cell in used if cell["thought"] is not None]
            marks = [json.loads(cell.get("parsed") or "{}") for cell in thought]
            reported = [c for c in used if c.get("output.usage.reported_reasoning_tokens") is not None]
            assert not reported, "a provider's own figures: recount them first"
            row: Cell = {
                "probe": probe, "series": series, "condition": name, "cells": len(mine), "n": len(used),
                "clusters": len({cell["cluster"] for cell in used}), "n_thinking": len(thought),
                "bar_tokens": mean([cell["bar_tokens"] for cell in used]),
                "n_output": sum(cell["output.usage.completion_tokens"] is not None for cell in used),
                "tau": thought[0]["tau"] if thought else None,
                "censored_share": mean([cell["censored"] for cell in thought]),
                "start_missing": sum(bool(mark.get("thinking_start_missing")) for mark in marks),
                "end_missing": sum(bool(mark.get("thinking_end_missing")) for mark in marks),
                "opened": sum(bool(cell.get("think_open")) for cell in thought),
                "thinking_median": None, "n_reported": None, "reported": None, "disagree": None,
            }  # fmt: skip
            for key, column in (("prompt", "output.usage.prompt_tokens"), ("thinking", "thought"),
                                ("output", "output.usage.completion_tokens")):  # fmt: skip
                row |= spread(key, ow.t_interval(list(ow.means(used, "cluster", column).values())))
            if thought and row["censored_share"] < 0.5:
                row["thinking_median"] = float(np.median([cell["thought"] for cell in thought]))
            ratio: Sequence[float | None] = (None, None, None)
            if arms.control and name != arms.control:
                both = [
                    ow.means(c, "cluster", "thought")
                    for c in ow.together(part, name, arms.control, "thought")
                ]
                shared = sorted(both[0].keys() & both[1].keys())
                ratio = ow.ratio_of_means(*([values[cluster] for cluster in shared] for values in both))
            yield row | spread("thinking_ratio", ratio)


def add_per_token(used: list[Cell]) -> list[Cell]:
    """The cells that were timed one at a time, with the seconds of each further token."""
    timed = [cell for cell in used if cell["timed"]]
    for cell in timed:
        further = (cell["output.usage.completion_tokens"] or 0) - 1
        known = further > 0 and cell["total"] is not None and cell["first_token"] is not None
        cell["per_token"] = (cell["total"] - cell["first_token"]) / further if known else None
    return timed


def latency(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    timed = add_per_token(ow.usable(cells))
    for probe, series, state in sorted({(c["probe"], c["series"], c["cache_state"]) for c in timed}):
        part = where(timed, probe=probe, series=series, cache_state=state)
        for (name, mine), measure in itertools.product(there(arms, part), (*SECONDS, "per_token")):
            seconds = [cell[measure] for cell in mine if cell[measure] is not None]
            row: Cell = {
                "probe": probe, "series": series, "cache_state": state, "condition": name, "measure": measure,
                "cells": len(seconds), "clusters": len({cell["cluster"] for cell in mine}),
                "cached_tokens": mean([cell["output.usage.cached_tokens"] for cell in mine]),
                "seconds": mean(seconds),
            } | spread("ratio", (None, None, None))  # fmt: skip
            if name != arms.control and seconds:
                base = {cell["at"]: cell[measure] for cell in where(part, condition=arms.control)}
                logs = [
                    {"cluster": c["cluster"], "log": math.log(c[measure] / base[c["at"]])}
                    for c in mine
                    if (c[measure] or 0) > 0 and (base.get(c["at"]) or 0) > 0
                ]
                clusters = list(ow.means(logs, "cluster", "log").values())
                row |= {"clusters": len(clusters)} | spread("ratio", ow.geometric(clusters))
            if seconds:
                yield row


def counts(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    """The table `cells`: what was measured and what was lost."""
    for probe, series in sorted({(cell["probe"], cell["series"]) for cell in cells}):
        for name, mine in there(arms, where(cells, probe=probe, series=series)):
            failed, blank = (sum(cell[key] for cell in mine) for key in ("failed", "blank"))
            blank -= sum(cell["failed"] and cell["blank"] for cell in mine)
            yield {
                "probe": probe, "series": series, "condition": name, "cells": len(mine), "provider_error": failed,
                "unscored": blank, "scored": len(mine) - failed - blank,
                "truncated": len(where(mine, **{"score.outcome": "truncated"})),
                "clusters": len({cell["cluster"] for cell in mine}),
            }  # fmt: skip


def outcomes(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    for name, mine in there(arms, where(cells, probe="act", series="matched")):
        for side, outcome in itertools.product(SIDES, OUTCOMES):
            here = where(mine, side=side)
            base = here if outcome == "provider_error" else ow.usable(here)
            failed = outcome == "provider_error"
            found = ow.share(base, "failed" if failed else lambda cell, o=outcome: cell["score.outcome"] == o)
            kept = {key: found[key] for key in ("n", "count", "rate", "low", "high")}
            yield {"condition": name, "side": side, "outcome": outcome} | kept


def cache(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    """Tokens that the ledger expects in the cache against those that the engine found there."""
    names = [f"output.usage.{name}" for name in ("prompt_tokens", "predicted_cached_tokens", "cached_tokens")]
    if all(cell.get(names[1]) is None for cell in cells):
        return
    groups = [("all", "all", "all", cells)]
    for probe, series in sorted({(cell["probe"], cell["series"]) for cell in cells}):
        there_ = there(arms, where(cells, probe=probe, series=series))
        groups += [(probe, series, name, mine) for name, mine in there_]
    for probe, series, name, mine in groups:
        known = [cell for cell in mine if all(cell[column] is not None for column in names)]
        prompt, predicted, measured = (sum(cell[column] for cell in known) for column in names)
        yield {
            "probe": probe, "series": series, "condition": name, "cells": len(mine), "n": len(known),
            "unknown": len(mine) - len(known), "prompt": prompt if known else None,
            "predicted": predicted if known else None, "measured": measured if known else None,
            "measured_share": measured / predicted if predicted else None,
            "cached_share": measured / prompt if prompt else None,
        }  # fmt: skip


def throughput(arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    """From the manifest, which alone knows what was computed."""
    found = arms.throughput
    if found.get("seconds"):
        yield {**found, "cells_per_second": found["cells"] / found["seconds"],
               "prompt_tokens_per_second": found["prompt_tokens"] / found["seconds"],
               "new_tokens_per_second": found["new_tokens"] / found["seconds"],
               "reuse": found["prompt_tokens"] / found["computed_tokens"]}  # fmt: skip
