"""Claims about what is replayed of a record: token texts, the wanted rows, and what every key is called."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from core_tokens import tiny_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from runlog_records import make_record
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from harness.attention.labels import Labels, token_at
from harness.attention.regions import group_spans, regions
from harness.attention.rows import Sequenced, sequence
from harness.attention.store import GROUPS
from harness.errors import AttentionError
from harness.parsing import parse_reply
from harness.runlog.columns import iterate_parquet
from harness.runlog.rows import SAMPLES_NAME
from harness.types import EvalRecord, Expectation, Span, Thought
from harness.weights import load_tokenizer

TOKENIZER = tiny_tokenizer()
LABELS = Labels(TOKENIZER)
CALL = '<tool_call>\n{"name": "phone_call", "arguments": {"merchant": "Xfinity", "purpose": "ask"}}\n</tool_call>'


def encode(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER(text, add_special_tokens=False)["input_ids"])


def like_llama_2() -> PreTrainedTokenizerFast:
    """Words begin with ▁, unknown characters are spelt in bytes, and the space of a text's first word is dropped."""
    words = [
        "▁",
        "▁call",
        "▁the",
        "▁merchant",
        "ed",
        ".",
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
    ]
    signs = sorted({sign for word in words[:6] for sign in word} | {chr(c) for c in range(97, 123)})
    vocabulary = {token: i for i, token in enumerate([*words, *(s for s in signs if s not in words)])}
    for word in list(words[:5]):
        for end in range(2, len(word)):
            vocabulary.setdefault(word[:end], len(vocabulary))
    merges = [(word[:end], word[end]) for word in words[:5] for end in range(1, len(word))]
    model = models.BPE(vocabulary, list(dict.fromkeys(merges)), unk_token="<unk>", byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


# -- labels ------------------------------------------------------------------------------------------------

TEXTS = [
    "Call the merchant.\n\n  Twice\t!",
    "请再打一次电话给康卡斯特",
    "été, naïve, Ærøskøbing",
    "👩‍👩‍👧 and 🏳️‍🌈",
    "<|im_start|>user\nhi<|im_end|>\n<think>a</think>",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("tokenizer", [TOKENIZER, like_llama_2()], ids=["byte-level", "sentencepiece-like"])
def test_pieces_are_one_text_per_token_and_together_the_text(tokenizer: Any, text: str) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    pieces = Labels(tokenizer).pieces(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
    assert "\ufffd" not in "".join(pieces)


@settings(max_examples=80, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\ufffd"), max_size=20))
def test_any_text_comes_back_from_its_pieces(text: str) -> None:
    ids = encode(text)
    pieces = Labels(TOKENIZER).pieces(ids)
    assert (len(pieces), "".join(pieces)) == (len(ids), text)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, len(TOKENIZER) - 1), max_size=25))
def test_broken_bytes_are_shown_and_what_follows_is_readable(ids: list[int]) -> None:
    """Models write halves of characters. After at most six such tokens the text goes on."""
    pieces = Labels(TOKENIZER).pieces([*ids, *encode(" phone call phone call")])
    assert len(pieces) == len(ids) + len(encode(" phone call phone call"))
    assert "".join(pieces).endswith("phone call")


def test_a_character_of_several_tokens_belongs_to_its_first() -> None:
    ids = encode("a好🎉b")
    pieces = LABELS.pieces(ids)
    assert [piece for piece in pieces if piece] == ["a", "好", "🎉", "b"] and len(ids) > 6
    at = pieces.index("🎉")
    assert pieces[at + 1] == "" and pieces[at - 1] == ""


def test_a_word_keeps_its_leading_space_and_no_vocabulary_mark_is_shown() -> None:
    for tokenizer in (TOKENIZER, like_llama_2()):
        ids = tokenizer("call the merchant called.", add_special_tokens=False)["input_ids"]
        pieces = Labels(tokenizer).pieces(ids)
        assert not {"Ġ", "▁"} & set("".join(pieces))
        assert any(piece.startswith(" ") for piece in pieces)
    assert pieces[:3] == ["call", " the", " merchant"]


@given(st.lists(st.text(max_size=3), min_size=1, max_size=8))
def test_a_character_is_found_in_the_token_that_holds_it(pieces: list[str]) -> None:
    text = "".join(pieces)
    for character in range(len(text)):
        token = token_at(pieces, character)
        before = len("".join(pieces[:token]))
        assert before <= character < before + len(pieces[token])


# -- records -----------------------------------------------------------------------------------------------

PROMPT = "<|im_start|>user\nPlease call Xfinity again.<|im_end|>\n<|im_start|>assistant\n"
FORCED = '<tool_call>\n{"name": "'
CHOICES = {
    "phone_call:Xfinity": encode('phone_call", "arguments": {"merchant": "Xfinity"'),
    "phone_call:Brightwell": encode('phone_call", "arguments": {"merchant": "Brightwell"'),
    "web_search": encode('web_search"'),
    "reply": encode('reply"'),
}
EXPECTED = Expectation("due", "phone_call", "merchant", "Xfinity", ("Brightwell",))


def choose(thoughts: Sequence[Thought] = (), **changes: Any) -> EvalRecord:
    base = make_record(1)
    output = replace(
        base.output, choice_logprobs={label: -1.0 - i for i, label in enumerate(CHOICES)},
        thoughts=tuple(thoughts), token_ids=(), text="",
    )  # fmt: skip
    given: dict[str, Any] = {
        "probe": "choose", "prompt_ids": encode(PROMPT), "spans": (), "choices": CHOICES, "bar_text": "",
        "forced_ids": encode(FORCED), "expectation": EXPECTED, "output": output, "parsed": None,
    }  # fmt: skip
    return replace(base, **{**given, **changes})


def act(reply: str, prompt: str = PROMPT, **changes: Any) -> EvalRecord:
    base = make_record(1)
    think_open = changes.get("think_open", False)
    parsed = parse_reply(reply, tool_names=("phone_call", "web_search", "reply"), think_open=think_open)
    given: dict[str, Any] = {
        "probe": "act", "prompt_ids": encode(prompt), "spans": (), "choices": {}, "bar_text": "",
        "expectation": EXPECTED, "output": replace(base.output, text=reply, token_ids=encode(reply)),
        "parsed": parsed,
    }  # fmt: skip
    return replace(base, **{**given, **changes})


def behind(record: EvalRecord, found: Sequenced, position: int) -> str:
    """The text that follows a row, from what was recorded."""
    whole = record.prompt_ids + record.output.token_ids if record.probe != "choose" else found.ids
    return TOKENIZER.decode(whole[position + 1 :], clean_up_tokenization_spaces=False)


def within(found: Sequenced) -> bool:
    """Are all rows and ranges positions of the replayed sequence?"""
    size = len(found.ids)
    rows = [row.position for row in (*found.rows, *found.path)]
    ranges = [*found.thinking, found.answer, found.forced]
    assert len(found.pieces) == size
    return all(0 <= row < size for row in rows) and all(0 <= a <= b <= size for a, b in ranges)


def test_choose_is_read_before_the_name_and_before_the_value_parts() -> None:
    record = choose()
    found = sequence(record, LABELS)
    decision, value = found.rows
    assert (decision.kind, decision.name, value.kind, value.name) == (
        "decision", "phone_call", "value", "Xfinity",
    )  # fmt: skip
    stem = record.prompt_ids + record.forced_ids
    assert decision.position == len(stem) - 1 == found.stem - 1
    assert "".join(found.pieces[: found.stem]).endswith(FORCED)
    assert "".join(found.pieces[found.stem :]) == 'phone_call", "arguments": {"merchant": "'
    assert value.position == len(found.ids) - 1
    own, other = CHOICES["phone_call:Xfinity"], CHOICES["phone_call:Brightwell"]
    parts = len(found.ids) - found.stem
    assert own[:parts] == other[:parts] and own[parts] != other[parts]
    assert found.forced == (found.prompt, found.stem) and found.answer == (found.stem, len(found.ids))
    assert found.recorded == record.output.choice_logprobs and found.choices == CHOICES
    assert found.path == () and found.thinking == () and within(found)


def test_without_a_rival_value_there_is_no_value_row() -> None:
    alone = {label: ids for label, ids in CHOICES.items() if label != "phone_call:Brightwell"}
    found = sequence(choose(choices=alone), LABELS)
    assert [row.kind for row in found.rows] == ["decision"] and len(found.ids) == found.stem


def test_a_choice_that_was_not_offered_cannot_be_replayed() -> None:
    others = {label: ids for label, ids in CHOICES.items() if label != "phone_call:Xfinity"}
    with pytest.raises(AttentionError, match="no 'phone_call:Xfinity'"):
        sequence(choose(choices=others), LABELS)


@pytest.mark.parametrize("think_open", [False, True])
def test_after_thinking_the_first_thought_that_closed_itself_is_replayed(think_open: bool) -> None:
    opening = "" if think_open else "<think>\n"
    texts = ["Cut off", "Xfinity was called twice, 请看.\n", "Never read."]
    thoughts = [
        Thought(encode(opening + text + ("" if cut else "</think>")), cut, 9, (-1.0, -2.0, -3.0, -4.0 - i))
        for i, (text, cut) in enumerate(zip(texts, (True, False, False), strict=True))
    ]
    prompt = PROMPT + ("<think>\n" if think_open else "")
    record = choose(thoughts, prompt_ids=encode(prompt), think_open=think_open)
    found = sequence(record, LABELS)
    assert found.ids[: found.stem] == (
        record.prompt_ids + thoughts[1].token_ids + encode("\n\n") + record.forced_ids
    )
    assert found.recorded == dict(zip(sorted(CHOICES), thoughts[1].logprobs, strict=True))
    ((start, end),) = found.thinking
    inside = "".join(found.pieces[start:end])
    assert inside.strip() == texts[1].strip() and "think" not in inside
    assert [row.position for row in found.path] == list(range(start - 1, end - 1))
    assert all(row.name == found.pieces[row.position + 1] for row in found.path)
    assert {row.kind for row in found.path} == {"thinking"}
    assert found.rows[0].position == found.stem - 1 and within(found)
    assert len(sequence(record, LABELS, every=3).path) == -(-(end - start) // 3)


def test_thoughts_that_were_all_cut_cannot_be_replayed() -> None:
    cut = Thought(encode("<think>\nhm"), True, 1, (0.0,) * 4, censored=True)
    with pytest.raises(AttentionError, match="thoughts was cut"):
        sequence(choose([cut, cut]), LABELS)


REPLIES = {
    "call": (CALL + "<|im_end|>", "phone_call"),
    "call after prose": (f"I will do that now.\n{CALL}<|im_end|>", "phone_call"),
    "call after prose that names it": (f'The tool "phone_call" fits.\n{CALL}<|im_end|>', "phone_call"),
    "call after thinking": (f"<think>\nThe tool phone_call.\n</think>\n\n{CALL}<|im_end|>", "phone_call"),
    "call after a call in thinking": (
        f'<think>\n{CALL}\n</think>\n\n<tool_call>\n{{"name": "web_search", "arguments": {{"query": "x"}}}}'
        "\n</tool_call><|im_end|>",
        "web_search",
    ),
    "two calls": (
        '<tool_call>\n{"name": "web_search", "arguments": {"query": "phone_call"}}\n</tool_call>\n' + CALL,
        "web_search",
    ),
    "arguments first": (
        '<tool_call>\n{"arguments": {"merchant": "Xfinity"}, "name":"phone_call"}\n</tool_call>',
        "phone_call",
    ),
}


@pytest.mark.parametrize("case", REPLIES)
def test_a_reply_with_a_call_has_a_row_where_the_calls_name_begins(case: str) -> None:
    reply, name = REPLIES[case]
    record = act(reply)
    found = sequence(record, LABELS)
    decision, call = found.rows
    answer = next(row for row in found.path if row.kind == "answer")
    assert (decision.kind, decision.position) == ("decision", answer.position), (
        "decided where the answer begins"
    )
    assert (call.kind, call.name) == ("call", name)
    text = behind(record, found, call.position)
    # The row's token is the one that holds the name's first character, be there a quote before it.
    assert text.lstrip(' "').startswith(name)
    before = TOKENIZER.decode(record.prompt_ids + record.output.token_ids, clean_up_tokenization_spaces=False)
    before = before[: len(before) - len(text)].rstrip(' "')
    assert before.endswith('"name":'), before[-30:]
    assert within(found)


@pytest.mark.parametrize(
    ("reply", "first"),
    [
        ("I have called twice already.<|im_end|>", "I"),
        ("<think>\nNo.\n</think>\n\nThe limit is reached.<|im_end|>", "The"),
        ("请稍等。<|im_end|>", "请"),
        ('{"broken": "phone_call"', "{"),
    ],
)
@pytest.mark.parametrize("probe", ["act", "ask"])
def test_a_reply_without_a_call_is_decided_at_its_first_answer_token(
    reply: str, first: str, probe: Any
) -> None:
    record = act(reply, probe=probe)
    found = sequence(record, LABELS)
    (decision,) = found.rows
    assert decision.kind == "decision"
    assert behind(record, found, decision.position).startswith(first)
    answer = [row for row in found.path if row.kind == "answer"]
    assert answer[0].position == decision.position and within(found)


def test_rows_say_which_token_they_predict() -> None:
    record = act("<think>\nTwo of three.\n</think>\n\nI will call.<|im_end|>")
    found = sequence(record, LABELS, answer_tokens=[0, 1, 3, 500])
    all_pieces = LABELS.pieces(record.prompt_ids + record.output.token_ids)
    for row in (*found.rows, *found.path):
        assert row.name == all_pieces[row.position + 1]
    assert [row.kind for row in found.rows] == ["decision", "answer", "answer"], "a row comes once"
    assert found.ids == (record.prompt_ids + record.output.token_ids)[:-1], "its last token predicts nothing"
    ((start, end),) = found.thinking
    assert "".join(found.pieces[start:end]).strip() == "Two of three."
    assert "".join(found.pieces[slice(*found.answer)]).strip() == "I will call."
    thinking = [row.position for row in found.path if row.kind == "thinking"]
    assert thinking == list(range(start - 1, end - 1))


def test_a_reply_cut_inside_its_thinking_decides_nothing() -> None:
    for reply, think_open in (("<think>\nLet me see, the limit", False), ("Let me see, the limit", True)):
        record = act(reply, think_open=think_open)
        found = sequence(record, LABELS)
        assert found.rows == () and found.answer[0] == found.answer[1]
        assert {row.kind for row in found.path} == {"thinking"}
        assert found.path[-1].position == len(found.ids) - 1
        assert within(found)


def test_a_reply_of_one_token_is_decided_by_the_prompts_last_row() -> None:
    record = act("", output=replace(make_record(1).output, token_ids=(encode("I")[0],)))
    found = sequence(record, LABELS)
    assert found.ids == record.prompt_ids and found.rows[0].position == len(record.prompt_ids) - 1
    assert within(found)


def test_a_reply_without_token_ids_cannot_be_replayed() -> None:
    with pytest.raises(AttentionError, match="no token ids"):
        sequence(act("", output=replace(make_record(1).output, token_ids=())), LABELS)


# -- regions -----------------------------------------------------------------------------------------------

BAR = "<agent_status>\nphone_call: 2 of 3\n\n- 请看 🎉\n</agent_status>"
PARTS: tuple[tuple[str | None, str], ...] = (
    (None, "<|im_start|>system\n"),
    ("system", "You settle matters."),
    ("tools", "\n# Tools: phone_call"),
    (None, "<|im_end|>\n<|im_start|>"),
    ("user", "user\nHelp me."),
    ("call:phone_call:Xfinity", "phone_call Xfinity"),
    ("result:phone_call:Xfinity", "Busy."),
    ("call:phone_call:Brightwell", "phone_call Brightwell"),
    ("result:phone_call:Brightwell", "Waiting."),
    ("call:web_search", "web_search"),
    ("result:web_search", "Nothing found."),
    ("call:phone_call:Xfinity", "phone_call Xfinity again"),
    ("assistant", "They are at it."),
    ("follow_up", "Ring Xfinity again."),
    (None, "<|im_end|>\n<|im_start|>user\n"),
    ("bar", BAR),
    (None, "<|im_end|>\n<|im_start|>assistant\n"),
)


def spanned() -> tuple[tuple[int, ...], tuple[Span, ...]]:
    ids: tuple[int, ...] = ()
    spans = []
    for region, text in PARTS:
        own = encode(text)
        if region is not None:
            spans.append(Span(region, len(ids), len(ids) + len(own)))
        ids += own
    return ids, tuple(spans)


def texts(cell: Sequenced, of_key: Any, number: int) -> str:
    return "".join(piece for piece, owner in zip(cell.pieces, of_key, strict=True) if owner == number)


def made() -> EvalRecord:
    ids, spans = spanned()
    return choose(prompt_ids=ids, spans=spans, bar_text=BAR)


def test_every_part_of_a_prompt_is_a_region_of_its_own_and_the_rest_is_template() -> None:
    record = made()
    cell = sequence(record, LABELS)
    found = regions(record, cell, ())
    assert len(found.of_key) == len(cell.ids) and found.of_key.max() < len(found.names)
    by_name = {region.name: texts(cell, found.of_key, n) for n, region in enumerate(found.names)}
    assert len(by_name) == len(found.names), "names are unique"
    assert by_name["call:phone_call:Xfinity 2"] == "phone_call Xfinity again"
    assert by_name["system"] == "You settle matters." and by_name["follow_up"] == "Ring Xfinity again."
    assert by_name["forced"] == FORCED and by_name["answer"].startswith("phone_call")
    assert by_name["template"] == "".join(text for region, text in PARTS if region is None)
    assert {region.group for region in found.names} <= set(GROUPS)


def test_records_of_the_asked_for_value_of_others_and_of_other_tools_are_kept_apart() -> None:
    record = made()
    cell = sequence(record, LABELS)
    found = regions(record, cell, ())
    of_group = Counter(region.group for region in found.names)
    assert (of_group["target_calls"], of_group["target_results"]) == (2, 1)
    assert (of_group["other_calls"], of_group["other_results"]) == (1, 1)
    assert (of_group["unruled_calls"], of_group["unruled_results"]) == (1, 1)
    swapped = replace(record, expectation=replace(EXPECTED, target="Brightwell", others=("Xfinity",)))
    again = Counter(region.group for region in regions(swapped, sequence(swapped, LABELS), ()).names)
    assert (again["target_calls"], again["other_calls"]) == (1, 2)


def test_the_bars_lines_are_its_texts_lines() -> None:
    record = made()
    cell = sequence(record, LABELS)
    found = regions(record, cell, ())
    lines = [(n, region) for n, region in enumerate(found.names) if region.group == "bar"]
    shown = BAR.split("\n")
    assert "".join(texts(cell, found.of_key, n) for n, _ in lines) == BAR
    for n, region in lines:
        assert region.line is not None and region.text == shown[region.line - 1]
        assert texts(cell, found.of_key, n).strip("\n") == region.text
    assert [region.text for _, region in lines if region.text] == [line for line in shown if line]


def test_one_copy_at_two_places_has_lines_of_two_names() -> None:
    record = made()
    other = next(span for span in record.spans if span.region == "system")
    record = replace(record, spans=(*record.spans, Span("bar", other.start, other.end)))
    names = [region.name for region in regions(record, sequence(record, LABELS), ()).names]
    assert len(set(names)) == len(names) and "bar 1" in names and "bar 1, copy 2" in names


def test_sinks_are_taken_out_of_what_they_stand_in_and_nothing_else_moves() -> None:
    record = made()
    cell = sequence(record, LABELS)
    without = regions(record, cell, ())
    sinks = (0, 1, record.spans[0].start + 1)
    found = regions(record, cell, sinks)
    assert found.names == without.names
    for key, (old, new) in enumerate(zip(without.of_key, found.of_key, strict=True)):
        assert found.names[new].name == ("sinks" if key in sinks else without.names[old].name)


def test_a_groups_spans_are_those_of_its_regions() -> None:
    record = made()
    cell = sequence(record, LABELS)
    found = regions(record, cell, ())
    for group in set(GROUPS) - {"template", "sinks", "thinking"}:
        owned = [k for k, n in enumerate(found.of_key) if found.names[n].group == group]
        assert owned == [k for start, end in group_spans(record, cell, group) for k in range(start, end)], (
            group
        )
        assert owned, group


# -- a real run --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tiny_run: Path, tiny_model: Path) -> tuple[list[EvalRecord], Labels]:
    return list(iterate_parquet(tiny_run / SAMPLES_NAME)), Labels(load_tokenizer(tiny_model))


def test_every_cell_of_a_run_has_rows_that_predict_what_was_said(
    recorded: tuple[list[EvalRecord], Labels],
) -> None:
    records, labels = recorded
    kinds = Counter()
    for record in records:
        found = sequence(record, labels)
        assert within(found)
        decision = found.rows[0]
        if record.probe == "choose":
            assert "".join(found.pieces[decision.position + 1 :]).startswith("phone_call")
            asked = record.choices[f"phone_call:{record.target}"]
            own = labels.pieces(asked)[len(found.ids) - found.stem :]
            assert record.target.startswith("".join(own).strip(' "')), (own, record.target)
        else:
            reply = labels.pieces(record.output.token_ids)
            assert "".join(found.pieces[found.prompt :]) == "".join(reply[:-1])
            assert decision.position == found.prompt - 1 or reply[decision.position + 1 - found.prompt]
        kinds[record.probe] += 1
    assert kinds["choose"] > 30 and kinds["act"] > 10


def test_every_key_of_a_run_has_one_region_and_the_bars_lines_are_the_bars(
    recorded: tuple[list[EvalRecord], Labels],
) -> None:
    records, labels = recorded
    bars = 0
    for record in records:
        cell = sequence(record, labels)
        found = regions(record, cell, (0, 3))
        assert len(found.of_key) == len(cell.ids)
        names = [region.name for region in found.names]
        assert len(set(names)) == len(names)
        assert 0.05 < (found.of_key == 0).mean() < 0.6, "a part of a prompt is template, most is not"
        assert sum(record.target in region.name for region in found.names) >= record.prior_calls
        targets = [region for region in found.names if region.group == "target_calls"]
        assert len(targets) == record.prior_calls
        lines = {region.line: n for n, region in enumerate(found.names) if region.group == "bar"}
        assert bool(lines) == (record.bar != "none")
        if lines:
            bars += 1
            own = [texts(cell, found.of_key, lines[line]) for line in sorted(lines)]
            assert "".join(own).strip() == record.bar_text.strip()
            assert [text.strip("\n") for text in own] == record.bar_text.split("\n")
    assert bars > 30
