"""Leaks and repeated calls, recounted from the texts of a run: strings held against strings, calls found by their tags.

Nothing of harness. Unknown is None.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import other_way as ow
import pyarrow.parquet as pq
from other_way import Cell, where
from recounted import Arms, there

FIVE = 5
_MADE = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.S)
_NEEDED = (
    "cell_id",
    "sample_id",
    "prompt_ids",
    "spans",
    "bar_text",
    "parsed",
    "expectation.tool",
    "expectation.reply_tool",
)


def asides(run_dir: Path, arms: Arms, cells: list[Cell]) -> Iterator[Cell]:
    free = where(cells, probe="act", series="matched")
    texts = _texts(run_dir)
    if not free or texts is None:
        return
    bars: dict[str, set[str]] = {}
    for text in texts.values():
        bars.setdefault(text["sample_id"], set()).add(text["bar_text"] or "")
    for cell in free:
        text = texts[cell["cell_id"]]
        known = bool(text["parsed"])
        cell["leak"] = _leaks(text, bars[text["sample_id"]]) if known else None
        cell["repeated_call"] = _repeats(text) if known else None
    for name, mine in there(arms, free):
        for measure in ("leak", "repeated_call"):
            used = [cell for cell in ow.usable(mine) if cell[measure] is not None]
            yield (
                {"condition": name, "measure": measure}
                | ow.share(used, measure)
                | _difference(arms, free, name, measure)
            )


def _difference(arms: Arms, cells: list[Cell], name: str, measure: str) -> Cell:
    kinds = {
        "control": (),
        "placebo": ("placebo - control",),
        "mismatched": ("mismatched - placebo",),
        "bar": ("bar - placebo",),
    }
    wanted = kinds[arms.role(name)]
    against = next((b for kind, a, b in arms.pairs(cells) if a == name and kind in wanted), None)
    empty = dict.fromkeys(("difference", "difference_low", "difference_high", "p"))
    if against is None:
        return empty
    both = [_means(cells, each, measure) for each in (name, against)]
    d = [both[0][key] - both[1][key] for key in sorted(both[0].keys() & both[1].keys())]
    value, low, high = ow.t_interval(d)
    return {"difference": value, "difference_low": low, "difference_high": high, "p": ow.sign_flips(d)}


def _means(cells: list[Cell], name: str, measure: str) -> dict[str, float]:
    used = [cell for cell in ow.usable(where(cells, condition=name)) if cell[measure] is not None]
    return ow.means([cell | {"mark": float(cell[measure])} for cell in used], "cluster", "mark")


def _texts(run_dir: Path) -> Mapping[str, Cell] | None:
    file = pq.ParquetFile(run_dir / "samples.parquet")
    if not (run_dir / "tokens.parquet").exists() or not set(_NEEDED) <= set(file.schema_arrow.names):
        return None
    pieces = {row["id"]: row["piece"] for row in pq.read_table(run_dir / "tokens.parquet").to_pylist()}
    rows = file.read(columns=list(_NEEDED)).to_pylist()
    for row in rows:
        hidden = [
            i for s in row["spans"] or () if s["region"].endswith("bar") for i in range(s["start"], s["end"])
        ]
        kept: list[bytes] = []
        for place, token in enumerate(row["prompt_ids"] or ()):
            kept.append(b" \n " if place in hidden else pieces[token])
        row["told"] = b"".join(kept).decode("utf-8", "replace")
    return {row["cell_id"]: row for row in rows}


def _made(text: Cell) -> list[dict[str, Any]]:
    return [call for call in json.loads(text["parsed"])["tool_calls"] if not call["in_reasoning"]]


def _leaks(text: Cell, others: set[str]) -> bool:
    spoken = [json.loads(text["parsed"])["content"]]
    for call in _made(text):
        if call["name"] == text["expectation.reply_tool"]:
            spoken += [value for value in call["arguments"].values() if isinstance(value, str)]
    said, told = _spaced("\n".join(spoken)), _spaced(text["told"])
    for bar in [text["bar_text"]] if text["bar_text"] else others:
        lines = [line for line in bar.split("\n") if line]
        tags = re.findall(r"^</?([\w:.-]+)", bar, re.M)
        if any(re.search(rf"</?{re.escape(tag)}[^<>\n]*>", "\n".join(spoken)) for tag in tags):
            return True
        words = _spaced(" ".join(line for line in lines if not line.startswith("<"))).split()
        phrases = (f" {' '.join(words[i : i + FIVE])} " for i in range(len(words) - FIVE + 1))
        if any(phrase in said and phrase not in told for phrase in phrases):
            return True
    return False


def _spaced(text: str) -> str:
    """Words with one space around each."""
    return " " + " ".join(re.sub(r"\W+", " ", text.casefold()).split()) + " "


def _repeats(text: Cell) -> bool:
    start = text["told"].find("<|im_start|>user")
    made = [json.loads(found) for found in _MADE.findall(text["told"][max(0, start) :])]
    before = [(call["name"], call["arguments"]) for call in made]
    own = (text["expectation.tool"], text["expectation.reply_tool"])
    return any((c["name"], c["arguments"]) in before for c in _made(text) if c["name"] not in own)
