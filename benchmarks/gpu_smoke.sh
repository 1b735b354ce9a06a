#!/usr/bin/env bash
# The GPU build in a few minutes, wherever a GPU is at hand: `bash benchmarks/gpu_smoke.sh [OUT]`. Exits 1 when a
# check fails. Takes less than 8 minutes once .venv-vllm is there.
#
# A tiny random Qwen3 (the tests' own, so no model hub is needed) goes through the GPU engine: the thinking probes in
# bfloat16, lone requests cold and warm, and `choose` in float32, which is held against transformers. Where
# TAILGAUGE_QWEN3 names a folder with Qwen3-0.6B, a small part of the main job runs on it too. TAILGAUGE_VLLM_BIN names
# the bin folder of another environment that has Tailgauge and vLLM. What is printed is kept in OUT/gpu_smoke.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out="${1:-results/gpu_smoke}"
mkdir -p "$out"
exec > >(tee "$out/gpu_smoke.log") 2>&1

nvidia-smi -L
date -u +%FT%TZ
bin="${TAILGAUGE_VLLM_BIN:-}"
if [ -z "$bin" ]; then
    make .venv-vllm/.made
    bin="$PWD/.venv-vllm/bin"
fi
tiny="$out/tiny-qwen3"
[ -d "$tiny" ] || PYTHONPATH=tests/vllm "$bin/python" -c 'import pathlib, sys, qwen3; qwen3.make_folder(pathlib.Path(sys.argv[1]))' "$tiny"

run() {  # name, limit in seconds, overrides
    local name="$1" limit="$2"
    shift 2
    echo "== $name"
    timeout "$limit" "$bin/tailgauge" run "$@" "results=$out/$name"
}
engine=(model=qwen3-0.6b-vllm model.engine.max_model_len=8192)
eager=("${engine[@]}" model.engine.enforce_eager=true "model.path=$tiny")
small=('~probe.choose.series.prior_calls'
       'probe.choose.series.matched={clusters: 2, conditions: [control, placebo, agent_status]}'
       'probe.act.series.matched={clusters: 4, conditions: [control, placebo, agent_status]}')
thinking=(experiment=xfinity 'probe=[choose_thinking,act_thinking]' "${small[@]}")
forced=(experiment=xfinity_small 'probe=[choose_small]' model.thinking=off model.decoding.temperature=0 model.dtype=float32)

run thinking 100 "${thinking[@]}" "${engine[@]}" "model.path=$tiny" probe.choose.max_new_tokens=64 probe.act.max_new_tokens=64
run cold 60 experiment=xfinity_latency "${eager[@]}" latency.warmups=3 probe.act.max_new_tokens=32
run warm 60 experiment=xfinity_latency "${eager[@]}" latency.warmups=3 probe.act.max_new_tokens=32 latency.cache=warm
run vllm 60 "${forced[@]}" "${eager[@]}"
run transformers 60 "${forced[@]}" model=local "model.path=$tiny"
attention() {  # name of a run, further settings
    local name="$1"
    shift
    echo "== attention of $name"
    timeout 90 "$bin/tailgauge" attention "$out/$name"/*/* clusters=1 "$@"
}
attention transformers
attention transformers dtype=bfloat16 folder=attention-bfloat16
attention thinking
if [ -n "${TAILGAUGE_QWEN3:-}" ]; then
    run qwen3 130 "${thinking[@]}" "${engine[@]}" "model.path=$TAILGAUGE_QWEN3"
else
    echo "== TAILGAUGE_QWEN3 names no folder: Qwen3-0.6B itself is not run"
fi
"$bin/python" benchmarks/gpu/check.py "$out"
date -u +%FT%TZ
