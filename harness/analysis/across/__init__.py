"""Comparison across finished runs: models × conditions, small with a bar against large without, accuracy against cost.

from pathlib import Path
from harness.analysis import across

entries = across.load_all([Path("results/xfinity/<run>"), Path("results/xfinity/<other run>")])
across.models_table(entries).data          # a data frame, one row per model, condition and measure
comparison = across.compare(entries)       # every table, and the headline in sentences
comparison.tables["differences"].data
across.pareto_figure(comparison.tables["pareto"])
across.write(comparison, Path("results/compare/mine"))
"""

from harness.analysis.across.corner_figure import corner_figures
from harness.analysis.across.corners import corners_table, differences_table, found_corners, gaps_table
from harness.analysis.across.models import models_table
from harness.analysis.across.pareto import pareto_figure, pareto_table
from harness.analysis.across.quads import pairs, quads
from harness.analysis.across.report import Comparison, compare, folder_name, write
from harness.analysis.across.runs import Entry, load_all, margins_for

__all__ = [
    "Comparison",
    "Entry",
    "compare",
    "corner_figures",
    "corners_table",
    "differences_table",
    "folder_name",
    "found_corners",
    "gaps_table",
    "load_all",
    "margins_for",
    "models_table",
    "pairs",
    "pareto_figure",
    "pareto_table",
    "quads",
    "write",
]
