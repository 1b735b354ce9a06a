"""The rows of the verdict table as they are read: question, estimate, margin, verdict, and a strip that draws them.

Knows the columns of the table `comparisons` and the words for them; computes no statistic.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.analysis.table import P_KEYS, UNKNOWN, Table, fixed, p_value, with_interval

Tables = Mapping[str, Table]
SIGNS = {
    "better": ("▲", "better"), "worse": ("▼", "worse"), "more cautious": ("▶", "more"), "less cautious": ("◀", "less"),
    "equivalent": ("■", "equal"), "inconclusive": ("○", "open"),
}  # fmt: skip
"""Verdict → its sign and the class of its colour, as in the figure of verdicts: never told by colour alone."""
QUESTIONS = {
    "sensitivity": "telling due calls from forbidden ones",
    "bias": "caution overall",
    "delta_p": "probability of the call, due minus forbidden",
    "compliance": "free replies that keep the rule",
    "over_refusal": "free replies that fail to make a due call",
    "accuracy": "right answers about the state",
    "thinking": "thinking tokens",
    "output": "output tokens",
    "first_token": "time to the first token",
    "first_answer_token": "time to the first answer token",
    "per_token": "time per token",
    "total": "time in all",
}
UNITS = {"logit": "logits", "probability": "probability", "share": "share", "ratio": "times"}
WIDTH, HEIGHT = 150, 16
"""Of a strip, in its own units."""
_EDGE = 4


@dataclass(frozen=True, slots=True)
class Strip:
    """An interval on a scale that all rows of its measure share; x in [0, WIDTH], None where unknown."""

    none: float
    """Where no difference lies."""
    margin: tuple[float, float] | None
    interval: tuple[float, float] | None
    estimate: float
    title: str

    @property
    def diamond(self) -> str:
        """The estimate's mark as polygon points."""
        x, y = self.estimate, HEIGHT / 2
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in ((x - 4, y), (x, y - 4), (x + 4, y), (x, y + 4)))


@dataclass(frozen=True, slots=True)
class Line:
    """One comparison, every part as text."""

    measure: str
    question: str
    probe: str
    condition: str
    against: str
    placement: str
    confirmatory: bool
    estimate: str
    unit: str
    margin: str
    verdict: str
    sign: str
    tone: str
    p: str
    holm: bool
    n: str
    more: str
    worst: str
    lost: str
    note: str
    strip: Strip | None


def lines(tables: Tables) -> list[Line]:
    """Every row of `comparisons`, the confirmatory first, else in the table's order."""
    table = tables["comparisons"]
    rows = table.rows()
    scales = _scales(rows)
    made = [_line(row, table, scales) for row in rows]
    return sorted(made, key=lambda line: not line.confirmatory)


def _line(row: Mapping[str, Any], table: Table, scales: Mapping[str, float]) -> Line:
    unit, verdict = str(row["unit"]), _text(row.get("verdict"))
    holm = row["label"] == "confirmatory" and row.get("p_holm") is not None
    sign, tone = SIGNS.get(verdict, ("–", "unknown"))

    def shown(*keys: str) -> str:
        return with_interval([_fixed(row, key, table) for key in keys])

    margin = [_fixed(row, key, table) for key in ("margin_low", "margin_high")]
    worst = [_fixed(row, key, table) for key in ("worst_low", "worst_high")]
    lost = [fixed(row.get(key), 0) for key in ("excluded", "excluded_against")]
    return Line(
        measure=str(row["measure"]), question=QUESTIONS.get(str(row["measure"]), str(row["measure"])),
        probe=str(row["probe"]), condition=str(row["condition"]), against=str(row["against"]),
        placement=_text(row.get("placement")), confirmatory=row["label"] == "confirmatory",
        estimate=shown("estimate", "low", "high"), unit=UNITS.get(unit, unit),
        margin=f"{margin[0]} to {margin[1]}" if UNKNOWN not in margin else UNKNOWN,
        verdict=verdict or UNKNOWN, sign=sign, tone=tone,
        p=p_value(row.get(P_KEYS[1] if holm else P_KEYS[0])).removeprefix("= "), holm=holm,
        n=fixed(row.get("clusters"), 0), more=fixed(row.get("more_clusters"), 0, ""),
        worst=f"{worst[0]} to {worst[1]}" if UNKNOWN not in worst else "",
        lost=f"{lost[0]} and {lost[1]}" if set(lost) - {UNKNOWN, "0"} else "",
        note=_text(row.get("note")), strip=_strip(row, unit, scales),
    )  # fmt: skip


def _fixed(row: Mapping[str, Any], key: str, table: Table) -> str:
    """Two decimals for what a reader compares; the tables below and the CSV have more."""
    decimals = table.columns.get(key, 2)
    return fixed(row.get(key), None if decimals is None else 2)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# -- strips ----------------------------------------------------------------------------------------------


def _scales(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Measure → half the width of its scale, so that every interval and margin of the measure fits."""
    found: dict[str, float] = {}
    for row in rows:
        unit, measure = str(row["unit"]), str(row["measure"])
        for key in ("estimate", "low", "high", "margin_low", "margin_high"):
            at = _place(row.get(key), unit)
            if at is not None:
                found[measure] = max(found.get(measure, 0.0), abs(at))
    return found


def _place(value: object, unit: str) -> float | None:
    """Distance from no difference: ratios on a log scale."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if unit == "ratio":
        return math.log(value) if value > 0 else None
    return float(value)


def _strip(row: Mapping[str, Any], unit: str, scales: Mapping[str, float]) -> Strip | None:
    half = scales.get(str(row["measure"])) or 1.0

    def x(key: str) -> float | None:
        at = _place(row.get(key), unit)
        return None if at is None else round(WIDTH / 2 + at / half * (WIDTH / 2 - _EDGE), 1)

    estimate = x("estimate")
    if estimate is None:
        return None
    title = f"estimate {fixed(row.get('estimate'), 2)}, 95 % interval {fixed(row.get('low'), 2)} to "
    title += fixed(row.get("high"), 2)
    return Strip(
        WIDTH / 2, _both(x("margin_low"), x("margin_high")), _both(x("low"), x("high")), estimate, title
    )


def _both(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (low, high)


# -- in words ----------------------------------------------------------------------------------------------


def answers(found: Sequence[Line]) -> list[tuple[Line, str]]:
    """The confirmatory comparisons with what each says, for a reader who knows no statistics."""
    return [(line, _answer(line)) for line in found if line.confirmatory]


def _answer(line: Line) -> str:
    than = f"than with {line.against}, a neutral text of the same length at the same place"
    match line.verdict:
        case "better":
            return f"With {line.condition} the model tells due calls from forbidden ones better {than}."
        case "worse":
            return f"With {line.condition} the model tells due calls from forbidden ones worse {than}."
        case "equivalent":
            return (
                f"{line.condition} makes no difference beyond the margin ({line.margin} {line.unit}) to how far the model "
                f"tells due calls from forbidden ones, against {line.against}, a neutral text of the same length."
            )
        case "inconclusive":
            need = f" About {line.more} more episodes would settle it." if line.more else ""
            return (
                f"Undecided whether {line.condition} makes the model tell due calls from forbidden ones better {than}."
                f"{need}"
            )
        case _:
            return f"{line.condition} against {line.against}: no verdict."
