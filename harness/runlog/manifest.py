"""manifest.json: what a run was, for people and for resume. Always written whole, secrets masked.

Knows the manifest as plain data and does not know who fills it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import RunLogError
from harness.runlog.codec import canonical_json
from harness.runlog.files import atomic_file
from harness.runlog.redact import redact

NAME = "manifest.json"


def read_manifest(run_dir: Path) -> dict[str, Any]:
    """The manifest of a run; RunLogError when there is none or it is no JSON object."""
    path = Path(run_dir) / NAME
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunLogError(f"{path}: no such file; expected the folder of a run (…/<run_id>)") from None
    except OSError as error:
        raise RunLogError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise RunLogError(f"{path}: not valid JSON ({error}); restore it, or start a new run") from None
    if not isinstance(manifest, dict):
        raise RunLogError(f"{path}: expected a JSON object, found a {type(manifest).__name__}")
    return manifest


def write_manifest(run_dir: Path, manifest: Mapping[str, Any]) -> None:
    """Replaces the manifest atomically; secrets are masked on the way."""
    plain = redact(manifest)
    canonical_json(plain)  # refuses NaN and objects with the key's name
    text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_file(Path(run_dir) / NAME, "the old manifest and all rows are kept") as handle:
        # a lone surrogate (from an undecodable argument) becomes its JSON escape
        handle.write(text.encode("utf-8", "backslashreplace"))


def update_manifest(run_dir: Path, **fields: Any) -> dict[str, Any]:
    """Sets top-level fields of the manifest and returns it; other fields stay as they are."""
    manifest = read_manifest(run_dir) | fields
    write_manifest(run_dir, manifest)
    return manifest
