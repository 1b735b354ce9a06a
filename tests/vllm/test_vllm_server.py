"""A `vllm serve` that Tailgauge starts, with the real 0.5B: streams, fields, cached tokens, its end."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ENGINE, settings
from core_samples import arms, xfinity

from harness.dataset import expand
from harness.errors import ConfoundError, ModelError
from harness.models.prefix_tree import common_prefix
from harness.models.server import ServerModel
from harness.prompt import render_arms
from harness.template import ChatTemplate
from harness.types import Decoding, ModelOutput, Request

SERVER = "harness.models.server.ServerModel"
KEY = "a-key-for-this-test-only"
NEW_TOKENS = 12


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def served(weights_05b: Path, qwen: ChatTemplate, log_dir: Path) -> Iterator[ServerModel]:
    """Started here; asks by token ids."""
    os.environ["TAILGAUGE_TEST_KEY"] = KEY
    given = settings(
        weights_05b,
        _target_=SERVER,
        engine=ENGINE,
        server={
            "api": "completions",
            "api_key_env": "TAILGAUGE_TEST_KEY",
            "tool_call_parser": "hermes",
        },
    )
    model = ServerModel.from_config(weights_05b, qwen.tokenizer, given, log_dir)
    yield model
    model.close()


@pytest.fixture(scope="module")
def chat(served: ServerModel, weights_05b: Path, qwen: ChatTemplate, log_dir: Path) -> Iterator[ServerModel]:
    """The same server by its address, through its chat API."""
    given = settings(
        weights_05b,
        _target_=SERVER,
        server={
            "api": "chat",
            "address": served.facts["address"],
            "api_key_env": "TAILGAUGE_TEST_KEY",
        },
    )
    model = ServerModel.from_config(weights_05b, qwen.tokenizer, given, log_dir)
    yield model
    model.close()


@pytest.fixture(scope="module")
def requests(qwen: ChatTemplate) -> list[Request]:
    found = []
    for each in expand(xfinity(), series="matched", clusters=1, seed=7):
        conditions = [c for c in arms() if c.name in ("control", "agent_status")]
        for name, arm in render_arms(qwen, each, conditions).items():
            found.append(
                Request(
                    f"{each.id}|{name}|act",
                    "act",
                    arm.prompt,
                    Decoding(NEW_TOKENS),
                    0,
                    messages=arm.messages,
                    tools=each.tools,
                )
            )
    return found


@pytest.fixture(scope="module")
def replies(served: ServerModel, requests: list[Request]) -> dict[str, ModelOutput]:
    return dict(served.run(requests))


def test_ids_go_in_and_the_exact_ids_come_out(
    replies: dict[str, ModelOutput], requests: list[Request], qwen: ChatTemplate
) -> None:
    assert replies.keys() == {request.cell_id for request in requests}
    for request in requests:
        output = replies[request.cell_id]
        assert output.error is None
        assert output.usage.reasoning_counted_by is None, "ids are exact, the runner counts on them"
        assert output.usage.completion_tokens == len(output.token_ids)
        assert output.usage.reported_prompt_tokens == len(request.prompt.ids)
        assert qwen.decode(output.token_ids).startswith(output.text)
        assert output.timing.total is None


@pytest.mark.parametrize("cache", ["cold", "warm", "natural"])
def test_the_cache_state_is_the_asked_for_one_and_times_are_ordered(
    served: ServerModel, requests: list[Request], cache: str
) -> None:
    shared = common_prefix([request.prompt.ids for request in requests[:2]])
    request = requests[1]
    served.run_alone(request, "natural")
    output = served.run_alone(request, cache, shared)  # type: ignore[arg-type]
    block = ENGINE["block_size"]
    whole = (len(request.prompt.ids) - 1) // block * block
    assert output.usage.cached_tokens == {"cold": 0, "warm": shared // block * block, "natural": whole}[cache]
    times = output.timing
    assert times.first_token is not None and times.first_answer_token is not None and times.total is not None
    assert 0 < times.first_token <= times.first_answer_token <= times.total


def test_chat_renders_the_proved_prompt_and_says_the_same(
    chat: ServerModel, replies: dict[str, ModelOutput], requests: list[Request]
) -> None:
    for request in requests[:2]:
        output = chat.run_alone(request)
        assert output.error is None
        assert output.usage.reported_prompt_tokens == len(request.prompt.ids)
        assert output.text.strip()[:20] == replies[request.cell_id].text.strip()[:20]


def test_a_chat_prompt_that_is_not_the_proved_one_is_refused(
    chat: ServerModel, requests: list[Request]
) -> None:
    other = replace(requests[0], messages=requests[0].messages[:-1])
    with pytest.raises(ConfoundError):
        chat.run_alone(other)


def test_the_key_is_in_no_log_and_on_no_command_line(served: ServerModel, log_dir: Path) -> None:
    assert KEY not in str(served.facts)
    logs = list(log_dir.glob("*.log"))
    assert logs and all(KEY not in log.read_text(errors="replace") for log in logs)


def test_a_server_that_dies_at_its_start_says_why(
    weights_05b: Path, qwen: ChatTemplate, tmp_path: Path
) -> None:
    given = settings(weights_05b, _target_=SERVER, engine={"max_model_len": 10**6}, server={})
    with pytest.raises(ModelError, match=r"model\.engine\.max_model_len") as told:
        ServerModel.from_config(weights_05b, qwen.tokenizer, given, tmp_path)
    assert "\n" not in str(told.value)
