"""Scenario files in, decision points out.

Knows the format of `scenarios/*.yaml` (described in scenarios/README.md) and how its draws become Samples.
Does not know bars, prompts, tokenizers or models.
"""

from harness.dataset.load import Scenario, content_hash, load_scenario, scenario_names
from harness.dataset.question import asking, expected
from harness.dataset.series import expand

__all__ = ["Scenario", "asking", "content_hash", "expand", "expected", "load_scenario", "scenario_names"]
