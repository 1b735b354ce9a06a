"""A `vllm serve` with the tiny Qwen3: its `reasoning` field, native thinking, and a latency run by the command."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ENGINE, settings
from core_samples import arms, xfinity
from qwen3 import END_THINK, THINK

from harness.compose import compose
from harness.dataset import expand
from harness.models.server import ServerModel
from harness.prompt import render_arms
from harness.runlog import read_records
from harness.template import ChatTemplate
from harness.types import Decoding, Request

SERVER = "harness.models.server.ServerModel"
DRAWN = Decoding(24, temperature=0.6, top_p=0.95, top_k=20)


@pytest.fixture(scope="module")
def served(
    qwen3_folder: Path, qwen3_template: ChatTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerModel]:
    given = settings(
        qwen3_folder,
        _target_=SERVER,
        thinking="native",
        engine=ENGINE,
        server={"api": "chat", "reasoning_parser": "qwen3", "tool_call_parser": "hermes"},
    )
    model = ServerModel.from_config(
        qwen3_folder, qwen3_template.tokenizer, given, tmp_path_factory.mktemp("server")
    )
    yield model
    model.close()


@pytest.fixture(scope="module")
def requests(qwen3_template: ChatTemplate) -> list[Request]:
    sample = expand(xfinity(), series="matched", clusters=1, seed=7)[0]
    arm = render_arms(qwen3_template, sample, arms()[:1])[arms()[0].name]
    return [
        Request(str(seed), "act", arm.prompt, DRAWN, seed, messages=arm.messages, tools=sample.tools)
        for seed in range(12)
    ]


def test_the_reasoning_field_becomes_the_thinking_of_the_raw_text(
    served: ServerModel, requests: list[Request], qwen3_template: ChatTemplate
) -> None:
    outputs = dict(served.run(requests))
    assert all(output.error is None for output in outputs.values())
    thought = [output for output in outputs.values() if "<think>" in output.text]
    assert thought, "no reply thought: the field was not read"
    for output in outputs.values():
        assert output.usage.reported_prompt_tokens == len(requests[0].prompt.ids)
        if output.usage.reasoning_counted_by is None:
            assert output.text == qwen3_template.decode(output.token_ids) or THINK in output.token_ids
    assert any(END_THINK in output.token_ids or "</think>" in output.text for output in outputs.values())


def test_a_reasoning_delta_is_a_first_token_and_no_answer(
    served: ServerModel, requests: list[Request]
) -> None:
    """Over the drawn replies: an answer never comes before the first token, and some replies that think
    have a first token and an answer later or none."""
    later = 0
    for request in requests[:6]:
        times = served.run_alone(request).timing
        assert times.first_token is not None and times.total is not None and times.cache == "cold"
        if times.first_answer_token is None or times.first_answer_token > times.first_token:
            later += 1
        assert times.first_answer_token is None or times.first_answer_token >= times.first_token
    assert later


def test_a_latency_run_through_a_server_by_the_command(
    served: ServerModel, qwen3_folder: Path, tmp_path: Path
) -> None:
    from harness.commands.run import execute

    folder = execute(
        compose(
            [
                "experiment=xfinity_latency",
                *("model=vllm-server", f"model.path={qwen3_folder}", "model.dtype=float32"),
                *("model.thinking=native", "model.server.api=completions"),
                f"model.server.address={served.facts['address']}",
                *("model.decoding.temperature=0.6", "model.decoding.top_k=20", "probe.act.max_new_tokens=24"),
                *("latency.samples=2", "latency.cache=warm", f"results={tmp_path}"),
            ]
        )
    )
    rows = list(read_records(folder))
    assert len(rows) == 6
    for row in rows:
        cached = row.output.usage.cached_tokens
        assert cached is not None and cached > 0, "warm: what the arms share is in the cache"
        assert row.output.timing.cache == "warm" and row.output.timing.first_token is not None
        assert row.output.usage.reasoning_tokens is not None
    told = (folder / "tables" / "latency.md").read_text(encoding="utf-8")
    assert "warm" in told and "first_token" in told
