"""The parts that report.html and the local page have in common: style, scripts, and the browser's elements.

Knows the assets and the regions' names and colours; knows no run.
"""

from collections.abc import Sequence

from markupsafe import Markup

from harness.analysis import html
from harness.analysis.attention.groups import GROUP_COLORS, NAMES
from harness.analysis.page.cells import FACETS

ASSETS = html.SHARED
STYLES = ("base.css", "report.css", "browser.css")
SCRIPTS = ("shared.js", "prompt.js", "cell.js", "browser.js")
"""Behind them comes the source of the cells: embedded.js or served.js."""


def script(source: str) -> str:
    """The page's script, with the source of its cells."""
    return html.assets(ASSETS, [*SCRIPTS, source])


def style() -> str:
    """The style sheets behind the regions' colours, which are those of tables and figures."""
    colors = "".join(f"--g-{group}: {color.lower()};" for group, color in GROUP_COLORS.items())
    groups = "".join(f".g-{group} {{ --g: var(--g-{group}); }}\n" for group in GROUP_COLORS)
    return f":root {{ {colors} }}\n{groups}" + html.assets(ASSETS, STYLES)


def browser() -> Markup:
    """The elements that browser.js fills, the same in report.html and in the local page."""
    return Markup(html.fill(ASSETS / "browser.html", {"facets": FACETS}))


def meta(conditions: Sequence[str]) -> Markup:
    """What the script needs to know: facets, the regions' names, and the conditions in the order of the run."""
    return html.script_json({"facets": FACETS, "regions": NAMES, "conditions": list(conditions)})
