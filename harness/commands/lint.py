"""`tailgauge lint BAR`: triage of a bar before it goes into anybody's prompt. Needs no model."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from harness.analysis.html import visible
from harness.commands import console, parts, recordings
from harness.errors import ConfigError
from harness.lint import Case, Finding, lint
from harness.statusbar.recorded import Recorded

_LONGEST = 400
"""Characters of an example line that are shown."""


def main(parsed: argparse.Namespace) -> int:
    """0: clean, or warnings only. 1: errors were found."""
    bar = parts.part("bar", parsed.bar, parsed.options)
    if not isinstance(getattr(bar, "name", None), str) or not callable(getattr(bar, "draw", None)):
        raise ConfigError(f"bar {parsed.bar}: it needs `name: ClassVar[str]` and a method `draw`")
    if _has_own_transcripts(bar):
        raise ConfigError(
            f"bar {parsed.bar}: its texts were written for the transcripts that its file names, and lint draws a bar on its "
            "own; look at it with tailgauge preview"
        )
    named = " ".join([parsed.bar, *parsed.options])
    findings = lint(bar, _recorded(parsed.trace))
    if parsed.json:
        console.out.print_json(json.dumps(as_data(named, findings), ensure_ascii=False))
    else:
        _show(named, findings)
    return 1 if any(finding.severity == "error" for finding in findings) else 0


def _has_own_transcripts(bar: Any) -> bool:
    """Is it, or what it wraps, a bar of texts that were written beforehand?"""
    return bar is not None and (isinstance(bar, Recorded) or _has_own_transcripts(getattr(bar, "of", None)))


def as_data(named: str, findings: tuple[Finding, ...]) -> dict[str, Any]:
    """The findings as plain data, keys in a fixed order."""
    flat = [
        {**asdict(finding.code), **{k: v for k, v in asdict(finding).items() if k != "code"}}
        for finding in findings
    ]
    counted = {kind: sum(finding.severity == kind for finding in findings) for kind in ("error", "warning")}
    return {"bar": named, "errors": counted["error"], "warnings": counted["warning"], "findings": flat}


def _recorded(trace: str | None) -> list[Case]:
    found = recordings.trajectories(trace) if trace is not None else ()
    return [Case(trajectory.id, trajectory.messages, trajectory.tools, ()) for trajectory in found]


def _show(named: str, findings: tuple[Finding, ...]) -> None:
    if not findings:
        console.out.print(f"{named}: nothing found", markup=False)
        return
    table = Table(title=f"lint of {escape(named)}", title_justify="left", show_lines=True)
    table.add_column("finding", ratio=3, overflow="fold")
    table.add_column("seen", ratio=5, overflow="fold")
    table.add_column("what would it decide, and what to do", ratio=4, overflow="fold")
    for finding in findings:
        colour = "red" if finding.severity == "error" else "yellow"
        code = finding.code
        table.add_row(
            f"[bold {colour}]{finding.severity}[/] [bold]{code.name}[/]\n{escape(code.what)}",
            _seen(finding),
            f"[bold]Decision:[/] {escape(code.decision)}\n[bold]Do:[/] {escape(code.remedy)}",
        )
    console.out.print(table)
    errors = sum(finding.severity == "error" for finding in findings)
    console.out.print(
        f"{_number(errors, 'error')}, {_number(len(findings) - errors, 'warning')}", markup=False
    )


def _seen(finding: Finding) -> str:
    lines = [f"[dim]{escape(visible(finding.where))}[/]"]
    if finding.before:
        lines.append(f"[red]- {_line(finding.before)}[/]")
    if finding.after:
        lines.append(f"[green]+ {_line(finding.after)}[/]" if finding.before else f"  {_line(finding.after)}")
    if finding.detail:
        lines.append(escape(visible(finding.detail)))
    if finding.more:
        lines.append(f"[dim]and {_number(finding.more, 'time')} more[/]")
    return "\n".join(lines)


def _line(text: str) -> str:
    return escape(visible(text if len(text) <= _LONGEST else text[:_LONGEST] + "…"))


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
