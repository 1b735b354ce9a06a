"""What a run was, in words for captions and methods: from its manifest and its table of cells.

Knows the manifest as plain data that may lack anything; what it does not say is left out or called unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.analysis.attention.frames import AttentionData
from harness.analysis.decisions import MATCHED
from harness.analysis.drawing import Tables
from harness.analysis.frames import RunData
from harness.analysis.publication.prose import name, names
from harness.analysis.sentences import model_name

HASH = 12
"""Characters of a hash that a sentence shows; the kit's manifest has all of it."""


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture of a run's attention. `folder`: its name inside the run's."""

    folder: str
    data: AttentionData
    tables: Tables


@dataclass(frozen=True, slots=True)
class Facts:
    """A run that is published. `slug` names its folder; `expected`: the cells that its manifest plans."""

    run: RunData
    tables: Tables
    captures: tuple[Capture, ...]
    slug: str
    expected: int | None

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The run's manifest."""
        return self.run.manifest

    @property
    def run_id(self) -> str:
        """The run's id, else its folder's name."""
        return str(self.manifest.get("run_id") or self.run.path.name)

    @property
    def model(self) -> str:
        """The model's name."""
        return model_name(self.manifest)

    @property
    def complete(self) -> bool:
        """Whether every planned cell is there, or the run ended early by a rule stated before."""
        whole = self.expected is not None and len(self.run.cells) >= self.expected
        return whole or self.stopped_early

    @property
    def stopped_early(self) -> bool:
        """Whether the run ended because enough was known."""
        stopped = self.run.manifest.get("stopped")
        return isinstance(stopped, Mapping) and stopped.get("reason") == "sequential"

    @property
    def sequential(self) -> bool:
        """Whether the run was looked at after every cluster."""
        return bool(self.run.manifest.get("sequential"))

    def warning(self) -> str:
        """The sentence that every caption of an unfinished run begins with; empty for a finished one."""
        if self.complete:
            return ""
        planned = "an unknown number of planned" if self.expected is None else f"{self.expected:,} planned"
        return f"INCOMPLETE RUN: {len(self.run.cells):,} of {planned} cells are finished. "


@dataclass(frozen=True, slots=True)
class Counted:
    """The cells of one probe and series over all its conditions."""

    probe: str
    series: str
    cells: int
    excluded: int
    clusters: int
    conditions: tuple[str, ...]


def counted(
    tables: Tables, probes: Sequence[str] | None = None, series: Sequence[str] | None = None
) -> list[Counted]:
    """The parts of a run from its table of cells; None takes every probe or series."""
    data = tables["cells"].data
    found = []
    for (probe, part), rows in data.groupby(["probe", "series"], sort=False):
        if (probes is None or probe in probes) and (series is None or part in series):
            lost = int((rows["provider_error"] + rows["unscored"]).sum())
            conditions = tuple(str(condition) for condition in rows["condition"])
            clusters = int(rows["clusters"].max())
            found.append(Counted(str(probe), str(part), int(rows["cells"].sum()), lost, clusters, conditions))
    return found


def n_words(parts: Sequence[Counted]) -> str:
    """`n = 192 cells of choose in 16 clusters; 48 of act in 8 clusters (2 excluded)`."""
    if not parts:
        return "n = 0 cells."
    texts = []
    for part in parts:
        where = name(part.probe) + ("" if part.series == MATCHED else f", series {name(part.series)},")
        lost = f" ({part.excluded:,} excluded)" if part.excluded else ""
        texts.append(f"{part.cells:,} cells of {where} in {part.clusters:,} clusters{lost}")
    lost = "" if any(part.excluded for part in parts) else "; none excluded"
    return f"n = {'; '.join(texts)}{lost}."


def conditions_words(conditions: Iterable[str]) -> str:
    """The conditions that a figure or table shows."""
    unique = list(dict.fromkeys(conditions))
    return f"{'Conditions' if len(unique) > 1 else 'Condition'}: {names(unique) or 'none'}."


def model_words(facts: Facts) -> str:
    """Model, weights and run in a sentence."""
    digest = short_hash(
        text_at(facts.manifest, "model", "sha256") or text_at(facts.manifest, "inputs", "weights")
    )
    weights = f" (weights SHA-256 {name(digest)})" if digest else ""
    return f"Model: {name(facts.model)}{weights}, run {name(facts.run_id)}."


def short_hash(value: str) -> str:
    """The first characters of a hash, with a sign that there are more."""
    return f"{value[:HASH]}…" if len(value) > HASH else value


def value_at(manifest: Mapping[str, Any], *path: str) -> Any:
    """The value at a path of the manifest; None where any step is missing."""
    found: Any = manifest
    for key in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(key)
    return found


def text_at(manifest: Mapping[str, Any], *path: str) -> str:
    """The text or number at a path of the manifest; empty where there is none."""
    found = value_at(manifest, *path)
    return str(found) if isinstance(found, str | int | float) and not isinstance(found, bool) else ""
