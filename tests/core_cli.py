"""Helpers of the command-line tests: starting the console command, a tiny model, and reading what a run left."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 300.0
UNTIMED = ("throughput", "latency")
"""Tables that hold measured times; the same run gives other numbers every time."""

TINY = (
    "experiment=xfinity_small",
    "model=local",
    "probe.choose.series.matched.clusters=4",
    "probe.choose.series.prior_calls.clusters=1",
    "probe.act.series.matched.clusters=4",
    "probe.act.max_new_tokens=24",
)
"""Five batches, 78 cells: some seconds on the tiny model."""
LEAST = (
    "experiment=xfinity_small",
    "probe=[act_small]",
    "condition=[control,agent_status]",
    "probe.act.series.matched.clusters=1",
    "probe.act.max_new_tokens=4",
)
"""One batch of four cells."""
SMALL_REAL = (
    "model=qwen2.5-coder-0.5b",
    "experiment=xfinity_small",
    "probe.choose.series.matched.clusters=1",
    "probe.choose.series.prior_calls.clusters=1",
    "probe.choose.series.prior_calls.prior_calls=[2]",
    "probe.act.series.matched.clusters=1",
    "probe.act.max_new_tokens=8",
)
"""The smallest sensible run of the real 0.5B: two batches, 21 cells."""

THREADS = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(os.cpu_count()))}
"""The real model may use the whole machine."""
SECRETS = {
    "OPENAI_API_KEY": "sk-test-4kW9qT7mZr2LxVb8",
    "HF_TOKEN": "hf_bXq7RkTn3WzLmP9sVd",
    "ANTHROPIC_API_KEY": "sk-ant-Jt5nQw8ZxYc2",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI7K7MDENG",
}
"""Looks of real ones; no byte of a run may hold them."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The tests' own environment, the checkout importable from anywhere, one thread, no network for hubs."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        **(extra or {}),
    }


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "harness.cli", *arguments]


def call(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = TIMEOUT, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """Runs the console command to its end, whatever the exit code."""
    return subprocess.run(
        command(*arguments),
        cwd=cwd, env=environment(env), capture_output=True, text=True, timeout=timeout, check=False, **options,
    )  # fmt: skip


def done(*arguments: str, cwd: Path, **options: Any) -> "subprocess.CompletedProcess[str]":
    """As `call`, and it must succeed."""
    ended = call(*arguments, cwd=cwd, **options)
    assert ended.returncode == 0, f"{arguments}\n{ended.stdout[-2000:]}\n{ended.stderr[-4000:]}"
    return ended


def run(*overrides: str, cwd: Path, **options: Any) -> Path:
    """`tailgauge run`, which must succeed; the run folder that it printed last."""
    return printed_folder(done("run", *overrides, cwd=cwd, **options), cwd)


def printed_folder(ended: "subprocess.CompletedProcess[str]", cwd: Path) -> Path:
    return cwd / ended.stdout.rstrip("\n").splitlines()[-1]


def refusal(ended: "subprocess.CompletedProcess[str]") -> str:
    """The one line of a refused command: exit code 2, `tailgauge: …` once and last, no traceback."""
    assert ended.returncode == 2, (ended.returncode, ended.stdout[-1000:], ended.stderr[-4000:])
    assert "Traceback" not in ended.stderr + ended.stdout, ended.stderr[-4000:]
    lines = ended.stderr.rstrip("\n").splitlines()
    told = [line for line in lines if line.startswith("tailgauge:")]
    assert len(told) == 1 and lines[-1] == told[0], ended.stderr[-4000:]
    return told[0].removeprefix("tailgauge: ")


def alone(ended: "subprocess.CompletedProcess[str]") -> str:
    """As `refusal`, and nothing but that line was said."""
    line = refusal(ended)
    assert ended.stderr == f"tailgauge: {line}\n", ended.stderr
    assert not ended.stdout
    return line


# -- interrupting -------------------------------------------------------------------------------------------


def rows(log: Path) -> list[dict[str, Any]]:
    """The whole lines of samples.jsonl; none where there is no such file yet."""
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def interrupt(
    overrides: Sequence[str],
    cwd: Path,
    at_rows: int,
    with_signal: signal.Signals,
    env: Mapping[str, str] | None = None,
) -> tuple[int, str, int]:
    """Starts `tailgauge run`, sends the signal once `at_rows` rows are in the one run's log.

    Returns exit code, stderr, and the number of rows that were there afterwards.
    """
    process = subprocess.Popen(
        command("run", *overrides),
        cwd=cwd, env=environment(env), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        limit = time.monotonic() + TIMEOUT
        while _lines(cwd) < at_rows and process.poll() is None:
            assert time.monotonic() < limit, "the run wrote no rows"
            time.sleep(0.001)
        process.send_signal(with_signal)
        _, stderr = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    return process.returncode, stderr, _lines(cwd)


def _lines(cwd: Path) -> int:
    return sum(log.read_bytes().count(b"\n") for log in cwd.glob("results/*/*/samples.jsonl"))


# -- what a run left ----------------------------------------------------------------------------------------


def files(folder: Path, *names: str) -> dict[str, bytes]:
    """Relative path → bytes, for the given sub-folders and files (all of it without names)."""
    starts = [folder / name for name in names] or [folder]
    found = [file for start in starts for file in ([start] if start.is_file() else start.rglob("*"))]
    return {str(file.relative_to(folder)): file.read_bytes() for file in found if file.is_file()}


def lasting(run_dir: Path) -> dict[str, bytes]:
    """What two runs of one configuration must share byte for byte: samples.parquet and the tables, but for
    the tables of times and the summary that quotes them."""
    kept = files(run_dir, "samples.parquet", "tables")
    return {name: data for name, data in kept.items() if Path(name).stem not in (*UNTIMED, "tables")}


def copy_of(run_dir: Path, folder: Path) -> Path:
    """A copy of a run folder inside `folder`."""
    return Path(shutil.copytree(run_dir, folder / run_dir.name))


def entries(folder: Path) -> set[str]:
    """Everything below a folder, as relative paths."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# -- scenarios ----------------------------------------------------------------------------------------------


def scenario_copy(cwd: Path) -> Path:
    """`./scenarios/xfinity.yaml` of a working folder, a copy of the packaged one."""
    (cwd / "scenarios").mkdir(exist_ok=True)
    return Path(shutil.copy(ROOT / "scenarios" / "xfinity.yaml", cwd / "scenarios" / "xfinity.yaml"))


# -- a tiny model -------------------------------------------------------------------------------------------


def make_tiny_model(real: Path, folder: Path) -> Path:
    """A two-layer Qwen2 with the real model's tokenizer and chat template, random but for its output matrix.

    That matrix prefers each token which follows the present one somewhere in a tool call of the scenario, so
    that forced choices have probabilities of every size and free replies look like calls; the random
    attention makes both depend on the whole prompt. A plain random model would give every call the
    same clipped probability, and a comparison of two runs could not fail.
    """
    import torch
    from tokenizers import Tokenizer
    from transformers import Qwen2Config, Qwen2ForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(real / name, folder / name)
    own = json.loads((real / "config.json").read_text(encoding="utf-8"))
    kept = {
        key: own[key] for key in ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id") if key in own
    }
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            hidden_size=128, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=32768, tie_word_embeddings=False, **kept,
        )
    )  # fmt: skip
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    table = model.get_input_embeddings().weight
    with torch.no_grad():
        table.copy_(torch.nn.functional.normalize(table, dim=-1))
        model.get_output_embeddings().weight.zero_()
        for layer in model.model.layers:
            layer.self_attn.v_proj.weight.mul_(5)
    _teach(model, _pairs(tokenizer))
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


def _teach(model: Any, pairs: Sequence[tuple[int, int]]) -> None:
    """Fits the rows of the output matrix that belong to `pairs` to the next token given the present one."""
    import torch

    table, outputs = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    known = sorted({token for pair in pairs for token in pair})
    at = {token: i for i, token in enumerate(known)}
    width = table.shape[1]
    inputs = table.detach()[[before for before, _ in pairs]] * width**0.5
    wanted = torch.tensor([at[after] for _, after in pairs])
    rows = torch.zeros(len(known), width, requires_grad=True)
    others = torch.zeros(len(pairs), 1) + torch.tensor(float(len(table))).log()
    optimizer = torch.optim.Adam([rows], lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        scores = torch.cat([inputs @ rows.T, others], dim=1)
        torch.nn.functional.cross_entropy(scores, wanted).backward()
        optimizer.step()
    with torch.no_grad():
        outputs[known] = rows.detach()


def _pairs(tokenizer: Any) -> list[tuple[int, int]]:
    scenario = yaml.safe_load((ROOT / "scenarios" / "xfinity.yaml").read_text(encoding="utf-8"))
    texts = [
        f'<tool_call>\n{{"name": "phone_call", "arguments": {{"merchant": "{merchant}", "purpose": "Ask"}}}}\n'
        "</tool_call><|im_end|>"
        for merchant in scenario["pools"]["merchants"]
    ]
    texts += [
        f'<tool_call>\n{{"name": "{tool["name"]}", "arguments": {{"query": "a"}}}}\n</tool_call><|im_end|>'
        for tool in scenario["tools"]
    ]
    texts.append("<|im_start|>assistant\n<tool_call>")
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    return [pair for each in ids for pair in itertools.pairwise(each)]
