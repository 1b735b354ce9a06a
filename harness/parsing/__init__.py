"""Raw reply text → reasoning, content and tool calls with a parse status; thinking tokens from token ids.

Knows what replies look like: Hermes tags, bare JSON, thinking blocks. Does not know the prompt, the rule, the
side or what a call means (`scorers` does), and never raises: whatever a model wrote is data. Its time is
linear in the length of the text, also on hostile text.

Decisions that a reader may want to know:

- A call whose name is not offered is still a call; that its tool is unknown is the scorer's business.
- JSON that carries a `name` but neither `arguments` nor `parameters` is data, unless the name is an offered
  tool: then it was meant as a call and is malformed. A repeated tool *definition* (a JSON schema as
  `parameters`) is data.
- Whatever names an offered tool in a form that no JSON caller accepts is a malformed call, not prose: Python
  syntax (`phone_call(merchant="X")`), XML (`<function=phone_call>`), other keys (`{"tool": "phone_call",
  …}`), broken JSON.
- Only well-formed calls are looked for inside thinking, and they are marked `in_reasoning`: stated, not
  made. Sketches of calls in there are thinking like any other.
- Raw line breaks inside JSON strings are tolerated; nothing else is mended.
"""

import re
from collections.abc import Sequence

from harness.parsing.calls import find_calls
from harness.parsing.thinking import (
    Delimiter,
    ThinkingCount,
    count_thinking,
    count_thinking_pieces,
    first_answer_piece,
    split_thinking,
    thinking_pieces,
)
from harness.types import ParsedReply, ParseStatus

__all__ = [
    "Delimiter",
    "ThinkingCount",
    "count_thinking",
    "count_thinking_pieces",
    "first_answer_piece",
    "parse_reply",
    "thinking_pieces",
]

_SPECIAL = re.compile(r"<\|[A-Za-z0-9_]{1,40}\|>|</s>")


def parse_reply(text: str, *, tool_names: Sequence[str], think_open: bool = False) -> ParsedReply:
    """Take a reply apart.

    `text` is the raw completion, with or without special tokens; `tool_names` are the tools that were
    offered; `think_open` says that the prompt ended inside an opened thinking block, so that the text begins
    within it.

    `status` is `malformed` if any call outside the thinking is, else `ok` if any call is tagged, else
    `bare_json` if there is any call, else `none`. `thinking_start_missing` and `thinking_end_missing` are
    both True when there is no thinking at all. Never raises.
    """
    parts = split_thinking(_SPECIAL.sub("", text), think_open=think_open)
    made = find_calls(parts.content, tool_names)
    thought = find_calls(parts.reasoning or "", tool_names, in_reasoning=True)
    status: ParseStatus = "none"
    if made.malformed:
        status = "malformed"
    elif made.tagged or thought.tagged:
        status = "ok"
    elif made.calls or thought.calls:
        status = "bare_json"
    names = dict.fromkeys(name for call in made.malformed for name in call.names)
    return ParsedReply(
        reasoning=parts.reasoning,
        content=made.rest,
        tool_calls=(*thought.calls, *made.calls),
        status=status,
        thinking_start_missing=parts.start_missing,
        thinking_end_missing=parts.end_missing,
        malformed_names=tuple(names),
        malformed_text="\n".join(call.text for call in made.malformed),
    )
