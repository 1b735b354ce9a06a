"""What is installed is what works: the wheel carries its data, and asking for help loads nothing heavy."""

import importlib.util
import json
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from harness import paths

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "transformers", "pandas", "datasets", "matplotlib", "hydra", "scipy", "statsmodels", "vllm")


def run(*command: str | Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built from the checkout; without a network where hatchling is installed."""
    out = tmp_path_factory.mktemp("wheel")
    flags = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", *flags]
    run(*pip, "-w", out, ROOT, cwd=out)
    (built,) = out.glob("tailgauge-*.whl")
    return built


def test_wheel_carries_every_configuration_and_scenario_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        carried = {n: archive.read(n) for n in archive.namelist()}
    for name in ("conf", "scenarios"):
        files = [f for f in (ROOT / name).rglob("*.yaml") if f.is_file()]
        assert files, f"{name}/ holds no YAML file"
        for file in files:
            inside = f"harness/_packaged/{name}/{file.relative_to(ROOT / name)}"
            assert carried.get(inside) == file.read_bytes(), inside
    assert not [n for n in carried if n.startswith(("tests/", "results/", "benchmarks/"))]


def test_wheel_offers_the_console_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (entry,) = [n for n in archive.namelist() if n.endswith("entry_points.txt")]
        assert "tailgauge = harness.cli:main" in archive.read(entry).decode()


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import json, sys\n"
        "sys.argv = ['tailgauge', '--help']\n"
        "from harness.cli import main\n"
        "try:\n"
        "    code = main()\n"
        "except SystemExit as end:\n"
        "    code = end.code\n"
        "print(json.dumps([code or 0, sorted({name.partition('.')[0] for name in sys.modules})]))\n"
    )
    out = run(sys.executable, "-c", code, cwd=ROOT).stdout.splitlines()
    status, loaded = json.loads(out[-1])
    assert status == 0 and len(out) > 1, "help must say something and succeed"
    assert not set(loaded) & set(HEAVY)


def test_modules_that_say_where_things_lie_import_nothing_heavy() -> None:
    code = "import sys, harness.weights, harness.paths; print(*{n.partition('.')[0] for n in sys.modules})"
    assert not set(run(sys.executable, "-c", code, cwd=ROOT).stdout.split()) & set(HEAVY)


def test_both_ends_of_the_transformers_range_are_the_tested_ones() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (required,) = [r for r in map(Requirement, project["dependencies"]) if r.name == "transformers"]
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    )
    makefile = (ROOT / "Makefile").read_text()
    (oldest,) = [
        line.partition(":=")[2].strip() for line in makefile.splitlines() if line.startswith("OLDEST :=")
    ]
    newest = Version(pinned["transformers"])
    assert {str(s) for s in required.specifier} == {f">={oldest}", f"<{newest.major}.{newest.minor + 1}"}


def test_own_folders_of_the_working_directory_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.search_dirs("scenarios") == [ROOT / "scenarios"]
    (tmp_path / "scenarios").mkdir()
    assert paths.search_dirs("scenarios") == [tmp_path / "scenarios", ROOT / "scenarios"]
    monkeypatch.chdir(ROOT)
    assert paths.search_dirs("scenarios") == [ROOT / "scenarios"]


def test_cache_lies_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAILGAUGE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert paths.cache_dir() == tmp_path / "tailgauge"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert paths.cache_dir() == Path.home() / ".cache" / "tailgauge"
    monkeypatch.setenv("TAILGAUGE_CACHE", "~/elsewhere")
    assert paths.cache_dir() == Path.home() / "elsewhere"


@pytest.mark.slow
@pytest.mark.weights
def test_installed_wheel_previews_in_an_empty_folder(wheel: Path, tmp_path: Path, weights_05b: Path) -> None:
    """A fresh environment that borrows the dependencies of this one, but not this checkout."""
    fresh, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    run(sys.executable, "-m", "venv", "--without-pip", fresh, cwd=tmp_path)
    python = fresh / "bin" / "python"
    install = ["install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "--python", python, *install, wheel, cwd=tmp_path)
    # A folder named in a .pth file is searched, but its own .pth files (an editable install's) are not read.
    site = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=empty).stdout.strip()
    )
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = run(python, "-c", "import harness; print(harness.__file__)", cwd=empty).stdout.strip()
    assert Path(where).is_relative_to(fresh), "the installed package answers, not the checkout"
    out = run(fresh / "bin" / "tailgauge", "preview", cwd=empty).stdout
    assert "agent_status" in out and "placebo" in out
    assert not list(empty.iterdir()), "a preview writes nothing"
