"""Claims about the doctor's questions to a template: each answer is what the template in fact does."""

import pytest
from core_tokens import ALTERNATING, CHATML, MERGER, THINKER, TOOLLESS, UPPER, tiny_template

from harness.template_check import check_template


def answers(text: str) -> dict[str, str]:
    keys = ("tools", "calls", "late_system", "two_users", "strips", "thinks")
    return dict(zip(keys, (finding.answer for finding in check_template(tiny_template(text))), strict=True))


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
    assert len({finding.question for finding in findings}) == len(findings) == 6
    assert all(finding.meaning for finding in findings)


@pytest.mark.weights
def test_the_real_qwen25_template_offers_tools_and_thinks_not(qwen) -> None:
    found = [finding.answer for finding in check_template(qwen)]
    assert found[0] == found[1] == found[3] == "yes" and found[-1] == "no"
