"""Growing transcripts → token ids, each stretch of a transcript rendered and encoded once.

A chat template is concatenative when a conversation's text is its first message's text and then, one after the other,
what each further unit adds: a message, or a run of tool results, which some templates put under one heading. Then a
prompt is a list of known pieces. Whether a template is so is not believed but tried, by rendering whole prompts
(`same_as_whole`); with `whole` every prompt is rendered as one.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from harness.errors import TemplateError
from harness.ledger.pieces import Pieces, Prompt
from harness.template import THINK_CLOSE, ChatTemplate
from harness.types import Message, ToolSpec


class NotConcatenativeError(Exception):
    """The template does more than to add what is new at the end; never leaves this room."""


class Prompts:
    """Prompts of one transcript and of what conditions make of it.

    `transcript`: the messages that recur, recognised by identity. `whole`: render every prompt as one, for templates
    that are not concatenative.
    """

    def __init__(
        self,
        template: ChatTemplate,
        tools: Sequence[ToolSpec],
        transcript: Sequence[Message],
        *,
        whole: bool = False,
    ) -> None:
        self.whole = whole
        self.pieces = Pieces()
        self._template = template
        self._tools = tools
        self._transcript = tuple(transcript)  # kept, so that the identities below stay theirs
        self._known = {id(message): number for number, message in enumerate(self._transcript)}
        self._splits = tuple(
            token.content
            for token in template.tokenizer.added_tokens_decoder.values()
            if not (token.lstrip or token.rstrip or token.normalized or token.single_word)
        )
        self._units: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._heads: dict[object, tuple[int, ...]] = {}
        self._anchor: tuple[Message, str, str] | None = None
        self._opening: tuple[int, ...] = ()

    def of(self, messages: Sequence[Message]) -> Prompt:
        """The prompt that asks for the next reply. Raises TemplateError when the template refuses it, and
        NotConcatenativeError, unless `whole`, when it has no pieces."""
        if self.whole or not messages:
            return self._of_text(self._template.text(messages, self._tools))
        found = list(self._head(messages[0]))
        run: list[Message] = []
        for message in messages[1:]:
            if message.role == "tool":
                run.append(message)
                continue
            if run:
                found.extend(self._unit(run))
                run = []
            found.extend(self._unit((message,)))
        if run:
            found.extend(self._unit(run))
        found.extend(self._opening)
        return self.pieces.prompt(found)

    def same_as_whole(self, messages: Sequence[Message]) -> bool:
        """Are the pieces' token ids those of the whole text?"""
        whole = self._template.encode(self._template.text(messages, self._tools)).ids
        return bool(
            np.array_equal(self.pieces.ids(self.of(messages).pieces), np.asarray(whole, dtype=np.int32))
        )

    def reply_ids(self, reply: Message) -> tuple[int, ...] | None:
        """What the model wrote for a recorded reply, its end mark included; None where the template does not print it
        alone."""
        try:
            added, opening = self._added((reply,)), self._anchored()[2]
        except NotConcatenativeError:
            return None
        # Both begin with the reply's heading, which the prompt holds already.
        same = next((i for i, (a, b) in enumerate(zip(added, opening, strict=False)) if a != b), len(opening))
        return self._template.encode(added[same:].rstrip("\n")).ids

    def followed_by(self, prompt: Prompt, ids: tuple[int, ...]) -> Prompt:
        """A prompt with the reply to it, all but the last token: that one is written and never read."""
        kept = ids[:-1]
        if not kept:
            return prompt
        return self.pieces.prompt([*prompt.pieces.tolist(), self.pieces.number(kept)])

    # -- units ----------------------------------------------------------------------------------------

    def _of_text(self, text: str) -> Prompt:
        return self.pieces.prompt(self._split(text))

    def _split(self, text: str) -> tuple[int, ...]:
        return tuple(self.pieces.number(chunk.ids) for chunk in self._template.encode(text).chunks)

    def _head(self, first: Message) -> tuple[int, ...]:
        key = self._key(first)
        if key not in self._heads:
            self._anchor_at(first)
            self._heads[key] = self._split(self._alone([first], self._tools))
        return self._heads[key]

    def _unit(self, messages: Sequence[Message]) -> tuple[int, ...]:
        key = tuple(map(self._key, messages))
        if key not in self._units:
            self._units[key] = self._split_off(self._added(messages))
        return self._units[key]

    def _anchor_at(self, first: Message) -> None:
        """The conversation that units are printed after, to see what they add: the first one's first message."""
        if self._anchor is None:
            alone, asking = (self._alone([first], (), reply=reply) for reply in (False, True))
            if not asking.startswith(alone):
                raise NotConcatenativeError
            self._anchor = (first, alone, asking[len(alone) :])
            self._opening = self._split_off(self._anchor[2])

    def _anchored(self) -> tuple[Message, str, str]:
        if self._anchor is None:
            self._anchor_at(self._transcript[0])
        assert self._anchor is not None
        return self._anchor

    def _added(self, messages: Sequence[Message]) -> str:
        first, alone, _ = self._anchored()
        text = self._alone([first, *messages], ())
        if not text.startswith(alone):
            raise NotConcatenativeError
        return text[len(alone) :]

    def _alone(self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, reply: bool = False) -> str:
        """A stretch of a conversation, which a template may refuse though it takes the whole."""
        try:
            return self._template.text(messages, tools, reply=reply)
        except TemplateError as error:
            raise NotConcatenativeError from error

    def _split_off(self, text: str) -> tuple[int, ...]:
        """Pieces of a stretch that may follow any other: it begins with a token that is split off before all else."""
        if text and not text.startswith(self._splits):
            raise NotConcatenativeError
        return self._split(text)

    def _key(self, message: Message) -> object:
        known = self._known.get(id(message))
        if known is not None:
            return known
        if message.reasoning is not None and self._template.keep_reasoning:
            raise NotConcatenativeError
        calls = tuple((call.name, call.id, _frozen(call.arguments)) for call in message.tool_calls)
        return (message.role, message.content, message.tool_call_id, message.name, calls)


def _frozen(value: object) -> object:
    """Plain data as something that can be a key. Keys keep their order, which a template prints, and 1, 1.0 and True
    are not one."""
    if isinstance(value, Mapping):
        return tuple((key, _frozen(inner)) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return (type(value).__name__, *map(_frozen, value))
    return (type(value).__name__, value)


def looks_back(template: ChatTemplate, messages: Sequence[Message]) -> bool:
    """May the template print an earlier message otherwise as the conversation grows? Some take the reasoning out of
    all turns before the last user message."""
    return any(
        (message.reasoning is not None and template.keep_reasoning) or THINK_CLOSE in message.content
        for message in messages
    )
