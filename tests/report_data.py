"""What the tests of the report's files share: a small run, its report, and the cells that a page carries."""

import base64
import json
import re
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from big_run import Plan

from harness.analysis.frames import load
from harness.analysis.page.build import write_report
from harness.analysis.table import Table
from harness.analysis.tables import build_tables

SMALL = Plan(matched=10, prior_calls=2, filler=2, asked=3)


@cache
def tables_of(folder: Path) -> dict[str, Table]:
    """The tables, built once for each folder: they are not what is tested here."""
    return build_tables(load(folder))


def report(folder: Path) -> Path:
    """report.html of a run folder, without figures (others test those)."""
    return write_report(load(folder), tables_of(folder), [])[0]


def packed(page: Path) -> dict[str, Any]:
    """The cells that a page carries."""
    (data,) = re.findall(r'id="cells-data">(.*?)</script>', page.read_text(encoding="utf-8"))
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(data)))
    return found
