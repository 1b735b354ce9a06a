"""How a conversation goes over the wire to an API and comes back, and what the API would refuse.

One module per API, each with `wire_messages`, `read_messages`, their like for tools, `illegal` (the first reason why
the API would refuse the conversation) and `merged` (the conversation as the API takes it in). Knows messages alone:
no bar, no template, no client.
"""

from collections.abc import Mapping

from harness.dialects.fields import TraceError

__all__ = ["TraceError", "one_condition"]


def one_condition(seen: Mapping[str, object]) -> list[tuple[str, ...]]:
    """Names under which the model is shown the very same: groups of two or more, in the order given.

    `seen` holds for each name what reaches the model, such as `merged` messages or a rendered text. Arms in one
    group are one condition, however they were placed.
    """
    groups: list[tuple[object, list[str]]] = []
    for name, shown in seen.items():
        for known, names in groups:
            if known == shown:
                names.append(name)
                break
        else:
            groups.append((shown, [name]))
    return [tuple(names) for _, names in groups if len(names) > 1]
