"""The verbs of the console command, driven as a user would; a tiny model stands in for the real one."""

import json
from pathlib import Path

import core_cli as cli
import pytest

pytestmark = [pytest.mark.weights, pytest.mark.slow]
CONDITIONS = ("control", "placebo", "mismatched", "agent_status", "placebo_before", "agent_status_before")


@pytest.fixture
def copy(tiny_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, free to be changed."""
    return cli.copy_of(tiny_run, tmp_path)


def test_score_of_a_finished_run_changes_nothing(copy: Path) -> None:
    before = cli.files(copy, "samples.parquet", "samples.jsonl", "timings.parquet", "tables")
    cli.done("score", str(copy), cwd=copy)
    assert cli.files(copy, "samples.parquet", "samples.jsonl", "timings.parquet", "tables") == before


def test_score_restores_a_score_that_was_edited_by_hand(copy: Path) -> None:
    before = cli.files(copy, "samples.parquet", "samples.jsonl", "tables")
    log = copy / "samples.jsonl"
    lines = log.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if json.loads(line)["probe"] == "act")
    row = json.loads(lines[at])
    row["score"] |= {"outcome": "violation" if row["score"]["outcome"] != "violation" else "compliant"}
    lines[at] = json.dumps(row)
    log.write_text("\n".join(lines) + "\n")
    ended = cli.done("score", str(copy), cwd=copy)
    assert "1 changed" in ended.stderr
    assert cli.files(copy, "samples.parquet", "samples.jsonl", "tables") == before


def test_score_works_on_a_published_folder_without_the_log(copy: Path) -> None:
    (copy / "samples.jsonl").unlink()
    before = cli.files(copy)
    for name in ("manifest.json", "report.html"):  # they say by which code the run was scored
        del before[name]
    cli.done("score", str(copy), cwd=copy)
    assert "scored" in json.loads((copy / "manifest.json").read_text())
    after = cli.files(copy)
    assert {name: after[name] for name in before} == before


def test_report_twice_changes_no_byte_and_restores_what_was_lost(copy: Path) -> None:
    before = cli.files(copy)
    assert any(name.startswith("figures/") for name in before)
    for made in ("tables/choose.csv", "figures/both_sides.svg"):
        (copy / made).unlink()
    for _ in range(2):
        ended = cli.done("report", str(copy), cwd=copy)
        assert cli.files(copy) == before
    assert ended.stdout.rstrip().splitlines()[-1] == str(copy)


def test_a_finished_run_loads_as_a_dataset(tiny_run: Path) -> None:
    import datasets

    from harness.dataset import expand, load_scenario
    from harness.runlog import load_dataset, samples_dataset

    records = load_dataset(tiny_run)
    assert isinstance(records, datasets.Dataset)
    logged = cli.rows(tiny_run / "samples.jsonl")
    assert len(records) == len(logged) > 0
    assert set(records["cell_id"]) == {row["cell_id"] for row in logged}
    drawn = expand(load_scenario("xfinity"), series="matched", clusters=4, seed=7)
    samples = samples_dataset(drawn)
    assert isinstance(samples, datasets.Dataset)
    assert set(samples["id"]) == {sample.id for sample in drawn} <= set(records["sample_id"])


def test_a_sweep_makes_one_run_folder_per_combination_and_leaves_nothing_else(
    tiny_model: Path, tmp_path: Path
) -> None:
    least = ("model=local", f"model.path={tiny_model}", *cli.LEAST)
    ended = cli.done("run", "-m", *least, "model.pack_tokens=256,512", cwd=tmp_path)
    folders = [line for line in ended.stdout.splitlines() if line.startswith("results/")]
    assert len(set(folders)) == 2
    packs = {
        json.loads((tmp_path / f / "manifest.json").read_text())["config"]["model"]["pack_tokens"]
        for f in folders
    }
    assert packs == {256, 512}
    assert {path.name for path in tmp_path.iterdir()} == {"results"}
    assert {path.name for path in (tmp_path / "results" / "xfinity_small").iterdir()} == {
        Path(f).name for f in folders
    }
    assert not any(
        ".hydra" in name or "multirun" in name or "outputs" in name for name in cli.entries(tmp_path)
    )


def test_a_length_that_does_not_fit_the_model_is_told_and_left_out_of_the_run(
    tiny_model: Path, tmp_path: Path
) -> None:
    ended = cli.done(
        "run", "experiment=xfinity_length_small", "probe=[act_length_small]", "condition=[control,agent_status]",
        "~probe.act.series.moved_limit", "probe.act.series.filler={clusters: 1, filler_tokens: [0, 4000]}",
        "probe.act.max_new_tokens=4", "model=local", f"model.path={tiny_model}", "+model.engine.max_model_len=3000",
        cwd=tmp_path,
    )  # fmt: skip
    told = "series filler: 4000 filler tokens do not fit the model's 3000 tokens and are left out"
    assert told in " ".join(ended.stderr.split())
    folder = cli.printed_folder(ended, tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["left_out"] == [told] and manifest["cells"] == 4
    assert {row["filler_tokens"] for row in cli.rows(folder / "samples.jsonl")} == {0}


def test_a_sweep_with_one_bad_choice_starts_none(tiny_model: Path, tmp_path: Path) -> None:
    ended = cli.call(
        "run", "-m", *cli.TINY, f"model.path={tiny_model}", "model.pack_tokens=256,1", cwd=tmp_path
    )
    assert "model.pack_tokens" in cli.alone(ended)
    assert not cli.entries(tmp_path)


def test_preview_with_a_tokenizer_shows_the_chat_template_and_counts_tokens(
    tiny_model: Path, tmp_path: Path
) -> None:
    ended = cli.done("preview", "model=local", f"model.path={tiny_model}", cwd=tmp_path)
    assert "<|im_start|>" in ended.stdout
    _check_arms(ended.stdout)
    assert "control: " in ended.stdout and "tokens, 0 of them the bar's" in ended.stdout
    assert not cli.entries(tmp_path)


def test_preview_needs_no_model_and_no_tokenizer(tmp_path: Path) -> None:
    ended = cli.done("preview", cwd=tmp_path, env=_bare(tmp_path))
    assert "<|im_start|>" not in ended.stdout and "[user]" in ended.stdout
    _check_arms(ended.stdout)
    assert "not on this machine yet" in ended.stderr
    assert not cli.entries(tmp_path), "a preview writes nothing"


def _check_arms(shown: str) -> None:
    """Every condition is there, and the bar is marked in all but the control."""
    blocks = {}
    for name in CONDITIONS:
        start = next(
            i for i, line in enumerate(shown.splitlines()) if line.split(":")[0].split(" ")[0] == name
        )
        blocks[name] = start
    lines = shown.splitlines()
    order = sorted(blocks, key=lambda name: blocks[name])
    assert tuple(order) == CONDITIONS
    ends = [*(blocks[name] for name in order[1:]), len(lines)]
    for name, end in zip(order, ends, strict=True):
        text = "\n".join(lines[blocks[name] : end])
        marks = (text.count("▶"), text.count("◀"))
        assert marks == ((0, 0) if name == "control" else (1, 1)), name
        if name != "control":
            bar = text[text.index("▶") + 1 : text.index("◀")]
            assert bar.startswith("<agent_status>") and bar.endswith("</agent_status>"), name


@pytest.mark.parametrize("verb", ["doctor", "models"])
def test_it_answers_with_an_empty_cache_and_no_network(verb: str, tmp_path: Path) -> None:
    ended = cli.done(verb, cwd=tmp_path, env=_bare(tmp_path))
    assert "qwen2.5-coder-1.5b" in ended.stdout and "absent" in ended.stdout
    assert not cli.entries(tmp_path)


def test_doctor_tells_what_a_template_does_to_bars(tiny_model: Path, tmp_path: Path) -> None:
    ended = cli.done("doctor", "--template", str(tiny_model), cwd=tmp_path, env=_bare(tmp_path))
    assert "chat template of" in ended.stdout and "not checked" not in ended.stdout


def _bare(folder: Path) -> dict[str, str]:
    """No cached weights, no hub cache, and a proxy that refuses every connection."""
    nowhere = str(folder / "nothing")
    refuse = "http://127.0.0.1:9"
    proxies = {
        name: refuse for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    }
    return {"TAILGAUGE_CACHE": nowhere, "HF_HOME": nowhere, "HF_HUB_OFFLINE": "0", **proxies}
