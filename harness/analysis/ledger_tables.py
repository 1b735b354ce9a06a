"""The ledger as tables: per request, in total, in money, and where two bills cross.

Knows rows as plain data and how they are read; knows no transcript, bar or policy.
"""

from collections.abc import Mapping, Sequence

from harness.analysis.table import Shown, Table, frame

REQUEST_COLUMNS: dict[str, int | None] = {
    "condition": None, "request": 0, "messages": 0, "prompt_tokens": 0, "bar_tokens": 0, "newest_tokens": 0,
    "copies": 0, "stale_copies": 0, "put_in": 0, "resent": 0, "kept_out_dedupe": 0, "kept_out_budget": 0,
    "drawn": None, "up_to_date": None, "shared_tokens": 0, "rebilled_tokens": 0, "cached_tokens": 0,
    "rebilled_in_blocks": 0, "output_tokens": 0,
}  # fmt: skip
TOTAL_COLUMNS: dict[str, int | None] = {
    "condition": None, "control": None, "requests": 0, "prompt_tokens": 0, "bar_tokens": 0, "newest_tokens": 1,
    "put_in": 0, "resent": 0, "resent_share": 3, "stale_mean": 1, "stale_most": 0, "drawn": 0, "shown": 0,
    "outdated": 0, "left_over": 0, "kept_out_dedupe": 0, "kept_out_budget": 0, "rebilled_tokens": 0,
    "rebilled_in_blocks": 0, "cached_tokens": 0, "weighed_tokens": 1, "extra_prompt_tokens": 0,
    "extra_rebilled_tokens": 0, "extra_weighed_tokens": 1, "output_tokens": 0,
}  # fmt: skip
MONEY_COLUMNS: dict[str, int | None] = {
    "price": None, "as_of": None, "currency": None, "condition": None, "input_cost": 6, "extra_input_cost": 6,
    "output_cost": 6, "cost": 6,
}  # fmt: skip
CROSSING_COLUMNS: dict[str, int | None] = {
    "basis": None, "weight": 4, "first": None, "second": None, "requests": 0, "dearer": None, "since": 0, "turns": 0,
    "sentence": None,
}  # fmt: skip
Rows = Sequence[Mapping[str, object]]


def requests_table(rows: Rows) -> Table:
    """One row per request and condition."""
    return Table(
        "ledger",
        "Ledger",
        "Token counts of one request each.",
        REQUEST_COLUMNS,
        (),
        frame(REQUEST_COLUMNS, rows),
    )


def totals_table(rows: Rows, block: int, weight: float) -> Table:
    """What all requests together bill."""
    ruled = any(row["kept_out_dedupe"] or row["kept_out_budget"] for row in rows)
    left = (Shown("left over", ("left_over",)),) if any(row["left_over"] for row in rows) else ()
    kept = (
        Shown("kept out, same text", ("kept_out_dedupe",)),
        Shown("kept out, budget", ("kept_out_budget",)),
    )
    return Table(
        name="totals",
        title="What each condition bills",
        how_to_read=(
            "All requests together. `bar`: tokens that copies of the bar add to the prompts; `newest`: mean length of the "
            "newest copy. `resent`: share of the copies put in that say what the copy before said. `stale`: older copies "
            "in the context, mean per request and most. `drawn`: requests at which the bar had something to say; `shown`: "
            "of these, the ones with a copy in the context; `outdated`: of those shown, the ones whose newest copy no "
            "longer says what the bar says"
            + ("; `left over`: requests with a copy at which the bar had nothing to say" if left else "")
            + ". `re-billed`: prompt tokens after the longest prefix in common with an earlier request of the condition; "
            f"`in blocks`: the same by an engine's rule, whole blocks of {block} tokens, the last token always computed. "
            f"`weighed`: re-billed in blocks + {weight:g} × cached. `extra`: beyond the control, the same transcript "
            "without the bar."
        ),
        columns=TOTAL_COLUMNS,
        shown=(
            Shown("condition", ("condition",)), Shown("prompt", ("prompt_tokens",)), Shown("bar", ("bar_tokens",)),
            Shown("newest", ("newest_tokens",)), Shown("put in", ("put_in",)), Shown("resent", ("resent_share",)),
            Shown("stale", ("stale_mean",)), Shown("most", ("stale_most",)), Shown("shown", ("shown",)),
            Shown("drawn", ("drawn",)), Shown("outdated", ("outdated",)), *left, *(kept if ruled else ()),
            Shown("re-billed", ("rebilled_tokens",)), Shown("in blocks", ("rebilled_in_blocks",)),
            Shown("cached", ("cached_tokens",)), Shown("weighed", ("weighed_tokens",)),
            Shown("extra", ("extra_weighed_tokens",)),
        ),
        data=frame(TOTAL_COLUMNS, rows),
        absent="there is no request.",
    )  # fmt: skip


def money_table(rows: Rows) -> Table:
    """The same in money."""
    dates = dict.fromkeys(f"{row['price']}: as of {row['as_of']}" for row in rows if row["as_of"])
    return Table(
        name="money",
        title="Money",
        how_to_read=(
            "Prompts at the price of cached and uncached input, recorded replies at that of output. Prices are assumptions "
            "of the day given; – is unknown, never 0 (a reply that is not recorded has no known length)."
        ),
        columns=MONEY_COLUMNS,
        shown=(
            Shown("price", ("price",)), Shown("currency", ("currency",)), Shown("condition", ("condition",)),
            Shown("input", ("input_cost",)), Shown("extra input", ("extra_input_cost",)),
            Shown("output", ("output_cost",)), Shown("together", ("cost",)),
        ),
        data=frame(MONEY_COLUMNS, rows),
        absent="no price is given; see prices in conf/ledger.yaml.",
        notes=("; ".join(dates) + ".",) if dates else (),
    )  # fmt: skip


def crossing_table(rows: Rows) -> Table:
    """Where one policy's bill crosses another's."""
    return Table(
        name="crossover",
        title="Crossover",
        how_to_read=(
            "Prompt tokens up to each request, cached ones weighed: from which request on one policy has cost more than "
            "the other."
        ),
        columns=CROSSING_COLUMNS,
        shown=(Shown("result", ("sentence",)),),
        data=frame(CROSSING_COLUMNS, rows),
        absent="the two policies of `crossover` are not both among the conditions.",
    )
