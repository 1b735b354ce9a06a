"""Every configured bar has a placebo: over one transcript in which every bar has something to say."""

import json
from pathlib import Path

import pytest
from core_samples import RULE, context
from hydra.utils import instantiate
from omegaconf import OmegaConf
from test_placebo_frames import check

from harness.errors import ConfoundError
from harness.state import AgentState, StateBuilder
from harness.statusbar import Placebo
from harness.statusbar.placebo import TEXTS
from harness.types import Message, ToolCall

CONF = Path(__file__).resolve().parent.parent / "conf" / "bar"
TODOS = [
    {"content": "Fix the parser", "status": "in_progress"},
    {"content": "Run the tests", "status": "pending"},
]
WRONG = {"file": "src/parser.py", "severity": "error", "line": 12, "column": 8, "message": "missing colon"}


def transcript() -> list[Message]:
    made: list[tuple[str, dict[str, object], str, dict[str, object]]] = [
        ("todo_write", {"todos": TODOS}, "ok", {}),
        ("read_file", {"path": "src/parser.py"}, "def parse(text)\n    return text\n", {}),
        ("edit_file", {"path": "src/parser.py"}, "edited", {"diagnostics": [WRONG]}),
        ("phone_call", {"merchant": "Acme"}, "no answer", {}),
        ("shell", {"command": "make"}, "x" * 300, {"original_chars": 9000, "omitted_chars": 8700}),
        *[("shell", {"command": "make"}, "Error: no rule to make target", {"advice": "List the targets."})]
        * 4,
    ]
    known = {
        "recalled": [{"source": "notes.md", "text": "The parser is generated."}],
        "completions": [{"agent": "reviewer", "status": "completed", "summary": "Two findings."}],
        "workspace": "/home/dev/tool",
    }
    messages = [Message("system", "You are an agent."), Message("user", "Fix src/parser.py.", known=known)]
    for number, (tool, arguments, text, facts) in enumerate(made):
        call, time = ToolCall(tool, arguments, id=f"call{number:05d}"), f"2026-03-02T09:{number:02d}:30"
        messages.append(Message("assistant", tool_calls=(call,), time=time))
        messages.append(Message("tool", text, tool_call_id=call.id, name=tool, time=time, known=facts))
    return messages


def states() -> list[AgentState]:
    builder, taken = StateBuilder(), []
    for message in transcript():
        builder.advance(message)
        taken.append(builder.state())
    return taken


@pytest.mark.weights
@pytest.mark.parametrize("name", sorted(path.stem for path in CONF.glob("*.yaml")))
def test_a_configured_bar_has_a_placebo_in_at_least_eight_of_the_ten_texts(
    qwen, name: str, tmp_path: Path
) -> None:
    written = tmp_path / "texts.jsonl"
    entry = {
        "cluster": context().cluster,
        "lines": ["calls to Xfinity so far: 3", "the test fails as before"],
    }
    written.write_text(json.dumps(entry))
    described = OmegaConf.load(CONF / f"{name}.yaml")
    if name == "recorded":
        described.file = str(written)
    bar = instantiate(described)
    placebo = Placebo(bar)
    drawn = 0
    for state in states():
        real = bar.draw(state, context(count=qwen.count, rules=(RULE,)))
        if real is None:
            continue
        fits = 0
        for index in range(len(TEXTS)):
            try:
                neutral = placebo.draw(state, context(count=qwen.count, rules=(RULE,), cluster_index=index))
            except ConfoundError:
                continue
            assert neutral is not None
            check(real, neutral, qwen.count)
            assert neutral.lines != real.lines
            fits += 1
        assert fits >= 8, real.text
        drawn += 1
    assert drawn, "the transcript gives this bar nothing to say"
