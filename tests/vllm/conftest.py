"""Engines for the vLLM tests: the real 0.5B, and a tiny random Qwen3 with the real tokenizer and template.

These tests run in the environment of `make test-vllm`, one process per file: an engine lives as long as its
process.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import qwen3

from harness.config import ModelConfig
from harness.models.vllm_engine import VllmModel
from harness.template import ChatTemplate
from harness.weights import load_tokenizer

ENGINE = {"max_model_len": 4096, "block_size": 32, "enforce_eager": True, "cpu_cache_gb": 2}


def settings(folder: Path, **changes: Any) -> ModelConfig:
    plain: dict[str, Any] = {
        "_target_": "harness.models.vllm_engine.VllmModel",
        "name": folder.name,
        "path": str(folder),
        "dtype": "float32",
        "engine": ENGINE,
    }
    return ModelConfig.model_validate(plain | changes)


@pytest.fixture(scope="session")
def engine(
    weights_05b: Path, qwen: ChatTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmModel]:
    """The real 0.5B in the offline engine, float32."""
    log_dir = tmp_path_factory.mktemp("engine")
    model = VllmModel.from_config(weights_05b, qwen.tokenizer, settings(weights_05b), log_dir)
    yield model
    model.close()


@pytest.fixture(scope="session")
def qwen3_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer random Qwen3 that opens and closes thinking blocks now and then."""
    return qwen3.make_folder(tmp_path_factory.mktemp("qwen3") / "tiny-qwen3")


@pytest.fixture(scope="session")
def qwen3_template(qwen3_folder: Path) -> ChatTemplate:
    return ChatTemplate(load_tokenizer(qwen3_folder), "native")
