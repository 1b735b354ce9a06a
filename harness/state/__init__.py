"""messages → AgentState: the distillation layer. Pure and deterministic; no model, no bar, no rule of a scenario.

`StateBuilder.advance` adds one message in constant time and `derive` is its fold, so that the incremental and the batch
computation cannot drift apart.
"""

from harness.state.agent_state import AgentState
from harness.state.builder import StateBuilder, derive
from harness.state.calls import argument_hash
from harness.state.facts import (
    ATTEMPTS,
    ActivePath,
    Attempt,
    Block,
    CallCount,
    Completion,
    Diagnostic,
    FileRead,
    Latest,
    Phase,
    Plan,
    Recalled,
    TodoItem,
    TodoList,
    TodoStatus,
)

__all__ = [
    "ATTEMPTS",
    "ActivePath",
    "AgentState",
    "Attempt",
    "Block",
    "CallCount",
    "Completion",
    "Diagnostic",
    "FileRead",
    "Latest",
    "Phase",
    "Plan",
    "Recalled",
    "StateBuilder",
    "TodoItem",
    "TodoList",
    "TodoStatus",
    "argument_hash",
    "derive",
]
