"""Threats to a run's validity that its own records show: too few episodes, lost cells, cut replies and the like.

Knows the run's manifest, cells and tables; draws no new number but counts and ranges of what they hold. Every check
says what it looked at, so that a reader sees what was looked for and not found. Shared by report.html and report.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.analysis import losses
from harness.analysis import statistics as st
from harness.analysis.frames import RunData, placebo_for
from harness.analysis.table import fixed
from harness.analysis.threat import (
    Tables,
    Threat,
    at,
    be,
    confirmatory,
    count,
    is_known,
    names,
    number,
    pair_name,
    rows_of,
    span,
)
from harness.analysis.verdicts import MIN_CLUSTERS


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found, the grave first, and the names of the checks that found nothing."""

    threats: tuple[Threat, ...]
    clear: tuple[str, ...]


def audit(run: RunData, tables: Tables) -> Audit:
    """Every check of this module on one run."""
    found: list[Threat] = []
    clear: list[str] = []
    for name, check in _CHECKS.items():
        threats = check(run, tables)
        found += threats
        if not threats:
            clear.append(name)
    return Audit(tuple(sorted(found, key=lambda threat: not threat.grave)), tuple(clear))


# -- design ----------------------------------------------------------------------------------------------


def _undecided(run: RunData, tables: Tables) -> list[Threat]:
    family = confirmatory(tables)
    if not family:
        text = (
            "No bar was compared with a placebo of its placement in forced choices of matched pairs, so nothing here "
            "was fixed in advance; every number is exploratory."
        )
        return [Threat("No confirmatory comparison", text, grave=True)]
    open_ = [row for row in family if row.get("verdict") == "inconclusive"]
    if not open_:
        return []
    parts = []
    for row in open_:
        more = row.get("more_clusters")
        need = f"; about {fixed(more, 0)} more episodes would settle it" if is_known(more) else ""
        parts.append(f"{pair_name(row)}, {fixed(row['clusters'], 0)} episodes{need}")
    text = f"{len(open_)} of {len(family)} confirmatory comparisons are undecided ({'; '.join(parts)})."
    return [Threat("Undecided main comparison", text + " Undecided is not `no effect`.", grave=True)]


def _clusters(run: RunData, tables: Tables) -> list[Threat]:
    both = rows_of(tables, "comparisons") + rows_of(tables, "slopes")
    rows = [row for row in both if is_known(row.get("clusters"))]
    few = [row for row in rows if number(row["clusters"]) < MIN_CLUSTERS]
    if not few:
        return []
    counts = sorted({int(number(row["clusters"])) for row in few})
    main = [row for row in few if row.get("label") == "confirmatory"]
    text = (
        f"{len(few)} of {len(rows)} comparisons and slopes ({len(main)} of them confirmatory) rest on "
        f"{span(counts)} independent episodes; below {MIN_CLUSTERS} none is given a verdict."
    )
    return [Threat("Few independent episodes", text, grave=bool(main))]


def _placebos(run: RunData, tables: Tables) -> list[Threat]:
    there = set(run.cells["condition"])
    arms = [arm for arm in run.arms if arm.name in there]
    alone = [arm.name for arm in arms if arm.role == "bar" and placebo_for(arm, arms) is None]
    if not alone:
        return []
    text = (
        f"{names(alone)} {be(alone)} compared with no placebo at the same place, so what the content does cannot be "
        "told from what any text there does."
    )
    return [Threat("A bar without a placebo", text, grave=True)]


def _lengths(run: RunData, tables: Tables) -> list[Threat]:
    means = run.cells.groupby("condition")["bar_tokens"].mean()
    parts = []
    for arm in run.arms:
        placebo = placebo_for(arm, run.arms) if arm.role == "bar" else None
        if placebo is None or arm.name not in means or placebo.name not in means:
            continue
        gap = float(means[arm.name] - means[placebo.name])
        if abs(gap) > 1:
            parts.append(f"{arm.name} adds {fixed(gap, 1)} tokens over {placebo.name}")
    text = f"Bar and placebo are meant to be equally long: {'; '.join(parts)} (means over cells)."
    return [Threat("Placebo of another length", text)] if parts else []


def _scope(run: RunData, tables: Tables) -> list[Threat]:
    scenarios = sorted({str(name) for name in run.cells["scenario"].dropna()})
    models = sorted({str(name) for name in run.cells["model"].dropna()})
    if len(scenarios) > 1 and len(models) > 1:
        return []
    text = (
        f"{count(scenarios, 'scenario')} ({names(scenarios)}) and {count(models, 'model')} ({names(models)}): the "
        "intervals are about other episodes of the same kind, not about other tasks, tools or models."
    )
    return [Threat("One scenario or one model", text)]


def _draws(run: RunData, tables: Tables) -> list[Threat]:
    free = run.cells[run.cells["probe"] != "choose"]
    decoding = at(run.manifest, "config", "model", "decoding", "temperature")
    repeats = int(free["epoch"].nunique()) if len(free) else 0
    if not len(free) or repeats > 1 or (is_known(decoding) and number(decoding) > 0):
        return []
    how = "at temperature 0" if is_known(decoding) else "drawn once"
    text = (
        f"Each of the {len(free)} free replies is one draw {how}; how much a reply varies from draw to draw at the "
        "same point is not in any interval."
    )
    return [Threat("One reply a point", text)]


def _many(run: RunData, tables: Tables) -> list[Threat]:
    tested = [
        row for name in ("comparisons", "slopes") for row in rows_of(tables, name)
        if row.get("label", "exploratory") == "exploratory" and is_known(row.get("p"))
    ]  # fmt: skip
    if len(tested) < 10:
        return []
    below = sum(number(row["p"]) < st.ALPHA for row in tested)
    text = (
        f"{len(tested)} exploratory tests are not corrected for their number: {below} have p < {st.ALPHA:g}, and about "
        f"{len(tested) * st.ALPHA:.1f} would have by chance alone if nothing differed."
    )
    return [Threat("Many exploratory tests", text)]


# -- provenance ---------------------------------------------------------------------------------------------


def _code(run: RunData, tables: Tables) -> list[Threat]:
    git = run.manifest.get("git")
    if not isinstance(git, Mapping) or not git.get("revision"):
        text = "The manifest names no git revision, so the code that made this run cannot be looked up."
        return [Threat("Unknown code revision", text)]
    if git.get("dirty"):
        text = f"The run was made with uncommitted changes on top of revision {str(git['revision'])[:10]}."
        return [Threat("Uncommitted code", text)]
    return []


def _resumed(run: RunData, tables: Tables) -> list[Threat]:
    keys: dict[str, None] = {}
    for entry in run.manifest.get("resumed") or ():
        if isinstance(entry, Mapping):
            keys |= dict.fromkeys(str(key) for key in entry.get("changed") or ())
    text = f"The run was continued while this had changed: {names(list(keys))}."
    return [Threat("Continued under other conditions", text)] if keys else []


def _reasoning(run: RunData, tables: Tables) -> list[Threat]:
    if at(run.manifest, "config", "model", "keep_reasoning") is not False:
        return []
    text = (
        "The chat template would have kept the history's reasoning in some arms and not in others; it was left out of "
        "all of them, so the transcripts are not quite what an agent would hold."
    )
    return [Threat("Reasoning left out of the history", text)]


_CHECKS: dict[str, Callable[[RunData, Tables], list[Threat]]] = {
    "an undecided main comparison": _undecided,
    f"fewer than {MIN_CLUSTERS} independent episodes": _clusters,
    "a bar without a placebo": _placebos,
    "a placebo of another length": _lengths,
    "cells that are missing": losses.incomplete,
    "lengths left out before the run": losses.left_out,
    "cells that failed or have no score": losses.lost,
    "verdicts that lost cells could turn": losses.flips,
    "episodes with one side only": losses.pairs,
    "replies cut off": losses.cut,
    "thinking cut off": losses.censored,
    "malformed calls": losses.malformed,
    "rates that hang on how prose is read": losses.prose,
    "choices that the model would not make": losses.mass,
    "log-odds at their bound": losses.clipped,
    "many uncorrected tests": _many,
    "one draw a reply": _draws,
    "one scenario or one model": _scope,
    "reasoning left out of the history": _reasoning,
    "versions that changed while it ran": _resumed,
    "uncommitted or unknown code": _code,
}
"""What a check looks for, in the order in which findings of equal weight are told."""
