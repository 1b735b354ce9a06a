"""A file → JSON values, with limits and one clear line for every file that is not what it should be.

Knows JSON and JSON Lines; knows no trajectory.
"""

import json
from pathlib import Path
from typing import Any

from harness.dialects import TraceError
from harness.dialects.fields import clean

MAX_BYTES = 64 * 1024 * 1024
EXPECTED = (
    "expected OpenAI or Anthropic messages (a list of them, or an object with `messages` or `traj`, or a list or "
    "JSON Lines of such objects) or a SWE-agent .traj"
)


def read_values(path: Path) -> list[Any] | dict[str, Any]:
    """The JSON value of a file, or of a file of JSON Lines the list of its values.

    Numbers that JSON has not (NaN, Infinity) become None, lone surrogates U+FFFD. Raises TraceError for a file that
    cannot be read, has more than 64 MiB, is not UTF-8, is cut off, is no JSON, or is nested beyond measure.
    """
    text = _text(path)
    if not text.strip():
        raise TraceError(f"{path}: is empty; {EXPECTED}")
    try:
        value = _parse(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            value = _lines(path, text)
        else:
            raise TraceError(f"{path}: {_complaint(error, text, first_line=1)}") from error
    except _UnreadableError as error:
        raise TraceError(f"{path}: {error}") from error
    if not isinstance(value, list | dict):
        raise TraceError(f"{path}: holds one {type(value).__name__}; {EXPECTED}")
    cleaned: list[Any] | dict[str, Any] = clean(value, f"{path}: the whole")
    return cleaned


class _UnreadableError(Exception):
    """JSON that is no mistake of syntax and still cannot be taken."""


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise TraceError(f"{path}: there is no such file")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise TraceError(
                f"{path}: has {size / 1024**2:.0f} MiB, more than {MAX_BYTES // 1024**2}; split it into smaller files"
            )
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: is not UTF-8 text (byte {error.start}); {EXPECTED}") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error


def _parse(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except json.JSONDecodeError:
        raise
    except RecursionError as error:
        raise _UnreadableError("is nested too deeply to be read, which no trajectory is") from error
    except ValueError as error:  # a number of thousands of digits
        raise _UnreadableError(f"cannot be read as JSON: {error}") from error


def _lines(path: Path, text: str) -> list[Any]:
    """One value a line. The line break alone parts them: other separators may stand inside a text."""
    values = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values.append(_parse(line))
        except json.JSONDecodeError as error:
            raise TraceError(f"{path}: {_complaint(error, line, first_line=number)}") from error
        except _UnreadableError as error:
            raise TraceError(f"{path}: line {number} {error}") from error
    return values


def _complaint(error: json.JSONDecodeError, text: str, first_line: int) -> str:
    where = f"line {first_line + error.lineno - 1}, column {error.colno}"
    cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
    advice = "; the file seems to be cut off there, fetch it again" if cut else "; the file is no JSON"
    return f"{where}: {error.msg}{advice}"
