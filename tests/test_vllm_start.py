"""What the vLLM engine is started with, and how a failing start is told; needs no vLLM."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.config import EngineConfig, ModelConfig
from harness.errors import ModelError
from harness.models.vllm_start import engine_arguments, explain, start


def settings(**changes: Any) -> ModelConfig:
    plain = {"_target_": "harness.models.vllm_engine.VllmModel", "name": "m", "path": "/m"}
    return ModelConfig.model_validate(plain | changes)


def test_what_the_configuration_leaves_open_is_left_to_vllm() -> None:
    assert engine_arguments(settings(), on_cpu=False) == {
        "dtype": "bfloat16",
        "tensor_parallel_size": 1,
        "enable_prefix_caching": True,
        "seed": 0,
    }


def test_every_stated_argument_reaches_vllm_under_its_own_name() -> None:
    engine = {
        "max_model_len": 512, "max_num_seqs": 4, "max_num_batched_tokens": 64, "block_size": 16,
        "tensor_parallel_size": 2, "gpu_memory_utilization": 0.5, "enforce_eager": True, "async_scheduling": False,
        "quantization": "fp8", "kv_cache_dtype": "fp8", "seed": 3,
    }  # fmt: skip
    assert set(engine) == set(EngineConfig.model_fields) - {"cpu_cache_gb", "cpu_cores"}
    given = engine_arguments(settings(engine=engine, dtype="float16"), on_cpu=False)
    assert given == {**engine, "dtype": "float16", "enable_prefix_caching": True}


def test_on_a_cpu_a_prompt_is_computed_whole() -> None:
    given = engine_arguments(settings(engine={"max_model_len": 4096}), on_cpu=True)
    assert given["enable_chunked_prefill"] is False and given["max_num_batched_tokens"] == 4096
    assert given["dtype"] == "float32" and "gpu_memory_utilization" not in given
    with pytest.raises(ModelError, match=r"model\.engine\.max_model_len: state it"):
        engine_arguments(settings(), on_cpu=True)


FAILURES = {
    "CUDA out of memory. Tried to allocate 2.00 GiB": "out of memory: lower model.engine.gpu_memory_utilization",
    "4.4 GiB KV cache is needed, which is larger than the available KV cache memory": "model.engine.max_model_len",
    "User-specified max_model_len (1000000) is greater than the derived one": "lower model.engine.max_model_len",
    "Bfloat16 is only supported on GPUs with compute capability of at least 8.0": "model.dtype=float32",
    "kv_cache_dtype fp8 is not supported here": "model.engine.kv_cache_dtype",
    "Unknown quantization method: int3": "model.engine.quantization",
    "Total number of attention heads (14) must be divisible by tensor parallel size (4)": "tensor_parallel_size",
    "WorkerProc initialization failed due to an exception in a background process": "a worker process failed",
    "Failed to infer device type": "no device",
    "No common block size for 7": "model.engine.block_size",
    "Model architectures ['X'] are not supported for now": "vLLM does not know this model",
}


@pytest.mark.parametrize("words", FAILURES)
def test_a_failing_start_names_the_setting_to_change_and_keeps_vllms_words(words: str) -> None:
    told = explain(RuntimeError(words))
    assert FAILURES[words] in told and words[:40] in told and "\n" not in told


def test_the_cause_may_stand_behind_the_error() -> None:
    try:
        try:
            raise ValueError("CUDA out of memory")
        except ValueError as inner:
            raise RuntimeError("Engine core initialization failed") from inner
    except RuntimeError as error:
        assert "out of memory" in explain(error)
    assert "VLLM_LOGGING_LEVEL=INFO" in explain(RuntimeError("something new"))


def test_a_missing_vllm_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ModelError, match="vLLM cannot be imported here") as told:
        start(Path("/m"), settings())
    assert "make test-vllm" in str(told.value) and "\n" not in str(told.value)
