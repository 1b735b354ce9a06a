"""Words of the attention figures: names of the groups, and text that any model wrote made drawable.

Knows the groups and the installed fonts; knows no capture. A character that no installed font has is
shown as its number, such as [U+5317]: never as an empty box, and never with a warning.
"""

import unicodedata
from functools import lru_cache
from typing import Any

from matplotlib import font_manager
from matplotlib.colors import to_rgb

from harness.analysis.attention.groups import group_name
from harness.analysis.drawing import BLACK, RC

BASE_FONT = "DejaVu Sans"
"""Comes with matplotlib, so that the figures look alike everywhere but for scripts that it lacks."""
WIDER_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Noto Sans JP", "Source Han Sans SC",
    "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "Microsoft YaHei", "SimHei", "PingFang SC",
    "Hiragino Sans", "IPAGothic", "Arial Unicode MS",
)  # fmt: skip
"""Fonts with Chinese, Japanese and Korean characters; the first that is installed stands behind BASE_FONT."""
MARKS = {"\n": "⏎", "\t": "⇥"}
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that have no picture of their own, or one that differs from font to font."""


def group_label(group: str) -> str:
    """A group as figures name it: there the arm says whether it is the bar or the placebo."""
    return "bar" if group == "bar" else group_name(group)


def ink(color: str | tuple[float, ...]) -> str:
    """Black or white, whichever is legible on this colour."""
    red, green, blue = to_rgb(color)
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else BLACK


@lru_cache(maxsize=1)
def families() -> tuple[str, ...]:
    """The base font and, where one is installed, a font behind it that has Chinese, Japanese and Korean."""
    installed = set(font_manager.get_font_names())
    return (BASE_FONT, *[name for name in WIDER_FONTS if name in installed][:1])


def rc() -> dict[str, Any]:
    """The settings of all figures, with the fonts of `families`."""
    return RC | {"font.family": list(families())}


@lru_cache(maxsize=1)
def _fonts() -> tuple[Any, ...]:
    return tuple(font_manager.get_font(font_manager.findfont(name)) for name in families())


@lru_cache(maxsize=65536)
def _drawable(char: str) -> bool:
    if unicodedata.category(char) in INVISIBLE:
        return False
    return any(font.get_char_index(ord(char)) for font in _fonts())


def readable(text: str, space: bool = False) -> str:
    """Text with every character drawable: line breaks as ⏎, tabs as ⇥, what no font has as [U+XXXX].

    `space`: a text of blanks alone is shown as ␣, and a leading blank is dropped, as in a token's label.
    """
    if space and text and not text.strip(" "):
        text = "␣" * len(text)
    elif space:
        text = text.removeprefix(" ")
    marked = (MARKS.get(char, char) for char in text)
    return "".join(char if _drawable(char) else f"[U+{ord(char):04X}]" for char in marked)


def label(text: str, most: int = 0) -> str:
    """`readable` text for tick labels, titles and legends, where matplotlib would take `$` for mathematics.

    `most`: longer texts are cut to so many characters and end in …; 0 keeps all.
    """
    found = readable(text, space=True)
    if most and len(found) > most:
        found = found[: most - 1].rstrip() + "…"
    return escaped(found)


def escaped(text: str) -> str:
    """Text for matplotlib with `$` kept from being taken for mathematics."""
    return text.replace("$", r"\$")


@lru_cache(maxsize=65536)
def advance(char: str) -> float:
    """Width of a character in units of the font size (kerning left out), from the font that will draw it."""
    for font in _fonts():
        if font.get_char_index(ord(char)):
            font.set_size(100, 72)
            return float(font.load_char(ord(char)).horiAdvance) / 6400
    return 0.6


def width(text: str) -> float:
    """Sum of the characters' widths in units of the font size."""
    return sum(advance(char) for char in text)
