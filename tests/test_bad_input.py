"""What a user gets wrong ends in one line and exit code 2, and nothing that was finished is lost."""

import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import core_cli as cli
import pytest

Edit = Callable[[str], str]


def _bomb(text: str) -> str:
    levels = "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]\n" for i in range(1, 9))
    return f"x0: &x0 [lol, lol]\n{levels}{text}"


SCENARIOS: dict[str, tuple[Edit, tuple[str, ...]]] = {
    "unknown tool in a rule": (lambda t: t.replace("{tool: phone_call", "{tool: fax"), ("rules[0].tool", "'fax'")),
    "limit of zero": (lambda t: t.replace("at_most: 3", "at_most: 0"), ("rules[0].at_most", "0")),
    "a template that loops": (
        lambda t: t.replace('"{{ purpose }}"', '"{% for a in purpose %}{{ a }}{% endfor %}"'),
        ("episode.call.purpose", "loop"),
    ),
    "YAML bomb": (_bomb, ("aliases expand",)),
    "duplicate key": (lambda t: t + "\nname: again\n", ("'name'", "twice")),
    "merchant that is a path": (lambda t: t.replace("- Altavia Mobile", "- ../../x"), ("pools.merchants[2]", "../../x")),
    "unknown key": (lambda t: t + "\nrulez: []\n", ("rulez",)),
}  # fmt: skip


@pytest.mark.parametrize("verb", ["run", "preview"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_bad_scenario_costs_one_line_that_names_file_key_and_reason(
    name: str, verb: str, tmp_path: Path
) -> None:
    edit, wanted = SCENARIOS[name]
    file = cli.scenario_copy(tmp_path)
    text = file.read_text(encoding="utf-8")
    assert edit(text) != text
    file.write_text(edit(text), encoding="utf-8")
    ended = cli.call(
        verb,
        "model=qwen2.5-coder-0.5b",
        cwd=tmp_path,
        env={"TAILGAUGE_CACHE": str(tmp_path / "no")},
    )
    # A preview may say first that it has no tokenizer.
    line = cli.alone(ended) if verb == "run" else cli.refusal(ended)
    assert "xfinity.yaml" in line
    for part in wanted:
        assert part in line, line
    assert cli.entries(tmp_path) == {"scenarios", "scenarios/xfinity.yaml"}


CONFIGURATIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "unknown key": (("sede=3",), ("sede", "unknown key")),
    "unknown nested key": (("model.temprature=1",), ("model.temprature", "unknown key")),
    "unknown choice": (("model=gpt9",), ("gpt9",)),
    "unknown condition": (("condition=[control,agentstatus]",), ("agentstatus",)),
    "wrong type": (("seed=abc",), ("seed", "'abc'")),
    "out of range": (("model.pack_tokens=1",), ("model.pack_tokens", "16")),
    "not an override": (("model=[a",), ("[a",)),
    "no override at all": (("seed",), ("seed",)),
    "no weights": (("model=local",), ("model.path",)),
    "greedy epochs": (("epochs=2",), ("epochs",)),
    "choose on a thinking model": (("model.thinking=native",), ("model.thinking", "choose")),
    "no control": (("condition=[agent_status]",), ("control",)),
    "latency without act": (("measure=latency", "probe=[choose]"), ("measure=latency", "act")),
    "no such scenario": (("scenario.file=nope",), ("nope", "xfinity")),
    "a name that leaves the results folder": (("model.name=../../x",), ("../../x",)),
    "a filler series without counts": (("probe.choose.series.filler.clusters=1",), ("filler_tokens",)),
    "no such model folder": (("model=local", "model.path=/nowhere/at/all"), ("/nowhere/at/all",)),
    "no such embedded model": (("model=local", "model.embedded=nope"), ("nope", "qwen2.5-coder-0.5b")),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_bad_configuration_costs_one_line_that_names_the_key(name: str, tmp_path: Path) -> None:
    overrides, wanted = CONFIGURATIONS[name]
    line = cli.alone(cli.call("run", *overrides, cwd=tmp_path))
    for part in wanted:
        assert part in line, line
    assert not cli.entries(tmp_path)


@pytest.mark.parametrize("verb", ["report", "score"])
@pytest.mark.parametrize("there", ["nothing", "empty folder", "file"])
def test_a_verb_on_no_run_folder_says_what_it_expected(verb: str, there: str, tmp_path: Path) -> None:
    named = tmp_path / "run"
    if there == "empty folder":
        named.mkdir()
    elif there == "file":
        named.write_text("not a run")
    before = cli.entries(tmp_path)
    line = cli.alone(cli.call(verb, str(named), cwd=tmp_path))
    assert str(named) in line and "folder" in line
    assert cli.entries(tmp_path) == before


@pytest.fixture
def damaged(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model's folder to be damaged."""
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def _truncate(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def _garble_header(folder: Path) -> None:
    _poke(folder, 20, b"\xff\x00\xff\x00")


def _other_type(folder: Path) -> None:
    _poke(folder, (folder / "model.safetensors").read_bytes().index(b'"BF16"'), b'"BG16"')


def _other_shape(folder: Path) -> None:
    file = folder / "model.safetensors"
    data = file.read_bytes()
    at = data.index(b'"shape":[128,128]')
    _poke(folder, at, b'"shape":[128,127]')


def _poke(folder: Path, at: int, data: bytes) -> None:
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(at)
        file.write(data)


def _no_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


def _broken_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": ')


def _looping_template(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{% for i in range(10**9) %}x{% endfor %}")


DAMAGES = (
    _truncate, _garble_header, _other_type, _other_shape, _no_tokenizer, _broken_tokenizer, _looping_template,
)  # fmt: skip


@pytest.mark.weights
@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.strip("_"))
def test_a_damaged_model_folder_costs_one_line_that_names_it(
    damage: Callable[[Path], None], damaged: Path, tmp_path: Path
) -> None:
    damage(damaged)
    overrides = ("model=local", f"model.path={damaged}", *cli.LEAST)
    line = cli.refusal(cli.call("run", *overrides, cwd=tmp_path))
    assert str(damaged) in line or "template" in line, line
    assert len(line) < 600, "one line that can be read"
    # A run folder may be there, but without a row, so that the mended command starts where this one ended.
    assert not [log for log in tmp_path.glob("results/*/*/samples.jsonl") if log.read_bytes()]
    assert not list(tmp_path.glob("results/*/*/.*"))


@dataclass(frozen=True)
class SmallDisk:
    """A place that takes about 300 KB of a file: a disk of that size, or a limit on file sizes."""

    path: Path
    mounted: bool

    def options(self) -> dict[str, Any]:
        return {} if self.mounted else {"preexec_fn": lambda: _limit(300_000)}

    def grow(self) -> None:
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,size=50m", str(self.path)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A mounted file system where that is permitted, else the limit."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)]
    mounted = bool(shutil.which("mount")) and not subprocess.run(command, capture_output=True).returncode
    yield SmallDisk(disk, mounted)
    if mounted:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.weights
@pytest.mark.slow
def test_a_full_disk_keeps_what_was_finished_and_room_lets_it_finish(
    tiny_model: Path, tiny_run: Path, small_disk: SmallDisk, tmp_path: Path
) -> None:
    overrides = (*cli.TINY, f"model.path={tiny_model}", f"results={small_disk.path}")
    line = cli.refusal(cli.call("run", *overrides, cwd=tmp_path, **small_disk.options()))
    assert ("the disk is full" if small_disk.mounted else "limit") in line
    assert "samples.jsonl" in line and "same command" in line
    (log,) = small_disk.path.glob("*/*/samples.jsonl")
    kept = log.read_bytes()
    assert kept.endswith(b"\n") and 0 < len(cli.rows(log)) < len(cli.rows(tiny_run / "samples.jsonl"))
    small_disk.grow()
    run_dir = cli.run(*overrides, cwd=tmp_path)
    assert log.read_bytes().startswith(kept), "finished rows are kept as they were"
    assert cli.lasting(run_dir) == cli.lasting(tiny_run)


@pytest.mark.weights
@pytest.mark.slow
@pytest.mark.parametrize("verb", ["report", "run"])
def test_no_room_for_tables_and_figures_costs_one_line_and_no_record(
    verb: str, tiny_model: Path, tiny_run: Path, tmp_path: Path
) -> None:
    (folder := tmp_path / "results" / "xfinity_small").mkdir(parents=True)
    run_dir = cli.copy_of(tiny_run, folder)
    for name in ("tables", "figures"):
        shutil.rmtree(run_dir / name)
    before = cli.files(run_dir, "samples.parquet", "samples.jsonl")
    # Room for the parquet files, not for the largest figure.
    room = len(before["samples.parquet"]) + 1000
    assert room < max(file.stat().st_size for file in (tiny_run / "figures").iterdir())
    arguments = ("run", *cli.TINY, f"model.path={tiny_model}") if verb == "run" else (verb, str(run_dir))
    line = cli.refusal(cli.call(*arguments, cwd=tmp_path, preexec_fn=lambda: _limit(room)))
    assert "tables" in line and "record" in line
    assert cli.files(run_dir, "samples.parquet", "samples.jsonl") == before
    if verb == "report":
        cli.done("report", str(run_dir), cwd=tmp_path)
        assert cli.lasting(run_dir) == cli.lasting(tiny_run)


def _limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.weights
@pytest.mark.slow
@pytest.mark.parametrize("file", ["samples.parquet", "manifest.json"])
def test_a_damaged_run_folder_costs_one_line(file: str, tiny_run: Path, tmp_path: Path) -> None:
    run_dir = cli.copy_of(tiny_run, tmp_path)
    data = (run_dir / file).read_bytes()
    (run_dir / file).write_bytes(data[: len(data) // 2])
    assert file in cli.alone(cli.call("report", str(run_dir), cwd=tmp_path))
