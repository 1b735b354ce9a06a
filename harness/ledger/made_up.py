"""A made-up trajectory of any length, for a first look at what a policy costs: the same bytes on every machine.

An agent works through a list of files for a user who asks something new now and then; it reads, edits, runs tests,
fails at times and keeps a todo list. No real agent wrote it.
"""

from harness.traces import unjudged
from harness.types import CallLimit, Message, Sample, ToolCall, ToolSpec

ASKS_EVERY = 25
"""Requests between two messages of the user."""
_PARTS = ("parser", "reader", "writer", "cache", "index", "router", "session", "schema")
_SYSTEM = (
    "You are a coding agent in a small repository. Read before you change, run the tests after every change, and "
    "keep the todo list up to date. Say in one sentence what you do before each call."
)
_TOOLS = (
    ("read_file", "Read a text file.", ("path",)),
    ("edit_file", "Replace a text in a file by another.", ("path", "old", "new")),
    ("run_tests", "Run the tests of one part.", ("target",)),
    ("todo_write", "Write the whole todo list.", ("items",)),
)


def made_up(requests: int) -> Sample:
    """A trajectory of so many requests, each with its recorded reply."""
    messages = [Message("system", _SYSTEM)]
    for number in range(requests):
        if number % ASKS_EVERY == 0:
            messages.append(_ask(number))
        messages += _turn(number)
    if messages[-1].role != "assistant":
        # The results of the last call would be one request more.
        messages[-2:] = [Message("assistant", "The part is done and its tests pass.", time=_time(requests))]
    tools = [
        ToolSpec(
            name,
            description,
            {
                "type": "object",
                "properties": {key: {"type": "array" if key == "items" else "string"} for key in keys},
                "required": list(keys),
            },
        )
        for name, description, keys in _TOOLS
    ]
    rules = (CallLimit("run_tests", "target", 12),)
    name = f"made_up_{requests}"
    return unjudged(name, messages, tools, scenario="made_up", cluster="made_up", rules=rules)


def _part(number: int) -> str:
    return _PARTS[number // ASKS_EVERY % len(_PARTS)]


def _time(number: int) -> str:
    minutes = 9 * 60 + 2 * number
    return f"2026-03-{2 + minutes // 1440:02d}T{minutes // 60 % 24:02d}:{minutes % 60:02d}:00"


def _ask(number: int) -> Message:
    part = _part(number)
    return Message(
        "user",
        f"Please look at src/{part}.py next: it loses the last line of long inputs. Mend it and add a test.",
        time=_time(number),
    )


def _turn(number: int) -> list[Message]:
    """A reply with one call, and the call's result."""
    name, said, arguments, result, error = _step(number)
    call = ToolCall(name, arguments, id=f"call_{number:05d}")
    time = _time(number)
    return [
        Message("assistant", said, tool_calls=(call,), time=time),
        Message("tool", result, tool_call_id=call.id, name=name, time=time, error=error),
    ]


_Step = tuple[str, str, dict[str, object], str, str | None]
"""Tool, what is said before the call, its arguments, its result, the kind of error."""


def _step(number: int) -> _Step:
    part, place = _part(number), number % ASKS_EVERY
    path = f"src/{part}.py" if number % 3 else f"tests/test_{part}_{number // ASKS_EVERY}.py"
    if place % 8 == 0:
        return (
            "todo_write",
            "I write down what is to be done.",
            {"items": _todos(part, place)},
            "Todos written.",
            None,
        )
    match number % 4:
        case 1:
            body = "\n".join(f"{line:4d}  {part}_{line} = step({line + number})" for line in range(1, 13))
            return "read_file", f"I read {path}.", {"path": path}, body, None
        case 2:
            change: dict[str, object] = {
                "path": path,
                "old": f"step({number})",
                "new": f"step({number}, last=True)",
            }
            return "edit_file", f"I change {path}.", change, f"1 place changed in {path}.", None
        case 3 if number % 3 == 0:
            failed = f"Error: 1 failed, {number % 7 + 3} passed\nE   assert lines == {number}"
            return "run_tests", "I run the tests.", {"target": part}, failed, "test_failure"
        case _:
            return "run_tests", "I run the tests.", {"target": part}, f"{number % 7 + 4} passed", None


def _todos(part: str, place: int) -> list[dict[str, str]]:
    steps = ("Read the module", "Find the lost line", "Mend it", "Add a test", "Run all tests")
    done = place // 8
    return [
        {
            "content": f"{step} ({part})",
            "status": "completed" if at < done else "in_progress" if at == done else "pending",
        }
        for at, step in enumerate(steps)
    ]
