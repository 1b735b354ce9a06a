"""Names and colours of the groups of regions: the same in tables, sentences, figures and the interactive page.

Knows the groups of `harness.attention.store`; knows no table and no drawing library. Colours are Okabe & Ito's, a call's
result has its call's colour, paler.
"""

from harness.attention.store import GROUPS

NAMES: dict[str, str] = {
    **{group: group.replace("_", " ") for group in GROUPS}, "follow_up": "follow-up", "bar": "bar or placebo",
    "records": "all records",
}  # fmt: skip
GROUP_COLORS: dict[str, str] = {
    "system": "#8C8C8C", "tools": "#5E5E5E", "user": "#F0E442", "assistant": "#BDB76B",
    "target_calls": "#D55E00", "target_results": "#F2B48C", "other_calls": "#0072B2", "other_results": "#8DBEE0",
    "unruled_calls": "#009E73", "unruled_results": "#8FD3BC", "follow_up": "#000000", "bar": "#E69F00",
    "template": "#DADADA", "forced": "#B9B9B9", "thinking": "#CC79A7", "answer": "#8E4B73", "sinks": "#3B3B3B",
}  # fmt: skip
assert set(GROUP_COLORS) == set(GROUPS)
EXPLAINED = (
    "target: calls that the rule counts, and their results, to the value that the follow-up names; other: to another "
    "value; unruled: of tools without a rule; forced: the opening of the call that `choose` prescribes; template: what "
    "the chat template writes."
)


def group_name(group: str) -> str:
    """A group of GROUPS as it is read."""
    return NAMES.get(group, group)
