"""What became of a cell's requests → its ModelOutput.

The text is that of the first answer, the counts are those of all. Knows no provider, no retry and no money.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from harness.models.api.base import Answer
from harness.models.api.replies import text_of
from harness.types import ModelOutput, ModelUsage, ProviderFacts, Request, Timing


def _now() -> str:
    return datetime.now(UTC).isoformat()


@dataclass(slots=True)
class Asked:
    """A cell's requests so far. Belongs to one thread."""

    prompt_cache: bool | None
    started: str = field(default_factory=_now)
    answers: list[Answer] = field(default_factory=list)
    tries: int = 0
    broken: int = 0


def answered(request: Request, asked: Asked) -> ModelOutput:
    """The output of a cell of which every request was answered."""
    first, last = asked.answers[0], asked.answers[-1]
    facts = replace(
        _facts(asked),
        model=last.model,
        stop_reason=last.stop_reason,
        refused=sum(answer.stop == "refusal" for answer in asked.answers),
    )
    return ModelOutput(
        text=text_of(first),
        token_ids=(),
        finish_reason="length" if first.stop == "length" else "stop",
        usage=_usage(request, asked.answers),
        timing=Timing(asked.started),
        provider=facts,
    )


def chose(
    output: ModelOutput,
    logprobs: Mapping[str, float],
    source: Literal["logprobs", "draws"],
    counts: Mapping[str, int] | None = None,
) -> ModelOutput:
    """The output of a `choose` cell. `logprobs`: label → natural log of its probability; `counts`: how often each was
    drawn."""
    assert output.provider is not None
    facts = replace(output.provider, choice_source=source, choice_counts=counts or {})
    return replace(output, finish_reason="choice", choice_logprobs=logprobs, provider=facts)


def failed(request: Request, asked: Asked, reason: str) -> ModelOutput:
    """The output of a cell that failed for good; draws that were answered, and paid, before it are counted."""
    usage = _usage(request, asked.answers)
    return ModelOutput("", (), "error", usage, Timing(asked.started), error=reason, provider=_facts(asked))


def _facts(asked: Asked) -> ProviderFacts:
    return ProviderFacts(
        request_ids=tuple(answer.request_id for answer in asked.answers if answer.request_id),
        requests=len(asked.answers),
        tries=asked.tries,
        broken=asked.broken,
        prompt_cache=asked.prompt_cache,
    )


def _usage(request: Request, answers: Sequence[Answer]) -> ModelUsage:
    usages = [answer.usage for answer in answers]
    return ModelUsage(
        prompt_tokens=len(request.prompt.ids),
        completion_tokens=_sum([u.output_tokens for u in usages]),
        cached_tokens=_sum([u.cached_tokens for u in usages]),
        reported_reasoning_tokens=_sum([u.reasoning_tokens for u in usages]),
        reported_reasoning_field=next((u.reasoning_field for u in usages if u.reasoning_field), None),
        reported_prompt_tokens=_sum([u.input_tokens for u in usages]),
        cache_written_tokens=_sum([u.cache_written_tokens for u in usages]),
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    """None where any is unknown, or there is none."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
