"""ServerModels on the scripted loopback server, requests for them, and whole answers in both APIs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core_samples import calls, sample
from core_tokens import tiny_template
from loopback import DONE, Asked, Loopback, Step, text, usage

from harness.config import ModelConfig
from harness.models.server import ServerModel
from harness.types import Decoding, Message, ModelOutput, RenderedPrompt, Request

TEMPLATE = tiny_template()
HAND = sample([Message("system", "Be brief."), *calls("Xfinity"), Message("user", "Call Xfinity again.")])


def request(name: str = "c0", *, tokens: int = 40, think_open: bool = False, **changes: Any) -> Request:
    prompt = RenderedPrompt(tuple(range(tokens)), "", (), "", "", think_open=think_open)
    fields: dict[str, Any] = {
        "probe": "act",
        "decoding": Decoding(16),
        "seed": 5,
        "messages": HAND.messages,
        "tools": HAND.tools,
    }
    return Request(cell_id=name, prompt=prompt, **(fields | changes))


def config(address: str | None, **server: Any) -> ModelConfig:
    """Settings of a server; keys of the model itself come as `model_…`."""
    model = {key.removeprefix("model_"): server.pop(key) for key in list(server) if key.startswith("model_")}
    data = {"_target_": "harness.models.server.ServerModel", "name": "tiny", "path": "/tiny", **model}
    stated = {"address": address, "kind": "vllm", "timeout_s": 5, "retries": 2}
    return ModelConfig.model_validate({**data, "server": {**stated, **server}})


def reach(address: str | None, **server: Any) -> ServerModel:
    return ServerModel.from_config(
        Path("/tiny"), TEMPLATE.tokenizer, config(address, **server), Path("/nowhere")
    )


@contextmanager
def serving(
    script: Any, server: dict[str, Any] | None = None, **settings: Any
) -> Iterator[tuple[ServerModel, Loopback]]:
    """A loopback server with that script and a model that has reached it."""
    with Loopback(script, **(server or {})) as loopback:
        model = reach(loopback.address, **settings)
        try:
            yield model, loopback
        finally:
            model.close()


def good(asked: Asked | None = None, words: str = "Done.") -> Sequence[Step]:
    """A whole answer of the completions API, with a true count of the prompt."""
    prompt = len(asked.body["prompt"]) if asked else 40
    return [text(words[:2]), text(words[2:], finish="stop"), usage(prompt, 2), DONE]


def only(model: ServerModel, asked: Request) -> ModelOutput:
    """The one output of a batch of one."""
    ((name, output),) = model.run([asked])
    assert name == asked.cell_id
    return output
