"""Claims about the doctor's questions to a template: each answer is what the template in fact does."""

import pytest
from core_tokens import ALTERNATING, CHATML, MERGER, THINKER, TOOLLESS, UPPER, tiny_template

from harness.template import ChatTemplate
from harness.template_check import Finding, check_template


def answers(text: str) -> dict[str, str]:
    keys = ("tools", "calls", "late_system", "two_users", "strips", "thinks")
    return dict(
        zip(keys, (finding.answer for finding in check_template(tiny_template(text))[:6]), strict=True)
    )


def placements(template: ChatTemplate) -> dict[str, Finding]:
    """Name → the finding on that placement."""
    return {f.question.split()[-1].rstrip("?"): f for f in check_template(template)[6:]}


PLAIN = {
    "tools": "yes",
    "calls": "yes",
    "late_system": "yes",
    "two_users": "yes",
    "strips": "it prints no reasoning at all",
    "thinks": "no",
}
REFUSES_LATE_SYSTEM = (
    "{%- for m in messages -%}{%- if m.role == 'system' and not loop.first -%}"
    "{{- raise_exception('System message must be at the beginning') -}}{%- endif -%}{%- endfor -%}" + CHATML
)
KEEPS_REASONING = CHATML.replace(
    "{{- message.content }}\n{%- for call", "{{- message.reasoning_content or '' }}{%- for call"
)
OPENS = THINKER.replace(
    "{%- if enable_thinking is false -%}", "{%- if enable_thinking -%}{{- '<think>\\n' }}{%- else -%}"
)


@pytest.mark.parametrize(
    ("template", "difference"),
    [
        (CHATML, {}),
        (THINKER, {"strips": "yes", "thinks": "yes"}),
        (OPENS, {"strips": "yes", "thinks": "yes, and opens the block itself"}),
        (KEEPS_REASONING, {"strips": "no"}),
        (MERGER, {"two_users": "merged into one"}),
        (ALTERNATING, {"two_users": "no"}),
        (REFUSES_LATE_SYSTEM, {"late_system": "no"}),
        (TOOLLESS, {"tools": "no", "calls": "no"}),
        (UPPER, {}),
    ],
    ids=["plain", "thinker", "opens", "keeps", "merger", "alternating", "late system", "toolless", "upper"],
)
def test_each_question_is_answered_as_the_template_behaves(template: str, difference: dict[str, str]) -> None:
    found = answers(template)
    if template is UPPER:  # what it prints is not what was said, which is another check's business
        assert found["tools"] == "yes" and found["strips"] == PLAIN["strips"]
        return
    assert found == PLAIN | difference


def test_a_template_that_refuses_everything_is_a_finding_and_no_crash() -> None:
    found = answers("{{- raise_exception('No.') -}}")
    assert found["tools"] == found["calls"] == found["late_system"] == found["two_users"] == "no"


def test_every_finding_has_a_question_and_a_meaning() -> None:
    findings = check_template(tiny_template())
    assert len({finding.question for finding in findings}) == len(findings) == 17
    assert all(finding.meaning for finding in findings)


@pytest.mark.weights
def test_the_real_qwen25_template_offers_tools_and_thinks_not(qwen) -> None:
    found = [finding.answer for finding in check_template(qwen)]
    assert found[0] == found[1] == found[3] == "yes" and found[5] == "no"
    assert {finding.answer for finding in placements(qwen).values()} == {"yes"}


# -- placements ----------------------------------------------------------------------------------------


def test_a_plain_template_takes_a_bar_at_every_placement() -> None:
    found = placements(tiny_template(CHATML))
    assert len(found) == 11 and {finding.answer for finding in found.values()} == {"yes"}
    assert found["tail"].meaning == found["last_result"].meaning == "a condition of its own"
    # With one user message in all, directly before it and at the front are the same place.
    assert found["front"].meaning == "after a tool result one condition with own_before"


def test_a_refused_placement_is_told_in_the_templates_own_words() -> None:
    late = placements(tiny_template(REFUSES_LATE_SYSTEM))
    assert late["system_tail"].answer == "no"
    assert late["system_tail"].meaning.endswith(": System message must be at the beginning")
    assert [name for name, finding in late.items() if finding.answer != "yes"] == ["system_tail"]
    alternating = placements(tiny_template(ALTERNATING))
    assert (alternating["tail"].answer, alternating["own_before"].answer) == (
        "after a tool result alone",
        "no",
    )
    assert "Conversation roles must alternate" in alternating["tail"].meaning


def test_a_placement_that_strips_reasoning_is_legal_after_a_follow_up_alone() -> None:
    found = placements(tiny_template(THINKER, "native"))
    assert found["tail"].answer == "after a follow-up alone"
    assert "keep_reasoning=false" in found["tail"].meaning
    assert found["system_tail"].answer == found["last_result"].answer == "yes"


def test_placements_that_a_merging_template_makes_one_are_named() -> None:
    found = placements(tiny_template(MERGER))
    assert found["tail"].meaning == "after a follow-up one condition with last_block"
    assert found["last_block"].meaning == "after a follow-up one condition with tail"
    assert "after a follow-up one condition with before" in found["own_before"].meaning
