"""What capturing attention costs: the 0.5B at 4k and 8k tokens, against plain SDPA and the usual ways of asking.

Each measurement is a process of its own: load, a short pass to warm up, then one prompt, with the high-water mark of
its memory reset in between. `sdpa` is one forward pass that keeps nothing; `ours` is the replay as `tailgauge
attention` does it, the last 64 rows of every layer and head summed into 64 regions; `one_pass` the same in a single
forward pass. Two peers run once under a memory limit: `eager_hooks` (eager attention, hooks that keep the same 64 rows)
and `bertviz` (eager with output_attentions=True, what attention viewers ask for). They may run out of it; that is their
figure. Last, ours alone on one long prompt under the same limit for everything, model included.

Prints one JSON object as its last line.
"""

import argparse
import gc
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from harness.attention.capture import Watch, register
from harness.attention.chain import Chain
from harness.attention.settings import AttentionConfig
from harness.attention.takers import RowTaker, Wanted
from harness.models.forward import Engine
from harness.weights import WeightsSpec, resolve

LIMIT_MEMORY = 1.15
LIMIT_TIME = 1.2
LIMIT_BYTES = 8 * 2**30
"""For the peers, and for the long prompt: the whole process."""
LIMIT_LOGPROB = 1e-2
ROWS, REGIONS = 64, 64
PAIRED, PEERS = ("sdpa", "ours"), ("eager_hooks", "bertviz")
_OUT_OF_MEMORY = ("not enough memory", "can't allocate memory", "Cannot allocate memory")

Pass = Callable[[list[int]], tuple[torch.Tensor, float | None]]
"""Token ids → logits of the last one, and the mass of all captured rows and heads over their number."""


# -- one measurement, in its own process -------------------------------------------------------------------


def measure(variant: str, size: int) -> dict[str, Any]:
    """Seconds and bytes of one prompt; `failed` where memory did not suffice."""
    torch.set_grad_enabled(False)
    path = resolve(WeightsSpec(embedded="qwen2.5-coder-0.5b")).path
    drawn = np.random.default_rng(size).integers(1000, 100_000, size)
    ids = [int(token) for token in drawn]
    if variant in PEERS or variant == "long":
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_BYTES, LIMIT_BYTES))
    try:
        run = BUILD[variant](path, size)
        run(ids[: 2 * ROWS])
        gc.collect()
        begun_with = _reset_peak()
        begun = perf_counter()
        logits, mass = run(ids)
        seconds = perf_counter() - begun
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in _OUT_OF_MEMORY):
            raise
        return {"failed": f"out of memory: more than {LIMIT_BYTES >> 30} GiB"}
    top = torch.log_softmax(logits.float(), dim=-1).max(dim=-1)
    peak = _status("VmHWM")
    return {
        "seconds": round(seconds, 2),
        "memory_mb": round((peak - begun_with) / 1e6, 1),
        "process_mb": round(peak / 1e6, 1),
        "token": int(top.indices),
        "logprob": float(top.values),
        "mass": mass,
        "threads": torch.get_num_threads(),
    }


def _reset_peak() -> int:
    """Resets the high-water mark of this process's memory; what it holds now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _status("VmRSS")


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1]) * 1024


def _sdpa(path: Path, size: int) -> Pass:
    return _plain(path, "sdpa")


def _bertviz(path: Path, size: int) -> Pass:
    return _plain(path, "eager", output_attentions=True)


def _plain(path: Path, attention: str, **options: Any) -> Pass:
    """transformers alone: one forward pass, no cache."""
    model = _load(path, attention)

    def run(ids: list[int]) -> tuple[torch.Tensor, float | None]:
        output = model(torch.tensor([ids]), use_cache=False, logits_to_keep=1, **options)
        return output.logits[0, -1], None

    return run


def _eager_hooks(path: Path, size: int) -> Pass:
    """Eager attention; a hook on each layer keeps the wanted rows of its weights and lets the rest go."""
    model = _load(path, "eager")
    kept: list[torch.Tensor] = []

    def hook(module: Any, args: Any, output: Any) -> None:
        rows = output[1][0, :, -ROWS:].float()
        kept.append(rows @ _member(rows.shape[-1]))

    for layer in model.model.layers:
        layer.self_attn.register_forward_hook(hook)

    def run(ids: list[int]) -> tuple[torch.Tensor, float | None]:
        kept.clear()
        output = model(torch.tensor([ids]), use_cache=False, logits_to_keep=1)
        return output.logits[0, -1], float(torch.stack(kept).sum(-1).mean())

    return run


def _load(path: Path, attention: str) -> Any:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation=attention, dtype=torch.float32)
    return model.eval()


def _ours(path: Path, size: int) -> Pass:
    return _chain(path, AttentionConfig().pack_tokens)


def _one_pass(path: Path, size: int) -> Pass:
    return _chain(path, size)


def _chain(path: Path, chunk: int) -> Pass:
    """The project's own replay."""
    engine = Engine(path, dtype="float32", device="cpu", threads=None, chunk=chunk, attention=register())
    config = engine.model.config
    layers, heads = range(config.num_hidden_layers), range(config.num_attention_heads)
    block = AttentionConfig().query_block

    def run(ids: list[int]) -> tuple[torch.Tensor, float | None]:
        rows = tuple(range(len(ids) - ROWS, len(ids)))
        regions = np.arange(len(ids)) * REGIONS // len(ids)
        wanted = Wanted(regions, REGIONS, (), tuple(layers), tuple(heads), rows)
        taker = RowTaker(wanted, engine.device)
        engine.reset()
        logits = Chain(engine, Watch(block=block)).extend(ids, rows=rows, taker=taker)
        return logits, float(taker.mass.sum(-1).mean())

    return run


def _member(length: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.arange(length) * REGIONS // length, REGIONS).float()


BUILD: dict[str, Callable[[Path, int], Pass]] = {
    "sdpa": _sdpa, "ours": _ours, "one_pass": _one_pass, "eager_hooks": _eager_hooks, "bertviz": _bertviz,
    "long": _ours,
}  # fmt: skip


# -- all of them -------------------------------------------------------------------------------------------


def apart(variant: str, size: int) -> dict[str, Any]:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, "--measure", variant, str(size)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode < 0:
        found: dict[str, Any] = {"failed": f"killed by signal {-ended.returncode}"}
    elif ended.returncode:
        raise SystemExit(f"{variant} at {size} tokens: exit code {ended.returncode}")
    else:
        found = json.loads(ended.stdout.splitlines()[-1])
    shown = found.get("failed") or f"{found['seconds']} s, {found['memory_mb']} MB over the loaded model"
    print(f"{size} tokens, {variant}: {shown}", file=sys.stderr)
    return found


def compare(size: int, repeats: int, peers: bool) -> dict[str, Any]:
    """All variants at one length; ours against SDPA in pairs whose order alternates."""
    found: dict[str, list[dict[str, Any]]] = {variant: [] for variant in PAIRED}
    for number in range(repeats):
        for variant in PAIRED if number % 2 == 0 else PAIRED[::-1]:
            found[variant].append(apart(variant, size))
    failed = next((each["failed"] for runs in found.values() for each in runs if "failed" in each), None)
    if failed:
        raise SystemExit(f"{size} tokens: {failed}")
    middle = {
        variant: {key: statistics.median(each[key] for each in runs) for key in ("seconds", "memory_mb")}
        for variant, runs in found.items()
    }
    plain, ours = found["sdpa"][0], found["ours"][0]
    once = {variant: _figures(apart(variant, size)) for variant in ("one_pass", *(PEERS if peers else ()))}
    return {
        **middle,
        "memory_ratio": round(middle["ours"]["memory_mb"] / middle["sdpa"]["memory_mb"], 3),
        "time_ratio": round(middle["ours"]["seconds"] / middle["sdpa"]["seconds"], 3),
        "same_output": plain["token"] == ours["token"]
        and abs(plain["logprob"] - ours["logprob"]) < LIMIT_LOGPROB,
        "rows_sum_to_one": abs(ours["mass"] - 1) < 1e-5,
        **once,
    }


def _figures(found: dict[str, Any]) -> dict[str, Any]:
    return {key: found[key] for key in ("seconds", "memory_mb", "failed") if key in found}


def fits(size: int) -> dict[str, Any]:
    """Ours on one long prompt, the whole process under the limit."""
    found = apart("long", size)
    return {key: found[key] for key in ("seconds", "memory_mb", "process_mb", "failed") if key in found}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[4096, 8192], metavar="N")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="pairs of ours and SDPA")
    parser.add_argument("--whole", type=int, default=16384, metavar="N", help="the long prompt; 0: none")
    parser.add_argument("--long", action="store_true", help="a prompt of 32768 tokens as well")
    parser.add_argument("--no-peers", action="store_true", help="leave out eager attention")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> int:
    asked = parse()
    if asked.measure:
        print(json.dumps(measure(asked.measure[0], int(asked.measure[1]))))
        return 0
    resolve(WeightsSpec(embedded="qwen2.5-coder-0.5b"))  # fetched before anything is timed
    sizes = {size: compare(size, asked.repeats, not asked.no_peers) for size in asked.tokens}
    whole = {size: fits(size) for size in [asked.whole, *([32768] if asked.long else [])] if size}
    ok = all(
        each["memory_ratio"] <= LIMIT_MEMORY
        and each["time_ratio"] <= LIMIT_TIME
        and each["same_output"]
        and each["rows_sum_to_one"]
        for each in sizes.values()
    ) and all("failed" not in each and each["process_mb"] * 1e6 < LIMIT_BYTES for each in whole.values())
    print(
        json.dumps(
            {
                "name": "attention",
                "model": "qwen2.5-coder-0.5b, float32",
                "captured": f"last {ROWS} rows of every layer and head, {REGIONS} regions",
                "peer": "sdpa: one forward pass of transformers that captures nothing",
                "repeats": asked.repeats,
                "threads": torch.get_num_threads(),
                "tokens": sizes,
                "long": whole,
                "limit": {
                    "memory_ratio": LIMIT_MEMORY,
                    "time_ratio": LIMIT_TIME,
                    "process_gib": LIMIT_BYTES >> 30,
                },
                "ok": ok,
            }
        )
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
