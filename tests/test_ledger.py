"""The ledger's rows: held against the naive way, and counted by hand where the arithmetic is known."""

import copy
from dataclasses import replace

import pytest
from ledger_data import (
    POLICIES,
    Counted,
    Requests,
    Turns,
    conditions,
    conversation,
    long,
    plainly,
    with_reasoning,
)

from harness.conditions import Condition
from harness.delivery import InjectionRules
from harness.errors import ConfoundError, TemplateError
from harness.ledger import Bill, Row, arms_of, bill, totals
from harness.ledger.rows import Engine
from harness.statusbar import (
    AgentStatus,
    LastBlock,
    LastResult,
    Placement,
    StatusBar,
    StatusText,
    SystemHead,
    Tail,
)
from harness.statusbar.policies import Append, Boundary, Never
from harness.template import ChatTemplate
from harness.types import Sample

BLOCK = 16
TALK = conversation("tea", "coffee", "cocoa")


def billed(
    template: ChatTemplate,
    each: Sample = TALK,
    bar: StatusBar | None = None,
    placement: Placement | None = None,
    policies: tuple[str, ...] = tuple(POLICIES),
    engine: Engine = Engine(BLOCK),  # noqa: B008
) -> Bill:
    arms = arms_of(conditions(bar or Turns(), placement, policies))
    return bill(each, template, arms, engine)


def column(rows: list[Row], name: str) -> list[object]:
    return [getattr(row, name) for row in rows]


@pytest.mark.parametrize(
    ("bar", "placement", "each"),
    [
        (Turns(), Tail(), TALK),
        (AgentStatus(), Tail(), long(14)),
        (Requests(), SystemHead(), TALK),
        (Requests(), LastBlock(), TALK),
        (Counted(), LastResult(), TALK),
    ],
    ids=["tail", "counter", "system", "last_block", "last_result"],
)
def test_every_row_is_what_rendering_and_comparing_each_prompt_as_a_whole_gives(
    qwen: ChatTemplate, bar: StatusBar, placement: Placement, each: Sample
) -> None:
    made = billed(qwen, each, bar, placement)
    assert not made.whole
    for arm in made.arms:
        held_against_whole_prompts(made, arm.condition, each, qwen)


def held_against_whole_prompts(
    made: Bill, condition: Condition, each: Sample, template: ChatTemplate
) -> None:
    expected = plainly(each, condition, template, BLOCK)
    rows = made.of(condition.name)
    assert column(rows, "prompt_tokens") == [len(plain.ids) for plain in expected]
    assert column(rows, "shared_tokens") == [plain.shared for plain in expected]
    assert column(rows, "cached_tokens") == [plain.cached for plain in expected]
    for row in rows:
        assert row.rebilled_tokens + row.shared_tokens == row.prompt_tokens
        assert row.rebilled_in_blocks + row.cached_tokens == row.prompt_tokens


# -- what each policy does to the prefix -----------------------------------------------------------------


def test_never_has_no_bar_and_every_prompt_begins_with_the_one_before(qwen: ChatTemplate) -> None:
    rows = billed(qwen).of("never")
    assert len(rows) == 9
    assert {row.bar_tokens for row in rows} == {0}
    assert {row.copies for row in rows} == {0} and {row.newest_tokens for row in rows} == {None}
    assert all(row.drawn for row in rows), "the human sees it"
    assert [row.shared_tokens for row in rows] == [0, *(row.prompt_tokens for row in rows[:-1])]


def test_a_replaced_copy_is_billed_again_at_every_request_and_nothing_before_it(qwen: ChatTemplate) -> None:
    made = billed(qwen, bar=Requests())
    never, rows = made.of("never"), made.of("replace")
    wrapper = len(qwen.encode("<|im_start|>user\n<|im_end|>\n").ids)
    for number, row in enumerate(rows):
        text = f"<requests>\nCurrent State:\n- Requests answered: {number}\n</requests>"
        assert row.bar_tokens == row.newest_tokens == qwen.count(text) + wrapper
        assert row.copies == 1 and row.stale_copies == 0 and row.put_in == 1
    for before, row, bare in zip(never, rows[1:], never[1:], strict=False):
        # Beyond what is new anyway, the copy and the reply's heading, which stood after the copy before.
        heading = len(qwen.encode("<|im_start|>assistant\n").ids)
        new = bare.prompt_tokens - before.prompt_tokens
        assert (
            row.rebilled_tokens == new + row.bar_tokens + heading - 1
        )  # its first token is the copy's first, too


def test_appended_copies_keep_the_whole_prefix_and_pile_up(qwen: ChatTemplate) -> None:
    rows = billed(qwen, bar=Requests()).of("append")
    assert [row.shared_tokens for row in rows] == [0, *(row.prompt_tokens for row in rows[:-1])]
    assert column(rows, "copies") == list(range(1, 10))
    assert column(rows, "stale_copies") == list(range(9))
    sizes = [row.newest_tokens for row in rows]
    assert [row.bar_tokens for row in rows] == [sum(sizes[: n + 1]) for n in range(9)]  # type: ignore[misc]


def test_on_change_sends_nothing_twice_and_append_mostly_does(qwen: ChatTemplate) -> None:
    made = billed(qwen)  # three user messages, three requests each: three texts
    on_change, append = made.of("on_change"), made.of("append")
    assert column(on_change, "put_in") == [1, 0, 0, 1, 0, 0, 1, 0, 0]
    assert sum(row.resent for row in on_change) == 0
    assert all(row.up_to_date for row in on_change)
    assert column(append, "put_in") == [1] * 9
    assert column(append, "resent") == [0, 1, 1, 0, 1, 1, 0, 1, 1]
    share = {total.condition: total.resent_share for total in totals(made, 0.1)}
    assert share["append"] == share["replace"] == pytest.approx(6 / 9)
    assert share["on_change"] == 0 and share["never"] is None


def test_a_copy_that_is_not_renewed_is_outdated_until_it_is(qwen: ChatTemplate) -> None:
    rows = billed(qwen).of("every_n")  # every three requests, as the text changes
    assert all(row.up_to_date for row in rows)
    rows = billed(qwen, bar=Requests()).of("every_n")
    assert column(rows, "up_to_date") == [True, False, False] * 3
    assert column(rows, "copies") == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_a_changed_system_prompt_bills_the_whole_conversation_again(qwen: ChatTemplate) -> None:
    head = billed(qwen, bar=Requests(), placement=SystemHead())
    tail = billed(qwen, bar=Requests(), placement=Tail())
    system = len(qwen.encode(qwen.text(TALK.messages[:1], TALK.tools, reply=False)).ids)
    for row in head.of("replace")[1:]:
        assert row.shared_tokens < system
    assert {row.bar_tokens for row in head.of("never")} == {0}
    by_place = [totals(made, 0.1)[1].extra_rebilled_tokens for made in (head, tail)]
    assert by_place[0] is not None and by_place[1] is not None
    assert by_place[0] > 5 * by_place[1]


def test_a_boundary_is_held_against_the_same_boundary_without_the_bar(qwen: ChatTemplate) -> None:
    made = billed(qwen, bar=Requests())
    bare, rows = made.of("boundary_without_bar"), made.of("boundary")
    assert [arm.control for arm in made.arms if arm.name == "boundary"] == ["boundary_without_bar"]
    assert max(row.messages for row in rows) < max(row.messages for row in made.of("never"))
    assert column(rows, "messages") == column(bare, "messages")
    for row, without in zip(rows, bare, strict=True):
        assert row.prompt_tokens - without.prompt_tokens == row.bar_tokens
        assert (row.bar_tokens > 0) == (row.copies == 1)
    assert sum(row.put_in for row in rows) == 2
    assert sum(row.resent for row in billed(qwen, bar=_Always()).of("boundary")) == 0, (
        "the one before is gone"
    )


class _Always:
    name = "always"

    def draw(self, state: object, context: object) -> StatusText:
        return StatusText("always", ("- The same.",))


# -- the cache --------------------------------------------------------------------------------------------


def test_kept_replies_are_not_billed_when_they_come_back_unless_a_copy_stood_before_them(
    qwen: ChatTemplate,
) -> None:
    prompts_alone = billed(qwen, bar=Requests())
    with_replies = billed(qwen, bar=Requests(), engine=Engine(BLOCK, keeps_replies=True))
    for name, saved in (("never", True), ("append", True), ("replace", False)):
        before, after = prompts_alone.of(name), with_replies.of(name)
        for earlier, row, kept in zip(before, before[1:], after[1:], strict=False):
            assert earlier.output_tokens is not None
            # All of the reply but its last token, which is written and never read.
            expected = earlier.output_tokens - 1 if saved else 0
            assert row.rebilled_tokens - kept.rebilled_tokens == expected, name


def test_output_tokens_are_those_of_the_recorded_reply(qwen: ChatTemplate) -> None:
    rows = billed(qwen, conversation("tea", results=False)).of("never")
    assert column(rows, "output_tokens") == [qwen.count("Tea is known.") + 1]
    call = "I look.\n<tool_call>\n" + '{"name": "web_search", "arguments": {"query": "tea 0"}}\n</tool_call>'
    assert billed(qwen).of("never")[0].output_tokens == len(qwen.encode(call + "<|im_end|>").ids)


def test_a_reply_that_is_not_recorded_has_no_known_length(qwen: ChatTemplate) -> None:
    made = billed(qwen, replace(TALK, messages=TALK.messages[:-1]))
    assert made.of("never")[-1].output_tokens is None
    assert {total.output_tokens for total in totals(made, 0.1)} == {None}


def test_a_small_cache_forgets_and_bills_again(qwen: ChatTemplate) -> None:
    room = billed(qwen, engine=Engine(BLOCK, 10_000)).of("never")
    assert column(room, "cached_tokens") == column(billed(qwen).of("never"), "cached_tokens")
    small = billed(qwen, engine=Engine(BLOCK, 2)).of("never")
    assert [row.cached_tokens for row in small] == [0, *[2 * BLOCK] * 8]


# -- templates that look back -------------------------------------------------------------------------------

COUNTS_MESSAGES = (
    "{{ messages | length }} messages\n{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SHORTENS_OLD_RESULTS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'tool' and not loop.last %}(old){% else %}"
    "{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WANTS_A_USER = (
    "{% if messages | selectattr('role', 'equalto', 'user') | list | length == 0 %}"
    "{{ raise_exception('no user query') }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NO_MARKS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "


def other(qwen: ChatTemplate, text: str) -> ChatTemplate:
    tokenizer = copy.copy(qwen.tokenizer)  # the tokens are shared, the template is its own
    tokenizer.chat_template = text
    return ChatTemplate(tokenizer)


@pytest.mark.parametrize("text", [COUNTS_MESSAGES, SHORTENS_OLD_RESULTS, WANTS_A_USER, NO_MARKS])
def test_a_template_that_does_more_than_to_add_at_the_end_is_rendered_as_a_whole(
    qwen: ChatTemplate, text: str
) -> None:
    template = other(qwen, text)
    made = billed(template, policies=("never", "replace", "append"))
    assert made.whole
    for arm in made.arms:
        held_against_whole_prompts(made, arm.condition, TALK, template)


def test_recorded_thoughts_are_rendered_as_a_whole_too(qwen: ChatTemplate) -> None:
    each = with_reasoning(TALK)
    made = billed(qwen, each, policies=("replace",))
    assert made.whole
    held_against_whole_prompts(made, made.arms[-1].condition, each, qwen)


# -- what cannot be billed ------------------------------------------------------------------------------------


def test_what_a_template_refuses_is_said_with_the_policy(qwen: ChatTemplate) -> None:
    strict = other(qwen, "{{ raise_exception('never') }}")
    with pytest.raises(TemplateError, match=r"policy never, trajectory hand/c000/due: .*never"):
        billed(strict)


class _Refuses:
    name = "refuses"

    def place(self, messages: tuple[object, ...], bar: str) -> tuple[object, ...]:
        raise ConfoundError("there is no room for it")


def test_a_bar_that_cannot_be_placed_is_said_with_the_policy(qwen: ChatTemplate) -> None:
    with pytest.raises(ConfoundError, match=r"policy replace, trajectory .*: there is no room"):
        billed(qwen, placement=_Refuses(), policies=("replace",))  # type: ignore[arg-type]


def test_what_a_rule_keeps_out_is_counted_by_rule(qwen: ChatTemplate) -> None:
    def kept(rules: InjectionRules) -> tuple[int, int, int]:
        arms = arms_of([Condition("append", Turns(), Tail(), Append(), rules)])
        append = totals(bill(TALK, qwen, arms, Engine(BLOCK)), 0.1)[-1]
        return append.put_in, append.kept_out_dedupe, append.kept_out_budget

    assert kept(InjectionRules()) == (9, 0, 0)
    assert kept(InjectionRules(dedupe=True)) == (3, 6, 0)  # three texts at nine requests
    assert kept(InjectionRules(max_tokens=1)) == (0, 0, 9)
    assert kept(InjectionRules(dedupe=True, max_tokens=10_000)) == (3, 6, 0)


def test_a_trajectory_without_a_request_is_refused(qwen: ChatTemplate) -> None:
    with pytest.raises(ConfoundError, match="no request"):
        billed(qwen, replace(TALK, messages=()))


def test_controls_are_added_where_they_are_missing_and_come_first() -> None:
    arms = arms_of(
        [Condition("late", Turns(), Tail(), Boundary(9)), Condition("kept", Turns(), Tail(), Append())]
    )
    assert [(arm.name, arm.control) for arm in arms] == [
        ("never", "never"), ("late_without_bar", "late_without_bar"), ("late", "late_without_bar"), ("kept", "never"),
    ]  # fmt: skip
    own = Condition("quiet", Turns(), Tail(), Never())
    assert [arm.name for arm in arms_of([Condition("kept", Turns(), Tail(), Append()), own])] == [
        "quiet",
        "kept",
    ]
