"""The probe `ask`: a question about the state in place of the follow-up.

Knows how the question is worded and that its one right answer is the number of calls made to the target, which is
the sample's `prior_calls`. Does not know how a reply is read (`scorers.ask`) nor what a bar is: everything before
the question, and so the state that a bar is drawn from, stays as it was.
"""

from dataclasses import replace

from harness.dataset.episode import generator
from harness.dataset.load import Scenario
from harness.sandbox import render
from harness.types import Message, Sample

DEFAULT = (
    "How many times have you used `{{ tool }}` for the {{ key }} {{ merchant }} in this conversation so far? "
    "Answer with the number only."
)
"""The question of a scenario that words none of its own under `ask`."""
SUFFIX = "/ask"
"""Ends the id of a sample that asks, which so differs from that of the sample it was made from."""


def asking(scenario: Scenario, sample: Sample) -> Sample:
    """`sample` with the question about its target as the last message, instead of the follow-up.

    Among several wordings one is drawn per cluster, so that both sides of a pair ask in the same words. `phrasing`
    is `ask`, since nothing is insisted on. Raises TemplateError when the wording does not render.
    """
    wordings = scenario.spec.ask or (DEFAULT,)
    wording = generator(scenario.content_hash, sample.seed, sample.cluster, "ask").choice(wordings)
    expected = sample.expectation
    values = {"merchant": expected.target, "tool": expected.tool, "key": expected.key}
    question = Message("user", render(wording, values, where=f"{scenario.source}: ask"))
    return replace(sample, id=sample.id + SUFFIX, messages=(*sample.messages[:-1], question), phrasing="ask")
