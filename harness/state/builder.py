"""messages → AgentState: the distillation layer.

Knows what any agent framework could compute from its own transcript and nothing else: no rule, no
scenario truth, no model. Pure and deterministic; `advance` adds one message in constant time, and
`derive` is its fold, so the incremental and the batch computation cannot drift apart.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from harness.state.agent_state import AgentState
from harness.state.calls import Calls
from harness.state.facts import Completion, Latest, Plan, Recalled, TodoList
from harness.state.paths import paths_in, paths_of
from harness.state.results import completions, recalled, recalled_seconds
from harness.state.surroundings import Surroundings
from harness.state.todos import applied, writes
from harness.state.transcript import Blocks, Texts, Transcript
from harness.state.views import Window
from harness.types import Message, ToolCall, ToolSpec


class StateBuilder:
    """Folds messages into an AgentState: amortised constant time per message of bounded length, and constant time
    per state. A state holds views that later messages do not touch."""

    def __init__(self, tools: tuple[ToolSpec, ...] = ()) -> None:
        self._tools = tools
        self._version = 0
        self._user_turns = 0
        self._requests = 0
        self._calls = Calls()
        self._around = Surroundings()
        self._transcript = Transcript()
        self._latest: Latest | None = None
        self._arrived: list[Latest] = []
        self._completions: list[Completion] = []
        self._recalled: tuple[Recalled, ...] = ()
        self._recalled_seconds: float | None = None
        self._todos = TodoList()
        self._plan = Plan()
        self._written_at = 0
        self._date: str | None = None
        self._time: str | None = None
        self._workspace = ""
        self._cwd = ""
        self._state: AgentState | None = None

    def advance(self, message: Message) -> None:
        """Add one message. A call counts when the assistant makes it, whatever came back; what it changed (todo list,
        files) counts when its result comes in and does not say that it failed."""
        number = self._version
        self._version += 1
        self._state = None
        self._note(message)
        if message.role == "assistant":
            self._assistant(message, number)
            return
        call: ToolCall | None = None
        if message.role == "tool":
            self._latest, call = self._result(message, number)
        else:
            if message.role == "user":
                self._user_turns += 1
                self._calls.user_turn()
                self._around.touch(paths_in(message.content))
                self._recalled = recalled(message.known)
                self._recalled_seconds = recalled_seconds(message.known)
            self._latest = Latest(message.role, message.content, number, message.time, message.known)
        kind = message.role if message.role != "tool" else message.name or (call.name if call else "tool")
        self._transcript.add(message, kind, self._requests, call)
        self._arrived.append(self._latest)

    def compact(self, kept: Sequence[Message]) -> None:
        """The context was rewritten to `kept`: `blocks` and tokens begin again with these messages. All that was
        learnt from the messages before stays; what came with them is not learnt twice."""
        self._state = None
        self._transcript = Transcript()
        for message in kept:
            kind = message.role if message.role != "tool" else message.name or "tool"
            self._transcript.add(message, kind, self._requests, None)

    def state(self) -> AgentState:
        """The state so far, which later messages do not touch."""
        if self._state is None:
            self._state = self._snapshot()
        return self._state

    def _note(self, message: Message) -> None:
        """What any message may state beside its text."""
        if message.time is not None and (day := _day(message.time)) is not None:
            self._date, self._time = day, message.time
        known = message.known
        if known:
            workspace, cwd = known.get("workspace"), known.get("cwd")
            self._workspace = workspace if isinstance(workspace, str) else self._workspace
            self._cwd = cwd if isinstance(cwd, str) else self._cwd
            self._completions.extend(completions(known))

    def _assistant(self, message: Message, number: int) -> None:
        self._requests += 1
        self._arrived = []
        self._completions = list(completions(message.known))
        self._around.request()
        self._calls.make(message, self._version)
        self._around.touch(paths_in(message.content))
        for call in message.tool_calls:
            paths = paths_of(call)
            self._around.touch(paths)
            self._transcript.use(call, paths)
        self._transcript.add(message, "assistant", self._requests, None)
        self._latest = Latest("assistant", message.content, number, message.time, message.known)

    def _result(self, message: Message, number: int) -> tuple[Latest, ToolCall | None]:
        made = self._calls.answered(message)
        latest = self._calls.result(message, number, made)
        if made is None:
            return latest, None
        self._around.result(made.call, message, latest.failed, self._version)
        if not latest.failed and writes(made.call):
            todos, self._plan = applied(made.call, self._todos, self._plan)
            if todos is not None:
                self._todos, self._written_at = todos, self._requests
        return latest, made.call

    def _snapshot(self) -> AgentState:
        version, calls, around = self._version, self._calls, self._around
        return AgentState(
            calls=calls.view(version),
            identical=calls.identical.view(version),
            user_turns=self._user_turns,
            requests=self._requests,
            latest=self._latest,
            arrived=Window(self._arrived),
            failing=calls.failing.view(version),
            todos=self._todos,
            todos_age=self._requests - self._written_at if self._todos.items else 0,
            plan=self._plan,
            date=self._date,
            time=self._time,
            working_set=around.working_set,
            reads=around.reads,
            edited=around.edited,
            diagnostics=around.diagnostics.view(version),
            recalled=self._recalled,
            recalled_seconds=self._recalled_seconds,
            completions=Window(self._completions),
            blocks=Blocks(self._transcript, self._requests),
            tool_calls=calls.made,
            tools=self._tools,
            workspace=self._workspace,
            cwd=self._cwd,
            texts=Texts(self._transcript),
        )


def _day(time: str) -> str | None:
    """The calendar day of an ISO 8601 time as it is written; None when it is none."""
    try:
        return datetime.fromisoformat(time).date().isoformat()
    except ValueError:
        return None


def derive(messages: Iterable[Message], tools: tuple[ToolSpec, ...] = ()) -> AgentState:
    """The state of a whole transcript of an agent that is offered `tools`."""
    builder = StateBuilder(tools)
    for message in messages:
        builder.advance(message)
    return builder.state()
