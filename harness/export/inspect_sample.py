"""One cell → one `inspect_ai.log.EvalSample`: prompt, output, scores, errors.

Knows records and Inspect's classes; knows no file and no table. What Inspect has no place for stands in `metadata`
under our own names. A score that is null has no entry; token counts that are unknown give no usage, since
Inspect's usage takes 0 for unknown.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from inspect_ai.log import EvalError, EvalSample
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentReasoning,
    ContentText,
    ModelOutput,
    ModelUsage,
    StopReason,
)
from inspect_ai.scorer import CORRECT, INCORRECT, Score
from inspect_ai.tool import ToolCall

from harness.export.messages import PromptMessage, prompt_messages
from harness.runlog import failed, text_of
from harness.types import EvalRecord, ParsedReply

CACHED_PROMPTS = 256
"""Prompts kept apart: the probes and epochs of one arm share theirs, and neighbours share messages."""
CACHED_MESSAGES = 4096
_NUMBERS = ("p_act", "p_act_norm", "logit_act", "choice_mass")
_FLAGS = ("attempted", "claimed", "malformed_attempt")
_FACTS = (
    "cell_id", "condition", "bar", "placement", "placebo_id", "probe", "series", "cluster", "side", "target",
    "prior_calls", "limit", "filler_tokens", "phrasing", "scenario", "sample_id", "thinking", "seed",
    "bar_tokens", "prompt_hash",
)  # fmt: skip


def sample_id(record: EvalRecord) -> str:
    """The cell's id without its epoch (`<sample>|<condition>|<probe>`): unique in a log together with the epoch,
    and sorted so that the arms of one sample stand side by side."""
    return record.cell_id.rpartition("|")[0]


@dataclass(slots=True)
class SampleMaker:
    """Makes samples of one run. Messages that several cells share are made once, under ids that follow from what
    they say, so that the same run gives the same log."""

    pieces: Mapping[int, bytes]
    model: str
    """`<engine>/<name>`, as the log's header has it."""
    passed: Mapping[str, bool]
    """Cell id → whether the cell did right by the rule; cells that cannot be judged are not in it."""
    seconds: Mapping[str, float]
    """Cell id → duration of the request, where it was timed on its own."""
    _prompts: dict[tuple[str, tuple[str, ...]], list[ChatMessage]] = field(default_factory=dict)
    _messages: dict[str, ChatMessage] = field(default_factory=dict)

    def sample(self, record: EvalRecord) -> EvalSample:
        """The cell as Inspect logs it."""
        prompt = self._prompt(record)
        output = self._output(record)
        usage = {self.model: output.usage} if output.usage else {}
        answer = [choice.message for choice in output.choices]
        seconds = self.seconds.get(record.cell_id)
        return EvalSample(
            id=sample_id(record),
            epoch=record.epoch + 1,  # Inspect counts from 1
            input=prompt,
            choices=sorted(record.choices) or None,
            target=_target(record),
            messages=[*prompt, *answer],
            output=output,
            scores=_scores(record, self.passed.get(record.cell_id)),
            metadata={name: getattr(record, name) for name in _FACTS} | {"tools": list(record.tool_names)},
            model_usage=usage,
            total_time=seconds,
            working_time=seconds,
            uuid=_digest(record.cell_id),
            error=_error(record),
        )

    # -- the prompt ------------------------------------------------------------------------------------

    def _prompt(self, record: EvalRecord) -> list[ChatMessage]:
        key = (record.prompt_hash, record.tool_names)
        if key not in self._prompts:
            _make_room(self._prompts, CACHED_PROMPTS)
            self._prompts[key] = [self._message(m) for m in prompt_messages(record, self.pieces)]
        return self._prompts[key]

    def _message(self, message: PromptMessage) -> ChatMessage:
        key = _digest(repr(message))
        if key not in self._messages:
            _make_room(self._messages, CACHED_MESSAGES)
            self._messages[key] = _chat_message(message, key)
        return self._messages[key]

    # -- what came back --------------------------------------------------------------------------------

    def _output(self, record: EvalRecord) -> ModelOutput:
        output = record.output
        choices = []
        # After `choose` nothing was generated: probabilities were read.
        if record.parsed is not None and not failed(record):
            message = self._reply(record, record.parsed)
            choices = [ChatCompletionChoice(message=message, stop_reason=_stop_reason(record, message))]
        return ModelOutput(
            model=record.model,
            choices=choices,
            usage=_usage(record),
            time=self.seconds.get(record.cell_id),
            error=output.error,
            metadata=self._raw(record),
        )

    def _reply(self, record: EvalRecord, parsed: ParsedReply) -> ChatMessageAssistant:
        content: Any = parsed.content
        if parsed.reasoning is not None:
            text = [ContentText(text=parsed.content)] if parsed.content else []
            content = [ContentReasoning(reasoning=parsed.reasoning), *text]
        return ChatMessageAssistant(
            id=_digest(f"{record.cell_id} reply"),
            content=content,
            tool_calls=_made_calls(record) or None,
            model=record.model,
            source="generate",
        )

    def _raw(self, record: EvalRecord) -> dict[str, Any]:
        """What was recorded and has no field of Inspect's."""
        output, parsed = record.output, record.parsed
        usage = {key: value for key, value in asdict(output.usage).items() if value is not None}
        raw: dict[str, Any] = {"finish_reason": output.finish_reason, "usage": usage}
        if output.text:
            raw["text"] = output.text
        if output.choice_logprobs is not None:
            raw["choice_logprobs"] = dict(output.choice_logprobs)
        if parsed:
            raw["parse_status"] = parsed.status
            stated = [asdict(call) for call in parsed.tool_calls if call.in_reasoning]
            raw |= {"calls_in_reasoning": stated} if stated else {}
        if output.thoughts:
            raw["thoughts"] = [
                {
                    "text": text_of(thought.token_ids, self.pieces),
                    "cut": thought.cut,
                    "censored": thought.censored,
                    "reasoning_tokens": thought.reasoning_tokens,
                    "choice_logprobs": dict(zip(sorted(record.choices), thought.logprobs, strict=False)),
                }
                for thought in output.thoughts
            ]
        return raw


def _chat_message(message: PromptMessage, key: str) -> ChatMessage:
    told: dict[str, Any] = {"regions": list(message.regions)}
    common: dict[str, Any] = {"id": key, "source": "input", "metadata": told}
    match message.role:
        case "system":
            return ChatMessageSystem(content=message.content, **common)
        case "user":
            return ChatMessageUser(content=message.content, **common)
        case "tool":
            return ChatMessageTool(
                content=message.content, tool_call_id=message.answers, function=message.tool, **common
            )
    content: Any = message.content
    if message.reasoning:
        content = [ContentReasoning(reasoning=message.reasoning), ContentText(text=message.content)]
    calls = [
        ToolCall(id=call.id, function=call.name, arguments=dict(call.arguments), parse_error=call.unread)
        for call in message.calls
    ]
    return ChatMessageAssistant(content=content, tool_calls=calls or None, **common)


def _made_calls(record: EvalRecord) -> list[ToolCall]:
    """Calls made outside the thinking, then those that were meant and could not be read."""
    parsed = record.parsed
    if parsed is None:
        return []
    made = [call for call in parsed.tool_calls if not call.in_reasoning]
    calls = [
        ToolCall(id=call.id or f"reply_{i}", function=call.name, arguments=dict(call.arguments))
        for i, call in enumerate(made, start=1)
    ]
    for name in parsed.malformed_names:
        number = len(calls) + 1
        calls.append(
            ToolCall(id=f"reply_{number}", function=name, arguments={}, parse_error=parsed.malformed_text)
        )
    return calls


def _stop_reason(record: EvalRecord, message: ChatMessageAssistant) -> StopReason:
    if record.output.finish_reason == "length":
        return "max_tokens"
    return "tool_calls" if message.tool_calls else "stop"


def _usage(record: EvalRecord) -> ModelUsage | None:
    """Inspect's input tokens leave out those from the cache. None where a count is unknown."""
    usage = record.output.usage
    if usage.completion_tokens is None:
        return None
    return ModelUsage(
        input_tokens=usage.prompt_tokens - (usage.cached_tokens or 0),
        input_tokens_cache_read=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
    )


def _target(record: EvalRecord) -> str:
    """What the rule wants, in words that fit the probe."""
    wanted = record.expectation
    if record.probe == "ask":
        return str(record.prior_calls)
    action = f"{wanted.tool}({wanted.key}={wanted.target})"
    return action if record.side == "due" else f"not {action}"


def _scores(record: EvalRecord, passed: bool | None) -> dict[str, Score]:
    score = record.score
    found: dict[str, Score] = {}
    if passed is not None:
        value = CORRECT if passed else INCORRECT
        found["correct"] = Score(value=value, answer=_answer(record), explanation=score.reason or None)
    if score.outcome is not None:
        found["outcome"] = Score(value=score.outcome, explanation=score.reason or None)
    for name in (*_FLAGS, *_NUMBERS):
        value = getattr(score, name)
        if value is not None:
            found[name] = Score(value=value, answer=score.top_choice if name == "p_act" else None)
    return found


def _answer(record: EvalRecord) -> str | None:
    """What the reply came to: the number told, the calls made, else its prose."""
    if record.probe == "ask":
        return None if record.score.answer is None else str(record.score.answer)
    calls = [f"{call.function}({json.dumps(call.arguments, sort_keys=True)})" for call in _made_calls(record)]
    return "; ".join(calls) or (record.parsed.content if record.parsed else None)


def _error(record: EvalRecord) -> EvalError | None:
    if not failed(record):
        return None
    message = record.output.error or record.score.reason or "the request failed"
    return EvalError(message=message, traceback=message, traceback_ansi=message)


def _make_room(cache: dict[Any, Any], size: int) -> None:
    """Drops the oldest entry of a full cache."""
    if len(cache) >= size:
        del cache[next(iter(cache))]


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=11).hexdigest()
