"""A small valid configuration as plain data, and a way to change one key of it."""

import copy
from typing import Any

BASE: dict[str, Any] = {
    "experiment": "small",
    "seed": 7,
    "epochs": 1,
    "measure": "throughput",
    "results": "results",
    "model": {"_target_": "harness.models.hf.TransformersModel", "name": "tiny", "path": "/tiny"},
    "scenario": {"file": "xfinity"},
    "condition": {
        "control": {"bar": None, "placement": None},
        "placebo": {
            "bar": {
                "_target_": "harness.statusbar.Placebo",
                "of": {"_target_": "harness.statusbar.AgentStatus"},
            },
            "placement": {"_target_": "harness.statusbar.Tail"},
        },
        "agent_status": {
            "bar": {"_target_": "harness.statusbar.AgentStatus"},
            "placement": {"_target_": "harness.statusbar.Tail"},
        },
    },
    "probe": {
        "choose": {"series": {"matched": {"clusters": 2}}},
        "act": {"max_new_tokens": 8, "series": {"matched": {"clusters": 3}}},
    },
    "latency": {"samples": 6, "conditions": ["control", "placebo", "agent_status"]},
}
_REMOVE = object()


def plain(**changes: Any) -> dict[str, Any]:
    """BASE with changes: `model__thinking="native"` sets `model.thinking`."""
    data = copy.deepcopy(BASE)
    for key, value in changes.items():
        *path, last = key.split("__")
        node = data
        for part in path:
            node = node.setdefault(part, {})
        if value is _REMOVE:
            del node[last]
        else:
            node[last] = value
    return data


REMOVE = _REMOVE
