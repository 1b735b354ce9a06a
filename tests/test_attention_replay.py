"""Claims about the replay: order and sharing change no number, and `tailgauge attention` keeps what it captured."""

import json
import math
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from core_attention import KINDS as ALL_KINDS
from core_attention import Kept, eager, engine, farthest, make_folder, tokens
from core_cli import TIMEOUT, call, command, copy_of, done, environment, refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.attention import store
from harness.attention.capture import Hidden, Watch
from harness.attention.chain import Chain
from harness.attention.labels import Labels
from harness.attention.regions import group_spans
from harness.attention.replay import Replayer, by_episode
from harness.attention.rows import sequence
from harness.attention.settings import resolve
from harness.attention.store import CellAttention
from harness.errors import AttentionError, ConfigError
from harness.runlog.columns import iterate_parquet
from harness.runlog.rows import SAMPLES_NAME
from harness.types import EvalRecord
from harness.weights import load_tokenizer

WITHIN = 1e-4
KINDS = ("qwen2", "qwen2-sliding", "gemma2", "mistral")

# -- the chain ---------------------------------------------------------------------------------------------

HEAD, HISTORY = tokens(10, seed=20), tokens(12, seed=21)
TAILS = [tokens(4, seed=22), tokens(6, seed=23), tokens(4, seed=24)[:2]]
CHOICES = {"a": (40, 41, 42), "b": (40, 41, 50), "c": (60,), "d": (40, 70)}
HIDDEN: list[Hidden | None] = [
    None,
    Hidden(((12, 16),)),
    Hidden(((12, 16),), from_row=22),
    Hidden(((12, 16), (18, 20))),
    Hidden(((2, 6),)),  # inside the pinned head
    Hidden(((12, 16),), layers=frozenset({1})),
    Hidden(((12, 16),), layers=frozenset()),
    Hidden(()),
]
JOBS = [(tail, hidden) for tail in range(len(TAILS) + 1) for hidden in range(len(HIDDEN))]


def stem(tail: int) -> list[int]:
    """The last of them parts from the others right behind the pinned head."""
    return HEAD + HISTORY + TAILS[tail] if tail < len(TAILS) else HEAD + tokens(14, seed=30)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: make_folder(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


def chain(folder: Path, chunk: int = 7) -> Chain:
    made = Chain(engine(folder, chunk=chunk), Watch(block=3))
    made.extend(HEAD)
    made.pin()
    return made


@pytest.fixture(scope="module")
def alone(folders: dict[str, Path]) -> dict[tuple[int, int], dict[str, float]]:
    """What each job gives on a chain that did nothing before."""
    return {(t, h): chain(folders["qwen2"]).choice_logprobs(stem(t), CHOICES, HIDDEN[h]) for t, h in JOBS}


@settings(max_examples=25, deadline=None)
@given(order=st.lists(st.sampled_from(JOBS), min_size=2, max_size=8))
def test_the_order_of_replays_changes_no_number(
    folders: dict[str, Path],
    alone: dict[tuple[int, int], dict[str, float]],
    order: list[tuple[int, int]],
) -> None:
    used = chain(folders["qwen2"])
    for tail, hidden in order:
        found = used.choice_logprobs(stem(tail), CHOICES, HIDDEN[hidden])
        assert found == pytest.approx(alone[tail, hidden], abs=WITHIN), (order, tail, hidden)


def test_jobs_of_different_hidden_spans_give_different_numbers(
    alone: dict[tuple[int, int], dict[str, float]],
) -> None:
    """Else the claim before could not fail. What hides nothing is the plain replay."""
    plain = alone[0, 0]
    for hidden in range(1, len(HIDDEN)):
        moved = max(abs(alone[0, hidden][label] - plain[label]) for label in CHOICES)
        if HIDDEN[hidden] in (Hidden(()), Hidden(((12, 16),), layers=frozenset())):
            assert moved < WITHIN
        else:
            assert moved > 0.01, HIDDEN[hidden]
    assert len({round(alone[0, hidden]["a"], 4) for hidden in range(6)}) == 6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hidden", HIDDEN[:4], ids=["plain", "later", "decision", "two spans"])
def test_choices_have_the_probabilities_of_one_eager_pass_each(
    folders: dict[str, Path], kind: str, hidden: Hidden | None
) -> None:
    found = chain(folders[kind]).choice_logprobs(stem(1), CHOICES, hidden)
    for label, ids in CHOICES.items():
        whole = [*stem(1), *ids[:-1]]
        logits = eager(folders[kind], whole, windows=ALL_KINDS[kind][2], hidden=hidden).logits
        rows = torch.log_softmax(logits, dim=-1)[len(stem(1)) - 1 :]
        expected = sum(float(row[token]) for row, token in zip(rows, ids, strict=True))
        assert found[label] == pytest.approx(expected, abs=1e-3)


def test_what_is_shared_is_computed_once(folders: dict[str, Path]) -> None:
    used = chain(folders["qwen2"])
    assert used.computed_tokens == len(HEAD)

    def cost(tail: int, hidden: Hidden | None) -> int:
        before = used.computed_tokens
        used.choice_logprobs(stem(tail), CHOICES, hidden)
        return used.computed_tokens - before

    # The last token of a choice is predicted only, and what choices share is computed once: 40 and 41.
    nodes = len({ids[:i] for ids in CHOICES.values() for i in range(1, len(ids))})
    assert nodes == 2
    assert cost(0, None) == len(stem(0)) - len(HEAD) + nodes
    assert cost(1, None) == len(TAILS[1]) + nodes
    assert cost(1, None) == 1 + nodes, "the last token's logits are computed anew, and no more"
    # Rows up to the hidden span's end are those of the plain replay.
    assert cost(1, HIDDEN[1]) == len(stem(1)) - 16 + nodes
    assert cost(1, HIDDEN[2]) == len(stem(1)) - 16 + nodes, "rows 16 to 21 were computed under the mask"
    assert cost(1, None) == len(stem(1)) - 22 + nodes


def test_wanted_rows_are_captured_even_where_they_are_computed_already(folders: dict[str, Path]) -> None:
    used = chain(folders["qwen2-sliding"])
    used.choice_logprobs(stem(1), CHOICES, HIDDEN[1])
    used.extend(stem(1))
    kept = Kept()
    used.extend(stem(1), rows=[9, 10, 25], taker=kept)
    assert {position for _, position in kept.rows} == {9, 10, 25}
    assert farthest(kept, eager(folders["qwen2-sliding"], stem(1)).weights) < WITHIN
    again = Kept()
    used.extend(stem(0), rows=range(len(stem(0))), taker=again)
    assert farthest(again, eager(folders["qwen2-sliding"], stem(0)).weights) < WITHIN


# -- cells of a run ----------------------------------------------------------------------------------------


class Bench:
    """A run's records and what replays them."""

    def __init__(self, run: Path, model: Path) -> None:
        self.model, self.tokenizer = model, load_tokenizer(model)
        self.labels = Labels(self.tokenizer)
        wanted = ("control", "agent_status", "placebo")
        matched = [r for r in iterate_parquet(run / SAMPLES_NAME) if r.series == "matched"]
        self.episode = [r for r in matched if r.cluster.endswith("c000") and r.condition in wanted]
        self.all = [r for r in matched if r.condition in wanted]

    def replayer(self, shown: Sequence[str] = (), **changes: Any) -> Replayer:
        plain = {"threads": 1, "pack_tokens": 512, **changes}
        return Replayer(self.model, self.tokenizer, resolve(plain), dtype="float32", shown=frozenset(shown))

    def record(self, probe: str, condition: str, side: str = "due") -> EvalRecord:
        return next(r for r in self.episode if (r.probe, r.condition, r.side) == (probe, condition, side))


@pytest.fixture(scope="module")
def bench(tiny_run: Path, tiny_model: Path) -> Bench:
    return Bench(tiny_run, tiny_model)


@pytest.fixture(scope="module")
def cells(bench: Bench) -> dict[str, CellAttention]:
    """The first episode, one sample of it token by token."""
    replayer = bench.replayer([bench.episode[0].sample_id], norm_weighted=True)
    replayer.share(bench.all)
    told: list[None] = []
    found = {c.cell.cell_id: c for c in replayer.episode(bench.episode, lambda: told.append(None))}
    assert len(told) == replayer.work(bench.episode), "progress ends at its total"
    replayer.close()
    return found


def test_replayed_choices_have_their_recorded_probabilities(
    bench: Bench, cells: dict[str, CellAttention]
) -> None:
    chosen = [record for record in bench.episode if record.probe == "choose"]
    assert len(chosen) == 6 and cells.keys() == {record.cell_id for record in bench.episode}
    spread = set()
    for record in chosen:
        cell = cells[record.cell_id]
        plain = next(masked for masked in cell.masking if masked.mask == "none")
        assert record.output.choice_logprobs is not None
        assert plain.logprobs == pytest.approx(dict(record.output.choice_logprobs), abs=1e-3)
        assert cell.replay_error is not None and cell.replay_error < 1e-3
        assert plain.logit_act == pytest.approx(record.score.logit_act, abs=1e-3)
        spread.add(round(plain.logit_act, 2))
    assert len(spread) > 2, "the cells must differ, or this test shows nothing"
    assert all(cells[r.cell_id].replay_error is None for r in bench.episode if r.probe == "act")


@pytest.mark.parametrize("probe", ["choose", "act"])
def test_a_cells_masses_are_eagers_summed_by_region(
    bench: Bench, cells: dict[str, CellAttention], probe: str
) -> None:
    record = bench.record(probe, "agent_status")
    cell, found = cells[record.cell_id], sequence(record, bench.labels)
    weights = eager(bench.model, found.ids).weights.numpy()
    for slot, row in enumerate(cell.rows):
        for number in range(len(cell.regions)):
            mass = weights[:, :, row.position, cell.key_region == number].sum(-1)
            assert cell.mass[:, :, slot, number] == pytest.approx(mass, abs=WITHIN)
    for slot, row in enumerate(cell.path):
        for number in range(len(cell.regions)):
            mass = weights[:, :, row.position, cell.key_region == number].sum(-1).mean(1)
            assert cell.path_mass[:, slot, number] == pytest.approx(mass, abs=WITHIN)
    assert len(cell.rows) == (2 if probe == "choose" else 1) and bool(cell.path) == (probe == "act")
    assert any(region.group == "bar" for region in cell.regions)


def test_a_masked_replay_is_an_eager_pass_without_the_bar(
    bench: Bench, cells: dict[str, CellAttention]
) -> None:
    record = bench.record("choose", "agent_status")
    cell, found = cells[record.cell_id], sequence(record, bench.labels)
    bar = group_spans(record, found, "bar")
    by_name = {(masked.mask, masked.scope): masked for masked in cell.masking}
    assert by_name.keys() == {
        ("none", "later"), ("bar", "later"), ("bar", "decision"),
        ("target_calls", "later"), ("target_calls", "decision"), ("records", "later"), ("records", "decision"),
    }  # fmt: skip
    assert by_name["bar", "later"].masked_tokens == sum(end - start for start, end in bar) > 20
    first = found.ids[: found.stem]
    label = "reply"
    for scope, from_row in (("later", 0), ("decision", found.stem - 1)):
        hidden = Hidden(bar, from_row)
        ids = [*first, *record.choices[label][:-1]]
        logits = eager(bench.model, ids, windows=(None, None), hidden=hidden).logits[found.stem - 1 :]
        rows = torch.log_softmax(logits, dim=-1)
        pairs = zip(rows, record.choices[label], strict=True)
        expected = sum(float(row[token]) for row, token in pairs)
        assert by_name["bar", scope].logprobs[label] == pytest.approx(expected, abs=1e-3)
    plain, masked = by_name["none", "later"], by_name["bar", "later"]
    assert abs(plain.logit_act - masked.logit_act) > 0.01, "this test shows nothing"
    # A mask that has nothing to hide is no replay of its own.
    control = cells[bench.record("choose", "control").cell_id]
    assert {masked.mask for masked in control.masking} == {"none", "target_calls", "records"}
    assert cells[bench.record("act", "control").cell_id].masking == ()


def test_a_shown_cell_holds_its_rows_and_the_whole_prompt_in_bins(
    bench: Bench, cells: dict[str, CellAttention]
) -> None:
    shown, other = cells[bench.episode[0].cell_id], cells[bench.episode[-1].cell_id]
    assert other.bins is None and other.browsable is None and other.token_rows is None
    assert shown.bins is not None and shown.browsable is not None and shown.token_rows is not None
    size = len(shown.tokens)
    assert shown.bins.mass.shape == (2, 256, 256) and shown.bins.row_edges[-1] == size
    assert shown.bins.mass.sum(-1) == pytest.approx(1, abs=1e-4)
    assert shown.token_rows.shape == (2, len(shown.rows), size)
    assert shown.token_rows.sum(-1) == pytest.approx(1, abs=1e-4)
    assert {row.position for row in shown.rows} <= set(shown.browsable.positions.tolist())
    for cell in (shown, other):
        assert cell.mass.sum(-1) == pytest.approx(1, abs=1e-5)
        assert cell.norm_mass is not None and cell.norm_mass.sum(-1) == pytest.approx(1, abs=1e-5)
        assert (cell.entropy <= math.log2(len(cell.tokens))).all() and (cell.top_mass <= 1 + 1e-6).all()


def test_what_was_replayed_before_changes_no_cell(bench: Bench, cells: dict[str, CellAttention]) -> None:
    replayer = bench.replayer(norm_weighted=True)
    replayer.share(bench.all)
    backwards = [record for record in reversed(bench.episode) if record.side == "due"]
    for again in replayer.episode(backwards):
        before = cells[again.cell.cell_id]
        assert again.regions == before.regions and again.rows == before.rows
        for name in ("mass", "entropy", "entropy_rest", "top_mass", "path_mass", "path_entropy", "norm_mass"):
            assert getattr(again, name) == pytest.approx(getattr(before, name), abs=1e-4), name
        for one, two in zip(again.masking, before.masking, strict=True):
            assert (one.mask, one.scope, one.masked_tokens) == (two.mask, two.scope, two.masked_tokens)
            assert one.logprobs == pytest.approx(two.logprobs, abs=1e-3)
    replayer.close()


def test_chosen_layers_and_heads_are_those_of_the_whole(
    bench: Bench, cells: dict[str, CellAttention]
) -> None:
    replayer = bench.replayer(layers=[1], heads=[3, 0], norm_weighted=True, path_heads="each", path_every=5)
    replayer.share(bench.all)
    record = bench.record("act", "placebo")
    (some,), whole = list(replayer.episode([record])), cells[record.cell_id]
    assert (some.layers, some.heads, some.windows) == ((1,), (0, 3), (None,))
    assert some.mass[0] == pytest.approx(whole.mass[1][[0, 3]], abs=1e-4)
    assert some.norm_mass is not None and whole.norm_mass is not None
    assert some.norm_mass[0] == pytest.approx(whole.norm_mass[1][[0, 3]], abs=1e-4)
    assert some.path == whole.path[::5] and some.path_mass.shape[:3] == (1, 2, len(some.path))
    replayer.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layers": [0, 2]}, r"layers: \[2\]; the model has 2"),
        ({"heads": [4]}, r"heads: \[4\]; the model has 4"),
        ({"mask": {"layers": [7]}}, r"mask\.layers: \[7\]; the model has 2"),
        ({"mask": {"layers": []}}, r"mask\.layers: none chosen"),
    ],
)
def test_layers_and_heads_that_the_model_lacks_are_refused(
    bench: Bench, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(AttentionError, match=said) as error:
        bench.replayer(**change)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change", [{"mask": {"groups": ["sinks"]}}, {"mask": {"groups": ["bars"]}}, {"probes": []}, {"rows": 1}]
)
def test_settings_that_mean_nothing_are_refused_in_one_line(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        resolve(change)
    assert "\n" not in str(error.value) and next(iter(change)) in str(error.value)


def test_a_run_whose_probabilities_do_not_come_back_is_refused_in_one_line(bench: Bench) -> None:
    record = bench.record("choose", "control")
    asked = f"phone_call:{record.target}"
    recorded = dict(record.output.choice_logprobs or {})
    off = replace(
        record, output=replace(record.output, choice_logprobs={**recorded, asked: recorded[asked] - 0.05})
    )
    replayer = bench.replayer(mask={"groups": []})
    with pytest.raises(AttentionError, match="other weights") as error:
        list(replayer.episode([off]))
    assert "\n" not in str(error.value) and record.cell_id in str(error.value)
    replayer.close()
    patient = bench.replayer(mask={"groups": []}, tolerance=0.1)
    (cell,) = patient.episode([off])
    assert cell.replay_error == pytest.approx(0.05, abs=1e-3)
    patient.close()


def test_records_of_an_episode_stay_together(bench: Bench) -> None:
    groups = by_episode(bench.all)
    assert len(groups) == 4 and sum(map(len, groups.values())) == len(bench.all)
    assert all(len({r.cluster for r in records}) == 1 for records in groups.values())


# -- the command -------------------------------------------------------------------------------------------

FEW = ("clusters=2", "shown.samples=1", "shown.bins=32", "shown.rows=16", "threads=1", "pack_tokens=512")


@pytest.fixture(scope="module")
def finished(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a whole capture of two episodes. Read it, or change a copy."""
    cwd = tmp_path_factory.mktemp("attention")
    folder = copy_of(tiny_run, cwd)
    ended = done("attention", str(folder), *FEW, cwd=cwd)
    assert ended.stdout.rstrip("\n").splitlines()[-1] == str(folder / "attention")
    return folder


def arrays(folder: Path) -> dict[str, dict[str, bytes]]:
    """Every cell's arrays, bytes as they are stored."""
    found = {}
    for path in sorted((folder / "cells").glob("*.npz")):
        with np.load(path, allow_pickle=False) as packed:
            found[path.name] = {name: packed[name].tobytes() for name in packed.files}
    return found


def test_the_command_captures_the_usual_arms_and_says_what_they_took(finished: Path) -> None:
    folder = finished / "attention"
    manifest = store.read_manifest(folder)
    cells = list(store.read_cells(folder))
    assert [cell.cell.cell_id for cell in cells] == manifest["cells"] and len(cells) == 24
    assert {cell.cell.condition for cell in cells} == {"control", "placebo", "agent_status"}
    assert {cell.cell.probe for cell in cells} == {"choose", "act"}
    assert len({cell.cell.cluster for cell in cells}) == 2 and {c.cell.series for c in cells} == {"matched"}
    sizes = [path.stat().st_size for path in (folder / "cells").iterdir()]
    assert manifest["budget"] == {
        "bytes": sum(sizes), "bytes_per_cell": round(sum(sizes) / 24), "largest_cell": max(sizes),
    }  # fmt: skip
    assert manifest["replay_error"] < 1e-3 and manifest["skipped"] == {}
    assert manifest["config"]["clusters"] == 2 and manifest["engine"]["attention"] == "tailgauge_rows"
    shown = {cell.cell.sample_id for cell in cells if cell.browsable is not None}
    assert shown == {cells[0].cell.sample_id}
    assert manifest["engine"]["computed_tokens"] < sum(len(cell.tokens) for cell in cells) * 2
    named = {path.name for path in folder.iterdir()}
    assert {"cells", "manifest.json", "tables", "figures", "attention.html"} <= named
    assert list((folder / "tables").iterdir()) and list((folder / "figures").iterdir())


_BARE = """
import argparse, sys
from harness.commands import attention
attention.publish = lambda folder: None
sys.exit(attention.main(argparse.Namespace(run=sys.argv[1], overrides=sys.argv[2:])))
"""


def capture(run: Path) -> None:
    """The command without the tables and figures that it ends with. A process of its own, as a user's is: the last
    digit of a float32 product may depend on where in memory its factors lie."""
    subprocess.run(
        [sys.executable, "-c", _BARE, str(run), *FEW], cwd=run, env=environment(), check=True, timeout=TIMEOUT,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_cell_that_is_lost_is_captured_again_the_same(finished: Path, tmp_path: Path) -> None:
    run = copy_of(finished, tmp_path)
    folder = run / "attention"
    lost = store.cell_path(folder, store.read_manifest(folder)["cells"][7])
    before = arrays(folder)
    kept = {path: path.stat().st_mtime_ns for path in (folder / "cells").iterdir() if path != lost}
    lost.unlink()
    capture(run)
    assert arrays(folder) == before
    assert all(path.stat().st_mtime_ns == at for path, at in kept.items()), "the others are not touched"


def test_what_a_killed_writer_left_is_cleared_away(finished: Path, tmp_path: Path) -> None:
    run = copy_of(finished, tmp_path)
    left = [run / "attention" / ".manifest.json.123.tmp", run / "attention" / "cells" / ".ab.npz.123.tmp"]
    for path in left:
        path.write_bytes(b"half")
    capture(run)
    assert not [path for path in left if path.exists()]


def test_a_capture_that_was_killed_goes_on_to_the_same_cells(finished: Path, tmp_path: Path) -> None:
    run = copy_of(finished, tmp_path)
    shutil.rmtree(run / "attention")
    arguments = ("attention", str(run), *FEW)
    process = subprocess.Popen(
        command(*arguments),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        limit = time.monotonic() + TIMEOUT
        while len(list((run / "attention" / "cells").glob("*.npz"))) < 3 and process.poll() is None:
            assert time.monotonic() < limit, "no cell was captured"
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    there = len(list((run / "attention" / "cells").glob("*.npz")))
    assert process.returncode == -signal.SIGKILL and 3 <= there < 24
    assert not (run / "attention" / "manifest.json").exists(), "what is not finished has no manifest"
    capture(run)
    assert arrays(run / "attention") == arrays(finished / "attention")
    kept, again = (store.read_manifest(each / "attention") for each in (finished, run))
    assert kept["cells"] == again["cells"] and kept["budget"] == again["budget"]


def test_a_capture_is_not_mixed_with_one_of_other_settings(finished: Path, tmp_path: Path) -> None:
    run = copy_of(finished, tmp_path)
    before = (run / "attention" / "manifest.json").read_bytes()
    line = refusal(call("attention", str(run), *FEW, "top_k=3", cwd=tmp_path))
    assert "top_k" in line and "folder=NAME" in line and "query_block" not in line
    line = refusal(call("attention", str(run), *FEW, "mask.groups=[bar]", cwd=tmp_path))
    assert "mask.groups" in line
    assert (run / "attention" / "manifest.json").read_bytes() == before


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("top_q=3", "top_q"),
        ("mask.group=[bar]", "mask.group"),
        ("mask.groups=[template]", "no span to mask"),
        ("answer_tokens=[-1]", "answer_tokens"),
        ("conditions=[control,agent_stauts]", "agent_stauts"),
        ("probes=[ask]", "probes"),
        ("path_every=0", "path_every"),
        ("shown.bins=two", "shown.bins"),
    ],
)
def test_a_mistyped_setting_is_named_in_one_line(
    finished: Path, tmp_path: Path, override: str, said: str
) -> None:
    line = refusal(call("attention", str(finished), "folder=other", override, cwd=tmp_path))
    assert said in line
    assert not (finished / "other").exists(), "nothing was begun"


def test_a_run_that_is_not_finished_or_not_there_is_refused(tiny_run: Path, tmp_path: Path) -> None:
    run = copy_of(tiny_run, tmp_path)
    (run / SAMPLES_NAME).unlink()
    line = refusal(call("attention", str(run), cwd=tmp_path))
    assert SAMPLES_NAME in line and "finish the run" in line
    assert "nowhere" in refusal(call("attention", "nowhere", cwd=tmp_path))


def test_a_damaged_cell_is_named_in_one_line_and_captured_again_once_it_is_deleted(
    finished: Path, tmp_path: Path
) -> None:
    run = copy_of(finished, tmp_path)
    folder = run / "attention"
    path = store.cell_path(folder, store.read_manifest(folder)["cells"][3])
    whole = path.read_bytes()
    for damage in (whole[: len(whole) // 2], b"", whole[:200] + bytes(400) + whole[600:]):
        path.write_bytes(damage)
        with pytest.raises(AttentionError) as error:
            store.read_cell(path)
        assert "\n" not in str(error.value) and path.name in str(error.value)
    line = refusal(call("attention", str(run), *FEW, cwd=tmp_path))
    assert path.name in line and "delete the file" in line


def test_weights_that_are_not_the_runs_are_refused(finished: Path, tiny_model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny_model, other)
    weights = other / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-2] ^= 1
    weights.write_bytes(data)
    line = refusal(
        call("attention", str(finished), *FEW, "folder=other", f"model_path={other}", cwd=tmp_path)
    )
    assert "was run with weights" in line and "model_path" in line


def test_the_manifest_of_a_capture_is_plain_json_without_secrets(finished: Path) -> None:
    text = (finished / "attention" / "manifest.json").read_text(encoding="utf-8")
    manifest = json.loads(text)
    assert manifest["weights"] and manifest["config"]["mask"]["groups"] == ["bar", "target_calls", "records"]
    assert "engine_version" in manifest["engine"]


@pytest.mark.parametrize("name", ["tables", "figures"])
def test_a_capture_does_not_go_into_the_runs_own_folders(finished: Path, tmp_path: Path, name: str) -> None:
    before = sorted(path.name for path in (finished / name).iterdir()) if (finished / name).is_dir() else []
    assert f"folder={name}" in refusal(call("attention", str(finished), f"folder={name}", cwd=tmp_path))
    after = sorted(path.name for path in (finished / name).iterdir()) if (finished / name).is_dir() else []
    assert before == after


def test_settings_can_be_mended_while_nothing_is_captured(finished: Path, tmp_path: Path) -> None:
    run = copy_of(finished, tmp_path)
    line = refusal(call("attention", str(run), *FEW, "folder=again", "mask.layers=[99]", cwd=tmp_path))
    assert "mask.layers" in line and (run / "again" / "capture.json").is_file()
    line = refusal(call("attention", str(run), *FEW, "folder=again", "tolerance=1e-12", cwd=tmp_path))
    assert "tolerance" in line, "the settings before left nothing behind that would be mixed"


def test_sinks_do_not_depend_on_the_layers_that_are_captured(finished: Path, tmp_path: Path) -> None:
    run = copy_of(finished, tmp_path)
    told = call("attention", str(run), *FEW, "folder=one", "layers=[1]", "clusters=1", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    every = store.read_manifest(finished / "attention")["engine"]["sinks"]
    assert store.read_manifest(run / "one")["engine"]["sinks"] == every


@pytest.mark.parametrize("gone", [("config",), ("config", "model")])
def test_a_run_manifest_without_its_model_is_told_in_one_line(
    finished: Path, tmp_path: Path, gone: tuple[str, ...]
) -> None:
    run = copy_of(finished, tmp_path)
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    holder = manifest
    for key in gone[:-1]:
        holder = holder[key]
    del holder[gone[-1]]
    (run / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    line = refusal(call("attention", str(run), *FEW, "folder=other", cwd=tmp_path))
    assert "config.model" in line and "manifest.json" in line


def test_running_out_of_memory_is_told_in_one_line(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    replayer = bench.replayer()
    monkeypatch.setattr(Chain, "extend", full)
    with pytest.raises(AttentionError, match="out of memory; lower pack_tokens"):
        list(replayer.episode(bench.episode))
    replayer.close()
