"""An address that somebody configured: usable, and without anything secret in it."""

from urllib.parse import urlsplit

from harness.errors import ModelError


def checked_address(address: str, part: str, example: str) -> str:
    """The address without a trailing slash. `part`: `server` or `api`, for the keys in what is said. Raises ModelError;
    never repeats what may be a password."""
    parts = urlsplit(address)
    if parts.username or parts.password or parts.query:
        raise ModelError(
            f"model.{part}.address holds a name, a password or a query; put the key into an environment variable and name "
            f"it in model.{part}.api_key_env"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ModelError(f"model.{part}.address={address}: expected something like {example}")
    return address.rstrip("/")
