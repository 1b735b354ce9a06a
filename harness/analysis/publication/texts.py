"""The kit's texts: captions and methods as Markdown, LaTeX and JSON, the citation file, the README.

Knows how each is laid out; what they say comes from captions and methods. Everything from a run is escaped.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from harness.analysis.publication.captions import Caption, Item
from harness.analysis.publication.facts import Facts, text_at
from harness.analysis.publication.folder import json_text
from harness.analysis.publication.methods import Paragraph
from harness.analysis.publication.prose import (
    cited,
    escape_latex,
    escape_markdown,
    name,
    to_latex,
    to_markdown,
    to_plain,
    visible,
)
from harness.analysis.publication.references import REFERENCES, SHORT

FILES: Mapping[str, str] = {
    "README.md": "what each file is, and how to use it in LaTeX",
    "captions.md": "captions to read",
    "captions.tex": "a float with caption and label for every figure and measured table",
    "captions.json": "captions with their n, conditions, interval, test and margin as fields",
    "methods.md": "methods paragraphs to read, with their references",
    "methods.tex": r"the same for LaTeX, with \cite",
    "references.bib": "the papers whose methods were used",
    "CITATION.cff": "how to cite this artefact; put its authors in",
    "manifest.json": "runs, their digests, and the SHA-256 of every file here",
}
HELD = 6
"""Floats after which LaTeX sets the pages that it holds."""
FIT = r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{"
PREAMBLE = r"""\documentclass[twocolumn]{article}
\usepackage[margin=18mm]{geometry}
\usepackage{array,booktabs,graphicx}
\begin{document}
\input{methods}
\input{captions}
\bibliographystyle{plain}
\bibliography{references}
\end{document}
"""
AUTHORS = "# Put the authors of this artefact here; everything else was taken from the run.\n"


def written(
    runs: Sequence[Facts], items: Sequence[Item], told: Sequence[Sequence[Paragraph]]
) -> dict[str, str]:
    """Path → text of captions, methods and citation file."""
    return {
        "captions.md": _captions_markdown(items),
        "captions.tex": _captions_latex(items),
        "captions.json": json_text([_captions_json(item) for item in items]),
        "methods.md": _methods_markdown(runs, told),
        "methods.tex": _methods_latex(runs, told),
        "CITATION.cff": _citation(runs),
    }


def label(item: Item) -> str:
    """The LaTeX label of a figure or table, such as `fig:both_sides`."""
    start = "fig" if item.caption.kind == "figure" else "tab"
    return f"{start}:{item.below}{item.caption.key}".replace("/", ":")


def _captions_markdown(items: Sequence[Item]) -> str:
    parts = ["# Captions"]
    for kind, heading in (("figure", "## Figures"), ("table", "## Tables")):
        parts.append(heading)
        for item in (item for item in items if item.caption.kind == kind):
            files = ", ".join(f"`{file}`" for file in item.files)
            said = f"**{to_markdown(item.caption.title, SHORT)}.** {to_markdown(item.caption.text, SHORT)}"
            parts += [f"### {escape_markdown(item.below + item.caption.key)}", said, f"Files: {files}"]
    return "\n\n".join(parts) + "\n"


def _captions_latex(items: Sequence[Item]) -> str:
    floats: list[str] = []
    for item in items:
        if item.caption.kind == "figure":
            floats.append(_figure(item))
        elif item.measured:
            floats += _table(item)
    # LaTeX holds no more than some dozens of floats that have no page yet.
    parts = [float_ + ("\n\\clearpage" if i % HELD == 0 else "") for i, float_ in enumerate(floats, start=1)]
    return (
        "% Floats of all figures and measured tables: \\input this, or copy what you need.\n\n"
        + "\n\n".join(parts)
        + "\n"
    )


def _said(caption: Caption) -> str:
    """Title and text; the title is what a list of figures shows."""
    title = to_latex(caption.title)
    return rf"\caption[{{{title}}}]{{\textbf{{{title}.}} {to_latex(caption.text)}}}"


def _figure(item: Item) -> str:
    """The float. Where there are both widths, a comment names the other one."""
    fitted = r",height=.7\textheight,keepaspectratio"
    widths = [("", r"\columnwidth" + fitted), ("*", r"\textwidth" + fitted)]
    pdfs = [file for file in item.files if file.endswith(".pdf")]  # column, page; or the only one
    star, width = widths[item.wide]
    other = []
    if len(pdfs) > 1:
        star_, width_ = widths[not item.wide]
        other = [rf"% or figure{star_} with \includegraphics[width={width_}]{{{pdfs[not item.wide]}}}"]
    graphic = rf"\includegraphics[width={width}]{{{pdfs[item.wide and len(pdfs) > 1]}}}"
    lines = [rf"\begin{{figure{star}}}[tp]", r"\centering", graphic, *other, _said(item.caption)]
    return "\n".join([*lines, rf"\label{{{label(item)}}}", rf"\end{{figure{star}}}"])


def _table(item: Item) -> list[str]:
    """One float per tabular; those that go on have the title alone."""
    floats = []
    for i, file in enumerate(file for file in item.files if file.endswith(".tex")):
        title = to_latex(item.caption.title)
        again = rf"\addtocounter{{table}}{{-1}}\caption[]{{\textbf{{{title}}} (continued).}}"
        said = again if i else _said(item.caption)
        mark = "" if i else f"\n\\label{{{label(item)}}}"
        start = "\\begin{table*}[tp]\n\\centering\n\\footnotesize\n\\setlength{\\tabcolsep}{3pt}\n"
        floats.append(f"{start}{said}{mark}\n{FIT}\\input{{{file}}}}}\n\\end{{table*}}")
    return floats


def _captions_json(item: Item) -> dict[str, Any]:
    caption = item.caption
    return {
        "kind": caption.kind, "key": item.below + caption.key, "label": label(item), "files": list(item.files),
        "run_id": visible(caption.run_id), "model": visible(caption.model), "complete": caption.complete,
        "measured": item.measured, "title": to_plain(caption.title, SHORT), "text": to_plain(caption.text, SHORT),
        "n": [
            {"probe": part.probe, "series": part.series, "cells": part.cells, "excluded": part.excluded,
             "clusters": part.clusters}
            for part in caption.parts
        ],
        "conditions": [visible(condition) for condition in caption.conditions],
        "interval": to_plain(caption.method.interval, SHORT), "test": to_plain(caption.method.test, SHORT),
        "margin": to_plain(caption.margin, SHORT), "cites": cited(caption.whole),
    }  # fmt: skip


def _title(facts: Facts) -> str:
    experiment = text_at(facts.manifest, "experiment") or "run"
    return f"{name(experiment)} on {name(facts.model)}"


def _methods_markdown(runs: Sequence[Facts], told: Sequence[Sequence[Paragraph]]) -> str:
    parts = ["# Methods"]
    for facts, paragraphs in zip(runs, told, strict=True):
        parts.append(f"## {to_markdown(_title(facts), SHORT)}")
        parts += [f"**{heading}.** {to_markdown(text, SHORT)}" for heading, text in paragraphs]
    keys = sorted({key for paragraphs in told for _, text in paragraphs for key in cited(text)})
    parts.append("## References")
    parts.append("\n".join(f"- {escape_markdown(_reference(key))}" for key in keys))
    return "\n\n".join(parts) + "\n"


def _reference(key: str) -> str:
    """A reference on one line, without LaTeX's braces."""
    fields = REFERENCES[key].fields
    place = " ".join(
        fields[part] for part in ("journal", "booktitle", "publisher", "volume", "pages") if part in fields
    )
    authors = fields["author"].replace(" and ", "; ")
    text = f"{authors} ({fields['year']}). {fields['title']}. {place}."
    text = text.replace("--", "–").replace("$d'$", "d′").replace("{\\'e}", "é")
    return text.replace("{", "").replace("}", "").replace("\\&", "&")


def _methods_latex(runs: Sequence[Facts], told: Sequence[Sequence[Paragraph]]) -> str:
    parts = ["% Needs references.bib."]
    for facts, paragraphs in zip(runs, told, strict=True):
        parts.append(rf"\subsection*{{\raggedright Methods: {to_latex(_title(facts))}}}")
        parts += [rf"\paragraph{{{escape_latex(heading)}.}} {to_latex(text)}" for heading, text in paragraphs]
    return "\n\n".join(parts) + "\n"


def _citation(runs: Sequence[Facts]) -> str:
    """Citation File Format 1.2.0. It asks for authors, whom no run knows."""
    title = "Status-bar ablation: " + "; ".join(to_plain(_title(facts), SHORT) for facts in runs)
    software: dict[str, Any] = {
        "type": "software", "title": "Tailgauge", "authors": [{"name": "The Tailgauge authors"}],
    }  # fmt: skip
    versions = {text_at(facts.manifest, "harness") for facts in runs}
    if len(versions) == 1 and (version := next(iter(versions))):
        software["version"] = version
    content = {
        "cff-version": "1.2.0",
        "message": "If you use these figures, tables or numbers, please cite this artefact and what references.bib lists.",
        "title": visible(title), "type": "dataset", "authors": [{"name": "Unknown authors"}],
        "keywords": ["language models", "agents", "status bar", "ablation"],
        "identifiers": [
            {"type": "other", "value": visible(facts.run_id), "description": "id of a published run"} for facts in runs
        ],
        "references": [software],
    }  # fmt: skip
    return AUTHORS + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)


def readme(runs: Sequence[Facts], items: Sequence[Item]) -> str:
    """README.md: the runs, every file, and how the LaTeX parts go together."""
    runs_said = [
        f"- {to_markdown(facts.warning(), SHORT)}{to_markdown(_title(facts), SHORT)}, run "
        f"{to_markdown(name(facts.run_id), SHORT)}, {len(facts.run.cells):,} cells"
        for facts in runs
    ]
    files = [f"| `{file}` | {escape_markdown(what)} |" for file, what in FILES.items()]
    shown = [
        f"| {', '.join(f'`{file}`' for file in item.files)} | {to_markdown(item.caption.title, SHORT)}"
        f"{'' if item.measured else ' (not measured)'} |"
        for item in items
    ]  # fmt: skip
    return "\n\n".join([
        "# Publication kit", "Made by `tailgauge publish` from:", "\n".join(runs_said),
        "\n".join(["| file | what it is |", "| --- | --- |", *files, *shown]),
        "Figures of a run are 89 mm (`_column`) and 183 mm (`_page`) wide, as PDF, SVG and PNG of 300 dpi; those of a "
        "capture have the one width that they are laid out for. A table of many rows goes on in `_2.tex`. The same runs "
        "give the same bytes.",
        "In LaTeX, with this folder as the working folder:", f"```latex\n{PREAMBLE}```",
    ]) + "\n"  # fmt: skip
