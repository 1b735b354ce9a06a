"""Samples and arms for the core's tests: from the real scenario, and small ones written by hand."""

from collections.abc import Sequence
from functools import cache

from harness.conditions import Condition
from harness.dataset import Scenario, expand, load_scenario
from harness.statusbar import AgentStatus, BarContext, BeforeFollowUp, Mismatched, Placebo, Tail
from harness.types import CallLimit, Expectation, Message, Sample, ToolCall, ToolSpec

RULE = CallLimit("phone_call", "merchant", 3)


@cache
def xfinity() -> Scenario:
    return load_scenario("xfinity")


def words(text: str) -> int:
    """A count of tokens that needs no tokenizer."""
    return len(text.split())


def all_series(seed: int, clusters: int = 1) -> list[Sample]:
    """Samples of every series of the real scenario."""
    return [
        *expand(xfinity(), series="matched", clusters=clusters, seed=seed),
        *expand(xfinity(), series="prior_calls", clusters=clusters, seed=seed),
        *expand(
            xfinity(),
            series="filler",
            clusters=clusters,
            seed=seed,
            filler_tokens=(0, 150),
            count_tokens=words,
        ),
    ]


def arms() -> tuple[Condition, ...]:
    """The six conditions of the main experiment."""
    status = AgentStatus()
    return (
        Condition("control"),
        Condition("placebo", Placebo(status), Tail()),
        Condition("mismatched", Mismatched(status), Tail()),
        Condition("agent_status", status, Tail()),
        Condition("placebo_before", Placebo(status), BeforeFollowUp()),
        Condition("agent_status_before", status, BeforeFollowUp()),
    )


def calls(*merchants: str, tool: str = "phone_call", key: str = "merchant") -> list[Message]:
    """One assistant turn and its result for each merchant."""
    turns = []
    for number, merchant in enumerate(merchants):
        call = ToolCall(tool, {key: merchant, "purpose": "ask"}, id=f"call{number:05d}")
        turns.append(Message("assistant", tool_calls=(call,)))
        turns.append(Message("tool", f"result {number}", tool_call_id=call.id, name=tool))
    return turns


def context(
    *, cluster_index: int = 0, decoys: Sequence[str] = (), rules: Sequence[CallLimit] = (RULE,), count=words
) -> BarContext:
    return BarContext(tuple(rules), cluster_index, tuple(decoys), count)


def sample(messages: Sequence[Message], *, target: str = "Xfinity", others: Sequence[str] = ()) -> Sample:
    """A sample around `messages`; what the other rooms need of it and no more."""
    string = {"type": "string"}
    tools = tuple(
        ToolSpec(name, f"Tool {name}.", {"type": "object", "properties": {key: string}})
        for name, key in (("phone_call", "merchant"), ("web_search", "query"), ("reply", "message"))
    )
    return Sample(
        id="hand/c000/due",
        scenario="hand",
        cluster="hand/c000",
        series="matched",
        messages=tuple(messages),
        tools=tools,
        rules=(RULE,),
        expectation=Expectation("due", "phone_call", "merchant", target, tuple(others)),
        prior_calls=2,
        limit=3,
        phrasing="plain",
        seed=0,
        truth={},
        decoys=("Decoy One", "Decoy Two", "Decoy Three"),
    )
