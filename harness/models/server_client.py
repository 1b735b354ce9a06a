"""The vendor's client behind our own retries: an address, a key from the environment, the first questions.

Knows no request of an experiment. A fault leaves here as a ProviderError without the client's exception behind
it, so that no key can come along.
"""

import json
import os
from collections.abc import Callable, Mapping
from threading import Event
from typing import Any, TypeVar
from urllib.parse import urlsplit

import openai

from harness.config import ServerConfig
from harness.errors import ModelError, ProviderError
from harness.models.addresses import checked_address
from harness.models.server_faults import Redactor, StatusError, classify, persist, silence
from harness.models.server_sockets import Headway, Sockets

_CONNECT_S = 10.0
_NO_KEY = "none"
"""What the client sends where the server wants no key; it insists on sending something."""

T = TypeVar("T")


class Connection:
    """One server. `closing` ends waiting for it. Raises ModelError for an address or a key that cannot be."""

    def __init__(self, address: str, settings: ServerConfig, closing: Event) -> None:
        self.address = checked_address(address, "server", "http://localhost:8000/v1")
        self.root = self.address.removesuffix("/v1")
        self.key_name = settings.api_key_env
        key = key_from(settings.api_key_env)
        self._settings = settings
        self._closing = closing
        self._redact = Redactor(key)
        self._sockets = Sockets()
        self.client = _client(self.address, key or _NO_KEY, settings.timeout_s, self._sockets)

    def __repr__(self) -> str:
        return f"Connection({self.address!r})"

    def get(self, url: str, retries: int | None = None) -> Any:
        """JSON; nobody listening is final. Raises ProviderError, StatusError among them."""
        tries = self._settings.retries if retries is None else retries
        return persist(
            lambda: self.guarded(lambda: self.client.get(url, cast_to=object)),
            tries,
            self._closing,
            insist=False,
        )

    def post(self, url: str, body: Mapping[str, Any]) -> Any:
        """JSON for JSON. Raises ProviderError, StatusError among them."""
        return persist(
            lambda: self.guarded(lambda: self.client.post(url, body=body, cast_to=object)),
            self._settings.retries,
            self._closing,
        )

    def guarded(self, call: Callable[[], T], headway: Headway | None = None) -> T:
        """What `call` returns; what the client or its stream raises becomes a ProviderError, without cause
        or context. `headway`: what may have cut the stream, which is then the reason."""
        try:
            return call()
        except ProviderError as error:
            fault = error
        except (openai.APIError, json.JSONDecodeError, UnicodeDecodeError) as error:
            fault = classify(error, self._redact, self._settings.timeout_s)
        raise silence(self._settings.timeout_s) if headway and headway.stalled else fault

    def cut(self) -> None:
        """Ends every request that is under way, as if the server had gone."""
        self._sockets.cut()

    def close(self) -> None:
        self.client.close()


def reach(connection: Connection, wanted: str | None, version_path: str | None) -> tuple[str, dict[str, Any]]:
    """Proves address, key and model name before anything is computed: the served model's name and facts for
    the manifest. Raises ModelError in one line."""
    where = f"model.server.address={connection.address}"
    listed: Any = {}
    try:
        listed = connection.get(f"{connection.address}/models")
    except StatusError as fault:
        if fault.status in (401, 403):
            name = connection.key_name
            hint = f"check the key in ${name}" if name else "set model.server.api_key_env"
            raise ModelError(f"{where}: the server does not let us in ({fault}); {hint}") from None
        if wanted is None:
            raise ModelError(
                f"{where}: no list of models ({fault}); does the address end in /v1? If so set model.server.model"
            ) from None
    except ProviderError as fault:
        raise ModelError(f"{where}: {fault}; start the server or mend the address") from None
    data = listed.get("data") if isinstance(listed, dict) else None
    entries = [e for e in data if isinstance(e, dict) and "id" in e] if isinstance(data, list) else []
    model = _chosen(where, wanted, [str(entry["id"]) for entry in entries])
    limits = [e["max_model_len"] for e in entries if e["id"] == model and type(e.get("max_model_len")) is int]
    facts: dict[str, Any] = {"max_model_len": limits[0]} if limits else {}
    if version_path and (version := _version(connection, version_path)):
        facts["version"] = version
    return model, facts


def _chosen(where: str, wanted: str | None, names: list[str]) -> str:
    shown = ", ".join(names[:8]) or "nothing"
    if wanted is not None:
        # Ollama lists `name:latest` for what it serves as `name`.
        if names and wanted not in names and f"{wanted}:latest" not in names:
            raise ModelError(f"{where}: no model {wanted!r} there; it serves {shown} (model.server.model)")
        return wanted
    if len(names) != 1:
        raise ModelError(f"{where}: it serves {shown}; choose one with model.server.model")
    return names[0]


def _version(connection: Connection, path: str) -> str | None:
    try:
        answer = connection.get(connection.root + path, retries=0)
    except ProviderError:
        return None
    return str(answer["version"]) if isinstance(answer, dict) and "version" in answer else None


def key_from(variable: str | None) -> str | None:
    """The key from the environment. Raises ModelError when the named variable is not set."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ModelError(f"model.server.api_key_env={variable}: the environment variable is not set")
    return key


def _client(address: str, key: str, silence_s: float, sockets: Sockets) -> openai.OpenAI:
    """The client without its own retries. No proxy stands between us and this machine."""
    local = urlsplit(address).hostname in ("localhost", "127.0.0.1", "::1")
    return openai.OpenAI(
        api_key=key,
        base_url=address,
        timeout=openai.Timeout(silence_s, connect=min(silence_s, _CONNECT_S)),
        max_retries=0,
        http_client=openai.DefaultHttpxClient(trust_env=not local, event_hooks={"request": [sockets.hook]}),
    )
