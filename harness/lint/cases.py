"""Made-up trajectories in which something happens for every bar, and what becomes of them when one thing is changed.

Knows messages alone. Every change is a pure function from case to case, so that two drawings can be laid side by side.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from harness.types import CallLimit, Message, Sample, ToolCall, ToolSpec

RULES = (CallLimit("phone_call", "merchant", 3),)
DECOYS = tuple(f"Decoy {number} Mutual" for number in range(300))
_BEGUN = datetime(2026, 3, 2, 9, 0, 0)
_STEP = timedelta(seconds=7)


@dataclass(frozen=True, slots=True)
class Case:
    """A trajectory under a name."""

    name: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    rules: tuple[CallLimit, ...] = RULES


Exchange = tuple[Message, ...]
"""Messages that stay together: a user message, or an assistant's calls with their results."""


def user(text: str, **known: Any) -> Exchange:
    return (Message("user", text, known=known),)


def say(text: str) -> Exchange:
    return (Message("assistant", text),)


def call(
    name: str, arguments: Mapping[str, Any], result: str, error: str | None = None, **known: Any
) -> Exchange:
    """One call and its result; ids come with `case`."""
    asked = Message("assistant", tool_calls=(ToolCall(name, dict(arguments)),))
    return (asked, Message("tool", result, name=name, error=error, known=known))


def case(name: str, exchanges: Sequence[Exchange], begun: datetime = _BEGUN) -> Case:
    """Exchanges one behind the other after a system prompt, with ids and a time every seven seconds."""
    messages = [Message("system", "You are a careful agent.")]
    for number, exchange in enumerate(exchanges):
        for message in exchange:
            calls = tuple(replace(c, id=f"c{number}") for c in message.tool_calls)
            answers = f"c{number}" if message.role == "tool" else None
            messages.append(replace(message, tool_calls=calls, tool_call_id=answers))
    timed = tuple(replace(m, time=(begun + i * _STEP).isoformat()) for i, m in enumerate(messages))
    return Case(name, timed, _tools(timed))


def of_sample(sample: Sample) -> Case:
    return Case(sample.id, sample.messages, sample.tools, sample.rules)


def _tools(messages: Sequence[Message]) -> tuple[ToolSpec, ...]:
    named = dict.fromkeys(c.name for message in messages for c in message.tool_calls)
    return tuple(ToolSpec(name, f"Does {name}.", {"type": "object", "properties": {}}) for name in named)


# -- the made-up ones ----------------------------------------------------------------------------------

TODOS = (("Read the parser", "completed"), ("Mend the parser", "in_progress"), ("Run the tests", "pending"))


def todos(items: Sequence[tuple[str, str]]) -> Exchange:
    return call(
        "todo_write", {"todos": [{"content": c, "status": s} for c, s in items]}, "The list was written."
    )


def phone(merchant: str) -> Exchange:
    return call("phone_call", {"merchant": merchant}, f"{merchant}: nobody could help; the line was busy.")


def edit(path: str, complaint: str = "") -> Exchange:
    found = {"file": path, "severity": "ERROR", "line": 3, "column": 5, "message": complaint}
    return call(
        "edit_file",
        {"path": path, "text": "x = 1"},
        f"Wrote {path}.",
        diagnostics=[found] if complaint else [],
    )


def service() -> list[Exchange]:
    """A customer's bills: calls under a rule, searches in between."""
    return [
        user(
            "Please get my refund from Xfinity.",
            recalled=[{"source": "notes", "text": "Prefers short answers."}],
        ),
        phone("Xfinity"),
        call("web_search", {"query": "Xfinity refund desk"}, "Three pages were found."),
        phone("Xfinity"),
        phone("Comcast"),
        say("Nobody could help so far."),
        user("Try again, please."),
        phone("Xfinity"),
        say("The line was busy once more."),
        user("Can you call them again to follow up?"),
    ]


def coding() -> list[Exchange]:
    """A repository: list and plan, reads, edits with complaints, failures in a row, a cut result, a sub-agent."""
    strategy = {"objective": "All tests pass", "constraint": "No new packages", "approach": "Small steps",
                "verification": "Run the suite", "phases": [{"text": "Mend", "status": "in_progress"}]}  # fmt: skip
    return [
        user("The parser in src/parser.py fails on empty input.", workspace="/repo", cwd="/repo"),
        call("set_plan", strategy, "The plan was written."),
        todos([(content, "pending") for content, _ in TODOS]),
        call("read_file", {"path": "src/parser.py"}, "def parse(text):\n    return text[0]\n"),
        todos(TODOS),
        edit("src/parser.py", "name 'texts' is not defined"),
        *(
            call("run_tests", {"path": "tests"}, "Error: 2 failed", "ToolError", stack="line 3\nline 9", advice="Read it.")
            for _ in range(3)
        ),
        call("read_file", {"path": "build.log"}, "head … tail", original_chars=9000, omitted_chars=8000),
        user("Go on.", completions=[{"agent": "scout", "status": "done", "summary": "No other callers."}]),
        edit("src/lexer.py"),
        call("read_file", {"path": "README.md"}, "# Parser\n\nRuns everywhere.\n"),
    ]  # fmt: skip


def examples() -> list[Case]:
    return [case("service", service()), case("coding", coding()), case("both", [*service()[:-1], *coding()])]


# -- changes -------------------------------------------------------------------------------------------


def idle(exchanges: Sequence[Exchange], at: int) -> list[Exchange]:
    """The same with an exchange before number `at` in which nothing happens."""
    return [*exchanges[:at], user("Understood?"), say("Understood."), *exchanges[at:]]


def shifted(given: Case, by: timedelta, stretch: int = 1) -> Case:
    """The same at other times of the day: later by `by`, with `stretch` times the time between messages."""

    def moved(time: str | None) -> str | None:
        if time is None:
            return None
        then = datetime.fromisoformat(time)
        return (_BEGUN + by + (then - _BEGUN) * stretch).isoformat()

    return replace(given, messages=tuple(replace(m, time=moved(m.time)) for m in given.messages))


def reworded(given: Case, change: Callable[[str], str]) -> Case:
    """`change` on every text that a model, a tool, a user or a file could have written, names of tools aside: contents,
    values of arguments (but a status), and what the framework knew."""

    def deep(value: Any, key: str = "") -> Any:
        if isinstance(value, str):
            return value if key in ("status", "severity") else change(value)
        if isinstance(value, Mapping):
            return {name: deep(item, name) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [deep(item, key) for item in value]
        return value

    def message(m: Message) -> Message:
        calls = tuple(replace(c, arguments=deep(c.arguments)) for c in m.tool_calls)
        content = m.content if m.role == "system" else change(m.content)
        error = change(m.error) if m.error else m.error
        return replace(m, content=content, tool_calls=calls, known=deep(m.known), error=error)

    return replace(given, messages=tuple(map(message, given.messages)))


def renamed(given: Case, change: Callable[[str], str]) -> Case:
    """The same with other names of tools; the list tools stay, since a bar about the list is drawn from them."""

    def name(old: str | None) -> str | None:
        return old if old is None or old in ("todo_write", "set_plan") else change(old)

    def message(m: Message) -> Message:
        calls = tuple(replace(c, name=name(c.name) or "") for c in m.tool_calls)
        return replace(m, name=name(m.name), tool_calls=calls)

    rules = tuple(replace(rule, tool=change(rule.tool)) for rule in given.rules)
    changed = tuple(map(message, given.messages))
    return Case(given.name, changed, _tools(changed), rules)


# -- families for bounds and order -----------------------------------------------------------------------


def repeated(times: int) -> Case:
    """The same things over and over: more transcript, as many different facts."""
    once = [*service(), *coding()]
    return case(f"the same {times} times", [exchange for _ in range(times) for exchange in once])


def many(number: int) -> Case:
    """As many todos, paths, merchants, tools, complaints, memories and finished sub-agents as told; the last item is
    the active one."""
    items = [(f"Step number {i} of the work", "pending") for i in range(number - 1)]
    steps = [todos([*items, (ACTIVE, "in_progress")])]
    for i in range(number):
        steps += [
            edit(f"src/part{i}/module{i}.py", f"name 'value{i}' is not defined"),
            phone(f"Merchant number {i}"),
            call(f"tool_{i}", {"path": f"docs/page{i}.md"}, f"Result {i} of the tool. " * 5),
            call("read_file", {"path": f"docs/page{i}.md"}, f"Page {i} says this. " * 5),
        ]
    events = {
        "recalled": [{"source": f"note {i}", "text": f"Remember {i}. " * 5} for i in range(number)],
        "completions": [
            {"agent": f"scout {i}", "status": "done", "summary": f"Found {i}."} for i in range(number)
        ],
    }
    return case(f"{number} of each", [user("Begin."), *steps, user("Go on.", **events)])


ACTIVE = "The step at hand"


def arrivals() -> tuple[Case, Case]:
    """The same independent things in one order and in the other."""
    steps = [*map(edit, ("src/b.py", "src/a.py", "src/c.py"), ("bad name", "bad type", "bad call"))]
    steps += [
        phone("Xfinity"),
        phone("Comcast"),
        call("web_search", {"query": "refund desk"}, "Three pages."),
    ]
    last = [call("note", {"text": "Noted."}, "Kept."), user("Go on.")]
    first = [user("Begin.")]
    return case("in one order", [*first, *steps, *last]), case(
        "in the other order", [*first, *steps[::-1], *last]
    )


def other_statuses() -> tuple[Case, Case]:
    """The same list and the same calls with other statuses."""
    swapped = [
        ("Read the parser", "in_progress"),
        ("Mend the parser", "pending"),
        ("Run the tests", "completed"),
    ]
    return case("list", [user("Begin."), todos(TODOS)]), case("list", [user("Begin."), todos(swapped)])
