"""What a tool result says about itself: did the call fail, how, and what does it complain about in which file.

Knows texts alone, and the few forms that tools have in common; nothing here raises.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.state.facts import Completion, Diagnostic, Recalled
from harness.types import Message

_FAILURE = re.compile(
    r"\s*(?:(?P<word>Error|Exception)(?![\w-])|(?P<label>error|ERROR):|(?P<trace>Traceback \(most recent call last\))"
    r"|(?P<name>[A-Za-z_][\w.]{0,80}(?:Error|Exception)):)"
)
_RAISED = re.compile(r"^([A-Za-z_][\w.]{0,100}?)(?::|$)")
_SEVERITIES = "fatal error|error|warning|warn|note|info|information|hint|failure"
_COMPLAINT = re.compile(
    rf"^[ \t]*(?P<file>[^\s:()][^\n:()]{{0,259}}?)"
    rf"(?::(?P<line>\d{{1,7}})(?::(?P<column>\d{{1,7}}))?|\((?P<line2>\d{{1,7}}),(?P<column2>\d{{1,7}})\)):? "
    rf"(?:- )?(?:(?P<severity>(?i:{_SEVERITIES}))(?:\[[\w-]+\])?(?: [A-Z]{{1,5}}\d{{1,5}})?: ?"
    rf"|(?P<code>[A-Z]{{1,5}}\d{{1,5}}) (?:\[\*\] )?)(?P<message>[^\n]+)$",
    re.M,
)
SCANNED = 20_000
"""Characters of a result in which complaints are looked for."""


def failure(message: Message) -> tuple[bool, str]:
    """Did the call fail, and with which kind of error ('' when none is stated)?

    It did when the framework says so (`message.error`), or when the text starts, after whitespace, with `Error`,
    `error:`, `ERROR:`, `Exception`, `Traceback (most recent call last)` or the name of an error with a colon
    (`ValueError:`), or when it is a JSON object whose top-level `error` is neither empty, null, false nor 0.
    """
    if message.error:
        return True, message.error
    text = message.content
    match = _FAILURE.match(text)
    if match:
        if match["trace"]:
            return True, _raised(text) or "Traceback"
        return True, match["word"] or match["name"] or "error"
    if '"error"' in text and text.lstrip()[:1] == "{":
        return _json_error(text)
    return False, ""


def _raised(text: str) -> str:
    """The exception that the last lines of a traceback name."""
    for line in reversed(text[-2000:].splitlines()):
        match = _RAISED.match(line)
        if match:
            return match[1]
    return ""


def _json_error(text: str) -> tuple[bool, str]:
    try:
        error = json.loads(text).get("error")
    except (ValueError, RecursionError):
        return False, ""
    if not error:
        return False, ""
    if isinstance(error, Mapping):
        error = next((error[key] for key in ("type", "code", "name") if error.get(key)), None)
    named = isinstance(error, str) and len(error) <= 80 and " " not in error
    return True, error if named else "error"


def complaints(text: str) -> dict[str, tuple[Diagnostic, ...]]:
    """Lines of compilers and linters by file, in order: `path:line:col: severity: message` (gcc, mypy; the column may
    be missing and is 1 then), `path:line:col: CODE message` (ruff, flake8; an error) and `path(line,col): …` (tsc)."""
    found: dict[str, list[Diagnostic]] = {}
    for match in _COMPLAINT.finditer(text, 0, SCANNED):
        file = match["file"].removeprefix("./")
        if "." not in file and "/" not in file:
            continue
        line, column = match["line"] or match["line2"], match["column"] or match["column2"] or "1"
        severity = (match["severity"] or "error").lower()
        said = f"{match['code']} {match['message']}" if match["code"] else match["message"]
        found.setdefault(file, []).append(
            Diagnostic(file, severity, max(1, int(line)), max(1, int(column)), said.strip())
        )
    return {file: tuple(each) for file, each in found.items()}


def known_complaints(known: Mapping[str, Any]) -> dict[str, tuple[Diagnostic, ...]] | None:
    """The same from what the framework knew; None when it says nothing about diagnostics."""
    if "diagnostics" not in known:
        return None
    found: dict[str, list[Diagnostic]] = {}
    for entry in _entries(known["diagnostics"]):
        file, message = entry.get("file"), entry.get("message")
        if isinstance(file, str) and file and isinstance(message, str):
            severity = entry.get("severity")
            found.setdefault(file, []).append(
                Diagnostic(
                    file,
                    severity if isinstance(severity, str) and severity else "error",
                    _position(entry.get("line")),
                    _position(entry.get("column")),
                    message,
                )
            )
    return {file: tuple(each) for file, each in found.items()}


def recalled(known: Mapping[str, Any]) -> tuple[Recalled, ...]:
    """`recalled` of a user message: [{source, text}]."""
    found = ((e.get("source"), e.get("text")) for e in _entries(known.get("recalled")))
    return tuple(Recalled(s if isinstance(s, str) else "", t) for s, t in found if isinstance(t, str))


def recalled_seconds(known: Mapping[str, Any]) -> float | None:
    """`recalled_seconds` of a user message: how long the memory took; None for what is no such number."""
    value = known.get("recalled_seconds")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def completions(known: Mapping[str, Any]) -> tuple[Completion, ...]:
    """`completions` of any message: [{agent, status, summary}]."""
    entries = [
        [e.get(key) for key in ("agent", "status", "summary")] for e in _entries(known.get("completions"))
    ]
    return tuple(
        Completion(
            agent, status if isinstance(status, str) else "", summary if isinstance(summary, str) else ""
        )
        for agent, status, summary in entries
        if isinstance(agent, str)
    )


def _entries(value: object) -> Iterable[Mapping[str, Any]]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return ()
    return (entry for entry in value if isinstance(entry, Mapping))


def _position(value: object) -> int:
    """Lines and columns count from 1; what is no such number is 1."""
    return max(1, value) if isinstance(value, int) and not isinstance(value, bool) else 1
