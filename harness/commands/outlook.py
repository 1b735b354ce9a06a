"""The printed form of a plan: two tables of at most 100 columns and a few lines. Invents no number."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from harness.budget import Price, duration
from harness.commands import console

WIDTH = 100
UNKNOWN = "–"
_COMMAND = "  tailgauge "


def show(outlook: Mapping[str, Any]) -> None:
    """Prints a plan; see `harness.commands.plan` for what it holds."""
    head = f"Plan of {outlook['experiment']} on {outlook['model']} (scenario {outlook['scenario']}, {outlook['measure']})"
    _say(head)
    _print(_parts(outlook))
    for line in (*_lines(outlook), ""):
        _say(line)
    if outlook["effects"]:
        _print(_effects(outlook["effects"]))
        for line in _legend(outlook):
            _say(line)
    else:
        _say(
            "No matched pairs of a bar and its placebo: no confirmatory comparison; what a curve can resolve is not told."
        )
    for note in outlook["notes"]:
        _say(f"note: {note}")


def _say(line: str) -> None:
    """Wrapped at words; a command is left whole, to be copied."""
    if line.startswith(_COMMAND):
        console.out.print(line, markup=False)
    else:
        console.out.print(line, markup=False, width=WIDTH, soft_wrap=False)


def _print(table: Table) -> None:
    console.out.print(table, width=WIDTH, soft_wrap=False, crop=False)


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def _parts(outlook: Mapping[str, Any]) -> Table:
    table = Table("probe", "series", box=SIMPLE_HEAD)
    table.add_column("condition", overflow="fold")
    for name in ("cells", "clusters", "prompt\ntokens", "new tokens\nexpected", "\nat most"):
        table.add_column(name, justify="right")
    before = None
    for row in outlook["parts"]:
        place = (row["probe"], row["series"])
        if before not in (None, place):
            table.add_section()
        shown = place if place != before else ("", "")
        before = place
        table.add_row(*shown, escape(row["condition"]), *_counts(row))
    table.add_section()
    table.add_row("all", "", "", *_counts(outlook["totals"]))
    return table


def _counts(row: Mapping[str, Any]) -> list[str]:
    keys = ("cells", "clusters", "prompt_tokens", "new_tokens_expected", "new_tokens_most")
    return [_number(row[key]) for key in keys]


def _lines(outlook: Mapping[str, Any]) -> list[str]:
    return [_computed(outlook["totals"]), *_time(outlook), *_money(outlook)]


def _computed(totals: Mapping[str, Any]) -> str:
    computed, prompt = totals["computed_tokens"], totals["prompt_tokens"]
    if computed is None or not prompt:
        return "prompt tokens computed after prefix sharing: unknown"
    return (
        f"prompt tokens computed after prefix sharing: {computed:,} of {prompt:,} ({computed / prompt:.0%})"
    )


def _time(outlook: Mapping[str, Any]) -> list[str]:
    time = outlook["time"]
    if outlook["totals"]["prompt_tokens"] is None:
        return ["time: unknown without the model's tokenizer"]
    if time is None:
        return [
            "time: unknown, no earlier run tells how fast this model is here. Let the run itself tell, stopped after a "
            "while (nothing is lost by it), then plan again:",
            f"  {outlook['trial']}",
        ]
    if time["expected"] is not None:
        told = f"about {duration(time['expected'])}"
        if time["high"] is not None and duration(time["low"]) != duration(time["high"]):
            told += f" (from {duration(time['low'])} to {duration(time['high'])})"
    elif time["high"] is not None:
        told = f"from {duration(time['low'])} to {duration(time['high'])}"
    else:
        told = f"{duration(time['low'])} or more"
    most = UNKNOWN if time["most"] is None else duration(time["most"])
    start = f", and up to {duration(time['start'])} to start" if time["start"] >= 1 else ""
    lines = [f"time: {told}; at most {most} if every reply reaches its limit{start}"]
    lines.append(f"  from {_and(time['pilots'])}")
    limit = outlook["limits"]["max_time"]
    if limit is not None and time["low"] > limit:
        lines.append(
            f"  max_time={duration(limit)} will stop it before its end; the same command then goes on"
        )
    return lines


def _and(names: Sequence[str], most: int = 3) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _money(outlook: Mapping[str, Any]) -> list[str]:
    money = outlook["money"]
    if money is None:
        return [
            "money: unknown; set model.price.currency with input_per_million and output_per_million, or with per_hour"
        ]
    if money["most"] is None and money["low"] is None:
        return ["money: unknown, since tokens or time are"]
    price = Price(currency=money["currency"])
    low, high, most = (
        UNKNOWN if money[key] is None else price.said(money[key]) for key in ("low", "high", "most")
    )
    told = low if low == high else f"{low} to {high}"
    lines = [f"money: {told} with replies of the expected length; at most {most}"]
    limit = outlook["limits"]["max_spend"]
    if limit is not None and money["low"] is not None and money["low"] > limit:
        lines.append(f"  max_spend={price.said(limit)} will stop it before its end")
    return lines


def _effects(effects: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("measure", no_wrap=True)
    table.add_column("condition\n− against", overflow="fold", min_width=21)
    for name in (
        "clusters",
        "spread",
        "finds",
        "margin",
        "clusters\nto find it",
        "half\nof it",
        "to show\nnone",
    ):
        table.add_column(name, justify="right")
    for row in effects:
        table.add_row(
            row["measure"],
            escape(f"{row['condition']}\n− {row['against']}"),
            str(row["clusters"]),
            UNKNOWN if row["sd"] is None else f"{row['sd']:.2f}",
            UNKNOWN if row["mde"] is None else f"{row['mde']:.2f}",
            f"{row['margin']:g}",
            *(_number(row[key]) for key in ("for_margin", "for_half", "for_equivalence")),
        )
    return table


def _legend(outlook: Mapping[str, Any]) -> list[str]:
    effects = outlook["effects"]
    tests = max((row["tests"] for row in effects if row["label"] == "confirmatory"), default=1)
    assumed = outlook["assumptions"]
    lines = [
        "finds: the smallest true difference that 80 % of such runs find (sensitivity in logits; compliance as a share, "
        "exploratory). The last columns are clusters: to find a difference as large as the margin, or half of it, and to "
        "show that there is none as large (true difference 0), each in 80 % of runs at α = .05"
        + (f", sensitivity at Holm's first step of {tests} tests." if tests > 1 else "."),
    ]
    for row in effects:
        note = f"; {row['note']}" if row["note"] else ""
        lines.append(f"  {row['measure']}, {row['condition']}: {row['source']}{note}")
    lines.append(
        f"assumed where nothing is measured: spread {assumed['sd']:g} logits (--sd), rate {assumed['rate']:g} (--rate); "
        f"correlation of replies within a cluster {assumed['icc']:g} (--icc)"
    )
    return lines
