"""Is a Hugging Face folder whole? Its `source.json`, sizes, hashes and safetensors headers.

Knows which files decide what a model does. Does not know where they came from, loads no weights and imports
neither torch nor transformers.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from harness import fetch
from harness.errors import WeightsError
from harness.fetch import Progress

SOURCE_FILE = "source.json"
"""Written into a converted folder last: the GGUF's hash, the origin, and every file's size and hash."""


def verify(path: Path, progress: Progress | None = None) -> None:
    """Hash every file of a converted folder against its `source.json` (seconds per gigabyte).

    Raises:
        WeightsError: a file is missing or differs; the line names the first such file.
    """
    for name, entry in read_source(path)["files"].items():
        file = path / name
        if not file.is_file():
            raise WeightsError(
                f"{file}: missing; remove {path} and run the same command again to make it anew"
            )
        got = fetch.file_sha256(file, progress)
        if got != entry["sha256"]:
            raise WeightsError(
                f"{file}: damaged: expected SHA-256 {entry['sha256']}, got {got}; remove {path} and run the "
                "same command again to make it anew"
            )


def weights_digest(path: Path, progress: Progress | None = None) -> str:
    """SHA-256 that names the weights in `path`: the GGUF's, else one over the files that decide behaviour."""
    if (path / SOURCE_FILE).is_file():
        return str(read_source(path)["gguf_sha256"])
    digest = sha256()
    for file in _weight_files(path):
        digest.update(f"{file.name}\0{fetch.file_sha256(file, progress)}\n".encode())
    return digest.hexdigest()


def file_entry(file: Path) -> dict[str, Any]:
    """Size, time stamp and SHA-256 of a file, as `source.json` keeps them."""
    stat = file.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": fetch.file_sha256(file)}


def read_source(folder: Path) -> dict[str, Any]:
    """The `source.json` of a converted folder; WeightsError where it is missing or incomplete."""
    file = folder / SOURCE_FILE
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if {"gguf_sha256", "origin", "files"} <= found.keys():
            return dict(found)
    except (OSError, ValueError, AttributeError) as error:
        raise WeightsError(
            f"{file}: not readable ({fetch.first_line(error)}); remove {folder} to make it anew"
        ) from error
    raise WeightsError(f"{file}: lacks gguf_sha256, origin or files; remove {folder} to make it anew")


def converted_problem(folder: Path) -> str | None:
    """What is wrong with a converted folder, in one clause, or None. Costs no more than a `stat` per file.

    A file whose time stamp moved is hashed: an edit in place keeps the size.
    """
    if not folder.is_dir():
        return f"{folder}: not there"
    try:
        files = read_source(folder)["files"]
    except WeightsError as error:
        return str(error)
    for name, entry in files.items():
        file = folder / name
        if not file.is_file():
            return f"{file}: missing"
        stat = file.stat()
        if stat.st_size != entry["size"]:
            return f"{file}: {stat.st_size:,} bytes, expected {entry['size']:,}"
        if stat.st_mtime_ns != entry["mtime_ns"] and fetch.file_sha256(file) != entry["sha256"]:
            return f"{file}: its SHA-256 is not {entry['sha256']}"
    return None


def _weight_files(folder: Path) -> list[Path]:
    patterns = (
        "*.safetensors",
        "*.safetensors.index.json",
        "config.json",
        "tokenizer*",
        "*.jinja",
        "vocab.json",
        "merges.txt",
    )
    return sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})


def folder_problem(folder: Path) -> str | None:
    """What keeps a local or hub folder from being loaded, in one line, or None."""
    if not folder.is_dir():
        return f"{folder}: no such folder; expected a Hugging Face model folder"
    if not (folder / "config.json").is_file():
        return f"{folder}: no config.json; expected a Hugging Face model folder"
    if not any(folder.glob("tokenizer*")):
        return f"{folder}: no tokenizer.json or tokenizer_config.json"
    weights = {file.name for file in folder.glob("*.safetensors")}
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError, TypeError):
            return f"{index}: not a safetensors index (no weight_map)"
        if missing := sorted(shards - weights):
            return f"{folder / missing[0]}: missing; {index.name} names it"
    if not weights:
        return f"{folder}: no *.safetensors; weights in other formats are not loaded (pickles can run code)"
    return next(
        (problem for name in sorted(weights) if (problem := _safetensors_problem(folder / name))), None
    )


def _safetensors_problem(file: Path) -> str | None:
    """Compare a safetensors file's length with what its own header promises (8 bytes, header, data)."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > size - 8:
            return f"{file}: damaged: its header is longer than the file"
        try:
            header = json.loads(stream.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return f"{file}: damaged: its header cannot be read"
    expected = 8 + length + max(ends, default=0)
    return None if size == expected else f"{file}: damaged: {size:,} bytes, its header promises {expected:,}"
