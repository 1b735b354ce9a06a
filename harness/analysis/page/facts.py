"""What a page says of a run beside its tables: the figures' captions and the manifest in a few groups.

Knows the manifest's keys and the figures' names. Secrets were masked when the manifest was written and are masked again.
"""

from collections.abc import Mapping
from typing import Any

from harness.analysis.frames import RunData
from harness.analysis.sentences import model_name
from harness.runlog.redact import redact

CAPTIONS: dict[str, tuple[str, str]] = {
    "both_sides": (
        "Both sides of the rule",
        "Above, the probability of the asked-for call where it is due and where it is forbidden (forced choice). A bar that "
        "helps pulls the two apart; one that only makes the model careful moves both to the left. Below, how free replies "
        "ended.",
    ),
    "sensitivity": (
        "Sensitivity and bias",
        "Sensitivity: log-odds of the call when due minus when forbidden; above 0 the rule is followed. Bias: caution "
        "overall, right or wrong.",
    ),
    "prior_calls": (
        "Prior calls",
        "The probability of one more call after so many calls. A model that counts steps down at the limit. Points beyond "
        "it are transcripts that already break the rule.",
    ),
    "tokens": (
        "Tokens",
        "What a condition costs: tokens that it adds to the prompt, and tokens of the replies.",
    ),
    "length_filler": ("Longer context", "The same decision with more talk before it."),
    "length_moved_limit": ("More calls, with the limit moved along", "The same decision after more calls."),
    "bars": (
        "Bars beside their placebos",
        "How well each bar lets the model tell due from forbidden, and below what of it its content does: the bar minus a "
        "neutral text of the same form, length and place.",
    ),
    "verdicts": (
        "Verdicts",
        "Every comparison: thin its 95 % interval, thick the 90 % interval of the two one-sided tests. The band is the "
        "margin inside which a difference counts as none.",
    ),
}
"""Figure → title and how to read it."""


def caption(stem: str) -> tuple[str, str]:
    """Title and how to read a figure; for one unknown here its name."""
    return CAPTIONS.get(stem) or (stem.replace("_", " ").capitalize(), "")


def basis(run: RunData) -> str:
    """What the run rests on: cells, episodes, conditions."""
    clusters = int(run.cells["cluster"].nunique())
    conditions = int(run.cells["condition"].nunique())
    return f"{len(run.cells):,} cells of {clusters:,} independent episodes under {conditions} conditions."


def below(run: RunData) -> str:
    """What is said below every figure: the model, and what its intervals are."""
    return (
        f"{model_name(run.manifest)}; n is in the figure; intervals are 95 %, with the episode as the unit."
    )


def manifest_groups(run: RunData) -> list[tuple[str, list[tuple[str, str]]]]:
    """(group, [(key, value)]) of what made the run; a key that the manifest lacks is left out."""
    manifest = masked(run.manifest)
    found = []
    for group, paths in _GROUPS.items():
        rows = [
            (label, text)
            for label, keys in paths
            if (text := _said(_at(manifest, keys))) and not (keys == "gpus" and text == "none")
        ]
        found.append((group, rows))
    packages = manifest.get("packages")
    if isinstance(packages, Mapping):
        found.append(("Versions", [(str(name), _said(version)) for name, version in packages.items()]))
    return [(group, rows) for group, rows in found if rows]


def masked(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with secrets masked by name and by look."""
    found = redact(dict(manifest))
    return found if isinstance(found, dict) else {}


_GROUPS: dict[str, tuple[tuple[str, str], ...]] = {
    "Run": (
        ("run", "run_id"), ("configuration (digest)", "config_digest"), ("experiment", "experiment"),
        ("measured", "measure"), ("planned cells", "cells"), ("seed", "config.seed"), ("epochs", "config.epochs"),
        ("started", "started"), ("ended", "ended"),
    ),
    "Model": (
        ("name", "model.name"), ("source", "model.source"), ("SHA-256 of the weights", "model.sha256"),
        ("revision", "model.revision"), ("thinking", "config.model.thinking"),
        ("temperature", "config.model.decoding.temperature"), ("top p", "config.model.decoding.top_p"),
        ("top k", "config.model.decoding.top_k"),
        ("repetition penalty", "config.model.decoding.repetition_penalty"),
    ),
    "Inputs": (
        ("scenario (hash)", "inputs.scenario"), ("chat template (hash)", "inputs.template"),
        ("weights (hash)", "inputs.weights"),
    ),
    "Engine": (
        ("backend", "engine.backend"), ("device", "engine.device"), ("dtype", "engine.dtype"),
        ("threads", "engine.threads"), ("batch invariant", "engine.batch_invariant"),
    ),
    "Hardware": (
        ("processor", "cpu.model"), ("cores", "cpu.count"), ("memory in bytes", "memory_bytes"), ("GPUs", "gpus"),
        ("platform", "platform"), ("Python", "python"),
    ),
    "Code": (("tailgauge", "harness"), ("git revision", "git.revision"), ("uncommitted changes", "git.dirty")),
}  # fmt: skip


def _at(data: object, path: str) -> object:
    for key in path.split("."):
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def _said(value: object) -> str:
    """A value in words; nothing for what is unknown."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_said(item) for item in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_said(item)}" for key, item in value.items())
    return str(value)
