"""Asking a provider directly, without engine, retries and run."""

from collections.abc import Callable
from typing import Any

from api_server import KEY, ApiServer

from harness.errors import ProviderError
from harness.models.api.base import Answer, Call, Provider
from harness.models.api.faults import fault_of
from harness.models.api.wire import Attempt, Wire, trying
from harness.models.server_faults import Redactor
from harness.models.server_sockets import Headway
from harness.types import Message, ToolCall, ToolSpec

SILENCE_S = 5.0
PHONE = ToolSpec(
    "phone_call",
    "Calls a merchant.",
    {
        "type": "object",
        "properties": {"merchant": {"type": "string"}, "reason": {"type": "string"}},
        "required": ["merchant"],
    },
)
REPLY = ToolSpec(
    "reply",
    "Answers the user.",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)
TALK = (
    Message("system", "You call merchants. At most 3 calls each."),
    Message("user", "Please call Xfinity."),
    Message("assistant", "", (ToolCall("phone_call", {"merchant": "Xfinity"}, "call_0"),)),
    Message("tool", "Nobody answered.", tool_call_id="call_0", name="phone_call"),
    Message("user", "Try again."),
)


def a_call(**changes: Any) -> Call:
    """A legal request with tools and a history of a call and its result."""
    fields: dict[str, Any] = {
        "model": "test-model",
        "messages": TALK,
        "tools": (PHONE, REPLY),
        "max_tokens": 2000,
        "temperature": 0.0,
        "top_p": None,
        "seed": None,
    }
    return Call(**fields | changes)


def ask(
    make: Callable[..., Provider],
    server: ApiServer,
    call: Call | None = None,
    *,
    silence_s: float = SILENCE_S,
) -> tuple[Answer, Attempt]:
    """One request to the server: its answer, and what the transport saw. Whatever a client raises comes out as the
    fault that the engine would see."""
    wire = Wire(server.address, silence_s)
    provider = make(server.address, KEY, wire.client)
    attempt = Attempt("mark-1", "cell#0", Headway(silence_s), lambda: False)
    fault: ProviderError | None = None
    try:
        with trying(attempt):
            return provider.ask(provider.body(call or a_call())), attempt
    except Exception as error:
        if not isinstance(error, ProviderError) and type(error).__module__.startswith("harness"):
            raise  # a mistake of the caller's, such as ModelError
        fault = fault_of(error, attempt, Redactor(KEY), silence_s)
    finally:
        provider.close()
        wire.close()
    assert fault is not None
    raise fault
