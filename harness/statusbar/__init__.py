"""The subject of study: one module per bar.

A bar says *what* (from the state alone), a rendering in what *form*, a placement *where* and in which
role. Nothing here reads a transcript or a model; `harness.conditions` is the only place where a bar
enters a prompt.
"""

from harness.statusbar.agent_status import AgentStatus
from harness.statusbar.base import BarContext, StatusBar, StatusText
from harness.statusbar.mismatched import Mismatched
from harness.statusbar.placebo import Placebo
from harness.statusbar.placements import (
    BeforeFollowUp,
    Front,
    LastBlock,
    LastResult,
    OwnAction,
    OwnBefore,
    Placement,
    PrefixLast,
    SystemHead,
    SystemTail,
    Tail,
)

__all__ = [
    "AgentStatus",
    "BarContext",
    "BeforeFollowUp",
    "Front",
    "LastBlock",
    "LastResult",
    "Mismatched",
    "OwnAction",
    "OwnBefore",
    "Placebo",
    "Placement",
    "PrefixLast",
    "StatusBar",
    "StatusText",
    "SystemHead",
    "SystemTail",
    "Tail",
]
