"""Nothing finished is lost: torn lines, kills, full disks, two writers, changed configurations."""

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from runlog_records import CONFIG, WRITE, child, make_record

from harness.errors import RunLogError
from harness.runlog import RunLog, finalize, read_manifest, read_records, record_to_json, write_records
from harness.runlog import log as log_module


def filled(folder: Path, count: int = 3) -> bytes:
    """A finished run of `count` cells; returns its log."""
    with RunLog.open(folder, {"who": "test"}, CONFIG) as log:
        for number in range(count):
            log.append(make_record(number))
    return (folder / "samples.jsonl").read_bytes()


def test_a_run_starts_writes_and_is_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "experiment" / "run-1"
    with RunLog.open(folder, {"started": "now", "model": {"api_key": "x"}}, CONFIG) as log:
        assert log.finished == set()
        assert log.append(make_record(0)) and log.append(make_record(1))
        # at once, not at closing
        assert (folder / "samples.jsonl").read_text().splitlines()[1] == record_to_json(make_record(1))
        assert log.finished == {"cell-0000", "cell-0001"}
    assert list(read_records(folder)) == [make_record(0), make_record(1)]
    manifest = read_manifest(folder)
    assert manifest["config"] == CONFIG and manifest["run_id"] == "run-1" and manifest["started"] == "now"
    assert manifest["model"] == {"api_key": "***"}
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "samples.jsonl"]


def test_a_finished_cell_is_not_written_again(tmp_path: Path) -> None:
    before = filled(tmp_path)
    with RunLog.open(tmp_path, {}, CONFIG) as log:
        assert log.append(make_record(1, outcome="violation")) is False
    assert (tmp_path / "samples.jsonl").read_bytes() == before


def test_a_provider_error_is_tried_again_and_the_later_row_counts(tmp_path: Path) -> None:
    with RunLog.open(tmp_path, {}, CONFIG) as log:
        log.append(make_record(0))
        log.append(make_record(1, outcome="provider_error"))
        log.append(make_record(2))
        assert log.finished == {"cell-0000", "cell-0002"}
    with RunLog.open(tmp_path, {}, CONFIG) as log:
        assert log.finished == {"cell-0000", "cell-0002"}
        assert log.append(make_record(1)) is True
        assert log.finished == {"cell-0000", "cell-0001", "cell-0002"}
    rows = [(record.cell_id, record.score.outcome) for record in read_records(tmp_path)]
    assert rows == [("cell-0000", "compliant"), ("cell-0002", "compliant"), ("cell-0001", "compliant")]
    write_records(tmp_path, read_records(tmp_path))
    assert len((tmp_path / "samples.jsonl").read_text().splitlines()) == 3


def test_a_failed_choose_cell_counts_as_failed_too(tmp_path: Path) -> None:
    record = make_record(0, outcome=None)
    with RunLog.open(tmp_path, {}, CONFIG) as log:
        log.append(replace(record, output=replace(record.output, finish_reason="error", error="HTTP 500")))
        assert log.finished == set()


# -- torn and broken lines -----------------------------------------------------------------------


def test_a_last_line_torn_at_any_byte_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = filled(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # the test is about content, not about the disk
    monkeypatch.setattr(log_module, "_fdatasync", lambda handle: None)
    path = tmp_path / "samples.jsonl"
    manifest = (tmp_path / "manifest.json").read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(start, len(whole)):
        path.write_bytes(whole[:cut])
        (tmp_path / "manifest.json").write_bytes(manifest)  # or its list of resumes would grow
        only_newline_missing = cut == len(whole) - 1
        assert len(list(read_records(tmp_path))) == (3 if only_newline_missing else 2)
        # opening costs a dozen file operations: every fifth cut, and those around either end
        if (cut - start) % 5 and not only_newline_missing and len(whole) - cut > 4:
            continue
        with RunLog.open(tmp_path, {}, CONFIG) as log:
            assert log.repaired_bytes == (0 if only_newline_missing else cut - start)
            assert log.append(make_record(2)) is not only_newline_missing
        assert path.read_bytes() == whole


def test_a_tail_of_zero_bytes_after_a_power_cut_is_repaired(tmp_path: Path) -> None:
    whole = filled(tmp_path)
    (tmp_path / "samples.jsonl").write_bytes(whole + b"\0" * 4096)
    with RunLog.open(tmp_path, {}, CONFIG) as log:
        assert len(log.finished) == 3
    assert (tmp_path / "samples.jsonl").read_bytes() == whole


@pytest.mark.parametrize("line", [b'{"cell_id": "cel', b"\xff\xfe", b"", b'{"cell_id": "x", "batch": 1}'])
def test_a_broken_line_in_the_middle_is_an_error_with_file_and_line(tmp_path: Path, line: bytes) -> None:
    whole = filled(tmp_path)
    path = tmp_path / "samples.jsonl"
    rows = whole.splitlines(keepends=True)
    path.write_bytes(rows[0] + line + b"\n" + rows[2])
    with pytest.raises(RunLogError, match=r"samples\.jsonl:2: the row|samples\.jsonl:2: 'utf-8'"):
        RunLog.open(tmp_path, {}, CONFIG)
    with pytest.raises(RunLogError, match=r"samples\.jsonl:2: "):
        list(read_records(tmp_path))
    assert path.read_bytes() == rows[0] + line + b"\n" + rows[2]
    path.write_bytes(whole)
    RunLog.open(tmp_path, {}, CONFIG).close()  # the failed opening let go of the folder


# -- kills ---------------------------------------------------------------------------------------


def test_kills_at_random_moments_lose_nothing_and_change_nothing(tmp_path: Path) -> None:
    cells, chance = 60, random.Random(5)
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    process = child(WRITE, undisturbed, cells)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    told: set[str] = set()
    # Lines of 16 KiB fill the pipe after a few: the writer cannot be done before a slow reader kills it.
    held_back = WRITE.replace('{number:04d}"', '{number:04d}".ljust(16384)')
    assert held_back != WRITE
    for target in (0, 1, 9, 17, 40):
        process = child(held_back, killed, cells)
        assert process.stdout is not None
        for line in process.stdout:
            told |= {line.strip()} if line.startswith("cell-") else set()
            if len(told) >= target + chance.randrange(3):
                break
        os.kill(process.pid, signal.SIGKILL)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        told |= {line for line in rest.split() if line.startswith("cell-") and len(line) == 9}
        assert told <= {record.cell_id for record in read_records(killed)}
    process = child(WRITE, killed, cells)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.split()[-1] == "closed"
    order = [f"cell-{number:04d}" for number in range(cells)]
    finalize(undisturbed, order)
    finalize(killed, order)
    assert (killed / "samples.parquet").read_bytes() == (undisturbed / "samples.parquet").read_bytes()
    assert sorted(path.name for path in killed.iterdir()) == sorted(
        path.name for path in undisturbed.iterdir()
    )


# -- two writers, changed configuration ----------------------------------------------------------


def test_a_folder_that_a_live_process_writes_to_is_refused(tmp_path: Path) -> None:
    hold = WRITE + "\n".join(["", "import time", "log = RunLog.open(Path(sys.argv[1]), {}, CONFIG)"])
    process = child(hold + "\nprint('held', flush=True)\ntime.sleep(60)", tmp_path, 1)
    try:
        assert process.stdout is not None
        assert any(line.strip() == "held" for line in process.stdout)
        with pytest.raises(RunLogError, match=f"pid {process.pid}.*is writing"):
            RunLog.open(tmp_path, {}, CONFIG)
        with pytest.raises(RunLogError, match="is writing"):
            write_records(tmp_path, read_records(tmp_path))
    finally:
        process.kill()
        process.communicate(timeout=30)
    assert (tmp_path / ".lock").exists()  # left behind by the kill, and in nobody's way
    with RunLog.open(tmp_path, {}, CONFIG) as log:
        assert log.finished == {"cell-0000"}


def test_one_process_cannot_open_a_run_twice(tmp_path: Path) -> None:
    with RunLog.open(tmp_path, {}, CONFIG), pytest.raises(RunLogError, match="is writing"):
        RunLog.open(tmp_path, {}, CONFIG)
    RunLog.open(tmp_path, {}, CONFIG).close()


def test_a_changed_configuration_is_refused_and_its_keys_are_named(tmp_path: Path) -> None:
    before = filled(tmp_path)
    changed = {"model": {"name": "big", "seed": 1, "dtype": "bf16"}, "conditions": ["control", "placebo"]}
    with pytest.raises(RunLogError) as caught:
        RunLog.open(tmp_path, {}, changed)
    told = str(caught.value)
    assert "model.name: 'tiny' → 'big'" in told
    assert "conditions[1]: 'agent_status' → 'placebo'" in told
    assert "model.dtype: (absent) → 'bf16'" in told
    assert "seed" not in told
    assert (tmp_path / "samples.jsonl").read_bytes() == before


def test_a_changed_input_behind_the_same_configuration_is_refused(tmp_path: Path) -> None:
    RunLog.open(tmp_path, {"inputs": {"scenarios": {"xfinity": "aa"}}}, CONFIG).close()
    with pytest.raises(RunLogError, match=r"inputs\.scenarios\.xfinity: 'aa' → 'bb'"):
        RunLog.open(tmp_path, {"inputs": {"scenarios": {"xfinity": "bb"}}}, CONFIG)


def test_a_changed_environment_is_noted_in_the_manifest(tmp_path: Path) -> None:
    RunLog.open(tmp_path, {"packages": {"torch": "1"}}, CONFIG).close()
    RunLog.open(tmp_path, {"packages": {"torch": "2"}}, CONFIG).close()
    manifest = read_manifest(tmp_path)
    assert manifest["packages"] == {"torch": "1"}
    assert manifest["resumed"][0]["changed"] == {"packages.torch": ["1", "2"]}


def test_a_second_run_is_refused_when_resume_is_off(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(RunLogError, match="already holds a run"):
        RunLog.open(tmp_path, {}, CONFIG, resume=False)


def test_rows_without_a_manifest_are_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(RunLogError, match=r"no manifest\.json"):
        RunLog.open(tmp_path, {}, CONFIG)


def test_a_folder_whose_creation_was_killed_is_a_new_run(tmp_path: Path) -> None:
    (tmp_path / ".manifest.json.123.tmp").write_text("{")
    with RunLog.open(tmp_path, {}, CONFIG) as log:
        assert log.finished == set()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "samples.jsonl"]


# -- the disk ------------------------------------------------------------------------------------


def test_rows_are_synced_in_groups_without_waiting_for_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    seen = threading.Event()

    def count(handle: int) -> None:
        synced.append(os.fstat(handle).st_size)
        seen.set()

    monkeypatch.setattr(log_module, "_fdatasync", count)
    with RunLog.open(tmp_path, {}, CONFIG) as log:
        for number in range(300):
            log.append(make_record(number))
        whole = (tmp_path / "samples.jsonl").stat().st_size
        while synced[-1:] != [whole]:
            seen.clear()
            assert seen.wait(20), "no sync came while the log was open"
        assert len(synced) < 150
        log.append(make_record(300))
    assert synced[-1] == (tmp_path / "samples.jsonl").stat().st_size
    assert log_module.SYNC_SECONDS <= 0.2 and log_module._PAUSE < log_module.SYNC_SECONDS


def test_a_sync_that_fails_is_told_by_the_next_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.EDQUOT, "quota")

    log = RunLog.open(tmp_path, {}, CONFIG)
    log.append(make_record(0))
    monkeypatch.setattr(log_module, "_fdatasync", full)
    log.sync()
    with pytest.raises(RunLogError, match="the disk quota is used up"):
        log.append(make_record(1))
    log.close()
    log = RunLog.open(tmp_path, {}, CONFIG)
    log.append(make_record(1))
    with pytest.raises(RunLogError, match="the disk quota is used up"):
        log.close()
    monkeypatch.undo()
    RunLog.open(tmp_path, {}, CONFIG).close()


LIMITED = (
    "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))\n"
    + WRITE.replace("with RunLog", "try:\n  with RunLog")
    .replace("\n    ", "\n      ")
    .replace(
        'print("closed"',
        'except Exception as error: print("told", type(error).__name__, error)\nprint("closed"',
    )
)


def check_full(process: subprocess.Popen[str], folder: Path, said: str) -> None:
    """The child ran into a full disk: it said so, every cell it named is there, and no line is torn."""
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    lines = out.splitlines()
    named = {line for line in lines if line.startswith("cell-")}
    told = [line for line in lines if line.startswith("told")]
    assert len(told) == 1, (out, err)
    assert told[0].startswith("told RunLogError") and said in told[0], told
    assert f"{folder}/samples.jsonl" in told[0] and f"{len(named)} finished cells are kept" in told[0]
    assert " free;" in told[0] and "give the same command again" in told[0]
    assert 0 < len(named) < 60
    assert (folder / "samples.jsonl").read_bytes().endswith(b"\n")
    assert {record.cell_id for record in read_records(folder)} == named


def test_a_file_size_limit_ends_in_one_line_and_resume_goes_on(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    check_full(child(LIMITED, tmp_path / "run", 60), tmp_path / "run", "has reached the size limit")
    process = child(WRITE, tmp_path / "run", 60)
    out, err = process.communicate(timeout=120)
    assert out.split()[-1] == "closed", err
    assert len(list(read_records(tmp_path / "run"))) == 60


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    done = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if not done or done.returncode:
        pytest.skip("mounting a small tmpfs is not permitted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_ends_in_one_line_and_keeps_every_finished_row(small_disk: Path) -> None:
    code = LIMITED.split("\n", 2)[2]
    check_full(child(code, small_disk / "run", 60), small_disk / "run", "the disk is full")


def test_half_a_row_on_a_full_disk_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RunLog.open(tmp_path, {}, CONFIG)
    log.append(make_record(0))
    before = (tmp_path / "samples.jsonl").read_bytes()
    real_write, calls = os.write, []

    def half(handle: int, data: bytes) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(handle, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(RunLogError, match="the disk is full"):
        log.append(make_record(1))
    monkeypatch.undo()
    assert (tmp_path / "samples.jsonl").read_bytes() == before
    with pytest.raises(RunLogError, match="the disk is full"):
        log.append(make_record(2))
    log.close()


def test_an_interrupt_between_two_halves_of_a_row_leaves_no_torn_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write, calls = os.write, []

    def interrupted(handle: int, data: bytes) -> int:
        calls.append(len(data))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real_write(handle, data[: len(data) // 2] if len(calls) == 1 else data)

    with RunLog.open(tmp_path, {}, CONFIG) as log:
        monkeypatch.setattr(os, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.append(make_record(0))
        log.append(make_record(1))
    assert list(read_records(tmp_path)) == [make_record(1)]


# -- rewriting -----------------------------------------------------------------------------------


def test_a_rescore_keeps_the_order_and_replaces_the_rows(tmp_path: Path) -> None:
    filled(tmp_path)
    rescored = (replace(r, score=replace(r.score, reason="again")) for r in read_records(tmp_path))
    assert write_records(tmp_path, rescored) == 3
    rows = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert [(row["cell_id"], row["score"]["reason"]) for row in rows] == [
        (f"cell-{number:04d}", "again") for number in range(3)
    ]


@pytest.mark.parametrize("numbers", [(0, 1), (0, 1, 2, 3), (0, 1, 1, 2), ()])
def test_a_rescore_can_neither_lose_nor_invent_a_row(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    before = filled(tmp_path)
    with pytest.raises(RunLogError, match="the old file is kept"):
        write_records(tmp_path, map(make_record, numbers))
    assert (tmp_path / "samples.jsonl").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "samples.jsonl"]


def test_closing_just_as_the_sync_thread_wakes_up_does_not_hang(tmp_path: Path) -> None:
    """The thread has found nothing to stop for, and is about to take its call to wake up back: the moment
    in which `close` says stop and wakes it."""
    log = RunLog.open(tmp_path, {}, CONFIG)
    take_back = log._unsynced.clear

    def clear() -> None:
        log._stop.set()
        log._unsynced.set()
        take_back()

    log._unsynced.clear = clear  # type: ignore[method-assign]
    log.append(make_record(1))
    log._syncer.join(5)
    assert not log._syncer.is_alive()
    log.close()
