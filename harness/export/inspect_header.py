"""A run's manifest and tables → the header of an Inspect log: what was run, on what, with which results.

Knows the manifest, the tables and Inspect's classes; knows no record. Results are ours, with their intervals in each
metric's metadata: Inspect's own accuracy and standard error take samples for independent, which cells are not.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalMetric,
    EvalResults,
    EvalRevision,
    EvalScore,
    EvalSpec,
    EvalStats,
)
from inspect_ai.model import GenerateConfig

from harness.analysis.frames import RunData
from harness.analysis.sentences import sentences
from harness.analysis.table import Table
from harness.export.base import finite
from harness.runlog import redact
from harness.types import Decoding

_BY_CONDITION: dict[str, tuple[tuple[str, str], ...]] = {
    "choose": (
        ("sensitivity", "logit_act"),
        ("bias", "logit_act"),
        ("delta_p", "p_act_norm"),
        ("p_due", "p_act_norm"),
        ("p_forbidden", "p_act_norm"),
    ),
}
"""Table → (column, score of the samples that it comes from); one metric per condition."""

_SCORERS = {"logit": "logit_act", "probability": "p_act_norm", "share": "correct"}
"""Unit of a comparison → the samples' score that it is made of; tokens and seconds have no score, only a measure."""


def engine_and_name(manifest: Mapping[str, Any]) -> str:
    """`<engine>/<model>`, in the form of Inspect's model names."""
    engine, model = manifest.get("engine") or {}, manifest.get("model") or {}
    return f"{engine.get('backend') or engine.get('engine') or 'unknown'}/{model.get('name') or 'unknown'}"


def spec(run: RunData, decoding: Decoding | None, samples: int, tools: str) -> EvalSpec:
    """The log's header. `decoding`: that of the first cell; `samples`: cells; `tools`: their text in the prompt."""
    manifest = redact(run.manifest)
    config, git = manifest.get("config") or {}, manifest.get("git") or {}
    run_id, digest = str(manifest.get("run_id") or run.path.name), str(manifest.get("config_digest") or "")
    experiment = str(manifest.get("experiment") or "tailgauge")
    revision = git.get("revision")
    names = sorted(set(run.cells["scenario"].dropna()))
    return EvalSpec(
        eval_id=digest or run_id,
        run_id=run_id,
        task_id=run_id,
        task=experiment,
        created=str(manifest.get("started") or "1970-01-01T00:00:00+00:00"),
        task_args={key: config[key] for key in ("seed", "measure") if key in config},
        tags=["tailgauge", str(manifest.get("measure") or "throughput")],
        dataset=EvalDataset(name=", ".join(map(str, names)) or None, samples=samples, shuffled=False),
        model=engine_and_name(manifest),
        model_generate_config=_generation(run, decoding),
        model_args=dict(manifest.get("engine") or {}),
        config=EvalConfig(epochs=config.get("epochs")),
        revision=EvalRevision(type="git", origin="", commit=revision, dirty=git.get("dirty"))
        if revision
        else None,
        packages={name: str(version) for name, version in (manifest.get("packages") or {}).items()},
        metadata={
            "exported_by": "tailgauge",
            "config": config,
            "model": manifest.get("model"),
            "inputs": manifest.get("inputs"),
            "conditions": manifest.get("conditions"),
            "tools": tools or None,
        },
    )


def _generation(run: RunData, decoding: Decoding | None) -> GenerateConfig:
    """What all cells share; the limit of a reply differs between probes and is given only where it does not."""
    if decoding is None:
        return GenerateConfig()
    limits = set(run.cells["decoding.max_new_tokens"].dropna())
    return GenerateConfig(
        temperature=decoding.temperature,
        top_p=decoding.top_p,
        top_k=decoding.top_k or None,
        max_tokens=int(limits.pop()) if len(limits) == 1 else None,
        extra_body={"repetition_penalty": decoding.repetition_penalty},
    )


def stats(manifest: Mapping[str, Any]) -> EvalStats:
    """Start and end; the sum of the usage is known when all samples are written."""
    return EvalStats(
        started_at=str(manifest.get("started") or ""), completed_at=str(manifest.get("ended") or "")
    )


def results(run: RunData, tables: Mapping[str, Table]) -> EvalResults:
    """Comparisons first (the confirmatory ones lead), then each arm's own figures, then rates."""
    lost = int(run.cells["excluded"].sum())
    return EvalResults(
        total_samples=len(run.cells),
        completed_samples=len(run.cells) - lost,
        scores=[*_comparisons(tables["comparisons"]), *_arms(tables), *_rates(tables)],
        metadata={"headline": list(sentences(run, dict(tables)))},
    )


def _comparisons(table: Table) -> Iterator[EvalScore]:
    """One score per probe, measure and kind of difference; one metric per pair of arms."""
    groups: dict[tuple[str, str, str], dict[str, EvalMetric]] = {}
    units: dict[tuple[str, str, str], str] = {}
    for row in table.rows():
        key = (str(row["probe"]), str(row["measure"]), str(row["kind"]))
        units[key] = str(row["unit"])
        name = f"{row['condition']} against {row['against']} ({row['placement']})"
        _metric(groups.setdefault(key, {}), name, row, "estimate")
    for (probe, measure, kind), metrics in groups.items():
        if metrics:
            yield EvalScore(
                name=f"{probe} {measure}: {kind}",
                scorer=_SCORERS.get(units[probe, measure, kind], measure),
                metrics=metrics,
                metadata={"how_to_read": table.how_to_read},
            )


def _arms(tables: Mapping[str, Table]) -> Iterator[EvalScore]:
    for name, columns in _BY_CONDITION.items():
        for column, scorer in columns:
            metrics: dict[str, EvalMetric] = {}
            for row in tables[name].rows() if name in tables else ():
                place = " ".join(str(row[key]) for key in ("condition", "series", "side") if row.get(key))
                ends = {"low": row.get(f"{column}_low"), "high": row.get(f"{column}_high")}
                _metric(
                    metrics, place, {column: row.get(column), "clusters": row.get("clusters")} | ends, column
                )
            if metrics:
                how = {"how_to_read": tables[name].how_to_read}
                yield EvalScore(name=f"{name} {column}", scorer=scorer, metrics=metrics, metadata=how)


def _rates(tables: Mapping[str, Table]) -> Iterator[EvalScore]:
    """Shares of cells: both sides of the rule (`act`), right answers by series and side (`ask`)."""
    for name, probe in (("rates", "act"), ("ask", "ask")):
        table = tables[name]
        groups: dict[str, dict[str, EvalMetric]] = {}
        for row in table.rows():
            measure = " ".join(
                str(row[key]) for key in ("measure", "series", "x", "side") if _told(row.get(key))
            )
            _metric(groups.setdefault(measure, {}), str(row["condition"]), row, "rate")
        for measure, metrics in groups.items():
            if metrics:
                how = {"how_to_read": table.how_to_read}
                yield EvalScore(name=f"{probe} {measure}", scorer="correct", metrics=metrics, metadata=how)


def _told(value: object) -> bool:
    return bool(value) if isinstance(value, str) else finite(value) is not None


def _metric(into: dict[str, EvalMetric], name: str, row: Mapping[str, object], key: str) -> None:
    """Adds row[key] with the rest of the row as metadata; an unknown number is left out."""
    value = finite(row.get(key))
    if value is None:
        return
    rest = {
        k: v if isinstance(v, str) else finite(v)
        for k, v in row.items()
        if k != key and (finite(v) is not None or (isinstance(v, str) and v))
    }
    into[name] = EvalMetric(name=name, value=value, metadata=rest)
