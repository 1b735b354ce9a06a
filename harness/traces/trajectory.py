"""A recorded run of an agent, and the decision points in it.

Knows messages and samples; knows no file and no format.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.delivery import requests
from harness.types import CallLimit, Message, Sample, ToolSpec


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One recorded run. `messages` name their calls call00001, call00002, … in the order in which they were made:
    a provider's random ids say nothing, some come twice, and templates that print ids would print them."""

    id: str
    """File name without its ending, and the number in the file from 0: `airline/007`."""
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    """Tools offered; empty where the record does not say."""
    source: str
    """Name of the file, without its folder."""
    format: str
    """`openai`, `anthropic` or `swe_agent`."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the record says about the whole run: reward, task, exit status. Texts, numbers, truth values and None."""


def samples(trajectory: Trajectory) -> tuple[Sample, ...]:
    """One sample for each request of the trajectory: what the agent had before it answered."""
    return tuple(
        unjudged(
            f"{trajectory.id}/r{number:04d}",
            trajectory.messages[:end],
            trajectory.tools,
            scenario=trajectory.source,
            cluster=trajectory.id,
        )
        for number, end in enumerate(requests(trajectory.messages))
    )


def unjudged(
    id: str,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    *,
    scenario: str,
    cluster: str,
    rules: Sequence[CallLimit] = (),
) -> Sample:
    """A sample of a transcript that no generator made: nobody says what was right, so there is no expectation and no
    count."""
    return Sample(
        id=id,
        scenario=scenario,
        cluster=cluster,
        series="trace",
        messages=tuple(messages),
        tools=tuple(tools),
        rules=tuple(rules),
        expectation=None,
        prior_calls=0,
        limit=0,
        phrasing="",
        seed=0,
        truth={},
    )


def numbered(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages with ids by order. A result finds its call by its id among the calls of the assistant message
    before it, and one without an id is taken for the first call that has no result yet. A result whose call is
    not there keeps what it says."""
    done: list[Message] = []
    count = 0
    waiting: list[tuple[str, str, str]] = []
    """Old id, new id and tool of each call without a result."""
    for message in messages:
        if message.role == "tool":
            at = _answered(waiting, message.tool_call_id)
            if at is not None:
                _, new, tool = waiting.pop(at)
                message = replace(message, tool_call_id=new, name=message.name or tool)
        elif message.tool_calls:
            calls = []
            waiting = []
            for call in message.tool_calls:
                count += 1
                calls.append(replace(call, id=f"call{count:05d}"))
                waiting.append((call.id, calls[-1].id, call.name))
            message = replace(message, tool_calls=tuple(calls))
        done.append(message)
    return tuple(done)


def _answered(waiting: Sequence[tuple[str, str, str]], result_id: str | None) -> int | None:
    if result_id is None:
        return 0 if waiting else None
    return next((at for at, (old, _, _) in enumerate(waiting) if old == result_id), None)
