"""A provider's key: from the environment or the keyring, from nowhere else, and only to that provider.

A key is never part of a configuration, so it cannot get into a dump of one. Nobody gets a key by default but the
provider that it belongs to: for any other address its variable has to be named.
"""

import os
from urllib.parse import urlsplit

from harness.errors import ModelError

SERVICE = "tailgauge"
"""Under which the keyring holds keys; the user name is the variable's."""
_USUAL = {
    "openai-chat": (("api.openai.com", "OPENAI_API_KEY"), ("openrouter.ai", "OPENROUTER_API_KEY")),
    "openai-responses": (("api.openai.com", "OPENAI_API_KEY"),),
    "anthropic": (("api.anthropic.com", "ANTHROPIC_API_KEY"),),
    "gemini": (("generativelanguage.googleapis.com", "GEMINI_API_KEY"),),
}
"""provider → (host, variable); the first is the provider's own address."""
_NO_KEY = "none"
"""What a client sends where nobody asked for a key; it insists on sending something."""


def variable_for(provider: str, named: str | None, address: str | None) -> str | None:
    """The environment variable that holds the key for this address; None: it needs none."""
    if named is not None:
        return named
    usual = _USUAL[provider]
    if address is None:
        return usual[0][1]
    host = urlsplit(address).hostname or ""
    return next((name for known, name in usual if host == known or host.endswith("." + known)), None)


def has_key(provider: str, named: str | None, address: str | None) -> bool:
    """Whether requests to this address could be made: a key is there, or none is needed."""
    variable = variable_for(provider, named, address)
    return variable is None or _look_up(variable) is not None


def known_variables() -> list[tuple[str, bool]]:
    """The usual variables, and whether each is set. The keyring is not asked: it may open a window to be unlocked."""
    names = dict.fromkeys(name for pairs in _USUAL.values() for _, name in pairs)
    return [(name, bool(os.environ.get(name, "").strip())) for name in names]


def key_for(provider: str, named: str | None, address: str | None) -> str:
    """The key. Raises ModelError where it is missing; the line names the variable."""
    variable = variable_for(provider, named, address)
    if variable is None:
        return _NO_KEY
    key = _look_up(variable)
    if key is None:
        raise ModelError(
            f"no key for {provider}: set the environment variable {variable}, or store it with `keyring set {SERVICE} "
            f"{variable}` (model.api.api_key_env names another variable)"
        )
    return key


def _look_up(variable: str) -> str | None:
    key = os.environ.get(variable, "").strip()
    return key or _from_keyring(variable)


def _from_keyring(variable: str) -> str | None:
    try:
        import keyring  # part of the extra `api`; slow to import
        from keyring.errors import KeyringError
    except ImportError:
        return None
    try:
        return (keyring.get_password(SERVICE, variable) or "").strip() or None
    except KeyringError:
        return None  # a machine without one
