"""A preview as one self-contained page: who is billed for what, and what the model reads, the bar marked.

Knows views; knows no sample, no tokenizer and no terminal. The page has no script at all; every text goes through
Jinja's escaping, and the Content-Security-Policy allows its style by hash and nothing else.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from harness.analysis import html
from harness.commands.preview_view import TEMPLATE, Shown, View, kind, regions
from harness.prompt import BAR, STALE_BAR
from harness.runlog.files import atomic_file

_HERE = Path(__file__).parent
KINDS = {
    "system": "system prompt", "tools": "tools", "user": "user", "assistant": "assistant", "call": "tool call",
    "result": "tool result", "follow_up": "follow-up", BAR: "the bar", STALE_BAR: "older copies of the bar",
    TEMPLATE: "chat template",
}  # fmt: skip
_LONG = 1400
"""Characters from which on a text is folded."""
_WIDTH = 1000


def write_page(path: Path, views: Sequence[View], model: str | None, block: int) -> Path:
    """Writes the page and returns its path. `model`: whose tokens are counted; None: words are.

    Raises RunLogError when the disk refuses.
    """
    text = page(views, model, block)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as handle:
        handle.write(text.encode("utf-8", "backslashreplace"))
    return path


def page(views: Sequence[View], model: str | None, block: int) -> str:
    """The text of the page; equal views give equal bytes."""
    style = html.assets(html.SHARED, ["base.css"]) + html.assets(_HERE, ["preview_page.css"])
    longest = max((arm.bill.prompt for view in views for arm in view.arms if arm.bill), default=1)
    parts: dict[str, Any] = {
        "policy": html.policy("", style),
        "style": Markup(style),
        "unit": "tokens" if model else "words",
        "model": model,
        "block": block,
        "legend": [(name, KINDS[name]) for name in _present(views)],
        "views": [_sample(view, number, longest) for number, view in enumerate(views)],
    }
    return html.fill(_HERE / "preview_page.html", parts)


def _present(views: Sequence[View]) -> list[str]:
    seen = {kind(run.region) for view in views for arm in view.arms for run in arm.runs}
    return [name for name in KINDS if name in seen]


def _sample(view: View, number: int, longest: int) -> dict[str, Any]:
    openly = max(range(len(view.arms)), key=lambda at: (bool(view.arms[at].runs), at), default=0)
    return {
        "name": view.sample,
        "side": view.side,
        "requests": view.requests,
        "group": f"sample-{number}",
        "headline": _headline(view),
        "arms": [_arm(arm, number == openly, longest) for number, arm in enumerate(view.arms)],
    }


def _headline(view: View) -> str:
    """What the last arm costs over the control, in one sentence; '' where it is unknown."""
    arm = view.arms[-1] if view.arms else None
    bill = arm.bill if arm else None
    if arm is None or bill is None or bill.added is None or bill.over_control is None:
        return ""
    size = f"`{arm.name}` makes the prompt {bill.added:,} tokens longer ({bill.added / max(bill.prompt, 1):.1%} of it)"
    more = f"an engine with a prefix cache computes {abs(bill.over_control):,} tokens"
    than = "as many tokens anew as" if not bill.over_control else ""
    if than:
        return f"{size}; an engine with a prefix cache computes {than} without it."
    return f"{size}; {more} {'more' if bill.over_control > 0 else 'fewer'} than without it."


def _arm(arm: Shown, opened: bool, longest: int) -> dict[str, Any]:
    bill = arm.bill
    return {
        "name": arm.name,
        "placed": "" if arm.bar == "none" else f"{arm.bar}, placed {arm.placement}, policy {arm.policy}",
        "refused": arm.refused,
        "opened": opened,
        "bill": bill,
        "strip": list(_strip(arm, longest)),
        "regions": [(name, KINDS.get(name, name), count) for name, count in regions(arm.runs).items()],
        "runs": [_run(run.region, run.text, run.size) for run in arm.runs],
    }


def _run(region: str, text: str, count: int) -> dict[str, Any]:
    name = kind(region)
    told = region.partition(":")[2]
    return {
        "kind": name if name in KINDS else "user",
        "label": KINDS.get(name, name) + (f" {told}" if told else ""),
        "text": text,
        "count": count,
        "folded": len(text) > _LONG and name not in (BAR, STALE_BAR),
        "characters": len(text),
        "small": name == TEMPLATE,
    }


def _strip(arm: Shown, longest: int) -> Iterator[dict[str, Any]]:
    """The prompt as a band from left to right, as wide as it is long against the longest one; a bar is at least
    three units wide, so that it can be seen."""
    scale, at = _WIDTH / max(longest, 1), 0.0
    for run in arm.runs:
        if not run.size:
            continue
        name = kind(run.region)
        width = run.size * scale
        drawn = max(width, 3.0) if name in (BAR, STALE_BAR) else width
        yield {"kind": name if name in KINDS else "user", "x": f"{at:.2f}", "width": f"{drawn:.2f}",
               "title": f"{KINDS.get(name, name)}: {run.size:,}"}  # fmt: skip
        at += width
