"""The words of the project as frozen data. No behaviour, no I/O, no third-party import.

Every other room speaks in these types; the direction in which they flow is
scenario → Sample → RenderedPrompt → Request → ModelOutput → Score → EvalRecord.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Role = Literal["system", "user", "assistant", "tool"]
Side = Literal["forbidden", "due"]
"""Whether the rule forbids the asked-for action at this decision point, or the action is due."""
ProbeName = Literal["act", "choose", "ask"]
ThinkingMode = Literal["native", "prompted", "off"]
Series = Literal["matched", "prior_calls", "filler", "moved_limit", "trace"]
"""`matched`: headline pairs. The others are separate curves, never pooled with it: `prior_calls` at a fixed
limit, `filler` over context length, `moved_limit` over prior calls with the limit moved along. `trace`: requests of
an imported trajectory."""
CacheState = Literal["cold", "warm", "natural"]
"""What the engine's prefix cache holds before a timed request. `cold`: nothing of its prompt. `warm`: what
all arms of the sample share, the bar not. `natural`: whatever earlier requests left."""

Outcome = Literal[
    "violation",
    "compliant",
    "over_refusal",
    "correct_action",
    "claimed_action",
    "other_action",
    "clarification",
    "malformed_call",
    "unknown_tool",
    "truncated",
    "provider_error",
]
"""Every class a cell of the `act` probe can end in. There is no other."""

OUTCOMES: tuple[str, ...] = get_args(Outcome)

ParseStatus = Literal["none", "ok", "bare_json", "malformed"]
"""`none`: no call in the text. `ok`: at least one well-formed tagged call and nothing malformed.
`bare_json`: call objects without their tags. `malformed`: something that was meant as a call and is
not valid (broken JSON, no name, arguments that are no object)."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call as the transcript or a model states it."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""
    in_reasoning: bool = False
    """True when a model wrote the call inside its thinking: stated, not made."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. `tool_call_id` and `name` belong to role `tool`."""

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    tool_call_id: str | None = None
    name: str | None = None
    time: str | None = None
    """Wall-clock time at which it was written, ISO 8601; None where the record does not say. No template prints it."""
    error: str | None = None
    """Role `tool`: the kind of error that the framework stated; None: none, or not recorded (then the text decides)."""
    known: Mapping[str, Any] = field(default_factory=dict)
    """What the framework knew beside the text and the model was not told, such as `diagnostics` after an edit or
    `original_chars` of a result that was cut. The keys are those of harness/state."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool offered to the model; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallLimit:
    """Rule: `tool` may be called at most `limit` times for each value of its argument `key`."""

    tool: str
    key: str
    limit: int


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the rule says about the action that the follow-up asks for."""

    side: Side
    tool: str
    """The asked-for tool, e.g. `phone_call`."""
    key: str
    """The argument that the rule counts by, e.g. `merchant`."""
    target: str
    """The value of `key` that the follow-up names, e.g. `Xfinity`."""
    others: tuple[str, ...] = ()
    """The other values of `key` in the same transcript."""
    reply_tool: str = "reply"
    """The tool that answers the user without acting."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One decision point. `messages` end with the user's follow-up; no bar is in them."""

    id: str
    scenario: str
    cluster: str
    """The independently drawn episode; the unit of every statistic."""
    series: Series
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    rules: tuple[CallLimit, ...]
    expectation: Expectation | None
    """None: a decision point of an imported trajectory, of which nobody says what was right."""
    prior_calls: int
    """Calls already made to the target."""
    limit: int
    phrasing: str
    """How insistently the follow-up asks, by the scenario's own label."""
    seed: int
    truth: Mapping[str, Mapping[str, int]]
    """The generator's own count, tool → key value → calls, kept apart from what code derives from
    the messages so that the two can be held against each other. Tools without a rule count
    under the key value ''."""
    decoys: tuple[str, ...] = ()
    """Key values that occur nowhere in the transcript, for the `mismatched` bar."""
    filler_tokens: int = 0
    """Tokens of filler turns asked for (0: none)."""


@dataclass(frozen=True, slots=True)
class Span:
    """Token range [start, end) of a prompt and the region that it belongs to."""

    region: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt as the model gets it. `ids` are token ids; spans index into them."""

    ids: tuple[int, ...]
    text: str
    spans: tuple[Span, ...]
    template_hash: str
    prompt_hash: str
    bar_tokens: int = 0
    """Tokens that the bar adds over the control (its message wrapper included)."""
    think_open: bool = False
    """True when the prompt itself ends inside an opened thinking block."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """Decoding parameters of one request. `temperature` 0 is greedy."""

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """What a Model is asked for one cell.

    `choices` (probe `choose` only): label → canonical token ids that follow `prompt.ids` and
    `forced_ids`; no choice is a prefix of another. With `thoughts` above 0 that many thoughts are drawn after
    the prompt first, and the choices follow each of them.
    """

    cell_id: str
    probe: ProbeName
    prompt: RenderedPrompt
    decoding: Decoding
    seed: int
    forced_ids: tuple[int, ...] = ()
    choices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    thoughts: int = 0
    stop_text: str = ""
    """The reply also ends as soon as its text holds this; the text stays part of the reply."""
    messages: tuple[Message, ...] = ()
    """The same conversation for engines that render it themselves (chat APIs)."""
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """Token counts of one cell. None means unknown, never 0."""

    prompt_tokens: int
    completion_tokens: int | None
    cached_tokens: int | None = None
    """Prompt tokens that were not computed for this cell, as the engine reports it."""
    reasoning_tokens: int | None = None
    reasoning_counted_by: str | None = None
    """`token_ids`, `retokenised` where an engine gives text alone and its ids are unknown, or `provider` where there is
    only the provider's own figure."""
    reasoning_censored: bool = False
    """True when the reply was cut inside its thinking: the count is a lower bound."""
    predicted_cached_tokens: int | None = None
    """What the ledger (harness/cache.py) expects of the engine's prefix cache, from token ids alone."""
    reported_reasoning_tokens: int | None = None
    """The provider's own figure, kept beside the count; `reported_reasoning_field` names where it stood."""
    reported_reasoning_field: str | None = None
    reported_prompt_tokens: int | None = None
    """Prompt length by the provider's count, where it renders or counts for itself."""
    cache_written_tokens: int | None = None
    """Prompt tokens that the provider stored in its cache for this cell and may bill at a price of their own."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds on `time.perf_counter`; None where it was not measured on its own."""

    started_at: str
    """Wall-clock UTC, ISO 8601."""
    total: float | None = None
    first_token: float | None = None
    first_answer_token: float | None = None
    cache: CacheState | None = None
    """What the prefix cache held before a timed request; None in a batch."""


@dataclass(frozen=True, slots=True)
class Thought:
    """One drawn thought of a `choose` cell and what was chosen after it."""

    token_ids: tuple[int, ...]
    """As drawn, its closing mark included unless it was cut."""
    cut: bool
    """True when the thought had no closing mark of its own and was closed by the rule in
    harness/models/thoughts.py: cut by the limit, ended before the mark, or never opened."""
    reasoning_tokens: int
    """Tokens strictly between the marks; where `censored`, a lower bound."""
    logprobs: tuple[float, ...]
    """Natural log of each choice's raw probability after this thought, in the sorted order of the labels."""
    censored: bool = False
    """True only when the limit cut it inside its block; every other `cut` thought has a known length."""


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """What a provider's API said of one cell beside the reply. A `choose` cell may have been several requests."""

    model: str | None = None
    """The model as the provider says that it was served."""
    request_ids: tuple[str, ...] = ()
    stop_reason: str | None = None
    """In the provider's own word, of the last request."""
    refused: int = 0
    """Replies that the provider or the model's safety layer ended."""
    requests: int = 1
    """Requests that the cell needed (draws), each answered."""
    tries: int = 1
    """Attempts in all, those that failed included."""
    broken: int = 0
    """Attempts that broke after the provider had begun to answer: perhaps billed, though nothing came of them."""
    choice_source: str | None = None
    """`choose`: `logprobs` or `draws`; None for other probes."""
    choice_counts: Mapping[str, int] = field(default_factory=dict)
    """`choose` by draws: label → how often; replies that were none of the choices count under ''."""
    prompt_cache: bool | None = None
    """Whether caching of prompts was switched on or off on purpose."""


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """What came back for one cell.

    `choice_logprobs` (probe `choose`): label → natural log of the raw product of its tokens; after thinking,
    of that product's mean over the `thoughts`.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: Literal["stop", "length", "error", "choice"]
    usage: ModelUsage
    timing: Timing
    choice_logprobs: Mapping[str, float] | None = None
    error: str | None = None
    thoughts: tuple[Thought, ...] = ()
    provider: ProviderFacts | None = None
    """None: the model ran on an engine of ours."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A reply taken apart. `content` is what the user would read, calls and thinking removed."""

    reasoning: str | None
    content: str
    tool_calls: tuple[ToolCall, ...]
    status: ParseStatus
    thinking_start_missing: bool = False
    thinking_end_missing: bool = False
    malformed_names: tuple[str, ...] = ()
    """Tool names that could still be read inside malformed calls."""
    malformed_text: str = ""
    """The text of the malformed calls, for judging what they attempted."""


LOGIT_BOUND = 12.0
"""Log-odds of a choice are clipped to ± this: probabilities below 6e-6 differ by the noise of the arithmetic only."""


@dataclass(frozen=True, slots=True)
class Score:
    """The verdict on one cell, from recorded data alone.

    For `choose`: `p_act` is the raw probability mass of the asked-for action, `p_act_norm` the same
    renormalised over the choices, `logit_act` its log-odds clipped to ± `logit_bound`.
    """

    outcome: Outcome | None
    """None for `choose`, whose result is a probability, and for `ask` unless the reply was cut off or failed."""
    attempted: bool | None = None
    """act: did the reply make the asked-for call (well-formed, outside its thinking)?"""
    claimed: bool | None = None
    """act: does its prose say that the action was, or is being, carried out without a call?"""
    malformed_attempt: bool | None = None
    """act: is there a malformed call that names the asked-for tool?"""
    p_act: float | None = None
    p_act_norm: float | None = None
    logit_act: float | None = None
    choice_mass: float | None = None
    """Raw mass of all choices together."""
    top_choice: str | None = None
    reason: str = ""
    """One short clause that says which row of the outcome table decided."""
    answer: int | None = None
    """ask: the one number that the reply states; None where it states none, or several."""
    right: bool | None = None
    """ask: is `answer` the number of calls made to the target? False also for a reply that was cut off or gives no
    one answer; None where the request failed."""


@dataclass(frozen=True, slots=True)
class EvalRecord:
    """One finished cell (sample × condition × probe × epoch): one JSON line of the run log."""

    cell_id: str
    batch: int
    """Unit of work that the cell was computed in; its composition is fixed by the plan."""
    sample_id: str
    scenario: str
    cluster: str
    series: Series
    side: Side
    target: str
    prior_calls: int
    limit: int
    filler_tokens: int
    phrasing: str
    condition: str
    bar: str
    """Name of the bar (`none` for the control)."""
    placement: str
    placebo_id: int | None
    probe: ProbeName
    thinking: ThinkingMode
    epoch: int
    seed: int
    model: str
    prompt_ids: tuple[int, ...]
    spans: tuple[Span, ...]
    prompt_hash: str
    bar_text: str
    bar_tokens: int
    choices: Mapping[str, tuple[int, ...]]
    decoding: Decoding
    expectation: Expectation
    tool_names: tuple[str, ...]
    output: ModelOutput
    parsed: ParsedReply | None
    score: Score
    think_open: bool = False
    """True when the prompt itself opened the thinking block."""
    forced_ids: tuple[int, ...] = ()
    """`choose`: token ids between the prompt (or the closed thought) and the choices."""
