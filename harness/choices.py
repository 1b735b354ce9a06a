"""The `choose` probe: which token ids stand for which choice.

A tool call is forced by continuing the reply exactly as the chat template writes a call, up to where the
choices part; each choice then runs through its tool's name and, for the tool that the rule counts,
through the value of the rule's argument, up to (not including) the closing quote. Derived from the
template itself, so no call format is assumed.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from harness.dataset import expected
from harness.errors import TemplateError
from harness.models.prefix_tree import common_prefix
from harness.template import ChatTemplate
from harness.types import Message, Sample, ToolCall

_END = "\ue001"
"""Marks an end in what a template writes: a private-use character that JSON keeps and no template has."""


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
        self._ids: dict[tuple[str, str, str], tuple[int, ...]] = {}

    def build(self, sample: Sample) -> ChoiceSet:
        """Choices: the asked-for tool with every key value of the transcript, and each other tool.

        Labels are `tool:value` and `tool`. Raises TemplateError when the template cannot write a
        call or two choices cannot be told apart.
        """
        expectation = expected(sample)
        ids = {
            f"{expectation.tool}:{value}": self._call_ids(sample, expectation.tool, expectation.key, value)
            for value in sorted({expectation.target, *expectation.others})
        }
        for tool in sample.tools:
            if tool.name != expectation.tool:
                ids[tool.name] = self._call_ids(sample, tool.name, "", "")
        shared = common_prefix(ids.values())
        forced = next(iter(ids.values()))[:shared]
        choices = {label: tokens[shared:] for label, tokens in ids.items()}
        _check_prefix_free(choices, sample.id)
        return ChoiceSet(forced, choices)

    def _call_ids(self, sample: Sample, tool: str, key: str, value: str) -> tuple[int, ...]:
        """Ids of what the template writes after the reply's start for this call, up to the closing
        quote of the value (of the tool's name when there is no key)."""
        known = self._ids.get((tool, key, value))
        if known is not None:
            return known
        # A mark says where the name or value ends: either may occur elsewhere in what is written.
        call = ToolCall(tool, {key: value + _END}) if key else ToolCall(tool + _END, {"x": "y"})
        start, written = self._written(sample, replace(call, id="call_0"))
        at = written.find(_END)
        if at < 0:
            raise TemplateError(f"the chat template drops tool calls ({tool}); probe choose is not possible")
        encode = self._template.encode
        ids = encode(written[:at]).ids
        before = encode(start).ids
        whole = encode(start + written.replace(_END, "", 1)).ids
        if whole[: len(before) + len(ids)] != before + ids:
            raise TemplateError(
                f"the tokens of {value or tool!r} merge with what the chat template writes around it (its closing "
                "quote, or the reply's start), so its probability cannot be read; rename it"
            )
        self._ids[tool, key, value] = ids
        return ids

    def _written(self, sample: Sample, call: ToolCall) -> tuple[str, str]:
        """A small prompt, and how the template continues it with this call."""
        opening = [Message(role="system", content="-"), Message(role="user", content="-")]
        start = self._template.text(opening, sample.tools)
        reply = Message(role="assistant", tool_calls=(call,))
        whole = self._template.text([*opening, reply], sample.tools, reply=False)
        if not whole.startswith(start):
            raise TemplateError(
                f"the chat template does not write a call of {call.name.removesuffix(_END)} as a continuation of "
                "the reply; probe choose is not possible with this model"
            )
        return start, whole[len(start) :]


def _check_prefix_free(choices: Mapping[str, tuple[int, ...]], sample_id: str) -> None:
    for label, ids in choices.items():
        for other, others in choices.items():
            if label != other and others[: len(ids)] == ids:
                raise TemplateError(
                    f"sample {sample_id}: choices {label!r} and {other!r} cannot be told apart token by token; "
                    "rename one of them"
                )
