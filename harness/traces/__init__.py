"""Recorded runs of other agents → Samples: one importer per foreign format.

Knows files and formats; knows no bar, no tokenizer and no model.
"""

from harness.dialects import TraceError
from harness.traces.load import load
from harness.traces.oddities import Oddity, oddities
from harness.traces.trajectory import Trajectory, samples, unjudged

__all__ = ["Oddity", "TraceError", "Trajectory", "load", "oddities", "samples", "unjudged"]
