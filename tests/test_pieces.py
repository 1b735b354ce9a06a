"""tokens.parquet turns recorded ids back into the text that was tokenised, to the byte."""

from dataclasses import replace
from pathlib import Path

import pytest
from core_tokens import tiny_template
from runlog_records import CONFIG, make_record

from harness.errors import RunLogError
from harness.runlog import RunLog, finalize, read_pieces, text_of, write_pieces
from harness.types import Thought

TEXT = "Überprüfe 日本語 🙂 <|im_start|>user\n\ttabs, “quotes” \u200b."
THOUGHT = "a thought: ½ of it"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    template = tiny_template()
    record = make_record(1)
    thought = Thought(template.encode(THOUGHT).ids, cut=False, reasoning_tokens=3, logprobs=(-1.0,))
    output = replace(record.output, token_ids=template.encode("reply").ids, thoughts=(thought,))
    record = replace(record, prompt_ids=template.encode(TEXT).ids, output=output)
    with RunLog.open(tmp_path / "run", {}, CONFIG) as log:
        log.append(record)
    finalize(tmp_path / "run")
    write_pieces(tmp_path / "run", template.piece)
    return tmp_path / "run"


def test_prompts_replies_and_thoughts_are_read_back_to_the_byte(run_dir: Path) -> None:
    pieces, template = read_pieces(run_dir), tiny_template()
    for text in (TEXT, "reply", THOUGHT):
        assert text_of(template.encode(text).ids, pieces) == text


def test_a_token_that_holds_part_of_a_character_keeps_its_bytes(run_dir: Path) -> None:
    pieces, template = read_pieces(run_dir), tiny_template()
    ids = template.encode("🙂").ids
    assert len(ids) > 1 and b"".join(pieces[i] for i in ids) == "🙂".encode()


def test_only_the_runs_own_tokens_are_kept_and_the_bytes_are_the_same_each_time(run_dir: Path) -> None:
    first = (run_dir / "tokens.parquet").read_bytes()
    write_pieces(run_dir, tiny_template().piece)
    assert (run_dir / "tokens.parquet").read_bytes() == first
    assert set(tiny_template().encode(TEXT).ids) <= set(read_pieces(run_dir))
    assert tiny_template().encode("zebra").ids[0] not in read_pieces(run_dir)


def test_an_id_without_a_piece_is_shown_as_its_number() -> None:
    assert text_of([1, 2], {1: b"a"}) == "a⟨2⟩"


def test_a_damaged_table_is_one_line_that_says_how_to_make_it_anew(run_dir: Path) -> None:
    (run_dir / "tokens.parquet").write_bytes(b"no parquet")
    with pytest.raises(RunLogError, match=r"tokens\.parquet: cannot be read .* writes it anew"):
        read_pieces(run_dir)
