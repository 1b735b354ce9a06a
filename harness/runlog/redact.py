"""Masks secrets before anything is written: by the name of the key, and by the look of the value.

Works on plain data. It errs towards masking, with one care: words of this field that merely sound
secret (`max_new_tokens`, `eos_token`, `token_ids`, a rule's `key: merchant`) must stay readable,
because a masked value can no longer tell two configurations apart.
"""

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ALWAYS = {
    "secret", "secrets", "password", "passwords", "passwd", "passphrase",
    "credential", "credentials", "authorization", "cookie", "apikey", "apikeys",
    "accesskey", "secretkey", "privatekey", "authtoken", "accesstoken",
}  # fmt: skip
_PLAIN_TOKENS = {
    "bos", "eos", "pad", "unk", "sep", "cls", "mask", "special", "stop", "first", "last", "next", "answer",
    "think", "thinking", "start", "end", "image", "per", "each", "prompt", "text", "added", "begin", "open",
    "close", "boundary", "filler", "bar", "by",
}  # fmt: skip
_PLAIN_KEYS = {
    "primary", "foreign", "sort", "group", "cache", "json", "dict", "argument", "rule", "sample", "cell",
    "cluster", "merge", "by", "count", "public", "config", "index", "state",
}  # fmt: skip
_KEY_OWNERS = {"api", "access", "auth", "private", "secret", "client", "account", "service", "master"}
_TOKEN_OWNERS = {
    "api",
    "access",
    "auth",
    "bearer",
    "refresh",
    "hf",
    "hub",
    "huggingface",
    "github",
    "session",
}
_REFERENCES = {"env", "environ", "var", "variable", "file", "path", "name"}
"""Last words of keys that say where a secret is kept, not what it is (`api_key_env`)."""

_LOOKS_SECRET = re.compile(
    r"""
    (?<![A-Za-z0-9]) (?:
        sk-[A-Za-z0-9_-]{12,}                      # OpenAI, Anthropic, OpenRouter
      | hf_[A-Za-z0-9]{12,}                        # Hugging Face
      | (?:AKIA|ASIA)[A-Z0-9]{12,}                 # AWS
      | AIza[A-Za-z0-9_-]{20,}                     # Google
      | (?:gh[pousr]_|github_pat_|glpat-)[A-Za-z0-9_-]{16,}
      | (?:gsk|xai|nvapi|pypi|r8)[_-][A-Za-z0-9_-]{16,}
      | xox[abprs]-[A-Za-z0-9-]{10,}               # Slack
      | eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*   # JSON web token
      | [Bb]earer\s+\S{6,}
    )
    | -----BEGIN[A-Z ]*PRIVATE\ KEY-----[\s\S]*?(?:-----END[A-Z ]*PRIVATE\ KEY-----|\Z)
    | (?<=://)[^\s/@]+:[^\s/@]+(?=@)               # user:password in an address
    """,
    re.VERBOSE,
)
_ASSIGNMENT = re.compile(r"(?<![\w.])([\w.-]+)(=)([^\s&;]+)")
"""`model.api_key=…` in a command line, `token=…` in an address."""


def redact(value: Any, key: str = "") -> Any:
    """A copy of plain data (mappings, lists, text, numbers) in which secrets are `***`.

    Numbers and booleans under a name of the kind `token` or `key` are counts and switches and stay;
    under `password` or `secret` they are masked like text. None stays None.
    """
    if isinstance(value, Mapping):
        return {
            name: redact(item, str(name) if _secret_name(str(name)) or not _secret_name(key) else key)
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redact(item, key) for item in value]
    if value is None or isinstance(value, bool):
        return value
    kind = _secret_name(key)
    if isinstance(value, str):
        is_secret = bool(value) and (kind == "always" or (kind == "text" and not _names_argument(key, value)))
        return MASK if is_secret else _mask_text(value)
    return MASK if kind == "always" else value


def _mask_text(text: str) -> str:
    return _ASSIGNMENT.sub(_mask_assignment, _LOOKS_SECRET.sub(MASK, text))


def _mask_assignment(found: re.Match[str]) -> str:
    name, value = found[1], found[3]
    kind = _secret_name(name)
    # prose may say key=Xfinity or token=12
    harmless = kind == "text" and (value.isdigit() or _words(name) == ["key"])
    return found[0] if kind is None or harmless else f"{name}={MASK}"


def _names_argument(key: str, value: str) -> bool:
    """A bare `key: merchant` names an argument of a tool; a secret is no lower-case word."""
    return _words(key) == ["key"] and bool(re.fullmatch(r"[a-z_]{1,32}", value))


def _words(key: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(key.rsplit(".", 1)[-1])]


def _secret_name(key: str) -> str | None:
    """`always`, `text` (only text is a secret under this name) or None."""
    words = _words(key)
    if not words or words[-1] in _REFERENCES:
        return None
    if _ALWAYS & set(words):
        return "always"
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "token":
        return None if before in _PLAIN_TOKENS else "text"
    if last == "key":
        return None if before in _PLAIN_KEYS else "text"
    if (last == "keys" and before in _KEY_OWNERS) or (last == "tokens" and before in _TOKEN_OWNERS):
        return "text"
    return None
