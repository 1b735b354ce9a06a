"""`experiment=small_vs_frontier`: a run for each model that is to be had, the others skipped by name, one comparison."""

import csv
from pathlib import Path

import core_cli as cli
import pytest
from api_runs import KEY, VARIABLE, says, serve

from harness.commands.run import execute_each
from harness.commands.several import absent, execute_several
from harness.compose import compose
from harness.errors import ConfigError
from harness.runlog import read_manifest

MODEL = """_target_: {target}
name: {name}
path: {path}
thinking: "off"
decoding: {{source: stated, temperature: 0.0}}
price: {{currency: USD, input_per_million: {price}, output_per_million: {price}}}
"""
LOCAL = "harness.models.hf.TransformersModel"
API = "harness.models.api.engine.ApiModel"


@pytest.fixture
def place(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder whose conf/model has a small model, one behind an API, and two that cannot be had."""
    folder = tmp_path / "conf" / "model"
    folder.mkdir(parents=True)

    def write(
        name: str, target: str = LOCAL, path: Path = tiny_model, price: int = 1, more: str = ""
    ) -> None:
        text = MODEL.format(target=target, name=name, path=path, price=price)
        (folder / f"{name}.yaml").write_text(text + more)

    write("small")
    write("gone", path=tmp_path / "no-weights")
    api = "api: {{provider: anthropic, model: m, address: '{}', api_key_env: {}}}\n"
    write("keyless", API, more=api.format("http://127.0.0.1:9", "NO_SUCH_KEY"))
    write("twin", LOCAL)
    (folder / "twin.yaml").write_text(MODEL.format(target=LOCAL, name="small", path=tiny_model, price=1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, KEY)
    return tmp_path


def with_large(place: Path, address: str) -> None:
    """A large model behind an API at that address, ten times as dear."""
    text = MODEL.format(target=API, name="large", path="{path}", price=10)
    small = (place / "conf" / "model" / "small.yaml").read_text()
    path = next(line for line in small.splitlines() if line.startswith("path:"))
    text = text.replace("path: {path}", path)
    api = f"api: {{provider: anthropic, model: m, address: '{address}', api_key_env: {VARIABLE}}}\n"
    (place / "conf" / "model" / "large.yaml").write_text(text + api)


BASE = ("experiment=small_vs_frontier", "probe.act.series.matched.clusters=2", "probe.act.max_new_tokens=8")


def test_models_without_weights_or_key_are_skipped_by_name(place: Path) -> None:
    assert absent(compose([*BASE, "model=small", "models=null"])) is None
    assert "no-weights" in (absent(compose([*BASE, "model=gone", "models=null"])) or "")
    assert "NO_SUCH_KEY" in (absent(compose([*BASE, "model=keyless", "models=null"])) or "")


def test_nothing_is_run_where_one_side_is_missing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [*BASE, "models.small=[small]", "models.large=[gone,keyless]"]
    with pytest.raises(ConfigError, match=r"models\.large: none of its models is to be had"):
        execute_several(given, compose(given), execute_each)
    told = " ".join(capsys.readouterr().err.split())
    assert "gone is skipped" in told and "keyless is skipped" in told
    assert not (place / "results").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["models.small=[small]", "models.large=[twin]"], "small and twin are both called small"),
        (["models.small=[small]", "models.large=[gone]", "model=small"], "this experiment has several"),
        (["models.small=[]"], r"models\.small"),
        (["models.small=[no-such]"], "no-such"),
    ],
)
def test_a_mistake_in_the_list_is_told_before_anything_runs(place: Path, more: list[str], said: str) -> None:
    given = [*BASE, *more]
    with pytest.raises(ConfigError, match=said):
        execute_several(given, compose(given), execute_each)
    assert not (place / "results").exists()


@pytest.mark.slow
def test_the_experiment_ends_with_table_and_figure_and_goes_on_where_it_was(place: Path) -> None:
    given = (
        "run", *BASE, "models.small=[small,gone]", "models.large=[large,keyless]",
        "latency.samples=2", "latency.warmups=0",
    )  # fmt: skip
    with serve("anthropic", reply=says, delay=0.02) as server:
        with_large(place, server.address)
        ended = cli.done(*given, cwd=place, env={VARIABLE: KEY})
        asked = len(server.seen)
        again = cli.done(*given, cwd=place, env={VARIABLE: KEY})
        assert len(server.seen) == asked  # finished runs cost nothing more
    told = " ".join(ended.stderr.split())
    assert "gone is skipped" in told and "keyless is skipped: no key for anthropic" in told
    folder = cli.printed_folder(ended, place)
    assert (
        folder == cli.printed_folder(again, place) == place / "results" / "small_vs_frontier" / "comparison"
    )
    rows = list(csv.DictReader((folder / "corners.csv").open()))
    measures = {row["measure"] for row in rows}
    assert {"compliance", "total", "cost"} <= measures
    assert (folder / "figures" / "pareto.svg").exists() and (folder / "tables.md").exists()
    runs = [read_manifest(path.parent) for path in (place / "results").rglob("manifest.json")]
    assert sorted((m["model"]["name"], m["measure"]) for m in runs) == [
        ("large", "latency"), ("large", "throughput"), ("small", "latency"), ("small", "throughput"),
    ]  # fmt: skip
