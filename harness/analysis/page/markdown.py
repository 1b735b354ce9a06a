"""report.md: the report without its browser of cells, for a terminal, a repository or a wiki.

Knows Markdown. Whatever a scenario, a model or a configuration named is escaped: it can neither become an element nor
a link, and a line of it stays one line.
"""

import re

from harness.analysis.html import visible
from harness.analysis.page.content import Block, Content
from harness.analysis.page.lines import Line, answers
from harness.analysis.table import UNKNOWN, markdown_grid

_LINKS = re.compile(r"(?<=\])(?=[(\[:])")


def escaped(text: str) -> str:
    """Text as Markdown that shows it as it is: no element, link, emphasis, code or second line."""
    plain = visible(" ".join(text.split()) if "\n" in text else text)
    plain = plain.replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _LINKS.sub(r"\\", re.sub(r"([`*_~$])", r"\\\1", plain))


def markdown(content: Content) -> str:
    """The whole file."""
    parts = [f"# {escaped(content.title)}", f"{escaped(content.basis)} Run {escaped(content.run_id)}."]
    parts += ["## In short", *_short(content), "## Verdicts", *_verdicts(content.lines)]
    parts += ["## Threats to validity", *_threats(content), "## Figures"]
    for picture in content.pictures:
        text = f"{picture.title}. {picture.text} {content.below}"
        parts += [f"![{escaped(picture.title)}](figures/{picture.path.name})", escaped(text)]
    if not content.pictures:
        parts.append("Nothing to draw.")
    parts += ["## Tables", *(part for block in content.blocks for part in _block(block))]
    parts += ["## What made this run", *_manifest(content)]
    parts.append("The cells themselves are in report.html, and all of them in `tailgauge view`.")
    return "\n\n".join(parts) + "\n"


def _short(content: Content) -> list[str]:
    told = [
        f"- **{escaped(line.verdict)}** {line.sign} {escaped(answer)} ({_numbers(line)})"
        for line, answer in answers(content.lines)
    ]
    return ["\n".join([*told, *(f"- {escaped(sentence)}" for sentence in content.sentences)])]


def _numbers(line: Line) -> str:
    margin = f", margin {line.margin}" if line.margin != UNKNOWN else ""
    holm = " after Holm" if line.holm else ""
    return f"{line.estimate} {escaped(line.unit)}, p {escaped(line.p)}{holm}, {line.n} episodes{margin}"


def _verdicts(lines: list[Line]) -> list[str]:
    if not lines:
        return ["No two conditions were measured at the same decision points."]
    return [
        "Paired differences at the same decision points, 95 % intervals and sign-flip permutation tests with the episode "
        "as the unit. Confirmatory comparisons were fixed before the run and their p is corrected after Holm; all others "
        "are exploratory and are not corrected.",
        "### Confirmatory", _lines([line for line in lines if line.confirmatory]),
        "### Exploratory", _lines([line for line in lines if not line.confirmatory]),
    ]  # fmt: skip


def _lines(lines: list[Line]) -> str:
    if not lines:
        return "None."
    headers = [
        "about",
        "compared",
        "verdict",
        "difference",
        "margin",
        "p",
        "n",
        "more episodes",
        "worst case",
        "note",
    ]
    body = [
        [
            f"{line.question} ({line.probe})", f"{line.condition} − {line.against}", f"{line.sign} {line.verdict}",
            f"{line.estimate} {line.unit}", line.margin, line.p, line.n, line.more, line.worst, line.note,
        ]
        for line in lines
    ]  # fmt: skip
    kept = [i for i in range(len(headers)) if i < 7 or any(row[i] for row in body)]
    return _grid([headers[i] for i in kept], [[row[i] for i in kept] for row in body])


def _grid(headers: list[str], body: list[list[str]]) -> str:
    return markdown_grid(
        [escaped(text) for text in headers], [[escaped(cell) for cell in row] for row in body]
    )


def _threats(content: Content) -> list[str]:
    found = [
        f"- **{escaped(threat.title)}**{' (can change the headline)' if threat.grave else ''}: {escaped(threat.text)}"
        for threat in content.audit.threats
    ]
    told = ["\n".join(found)] if found else ["None was found."]
    if content.audit.clear:
        told.append(f"Looked for and not found: {'; '.join(content.audit.clear)}.")
    return told


def _block(block: Block) -> list[str]:
    parts = [f"### {escaped(block.title)}", block.how_to_read]  # ours, with its code spans
    parts.append(
        _grid(block.headers, block.body) if block.body else f"Not measured (n = 0): {escaped(block.absent)}"
    )
    if block.lost:
        parts.append(f"Unknown in every row: {escaped(', '.join(block.lost))}.")
    return [*parts, *(escaped(note) for note in block.notes)]


def _manifest(content: Content) -> list[str]:
    parts = []
    for group, rows in content.manifest:
        lines = [f"- {escaped(key)}: {escaped(value)}" for key, value in rows]
        parts += [f"### {group}", "\n".join(lines)]
    return parts
