"""What all exports share: the error, the check for a client, and a run's facts as flat names and numbers.

Knows manifests and tables; knows no tracker. Trackers want flat parameters (texts), metrics (finite numbers) and
tags (texts); what is unknown is left out of metrics, never 0.
"""

import importlib.util
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness.analysis.frames import load
from harness.analysis.sentences import sentences
from harness.analysis.table import Table
from harness.analysis.tables import build_tables
from harness.errors import TailgaugeError
from harness.runlog import redact

ARTIFACTS = ("report.html", "report.md", "manifest.json", "tables", "figures")
"""Files and folders of a run that go along, where they are there."""

_ENDS = ("", "_low", "_high")
_KEYED: dict[str, tuple[str, ...]] = {
    "choose": ("sensitivity", "bias", "delta_p", "p_due", "p_forbidden"),
    "tokens": ("prompt", "output", "thinking", "bar_tokens", "censored_share"),
    "latency": ("total", "first_token", "first_answer_token"),
    "ask": ("right",),
}
"""Table → columns that become metrics, with their `_low` and `_high` where the table has them."""
_PARTS = ("probe", "series", "measure", "side", "condition", "placement")


class ExportError(TailgaugeError):
    """A run cannot be exported: its client is not installed, refuses, or a file is missing."""


class Tracker(Protocol):
    """Where a finished run is logged to; `tracker` in a configuration names one by `_target_`.

    It is made before a run begins, so that a missing client is told of before anything is spent.
    """

    def log(self, run_dir: Path) -> str:
        """Logs the run in `run_dir`, in place of what was logged of it before; returns where it is, for people.

        Raises ExportError; the run folder is never changed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Facts:
    """A run as trackers take it: `params` and `tags` are texts, `metrics` finite numbers by path-like names."""

    run_id: str
    experiment: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    headline: tuple[str, ...]
    artifacts: tuple[Path, ...]


def require(module: str, extra: str) -> None:
    """Raises ExportError where `module` cannot be imported."""
    if importlib.util.find_spec(module) is None:
        raise ExportError(f"{module} is not installed; install it with: pip install 'tailgauge[{extra}]'")


def facts(run_dir: Path) -> Facts:
    """Everything of the run in `run_dir` that a tracker takes. Raises ReportError for an unfinished run."""
    run = load(run_dir)
    tables = build_tables(run)
    manifest = redact(run.manifest)
    return Facts(
        run_id=str(manifest.get("run_id") or run_dir.resolve().name),
        experiment=str(manifest.get("experiment") or "tailgauge"),
        params=dict(params(manifest)),
        metrics=metrics(tables),
        tags=tags(manifest, tables),
        headline=tuple(sentences(run, tables)),
        artifacts=tuple(path for name in ARTIFACTS if (path := run_dir / name).exists()),
    )


def params(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The resolved configuration by dotted keys; what is no text stands as JSON."""
    config = manifest.get("config")
    for key, value in _flat(config if isinstance(config, Mapping) else {}):
        yield _name(key), value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _flat(value: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield from _flat(inner, f"{above}{key}.")
        else:
            yield f"{above}{key}", inner


def metrics(tables: Mapping[str, Table]) -> dict[str, float]:
    """Every comparison's estimate and interval, every rate, and what was spent, by names such as
    `comparisons/choose.sensitivity/agent_status-vs-placebo.tail/estimate`."""
    found: dict[str, float] = {}
    for row in tables["comparisons"].rows():
        keys = ("estimate", "low", "high", "p", "p_holm", "margin_low", "margin_high", "more_clusters")
        _add(found, comparison_name(row), row, ((key, key) for key in keys))
    for row in tables["rates"].rows():
        where = f"rates/{_joined(row, ('measure',))}/{_joined(row, ('condition', 'placement'))}"
        _add(found, where, row, ((key, key) for key in ("rate", "low", "high", "n")))
    for table, columns in _KEYED.items():
        for row in tables[table].rows() if table in tables else ():
            place = _joined(row, _PARTS)
            wanted = ((f"{column}{end}",) * 2 for column in columns for end in _ENDS)
            _add(found, f"{table}/{place}", row, wanted)
    for row in tables["cells"].rows():
        wanted = ((key, key) for key in ("cells", "scored", "provider_error", "truncated"))
        _add(found, f"cells/{_joined(row, ('probe', 'series', 'condition'))}", row, wanted)
    return found


def comparison_name(row: Mapping[str, object]) -> str:
    """`comparisons/<probe>.<measure>/<condition>-vs-<against>.<placement>`, fit for a metric or a tag."""
    pair = f"{row.get('condition')}-vs-{row.get('against')}"
    parts = [pair, *(str(row[key]) for key in ("placement",) if row.get(key))]
    return f"comparisons/{_joined(row, ('probe', 'measure'))}/{_name('.'.join(parts))}"


def tags(manifest: Mapping[str, Any], tables: Mapping[str, Table]) -> dict[str, str]:
    """What a run is found by: its id, model, code, input hashes, and one verdict per comparison."""
    model, git, inputs = (_mapping(manifest.get(key)) for key in ("model", "git", "inputs"))
    named = {
        "run_id": manifest.get("run_id"),
        "experiment": manifest.get("experiment"),
        "config_digest": manifest.get("config_digest"),
        "measure": manifest.get("measure"),
        "model": model.get("name"),
        "model_sha256": model.get("sha256"),
        "model_revision": model.get("revision"),
        "git_revision": git.get("revision"),
        "git_dirty": git.get("dirty"),
        **{f"input_{key}": value for key, value in inputs.items()},
    }
    found = {f"tailgauge.{_name(key)}": str(value) for key, value in named.items() if value is not None}
    for row in tables["comparisons"].rows():
        verdict = row.get("verdict")
        if isinstance(verdict, str) and verdict:
            found[f"verdict/{comparison_name(row).removeprefix('comparisons/')}"] = verdict
    return found


def finite(value: object) -> float | None:
    """A number that is one, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _add(
    found: dict[str, float], place: str, row: Mapping[str, object], wanted: Iterable[tuple[str, ...]]
) -> None:
    for name, key in wanted:
        value = finite(row.get(key))
        if value is not None:
            found[f"{place}/{name}"] = value


def _joined(row: Mapping[str, object], keys: Iterable[str]) -> str:
    return ".".join(_name(str(row[key])) for key in keys if row.get(key) not in (None, ""))


def _name(text: str) -> str:
    """Letters that every tracker takes in a name."""
    return re.sub(r"[^A-Za-z0-9_.+ -]", "_", text).replace("..", ".") or "_"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
