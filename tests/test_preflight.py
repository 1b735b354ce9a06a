"""Claims about the preflight: what a request holds, and what is refused before any model runs."""

from dataclasses import replace
from typing import Any

import pytest
from core_config import REMOVE
from core_samples import arms
from core_tokens import COUNTER, THINKER, tiny_template
from test_plan import LATENCY, SERIES, cells, length_plan, plan

from harness.choices import ChoiceBuilder
from harness.conditions import Condition, apply
from harness.errors import ConfigError, ConfoundError, TemplateError
from harness.models.prefix_tree import common_prefix
from harness.plan import Batch
from harness.preflight import Preflight, ReadyCell, prepare
from harness.statusbar import AgentStatus, Placebo
from harness.statusbar.base import StatusBar
from harness.statusbar.corrupted import Corrupted
from harness.types import Decoding

DECODING = {"choose": Decoding(1), "act": Decoding(8)}


def test_every_cell_gets_its_request_in_the_plans_order() -> None:
    batches = plan(**SERIES)
    ready = prepare(batches, tiny_template(), arms(), DECODING)
    assert ready.cell_order == [cell.id for cell in cells(batches)]
    for batch, source in zip(ready.batches, batches, strict=True):
        assert batch.number == source.number
        for cell, planned in zip(batch.cells, source.cells, strict=True):
            request = cell.request
            assert cell.cell == planned and request.seed == planned.seed and request.probe == planned.probe
            assert bool(request.choices) == bool(request.forced_ids) == (planned.probe == "choose")
            assert request.decoding == DECODING[planned.probe]
            assert (
                (cell.bar_text != "") == (request.prompt.bar_tokens > 0) == (planned.condition != "control")
            )
            assert (cell.placebo_id is not None) == (planned.condition == "placebo")
            assert request.prompt.text == "", "token ids say all of it"


def test_the_shared_prefix_is_the_longest_that_every_prompt_has() -> None:
    ready = prepare(plan(**SERIES), tiny_template(), arms(), DECODING)
    prompts = [cell.request.prompt.ids for batch in ready.batches for cell in batch.cells]
    shared = ready.shared_prefix
    assert all(ids[: len(shared)] == shared and len(ids) > len(shared) for ids in prompts)
    assert len(shared) == common_prefix(prompts)


def test_a_plan_of_one_prompt_leaves_its_last_token_to_be_read() -> None:
    batches = plan()
    one = (replace(batches[0], cells=batches[0].cells[:1]),)
    ready = prepare(one, tiny_template(), arms(), DECODING)
    assert len(ready.shared_prefix) == len(ready.batches[0].cells[0].request.prompt.ids) - 1


def test_no_cells_are_no_requests() -> None:
    ready = prepare((), tiny_template(), arms(), DECODING)
    assert (ready.batches, ready.shared_prefix, ready.cell_order) == ((), (), [])


def test_the_arms_are_proved_before_any_model_runs() -> None:
    with pytest.raises(ConfoundError, match="changes more than the bar"):
        prepare(plan(), tiny_template(COUNTER), arms(), DECODING)


def renamed(**bars: StatusBar) -> tuple[Condition, ...]:
    """The conditions of the main experiment, some of them with another bar."""
    return tuple(replace(each, bar=bars.get(each.name, each.bar)) for each in arms())


def test_two_conditions_with_the_same_prompts_are_refused() -> None:
    batches = plan(**SERIES)
    samples = {cell.sample.id for cell in cells(batches) if cell.condition == "agent_status"}
    with pytest.raises(ConfoundError) as refused:
        prepare(batches, tiny_template(), renamed(placebo=AgentStatus()), DECODING)
    assert str(refused.value).startswith(
        f"conditions agent_status and placebo send the same prompts in all {len(samples)} samples of this run"
    )


def test_prompts_that_differ_in_one_sample_are_told_apart() -> None:
    batches = plan(**SERIES)

    class Late(AgentStatus):
        def draw(self, state, context):
            other = context.sample_id == cells(batches)[-1].sample.id
            return (Placebo(AgentStatus()) if other else AgentStatus()).draw(state, context)

    assert prepare(batches, tiny_template(), renamed(placebo=Late()), DECODING).batches


def test_two_placebos_may_be_alike() -> None:
    assert prepare(
        plan(**SERIES), tiny_template(), renamed(agent_status=Placebo(AgentStatus())), DECODING
    ).batches


def test_a_bar_that_is_not_what_it_says_on_a_sample_is_refused() -> None:
    bar = Corrupted(AgentStatus(), 5)
    with pytest.raises(ConfoundError) as refused:
        prepare(plan(**SERIES), tiny_template(), renamed(agent_status=bar), DECODING)
    assert str(refused.value).startswith("condition agent_status, sample xfinity/matched/")
    assert "3 calls of phone_call with one merchant cannot be wrong by 5 %" in str(refused.value)


def ready_cells(ready: Preflight) -> list[ReadyCell]:
    return [cell for batch in ready.batches for cell in batch.cells]


def test_a_request_carries_its_arms_conversation_and_tools() -> None:
    """For engines that render a conversation themselves."""
    by_name = {condition.name: condition for condition in arms()}
    template = tiny_template()
    for cell in ready_cells(prepare(plan(), template, arms(), DECODING)):
        sample, request = cell.cell.sample, cell.request
        assert request.messages == apply(sample, by_name[cell.cell.condition], template.count).messages
        assert request.tools == sample.tools
        assert template.encode(template.text(request.messages, request.tools)).ids == request.prompt.ids


def test_what_the_arms_of_a_sample_share_ends_before_the_last_token_of_a_prompt() -> None:
    ready = ready_cells(prepare(plan(**SERIES), tiny_template(), arms(), DECODING))
    by_sample: dict[str, list[ReadyCell]] = {}
    for cell in ready:
        by_sample.setdefault(cell.cell.sample.id, []).append(cell)
    for group in by_sample.values():
        prompts = [cell.request.prompt.ids for cell in group]
        assert {cell.shared for cell in group} == {common_prefix(prompts)}
        for cell in group:
            bar = next(
                (s.start for s in cell.request.prompt.spans if s.region == "bar"),
                len(cell.request.prompt.ids),
            )
            assert 0 < cell.shared < len(cell.request.prompt.ids) and cell.shared <= bar


def test_in_the_latency_pass_the_arms_share_what_they_share_elsewhere() -> None:
    """There each arm is a batch of its own."""
    timed = ready_cells(prepare(plan(**LATENCY), tiny_template(), arms(), DECODING))
    whole = ready_cells(prepare(plan(), tiny_template(), arms(), DECODING))
    known = {cell.request.cell_id: cell for cell in whole}
    assert len(timed) == 18
    assert all(known[cell.request.cell_id] == cell for cell in timed)


def test_one_arm_alone_shares_all_but_its_last_token() -> None:
    batches = plan(condition={"control": {"bar": None, "placement": None}}, probe__act=REMOVE)
    for cell in ready_cells(prepare(batches, tiny_template(), arms(), DECODING)):
        assert cell.shared == len(cell.request.prompt.ids) - 1


# -- choose after thinking ---------------------------------------------------------------------------------


def test_choose_after_thinking_draws_thoughts_and_chooses_as_after_an_empty_one() -> None:
    template, off = tiny_template(THINKER, "native"), tiny_template(THINKER)
    batches = plan()
    decoding = {"choose": Decoding(99, temperature=0.6), "act": Decoding(8)}
    for cell in ready_cells(prepare(batches, template, arms(), decoding, thoughts=5)):
        request = cell.request
        assert request.decoding == decoding[request.probe]
        if request.probe == "act":
            assert (request.thoughts, request.stop_text, request.choices) == (0, "", {})
            continue
        assert (request.thoughts, request.stop_text) == (5, "</think>")
        forced, choices = ChoiceBuilder(off).build(cell.cell.sample)
        assert (request.forced_ids, request.choices) == (forced, choices)
        assert off.decode(forced).startswith("<tool_call>")
        assert request.prompt.ids == template.encode(template.text(request.messages, request.tools)).ids


def test_choose_without_thoughts_stays_as_it_was() -> None:
    for cell in ready_cells(prepare(plan(), tiny_template(), arms(), DECODING)):
        assert (cell.request.thoughts, cell.request.stop_text) == (0, "")
    with pytest.raises(TemplateError, match="thinking=off"):
        prepare(plan(), tiny_template(THINKER, "native"), arms(), DECODING)


# -- what the model takes ----------------------------------------------------------------------------------


def longest(ready: Preflight, thoughts: int = 0, closing: int = 0) -> int:
    """Tokens that the longest cell needs."""
    needs = []
    for cell in ready_cells(ready):
        request = cell.request
        after = request.decoding.max_new_tokens if request.probe == "act" or thoughts else 0
        if request.choices:
            after += closing + len(request.forced_ids) + max(map(len, request.choices.values()))
        needs.append(len(request.prompt.ids) + after)
    return max(needs)


FITS: dict[str, tuple[dict[str, Any], str]] = {
    "filler in choose": (
        {
            "probe__act": REMOVE,
            "probe__choose__series": {"filler": {"clusters": 1, "filler_tokens": [300]}},
        },
        r"probe\.choose\.series\.filler\.filler_tokens: 300 needs",
    ),
    "filler in act": (
        {
            "probe__choose": REMOVE,
            "probe__act__series": {"filler": {"clusters": 1, "filler_tokens": [300]}},
        },
        r"probe\.act\.series\.filler\.filler_tokens: 300 needs",
    ),
    "moved limit": (
        {
            "probe__act": REMOVE,
            "probe__choose__series": {"moved_limit": {"clusters": 1, "prior_calls": [9]}},
        },
        r"probe\.choose\.series\.moved_limit\.prior_calls: 9 needs .* give shorter ones in ",
    ),
    "prior calls": (
        {
            "probe__act": REMOVE,
            "probe__choose__series": {"prior_calls": {"clusters": 1, "prior_calls": [1, 6]}},
        },
        r"prior_calls: 6 needs .* leave 6 out of probe\.choose\.series\.prior_calls\.prior_calls",
    ),
    "matched": (
        {"probe__choose": REMOVE},
        r"probe\.act\.series\.matched needs .* lower probe\.act\.max_new_tokens",
    ),
}


@pytest.mark.parametrize(("changes", "match"), FITS.values(), ids=FITS.keys())
def test_a_length_that_the_model_does_not_take_is_one_line_with_the_key_to_change(
    changes: dict[str, Any], match: str
) -> None:
    batches, template = length_plan(**changes), tiny_template()
    need = longest(prepare(batches, template, arms(), DECODING))
    prepare(batches, template, arms(), DECODING, max_tokens=need)
    with pytest.raises(ConfigError, match=match) as caught:
        prepare(batches, template, arms(), DECODING, max_tokens=need - 1)
    assert "model.engine.max_model_len" in str(caught.value) and f"takes {need - 1};" in str(caught.value)


BOTH = {
    "filler": {"clusters": 2, "filler_tokens": [0, 300]},
    "moved_limit": {"clusters": 1, "prior_calls": [1, 9]},
}


def fitting(batches: tuple[Batch, ...], too_long: set[tuple[int, int]]) -> list[tuple[int, list[str]]]:
    """Number and cell ids of the batches without cells of these (filler tokens, prior calls; 0: of no matter)."""
    found = []
    for batch in batches:
        cells_left = [
            cell.id
            for cell in batch.cells
            if (cell.sample.filler_tokens, 0) not in too_long
            and not (cell.sample.series == "moved_limit" and (0, cell.sample.prior_calls) in too_long)
        ]
        if cells_left:
            found.append((batch.number, cells_left))
    return found


def left_in(ready: Preflight) -> list[tuple[int, list[str]]]:
    return [(batch.number, [cell.request.cell_id for cell in batch.cells]) for batch in ready.batches]


def test_a_length_that_does_not_fit_is_left_out_whole_and_told() -> None:
    """In every probe, arm and sample, though only the longest cell of one probe is too long."""
    batches = length_plan(probe__choose__series=BOTH, probe__act__series=BOTH)
    template = tiny_template()
    whole = prepare(batches, template, arms(), DECODING)
    assert whole.left_out == () and left_in(whole) == fitting(batches, set())
    most = longest(whole) - 1
    ready = prepare(batches, template, arms(), DECODING, max_tokens=most)
    lengths = {"300 filler tokens": (300, 0), "9 prior calls": (0, 9)}
    (told,) = ready.left_out
    (said,) = (what for what in lengths if what in told)
    series = "filler" if "filler" in said else "moved_limit"
    assert told == f"series {series}: {said} do not fit the model's {most} tokens and are left out"
    assert left_in(ready) == fitting(batches, {lengths[said]}) and len(ready.cell_order) < len(
        whole.cell_order
    )
    prompts = [cell.request.prompt.ids for cell in ready_cells(ready)]
    assert len(ready.shared_prefix) == common_prefix(prompts)


def test_of_several_lengths_all_that_do_not_fit_are_told_and_the_rest_runs() -> None:
    moved = {"moved_limit": {"clusters": 2, "prior_calls": [1, 8, 9]}}
    batches = length_plan(probe__choose__series=moved, probe__act=REMOVE)
    template = tiny_template()
    most = longest(prepare(fit_to(batches, 1), template, arms(), DECODING))
    ready = prepare(batches, template, arms(), DECODING, max_tokens=most)
    assert [told.partition(" do not")[0] for told in ready.left_out] == [
        "series moved_limit: 8 prior calls", "series moved_limit: 9 prior calls",
    ]  # fmt: skip
    assert left_in(ready) == fitting(batches, {(0, 8), (0, 9)})


def fit_to(batches: tuple[Batch, ...], calls: int) -> tuple[Batch, ...]:
    """The cells with at most so many prior calls."""
    return tuple(
        replace(batch, cells=tuple(cell for cell in batch.cells if cell.sample.prior_calls <= calls))
        for batch in batches
    )


def test_what_is_left_out_of_a_latency_pass_leaves_the_other_batches_their_numbers() -> None:
    series = {"moved_limit": {"clusters": 6, "prior_calls": [1, 5]}}
    batches = length_plan(**LATENCY, latency__samples=24, probe__act__series=series)
    template = tiny_template()
    most = longest(prepare(batches, template, arms(), DECODING)) - 1
    ready = prepare(batches, template, arms(), DECODING, max_tokens=most)
    assert left_in(ready) == fitting(batches, {(0, 5)}) and len(ready.batches) == 12 * 3
    numbers = [batch.number for batch in ready.batches]
    assert numbers != list(range(len(numbers))) and numbers == sorted(numbers)


def test_one_probe_whose_series_would_be_empty_is_refused_though_another_keeps_some() -> None:
    act = {"moved_limit": {"clusters": 1, "prior_calls": [9]}}
    choose = {"moved_limit": {"clusters": 1, "prior_calls": [1, 9]}}
    batches = length_plan(probe__choose__series=choose, probe__act__series=act)
    template = tiny_template()
    most = longest(prepare(batches, template, arms(), DECODING)) - 1
    with pytest.raises(ConfigError, match=r"series\.moved_limit\.prior_calls: 9 needs .* no length"):
        prepare(batches, template, arms(), DECODING, max_tokens=most)


def test_after_thinking_the_thought_its_closing_and_the_choice_must_fit() -> None:
    template, batches = tiny_template(THINKER, "native"), plan(probe__act=REMOVE)
    decoding = {"choose": Decoding(50, temperature=0.6)}
    ready = prepare(batches, template, arms(), decoding, thoughts=4)
    need = longest(ready, 4, template.count("\n</think>\n\n"))
    prepare(batches, template, arms(), decoding, thoughts=4, max_tokens=need)
    with pytest.raises(ConfigError, match="needs"):
        prepare(batches, template, arms(), decoding, thoughts=4, max_tokens=need - 1)
