"""Sentences with names and citations in them, as plain text, Markdown and LaTeX.

A sentence is plain text with two marks: a name between backticks, made by `name`, and a citation such as
`[@holm1979; @wilson1927]`. Names come from configurations, so that they may hold anything; every writer escapes
them. Knows nothing of runs.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping

_MARKS = re.compile(r"`([^`]*)`|\[(@\w+(?:; @\w+)*)\]")
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "`": r"\textasciigrave{}", "–": r"\textendash{}", "—": r"\textemdash{}",
    "…": r"\ldots{}", "’": r"\textquoteright{}", "‘": r"\textquoteleft{}", "“": r"\textquotedblleft{}",
    "”": r"\textquotedblright{}", "′": r"$'$", "−": r"$-$", "×": r"$\times$",
    "÷": r"$\div$", "±": r"$\pm$", "≤": r"$\le$", "≥": r"$\ge$",
    "≠": r"$\ne$", "→": r"$\to$", "Δ": r"$\Delta$", "α": r"$\alpha$",
    "τ": r"$\tau$", "µ": r"\textmu{}", "·": r"\textperiodcentered{}", "°": r"\textdegree{}",
    "\u00a0": "~",
}  # fmt: skip
"""What LaTeX reads as more than itself, and what its standard fonts lack."""
_LIGATURES = re.compile(r"([-,'])(?=\1)")
"""Two of these would be set as one other sign."""
_MARKDOWN = re.compile(r"([\\*_{}\[\]<>#|~$!`&])")


def name(value: object) -> str:
    """A name in a sentence, on one line: set in type-writer letters by every writer."""
    text = " ".join(str(value).replace("`", "'").split())
    return f"`{text or '?'}`"


def names(values: Mapping[str, object] | list[str] | tuple[str, ...]) -> str:
    """Names in a row, with commas."""
    return ", ".join(name(value) for value in values)


def cited(text: str) -> list[str]:
    """The keys that a text cites, in order of appearance."""
    keys = [key for _, group in _MARKS.findall(text) for key in re.findall(r"@(\w+)", group)]
    return list(dict.fromkeys(keys))


def to_plain(text: str, short: Mapping[str, str]) -> str:
    """Without marks; `short`: key → how a citation reads, such as `Holm 1979`."""
    return _written(text, visible, visible, lambda keys: f"({_joined(keys, short)})")


def to_markdown(text: str, short: Mapping[str, str]) -> str:
    """CommonMark without any HTML element: all but names has its special characters escaped."""

    def code(content: str) -> str:
        return f"`{visible(content)}`"

    return _written(text, escape_markdown, code, lambda keys: f"({_joined(keys, short)})")


def to_latex(text: str) -> str:
    r"""LaTeX with \texttt and \cite; needs no package beyond textcomp, which the kernel has."""

    def code(content: str) -> str:
        return rf"\texttt{{{escape_latex(content)}}}"

    return _written(text, escape_latex, code, lambda keys: rf"\cite{{{','.join(keys)}}}")


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it stands. What pdfLaTeX has no letter for is written as its code point."""
    plain = visible(text).replace(" %", "\u00a0%")
    return _LIGATURES.sub(r"\1{}", "".join(_LATEX.get(char) or _letter(char) for char in plain))


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it stands, on one line."""
    return _MARKDOWN.sub(r"\\\1", visible(text))


def visible(text: str) -> str:
    """Line ends as spaces; control characters, lone surrogates and marks that turn the writing direction as their
    code points."""
    shown = []
    for char in text:
        kind = unicodedata.category(char)
        if char in "\n\r\t":
            shown.append(" ")
        else:
            shown.append(f"(U+{ord(char):04X})" if kind in ("Cc", "Cf", "Cs", "Zl", "Zp") else char)
    return "".join(shown)


def _letter(char: str) -> str:
    """Itself where pdfLaTeX's standard fonts have it: ASCII, and letters with the usual accents."""
    accented = "\u00c0" <= char <= "\u00ff" and (unicodedata.decomposition(char) or char in "ßæøÆØ")
    return char if char.isascii() or accented else f"(U+{ord(char):04X})"


def _joined(keys: list[str], short: Mapping[str, str]) -> str:
    return "; ".join(short[key] for key in keys)


def _written(
    text: str, plain: Callable[[str], str], code: Callable[[str], str], cite: Callable[[list[str]], str]
) -> str:
    parts: list[str] = []
    end = 0
    for mark in _MARKS.finditer(text):
        parts.append(plain(text[end : mark.start()]))
        content, keys = mark.groups()
        parts.append(code(content) if keys is None else cite(re.findall(r"@(\w+)", keys)))
        end = mark.end()
    return "".join([*parts, plain(text[end:])])
