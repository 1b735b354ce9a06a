"""Fixtures for what lies outside the repository: real weights, and traces of real agents."""

import os
from pathlib import Path

import core_cli
import pytest
from hypothesis import settings

from harness.template import ChatTemplate
from harness.weights import WeightsSpec, load_tokenizer, resolve

# The same examples in every run, so that a landing never fails by the draw. `HYPOTHESIS_PROFILE=default make test`
# draws new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture(scope="session")
def weights_05b() -> Path:
    """The real 0.5B model as a Hugging Face folder; fetched, verified and converted on a fresh machine."""
    return resolve(WeightsSpec(embedded="qwen2.5-coder-0.5b")).path


@pytest.fixture(scope="session")
def tiny_model(weights_05b: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer model with the 0.5B's tokenizer and chat template: the real backend, in seconds."""
    return core_cli.make_tiny_model(weights_05b, tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def tiny_run(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run of the tiny model by the console command. Read it, or change a copy."""
    return core_cli.run(*core_cli.TINY, f"model.path={tiny_model}", cwd=tmp_path_factory.mktemp("tiny_run"))


@pytest.fixture(scope="session")
def real_run(weights_05b: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the real 0.5B by the console command, with secrets in its environment. Read it only."""
    folder = tmp_path_factory.mktemp("real_run")
    return core_cli.run(*core_cli.SMALL_REAL, cwd=folder, env={**core_cli.THREADS, **core_cli.SECRETS})


@pytest.fixture(scope="session")
def cases_dir() -> Path:
    """The folder that TAILGAUGE_CASES names; the test is skipped where it is not set."""
    named = os.environ.get("TAILGAUGE_CASES", "")
    if not named:
        pytest.skip("TAILGAUGE_CASES is not set: no folder of recorded agent traces on this machine")
    folder = Path(named)
    assert folder.is_dir(), f"TAILGAUGE_CASES names {folder}, which is no folder"
    return folder


@pytest.fixture(scope="session")
def qwen(weights_05b: Path) -> ChatTemplate:
    """The chat template and tokenizer of the real 0.5B model, thinking off."""
    return ChatTemplate(load_tokenizer(weights_05b))
