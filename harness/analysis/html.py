"""What every page made here shares: templates that escape, data that cannot end its element, a strict policy.

A page is one file that needs no network. Jinja escapes whatever a template prints; what is printed as it is (style,
script, packed data) is our own or was made harmless here. The Content-Security-Policy allows the page's own style and
script, by their hash, and nothing else. Knows bytes and elements, no run and no table.
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

SHARED = Path(__file__).with_name("page") / "assets"
"""Where the script that all pages begin with lies."""
UNSEEN = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e03ff]"
)
"""Characters that are not seen, or that change how their neighbours are shown. As in assets/shared.js."""


def visible(text: str) -> str:
    """The text with every unseen character replaced by a picture or its number, such as ⟨U+202E⟩."""
    return UNSEEN.sub(_picture, text)


def _picture(found: "re.Match[str]") -> str:
    code = ord(found.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


def prose(text: str) -> Markup:
    """A sentence as HTML: escaped, unseen characters shown, `so` marked as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(visible(text)))))


def script_json(value: object) -> Markup:
    """JSON that can stand inside a script element: pure ASCII, and nothing that could end the element."""
    found = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Markup(found.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def deflated(data: bytes) -> str:
    """zlib's deflate in base64, as the pages' scripts unpack it with DecompressionStream("deflate")."""
    return base64.b64encode(zlib.compress(data, 9)).decode()


def source_hash(text: str) -> str:
    """The hash of a style or script as a policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def policy(script: str, style: str, *more: str) -> str:
    """A Content-Security-Policy that allows this script and this style; `more` are further directives."""
    directives = (
        "default-src 'none'", f"script-src '{source_hash(script)}'", f"style-src '{source_hash(style)}'", *more,
        "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
    )  # fmt: skip
    return "; ".join(directives)


def assets(folder: Path, names: Sequence[str]) -> str:
    """The texts of these files, one behind the other."""
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


def fill(template: Path, parts: Mapping[str, Any]) -> str:
    """The template (a Jinja file) with its parts filled in, each escaped unless it is Markup.

    Raises jinja2.UndefinedError for a part that is missing.
    """
    room = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    room.filters |= {"visible": visible, "prose": prose}
    return room.from_string(template.read_text(encoding="utf-8")).render(parts)
