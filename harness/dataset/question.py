"""The probe `ask`: a question about the state in place of the follow-up.

Knows how the question is worded and that its one right answer is the number of calls made to the target, which is
the sample's `prior_calls`. Does not know how a reply is read (`scorers.ask`) nor what a bar is: everything before
the question, and so the state that a bar is drawn from, stays as it was.
"""

from dataclasses import replace

from harness.dataset.episode import generator
from harness.dataset.load import Scenario
from harness.errors import ScenarioError
from harness.sandbox import render
from harness.types import Expectation, Sample

DEFAULT = (
    "How many times have you used `{{ tool }}` for the {{ key }} {{ merchant }} in this conversation so far? "
    "Answer with the number only."
)
"""The question of a scenario that words none of its own under `ask`."""
SUFFIX = "/ask"
"""Ends the id of a sample that asks, which so differs from that of the sample it was made from."""


def expected(sample: Sample) -> Expectation:
    """What was asked for and whether it is due. Raises ScenarioError for a decision point of an imported trajectory,
    of which nobody knows what was right."""
    if sample.expectation is None:
        raise ScenarioError(
            f"sample {sample.id}: it states no expectation, so that no probe can be scored on it"
        )
    return sample.expectation


def asking(scenario: Scenario, sample: Sample) -> Sample:
    """`sample` with the question about its target as the last message, instead of the follow-up.

    Among several wordings one is drawn per cluster, so that both sides of a pair ask in the same words. `phrasing`
    is `ask`, since nothing is insisted on. Raises TemplateError when the wording does not render.
    """
    wordings = scenario.spec.ask or (DEFAULT,)
    wording = generator(scenario.content_hash, sample.seed, sample.cluster, "ask").choice(wordings)
    asked = expected(sample)
    values = {"merchant": asked.target, "name": asked.target, "tool": asked.tool, "key": asked.key}
    question = replace(sample.messages[-1], content=render(wording, values, where=f"{scenario.source}: ask"))
    return replace(sample, id=sample.id + SUFFIX, messages=(*sample.messages[:-1], question), phrasing="ask")
