#!/usr/bin/env bash
# The GPU build in a few minutes, wherever a GPU is at hand: `bash benchmarks/gpu_smoke.sh [OUT]`.
#
# Makes .venv-vllm, writes a tiny random Qwen3 (the tests' own, so no model hub is needed), and runs through the GPU
# engine: the thinking probes, then lone requests, cold and warm. Where TAILGAUGE_QWEN3 names a folder with
# Qwen3-0.6B, a small part of the main job runs on it too. What it prints is kept in OUT/gpu_smoke.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out="${1:-results/gpu_smoke}"
mkdir -p "$out"
exec > >(tee "$out/gpu_smoke.log") 2>&1

nvidia-smi -L
date -u +%FT%TZ
make .venv-vllm/.made
bin="$PWD/.venv-vllm/bin"
tiny="$out/tiny-qwen3"
[ -d "$tiny" ] || PYTHONPATH=tests/vllm "$bin/python" -c 'import pathlib, sys, qwen3; qwen3.make_folder(pathlib.Path(sys.argv[1]))' "$tiny"

common=("results=$out/results" model.engine.max_model_len=8192)
small=('probe.choose.series={matched: {clusters: 2, conditions: [control, placebo, agent_status]}}'
       'probe.act.series={matched: {clusters: 4, conditions: [control, placebo, agent_status]}}')

echo "== thinking probes on the tiny Qwen3, bfloat16"
timeout 150 "$bin/tailgauge" run experiment=xfinity model=qwen3-0.6b-vllm "model.path=$tiny" 'probe=[choose_thinking,act_thinking]' \
    probe.choose.max_new_tokens=64 probe.act.max_new_tokens=64 "${small[@]}" "${common[@]}"
echo "== lone requests, cold and warm"
for cache in cold warm; do
    timeout 120 "$bin/tailgauge" run experiment=xfinity_latency model=qwen3-0.6b-vllm "model.path=$tiny" latency.cache=$cache \
        latency.warmups=3 probe.act.max_new_tokens=64 "${common[@]}"
done
if [ -n "${TAILGAUGE_QWEN3:-}" ]; then
    echo "== a small part of the main job on Qwen3-0.6B"
    timeout 180 "$bin/tailgauge" run experiment=xfinity model=qwen3-0.6b-vllm "model.path=$TAILGAUGE_QWEN3" \
        'probe=[choose_thinking,act_thinking]' "${small[@]}" "${common[@]}"
else
    echo "== TAILGAUGE_QWEN3 names no folder: Qwen3-0.6B itself is not run"
fi
date -u +%FT%TZ
echo "gpu_smoke: done"
