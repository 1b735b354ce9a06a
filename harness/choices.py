"""The `choose` probe: which token ids stand for which choice.

A tool call is forced by continuing the reply exactly as the chat template writes a call, up to where the
choices part; each choice then runs through its tool's name and, for the tool that the rule counts,
through the value of the rule's argument, up to (not including) the closing quote. Derived from the
template itself, so no call format is assumed.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from harness.errors import TemplateError
from harness.models.prefix_tree import common_prefix
from harness.template import ChatTemplate
from harness.types import Message, Sample, ToolCall


class ChoiceSet(NamedTuple):
    """`forced`: ids common to all choices. `choices`: label → ids after them, none a prefix of another."""

    forced: tuple[int, ...]
    choices: Mapping[str, tuple[int, ...]]


class ChoiceBuilder:
    """Builds choice sets for one template; what recurs across samples is computed once."""

    def __init__(self, template: ChatTemplate) -> None:
        if template.thinking != "off":
            raise TemplateError(
                "probe choose needs thinking=off here: probabilities after the prompt alone mean nothing to a "
                "model that would think first"
            )
        self._template = template
        self._texts: dict[tuple[str, str, str], str] = {}

    def build(self, sample: Sample) -> ChoiceSet:
        """Choices: the asked-for tool with every key value of the transcript, and each other tool.

        Labels are `tool:value` and `tool`. Raises TemplateError when the template cannot write a
        call or two choices cannot be told apart.
        """
        expectation = sample.expectation
        texts = {
            f"{expectation.tool}:{value}": self._call_text(sample, expectation.tool, expectation.key, value)
            for value in sorted({expectation.target, *expectation.others})
        }
        for tool in sample.tools:
            if tool.name != expectation.tool:
                texts[tool.name] = self._call_text(sample, tool.name, "", "")
        ids = {label: self._template.encode(text).ids for label, text in texts.items()}
        shared = common_prefix(ids.values())
        forced = next(iter(ids.values()))[:shared]
        choices = {label: tokens[shared:] for label, tokens in ids.items()}
        _check_prefix_free(choices, sample.id)
        return ChoiceSet(forced, choices)

    def _call_text(self, sample: Sample, tool: str, key: str, value: str) -> str:
        """What the template writes after the reply's start for this call, cut before the closing
        quote of the value (of the tool's name when there is no key)."""
        known = self._texts.get((tool, key, value))
        if known is not None:
            return known
        arguments = {key: value} if key else {"x": "y"}
        opening = [Message(role="system", content="-"), Message(role="user", content="-")]
        call = Message(role="assistant", tool_calls=(ToolCall(tool, arguments, id="call_0"),))
        start = self._template.text(opening, sample.tools)
        whole = self._template.text([*opening, call], sample.tools, reply=False)
        if not whole.startswith(start):
            raise TemplateError(
                f"the chat template does not write a call of {tool} as a continuation of the reply; "
                "probe choose is not possible with this model"
            )
        suffix = whole[len(start) :]
        at = suffix.find(tool)
        end = at + len(tool)
        if key and at >= 0:
            spelt = json.dumps(value, ensure_ascii=False)[1:-1]
            at = suffix.find(spelt, end)
            end = at + len(spelt)
        if at < 0:
            raise TemplateError(f"the chat template drops tool calls ({tool}); probe choose is not possible")
        self._texts[(tool, key, value)] = suffix[:end]
        return suffix[:end]


def _check_prefix_free(choices: Mapping[str, tuple[int, ...]], sample_id: str) -> None:
    for label, ids in choices.items():
        for other, others in choices.items():
            if label != other and others[: len(ids)] == ids:
                raise TemplateError(
                    f"sample {sample_id}: choices {label!r} and {other!r} cannot be told apart token by token; "
                    "rename one of them"
                )
