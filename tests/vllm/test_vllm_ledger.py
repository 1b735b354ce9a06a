"""The ledger's predicted cached tokens, held against what vLLM's prefix cache gave back."""

from dataclasses import replace

import pytest
from ledger_data import Turns, conditions, conversation

from harness.conditions import unfold
from harness.delivery import requests
from harness.ledger import arms_of, bill
from harness.ledger.rows import Engine
from harness.models.vllm_engine import VllmModel
from harness.statusbar import StatusBar, Tail
from harness.template import ChatTemplate
from harness.types import Decoding, RenderedPrompt, Request, Sample

TRAJECTORY: Sample = conversation("tea", "coffee", "cocoa", "an egg")
REQUESTS = 10
POLICIES = ("replace", "append", "on_change")


def trajectory() -> Sample:
    """Ten requests: the last two are left out."""
    ends = requests(TRAJECTORY.messages)[:REQUESTS]
    return replace(TRAJECTORY, messages=TRAJECTORY.messages[: ends[-1]])


def measured(
    engine: VllmModel, template: ChatTemplate, each: Sample, bar: StatusBar, policy: str
) -> list[int]:
    """Cached tokens of each request in turn, beginning with an empty cache; one new token a request."""
    engine._engine.reset_prefix_cache()
    (condition,) = conditions(bar, Tail(), (policy,))
    found = []
    for number, delivered in enumerate(unfold(each, condition, template.count)):
        text = template.text(delivered.messages, each.tools)
        prompt = RenderedPrompt(template.encode(text).ids, text, (), template.hash, "")
        output = engine.run_alone(Request(f"{policy}{number}", "act", prompt, Decoding(1), 0), "natural")
        assert output.usage.cached_tokens is not None
        found.append(output.usage.cached_tokens)
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_the_cache_holds_what_the_ledger_predicts_within_one_block(
    engine: VllmModel, qwen: ChatTemplate, policy: str
) -> None:
    each, block = trajectory(), engine.cache_block
    assert block is not None
    made = bill(each, qwen, arms_of(conditions(Turns(), Tail(), (policy,))), Engine(block))
    rows = made.of(policy)
    assert len(rows) == REQUESTS and max(row.prompt_tokens for row in rows) < 1500
    predicted = [row.cached_tokens for row in rows]
    found = measured(engine, qwen, each, Turns(), policy)
    print(policy, block, predicted, found)
    assert sum(found) > 0
    assert all(abs(a - b) <= block for a, b in zip(predicted, found, strict=True)), (predicted, found)
