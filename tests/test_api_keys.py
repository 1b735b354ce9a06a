"""A key goes to the provider that it belongs to, and to nobody else; where its name belongs it is never repeated."""

import sys
import types

import pytest

from harness.config_checks import resolve
from harness.errors import ConfigError, ModelError
from harness.models.api import keys

SECRET = "sk-live-0123456789abcdef"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(keys, "_from_keyring", lambda variable: None)


@pytest.mark.parametrize(
    ("provider", "address", "variable"),
    [
        ("openai-chat", None, "OPENAI_API_KEY"),
        ("openai-responses", None, "OPENAI_API_KEY"),
        ("openai-chat", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        ("anthropic", None, "ANTHROPIC_API_KEY"),
        ("gemini", None, "GEMINI_API_KEY"),
        ("openai-chat", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    ],
)
def test_the_usual_variable_of_a_provider_is_used(
    monkeypatch: pytest.MonkeyPatch, provider: str, address: str | None, variable: str
) -> None:
    with pytest.raises(ModelError, match=variable):
        keys.key_for(provider, None, address)
    monkeypatch.setenv(variable, f" {SECRET}\n")
    assert keys.key_for(provider, None, address) == SECRET


@pytest.mark.parametrize(
    "address",
    [
        "https://example.com/v1",
        "http://localhost:8000/v1",
        "https://api.openai.com.evil.example/v1",
        "https://notopenrouter.ai/v1",
    ],
)
def test_no_stranger_gets_a_key_that_was_not_named_for_it(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("OPENROUTER_API_KEY", SECRET)
    assert keys.key_for("openai-chat", None, address) != SECRET
    assert keys.key_for("openai-chat", "OPENAI_API_KEY", address) == SECRET


def test_a_key_that_is_not_in_the_environment_is_looked_for_in_the_keyring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    asked = []

    class KeyringError(Exception):
        pass

    ring = types.ModuleType("keyring")
    ring.get_password = lambda service, name: asked.append((service, name)) or SECRET  # type: ignore[attr-defined]
    errors = types.ModuleType("keyring.errors")
    errors.KeyringError = KeyringError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", ring)
    monkeypatch.setitem(sys.modules, "keyring.errors", errors)
    assert keys.key_for("anthropic", None, None) == SECRET
    assert asked == [("tailgauge", "ANTHROPIC_API_KEY")]

    def locked(service: str, name: str) -> str:
        raise KeyringError("no backend")

    ring.get_password = locked  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match="ANTHROPIC_API_KEY"):
        keys.key_for("anthropic", None, None)


@pytest.mark.parametrize("part", ["api", "server"])
@pytest.mark.parametrize(
    "given", [SECRET, "AIzaSyA0123456789abcdefghijklmnopqrstuv", "lower_case", "", 7, ["A"]]
)
def test_a_key_in_the_place_of_its_variables_name_is_refused_and_not_repeated(
    part: str, given: object
) -> None:
    with pytest.raises(ConfigError, match=rf"model\.{part}\.api_key_env: expected the name") as caught:
        resolve({"model": {part: {"api_key_env": given, "no_such_key": True}}})
    assert not given or str(given) not in str(caught.value)
