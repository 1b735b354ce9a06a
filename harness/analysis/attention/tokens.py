"""One shown sample, token by token: what each token got from a row, cut into blocks and wrapped into lines.

Knows captures' token-level arrays and how wide characters are; draws nothing. Tokens are shown by the text they
stand for, never by the tokenizer's own pieces; the parts of a character that spans tokens are one token here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from harness.analysis.attention.arrangement import Trio
from harness.analysis.attention.frames import AttentionData, Floats
from harness.analysis.attention.labels import group_label, readable, width
from harness.attention import measures
from harness.attention.store import CellAttention, cell_path, read_cell

CALLS = ("target_calls", "other_calls", "unruled_calls")
FLOWING = ("template", "sinks")
"""Groups whose line breaks are not kept and that have no heading."""
KEPT = ("follow_up", "bar", "forced")
"""Groups that are shown whole unless they are very long."""
MOST_KEPT = 240
CAPS = (
    (10_000, 10_000, 12), (120, 120, 12), (80, 80, 12), (50, 60, 12), (30, 60, 12), (20, 60, 12), (12, 60, 12),
    (0, 60, 12), (0, 60, 4), (0, 60, 0), (0, 40, 0), (0, 24, 0), (0, 12, 0), (0, 6, 0), (0, 0, 0),
)  # fmt: skip
"""Most tokens shown of a block: of results and prose, of a call, of what the template writes. The first of these
that makes the text fit is taken."""


@dataclass(frozen=True, slots=True)
class Token:
    """A drawn token; `lift` is over layers and heads, nan in the sinks. `count` tokens stand behind it."""

    text: str
    lift: float
    group: str
    breaks: bool = False
    """Whether a line ends after it."""
    elided: bool = False
    line: int | None = None
    """The bar's line that it belongs to."""


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive tokens of one group, with the share of attention and the lift of all of them together."""

    group: str
    name: str
    """How its heading calls it."""
    tokens: tuple[Token, ...]
    share: float
    lift: float


@dataclass(frozen=True, slots=True)
class Line:
    """One line of running text: (x in units of the type size, width, token)… or a heading."""

    group: str
    items: tuple[tuple[float, float, Token], ...] = ()
    heading: str = ""


def shown_cells(
    data: AttentionData, trio: Trio, probe: str, fit: Callable[[CellAttention], bool]
) -> list[CellAttention]:
    """The cells of the first sample that every arm of the trio has and that `fit`; failing that, those there are."""
    names = [arm.name for arm in trio.arms]
    by_sample: dict[tuple[str, int], dict[str, str]] = {}
    for name in names:
        for cell in data.select(name, probe):
            by_sample.setdefault((cell.cell.sample_id, cell.cell.epoch), {})[name] = cell.cell.cell_id
    most: list[CellAttention] = []
    for ids in sorted(by_sample.values(), key=len, reverse=True):
        if len(ids) <= len(most):
            break
        read = (read_cell(cell_path(data.folder, ids[name])) for name in names if name in ids)
        found = [cell for cell in read if fit(cell)]
        most = found if len(found) > len(most) else most
    return most


def row_number(captured: CellAttention, kind: str) -> int | None:
    """The first row of a kind."""
    return next((i for i, row in enumerate(captured.rows) if row.kind == kind), None)


def token_lifts(captured: CellAttention, row: int) -> tuple[Floats, Floats, Floats]:
    """((K,) share, (K,) uniform share) over layers and heads, and (L, K) lift; nan in the sinks and unseen keys.

    Shares are of what is not in the sinks. Needs `token_rows`.
    """
    assert captured.token_rows is not None
    keys = np.arange(len(captured.tokens))
    sinks = measures.sink_columns(captured)[captured.key_region]
    position = captured.rows[row].position
    weights = np.asarray(captured.token_rows[:, row], dtype=np.float64)
    first = np.array([0 if window is None else max(0, position + 1 - window) for window in captured.windows])
    seen = (keys[None] <= position) & (keys[None] >= first[:, None]) & ~sinks[None]
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(seen, weights, 0) / np.where(seen, weights, 0).sum(1, keepdims=True)
        uniform = seen / seen.sum(1, keepdims=True)
        lifts = np.where(seen, shares / np.where(seen, uniform, np.nan), np.nan)
    return np.nan_to_num(shares).mean(0), np.nan_to_num(uniform).mean(0), lifts


def blocks(captured: CellAttention, row: int) -> list[Block]:
    """The row's visible tokens in blocks of one group, in the order of the text."""
    shares, uniform, _ = token_lifts(captured, row)
    end = captured.rows[row].position + 1
    groups = [captured.regions[i].group for i in captured.key_region[:end]]
    names = [
        (group, -1 if group == "bar" else int(i))
        for group, i in zip(groups, captured.key_region[:end], strict=True)
    ]
    edges = [0, *[i for i in range(1, end) if names[i] != names[i - 1]], end]
    found = []
    for start, stop in pairwise(edges):
        share, even = float(shares[start:stop].sum()), float(uniform[start:stop].sum())
        tokens = tuple(_tokens(captured, shares, uniform, (start, stop)))
        name = (
            "placebo"
            if groups[start] == "bar" and captured.cell.bar == "placebo"
            else group_label(groups[start])
        )
        found.append(Block(groups[start], name, tokens, share, share / even if even else float("nan")))
    return found


def _tokens(
    captured: CellAttention, shares: Floats, uniform: Floats, part: tuple[int, int]
) -> Iterator[Token]:
    start = part[0]
    while start < part[1]:
        stop = start + 1
        while stop < part[1] and not captured.tokens[stop]:
            stop += 1
        even = float(uniform[start:stop].sum())
        lift = float(shares[start:stop].sum()) / even if even else float("nan")
        region = captured.regions[captured.key_region[start]]
        text = captured.tokens[start]
        yield Token(readable(text), lift, region.group, "\n" in text, line=region.line)
        start = stop


def fitted(texts: Sequence[Sequence[Block]], room: float, most: int) -> list[list[Line]]:
    """The texts of the arms wrapped into lines of `room` (units of the type size), at most `most` each.

    All arms are cut alike, so that what they share stands on the same line: first the long blocks, in the end
    the beginning of the text. System prompt and tools are always one line.
    """
    found: list[list[Line]] = []
    for caps in CAPS:
        found = [[line for block in text for line in _lines(_cut(block, caps), room)] for text in texts]
        if max(map(len, found)) <= most:
            return found
    lost = max(map(len, found)) - most + 1
    return [
        [Line("template", heading=f"⋯ the first {lost} lines are left out ⋯"), *lines[lost:]]
        for lines in found
    ]


def _cut(block: Block, caps: tuple[int, int, int]) -> Block:
    """A block's beginning and end, what is between them counted."""
    prose, calls, template = caps
    limit = calls if block.group in CALLS else MOST_KEPT if block.group in KEPT else prose
    if block.group in FLOWING:
        limit = template
    if block.group in ("system", "tools"):
        limit = 0
    if len(block.tokens) <= limit:
        return block
    head = limit // 2
    tail = len(block.tokens) - (limit - head)
    middle = block.tokens[head:tail]
    known = [token.lift for token in middle if np.isfinite(token.lift)]
    count = f"⋯ {len(middle)} tokens ⋯" if limit else f"{len(middle)} token{'s' if len(middle) > 1 else ''}"
    elided = Token(count, float(np.mean(known)) if known else float("nan"), block.group, elided=True)
    return replace(block, tokens=(*block.tokens[:head], elided, *block.tokens[tail:]))


def _lines(block: Block, room: float) -> Iterator[Line]:
    flows = block.group in FLOWING
    heading = "" if flows else f"{block.name} · {100 * block.share:.1f} % · lift {block.lift:.2f}"
    items: list[tuple[float, float, Token]] = []
    x = 0.0
    if heading:
        beside = width(heading) + 0.7
        if len(block.tokens) == 1 and block.tokens[0].elided and beside + width(block.tokens[0].text) <= room:
            wide = width(block.tokens[0].text)
            yield Line(block.group, ((beside, wide, block.tokens[0]),), heading)
            return
        yield Line(block.group, heading=heading)
    for token in block.tokens:
        for part in _pieces(token, room):
            wide = width(part.text)
            if items and x + wide > room:
                yield Line(block.group, tuple(items))
                items, x = [], 0.0
            items.append((x, wide, part))
            x += wide
        if token.breaks and not flows:
            yield Line(block.group, tuple(items))
            items, x = [], 0.0
    if items:
        yield Line(block.group, tuple(items))


def _pieces(token: Token, room: float) -> Iterator[Token]:
    """A token wider than a line in parts that are not."""
    text = token.text
    while width(text) > room:
        size = max(1, int(len(text) * room / width(text)))
        while size > 1 and width(text[:size]) > room:
            size -= 1
        yield Token(text[:size], token.lift, token.group, False, token.elided, token.line)
        text = text[size:]
    yield Token(text, token.lift, token.group, token.breaks, token.elided, token.line)


def bar_tokens(captured: CellAttention, row: int) -> tuple[list[Token], Floats]:
    """(tokens of the bar, (L, tokens) lift of each in each layer): what the row reads where in the bar's text."""
    _, _, lifts = token_lifts(captured, row)
    groups = np.array([region.group == "bar" for region in captured.regions])
    positions = [i for i in np.flatnonzero(groups[captured.key_region]) if i <= captured.rows[row].position]
    whole: list[list[int]] = []
    for i in positions:
        if not captured.tokens[i] and whole and whole[-1][-1] == i - 1:
            whole[-1].append(int(i))
        else:
            whole.append([int(i)])
    found = []
    for parts in whole:
        region = captured.regions[captured.key_region[parts[0]]]
        text = captured.tokens[parts[0]]
        found.append(Token(readable(text, space=True), float("nan"), "bar", "\n" in text, line=region.line))
    columns = [_known_mean(lifts[:, parts]) for parts in whole]
    return found, np.stack(columns, axis=1) if columns else np.zeros((len(captured.layers), 0))


def _known_mean(values: Floats) -> Floats:
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0).sum(1) / np.where(known.any(1), known.sum(1), np.nan))
