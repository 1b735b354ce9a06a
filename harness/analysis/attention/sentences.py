"""A few plain sentences on what a capture shows, for the terminal and on top of tables.md.

Knows the tables and says nothing that is not in them. Tests decide, not intervals; what is not decided is said so.
"""

import math
from collections.abc import Iterator, Mapping

from harness.analysis import statistics as st
from harness.analysis.attention.frames import AttentionData
from harness.analysis.attention.groups import group_name
from harness.analysis.attention.head_table import BAR, RECORDS
from harness.analysis.decisions import Row
from harness.analysis.table import Table, fixed, p_value, with_interval

Tables = Mapping[str, Table]
TOP_GROUPS = 3


def sentences(data: AttentionData, tables: Tables) -> list[str]:
    """What came out, in reading order; every clause from the tables."""
    probe = "choose" if "choose" in data.probes else data.probes[0]
    found = [
        _captured(data),
        *_without_bar(tables, probe),
        *_bars(tables, probe),
        *_lines(tables, probe),
        *_heads(tables, probe),
        *_masks(tables, probe),
        "All of this is exploratory. Attention says where a row looks, not what makes the model decide; only the "
        "masking check changes what the model can read.",
    ]
    return found


def _known(value: object) -> float | None:
    """A number, or None for what is unknown."""
    number = float("nan") if value is None else float(str(value))
    return number if math.isfinite(number) else None


def _pick(table: Table, **where: object) -> list[Row]:
    rows = table.data
    for key, value in where.items():
        if rows.empty:
            return []
        rows = rows[rows[key] == value]
    return [{str(k): v for k, v in row.items()} for row in rows.to_dict("records")]


def _interval(row: Row, keys: tuple[str, str, str], decimals: int) -> str:
    return with_interval([fixed(row.get(key), decimals) for key in keys])


ENDS = ("estimate", "low", "high")
CHANGE = ("sensitivity_change", "sensitivity_change_low", "sensitivity_change_high")


def _captured(data: AttentionData) -> str:
    clusters = {cell.cell.cluster for cell in data.cells}
    errors = [cell.replay_error for cell in data.cells if cell.replay_error is not None]
    replay = (
        f"replayed log-probabilities differ from the recorded ones by at most {max(errors):.1g}"
        if errors
        else "no recorded log-probability to hold the replay against"
    )
    return (
        f"{data.model}: attention of {len(data.cells)} cells from {len(clusters)} clusters "
        f"({', '.join(data.probes)}); {replay}."
    )


def _without_bar(tables: Tables, probe: str) -> Iterator[str]:
    regions = _pick(tables["regions"], probe=probe, row="decision")
    first = next((str(row["condition"]) for row in regions if row["placement"] == "none"), None)
    rows = [row for row in regions if row["condition"] == first and _known(row["lift"]) is not None]
    if not rows:
        return
    sinks = next((row for row in regions if row["condition"] == first and row["group"] == "sinks"), {})
    mass = f"puts {fixed(sinks.get('mass'), 2)} of its raw attention on the sinks; " if sinks else ""
    best = sorted(rows, key=lambda row: -float(str(row["lift"])))[:TOP_GROUPS]
    texts = [
        f"{group_name(str(row['group']))} ({_interval(row, ('lift', 'lift_low', 'lift_high'), 1)})"
        for row in best
    ]
    yield (
        f"Without a bar the decision row of `{probe}` {mass}of the rest, the most per token (lift, 1 is uniform) goes to "
        f"{', '.join(texts)}; n = {fixed(rows[0]['clusters'], 0)} clusters."
    )


def _bars(tables: Tables, probe: str) -> Iterator[str]:
    rows = _pick(tables["differences"], probe=probe, row="decision", comparison="bar - placebo", group="bar")
    for row in rows:
        mine, other = (
            _pick(tables["regions"], probe=probe, row="decision", condition=row[key], group="bar")[0]
            for key in ("condition", "against")
        )
        reading = _reading(
            row, row["p_holm"], ("its content draws attention", "its content draws less attention")
        )
        yield (
            f"The decision row gives the bar `{row['condition']}` a share of {fixed(mine['share'], 3)} and the placebo "
            f"at its place {fixed(other['share'], 3)}: difference {_interval(row, ENDS, 3)}, "
            f"p (Holm) {p_value(row['p_holm'])}, n = {fixed(row['clusters'], 0)} clusters: {reading}."
        )
    if not rows:
        yield "No bar was captured together with a placebo of its placement: what its content draws is not measured."


def _reading(row: Row, p: object, words: tuple[str, str]) -> str:
    """The verdict by the test; `words` for a difference above and below 0."""
    known, value = _known(p), _known(row["estimate"])
    if row.get("note"):
        return f"undecided ({row['note']})"
    if known is None or value is None or known > st.ALPHA:
        return "undecided"
    return words[0] if value > 0 else words[1]


def _lines(tables: Tables, probe: str) -> Iterator[str]:
    rows = [
        row
        for row in _pick(tables["lines"], probe=probe, row="decision")
        if _known(row["estimate"]) is not None
    ]
    for condition in dict.fromkeys(str(row["condition"]) for row in rows):
        best = max(
            (r for r in rows if r["condition"] == condition), key=lambda row: float(str(row["estimate"]))
        )
        if (_known(best["estimate"]) or 0) <= 0 or (_known(best["p"]) or 1) > st.ALPHA:
            yield f"No line of `{condition}` is read more than the placebo's same line, as far as this can tell."
            continue
        text = str(best["text"]).replace("`", "'")
        yield (
            f"Of the lines of `{condition}`, line {best['line']} (`{text}`) has most over the placebo's same line: lift "
            f"{fixed(best['lift'], 2)} and {fixed(best['placebo_lift'], 2)}, difference {_interval(best, ENDS, 2)} "
            "(the largest of several, so too large by chance)."
        )


def _heads(tables: Tables, probe: str) -> Iterator[str]:
    rows = _pick(tables["heads"], probe=probe)
    asked = {BAR: "the bar's content", RECORDS: "the records of the asked-for value more than others'"}
    for target, condition in dict.fromkeys((str(row["target"]), str(row["condition"])) for row in rows):
        mine = [row for row in rows if (row["target"], row["condition"]) == (target, condition)]
        if not mine[0]["test_n"]:
            yield f"Heads that read {asked[target]} (`{condition}`): {mine[0]['note']}."
            continue
        good = [f"layer {row['layer']} head {row['head']}" for row in mine if row["passed"] == "yes"]
        # Where so few clusters are left that none could pass, "0 of 12" would read like a result.
        why = f" ({mine[0]['note']})" if mine[0]["note"] else ""
        names = f": {', '.join(good)}" if good else why
        yield (
            f"Heads that read {asked[target]} (`{condition}`): {len(good)} of the {len(mine)} chosen on one half of "
            f"the clusters pass on the other (n = {fixed(mine[0]['test_n'], 0)}){names}."
        )


def _masks(tables: Tables, probe: str) -> Iterator[str]:
    """What hiding changes. Where bar and placebo are hidden from all that follows in all layers the two arms are the
    same prompt, so that their difference is the main report's again: it is told as a check of the mask."""
    rows = _pick(
        tables["masking_differences"], probe=probe, measure="sensitivity", comparison="bar - placebo"
    )
    if not rows:
        yield "The masking check was not made for a bar and its placebo: nothing here speaks of cause."
        return
    for row in rows:
        where = {key: row[key] for key in ("mask", "scope", "layers")}
        mine, other = (
            _pick(tables["masking"], probe=probe, condition=row[key], **where)[0]
            for key in ("condition", "against")
        )
        changes = (
            f"changes the sensitivity by {_interval(mine, CHANGE, 2)} logit with the bar `{row['condition']}` and by "
            f"{_interval(other, CHANGE, 2)} with its placebo"
        )
        what = "the bar (or the placebo)" if row["mask"] == "bar" else group_name(str(row["mask"]))
        rows_hidden = "every later row" if row["scope"] == "later" else "the choice's rows alone"
        layers = "" if row["layers"] == "all" else f" in layers {row['layers']}"
        if row["mask"] == "bar" and (row["scope"], row["layers"]) == ("later", "all"):
            verdict = "hidden so, the two arms are one prompt: a check of the mask, not a finding"
        else:
            words = ("less is lost with the bar", "more is lost with the bar")
            verdict = (
                f"difference {_interval(row, ENDS, 2)}, p {p_value(row['p'])} (not corrected), "
                f"n = {fixed(row['clusters'], 0)} clusters: {_reading(row, row['p'], words)}"
            )
        yield f"Hiding {what} from {rows_hidden}{layers} {changes}; {verdict}."
