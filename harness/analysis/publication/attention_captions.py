"""A caption for every figure and table of a capture.

Knows what each attention figure shows; takes every number from the capture's tables. All of it is exploratory.
"""

from collections.abc import Mapping

from harness.analysis.attention.figures import FIGURES
from harness.analysis.publication.captions import (
    EXPLORED,
    NOTHING,
    STUDENT,
    Caption,
    Method,
    method_words,
)
from harness.analysis.publication.facts import Capture, Counted, Facts, conditions_words, model_words, n_words
from harness.analysis.publication.latex import grids
from harness.analysis.table import Table

MEANS = Method("none: means over cells")
TESTED = Method(STUDENT, EXPLORED)
REGIONS = Method(f"{STUDENT}; BCa cluster bootstrap in the CSV [@efron1987]")
HEADS = Method(STUDENT, "one-sided sign-flip permutation over the held-out half of the clusters, max-T step-down over "
                        "the heads tested [@westfall1993], exploratory")  # fmt: skip
CORRECTED = Method(STUDENT, "sign-flip permutation over clusters, two-sided [@fisher1935], Holm over the regions of "
                            "bar − placebo [@holm1979], exploratory")  # fmt: skip
_LIFT = (
    "Lift is a region's share of the attention outside the sinks over the share that uniform attention would give it; "
    "1 is uniform."
)
SHOWN: Mapping[str, tuple[str, str, Method]] = {
    "decision_heatmap": ("Attention of the decision row, region by layer",
                         f"The row that decides which tool to call. {_LIFT}", MEANS),
    "value_heatmap": ("Attention of the value row, region by layer",
                      f"The row that decides the value the rule is keyed on. {_LIFT}", MEANS),
    "token_heatmap": ("Attention token by token in one sample",
                      "The one sample that was kept token by token: an example, no estimate.", MEANS),
    "bar_tokens": ("Attention on the bar's tokens, by layer",
                   "The one sample that was kept token by token: an example, no estimate.", MEANS),
    "along_thinking": ("Where the model looks while it writes",
                       "Shares of the regions along the generated tokens, mean over cells.", MEANS),
    "head_map": ("Heads that read the bar's content",
                 "Layer by head: share on the bar minus share on the placebo of the same placement. Marked heads were "
                 "chosen on one half of the clusters and tested on the other.", HEADS),
    "differences": ("What a bar changes in where the decision row looks",
                    "Paired differences of each region's share of the attention outside the sinks. Shares add up to 1, "
                    "so a gain in one region is a loss in others.", CORRECTED),
    "masking": ("What hiding a span changes",
                "Cells replayed with one span hidden from attention, everything else as it was.", TESTED),
    "lines": ("Attention on each line of the bar",
              f"Each line beside the line of the same number in the placebo. {_LIFT}", TESTED),
    "prompt_map": ("Where in the prompt the decision row looks",
                   "The prompt of one sample from start to end, coloured by the attention on it.", MEANS),
    "prompt_map_thirds": ("Where in the prompt the decision row looks, by thirds of the layers",
                          "The prompt of one sample from start to end, coloured by the attention on it.", MEANS),
}  # fmt: skip
TABLES: Mapping[str, Method] = {
    "captured": Method(NOTHING), "regions": REGIONS, "spread": REGIONS, "differences": CORRECTED,
    "spread_differences": TESTED, "lines": TESTED, "heads": HEADS, "masking": TESTED, "masking_differences": TESTED,
}  # fmt: skip


def figure_caption(facts: Facts, capture: Capture, stem: str) -> Caption:
    """The caption of a capture's figure by its file's name; a second probe's or bar's has its name at the end."""
    base = max((name for name in FIGURES if stem == name or stem.startswith(f"{name}_")), key=len)
    title, text, method = SHOWN[base]
    rest = stem[len(base) + 1 :].replace("_", ", ")
    return _caption(facts, capture, "figure", stem, f"{title} ({rest})" if rest else title, [text], method)


def table_caption(facts: Facts, capture: Capture, table: Table) -> Caption:
    """The caption of a capture's table."""
    method = TABLES.get(table.name, Method("as stated in the text"))
    _, notes = grids(table)
    said = [table.how_to_read, *notes]
    return _caption(facts, capture, "table", table.name, table.title, said, method)


def _caption(
    facts: Facts, capture: Capture, kind: str, key: str, title: str, said: list[str], method: Method
) -> Caption:
    parts = _counted(capture)
    conditions = tuple(dict.fromkeys(name for part in parts for name in part.conditions))
    text = [
        *said, "Replayed from recorded token ids; exploratory.", n_words(parts), model_words(facts),
        conditions_words(conditions), *method_words(method, NOTHING),
    ]  # fmt: skip
    return Caption(
        kind, f"{capture.folder}/{key}", f"{facts.warning()}{title}", " ".join(text), parts, conditions, method,
        NOTHING, facts.run_id, facts.model, facts.complete,
    )  # fmt: skip


def _counted(capture: Capture) -> tuple[Counted, ...]:
    data = capture.tables["captured"].data
    found = []
    for (probe, series), rows in data.groupby(["probe", "series"], sort=False):
        cells, skipped = int(rows["cells"].sum()), int(rows["skipped"].sum())
        conditions = tuple(str(condition) for condition in rows["condition"])
        clusters = int(rows["clusters"].max())
        found.append(Counted(str(probe), str(series), cells + skipped, skipped, clusters, conditions))
    return tuple(found)
