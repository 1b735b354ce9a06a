"""Paths in texts and in the arguments of calls, and what a call does with them: pure recognition by form.

Knows no file system. A path has a slash or a file extension that is in common use; URLs, e-mail addresses, versions,
dates and pairs of words (`and/or`) are none.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from harness.types import ToolCall

SCANNED = 2000
"""Characters of a text that are looked at."""
MAX_PATH = 260
MAX_VALUES = 16
"""Values of one call, and items of one list in it, that are looked at."""

Kind = Literal["file", "folder"]
Deed = Literal["read", "edit", "run", ""]

_BREAKS = str.maketrans(dict.fromkeys("\"'`,;(){}[]<>|*", " "))


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_EXTENSIONS = _set(
    "adoc asm astro avi awk bash bat bib bin bmp bz2 c cc cfg clj cmake conf cpp cs css csv cu cxx dart db diff dll"
    " doc docx ejs el elm env erl ex exs f90 fish fs gd gif go gradle graphql groovy gz h hbs hh hpp hs htm html"
    " ico ini ipynb java jinja j2 jl jpeg jpg js json json5 jsonl jsx kt kts less lean lisp lock log lua m4 m4v mak md"
    " mdx mjs mk mkv ml mli mov mp3 mp4 mpeg mpg nim nix o odt org out parquet patch pdf php pl plist pm png ppt pptx prisma"
    " properties proto ps1 pt py pyc pyi pyx r rb rmd rs rst sass sbt scala scm scss sh sln so sql sqlite sty svelte"
    " svg swift tar tcl tex tf tgz toml ts tsv tsx txt v vb vim vue wasm wav webp whl xls xlsx xml xz yaml yml zig"
    " zip zsh"
)
_FILES = _set("makefile dockerfile license readme changelog authors notice procfile gemfile rakefile")
_DOMAIN = re.compile(
    r"(?:[\w-]+\.)+(?:com|org|net|io|dev|edu|gov|ai|co|uk|de|fr|eu|us|info|app|me)(?::\d+)?/", re.I
)
_NUMBERS = re.compile(r"[vV]?\d[\d./:_-]*(?:[TZ][\d:.Z+-]*)?")
_PLACE = re.compile(r"(?::\d+){1,2}:?$|\(\d+,\d+\):?$|#L\d+(?:-L?\d+)?$")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+\.")
_EXTENSION = re.compile(r".*\.(?=\w*[a-z])(\w{1,10})", re.I | re.S)
_EDGES = ".,:;!?\\…"
_PLAIN = re.compile(r"[\w.@~+/ :#%$^&-]+")
_PATH_NAMES = re.compile(
    r"(?:.*[_-])?(?:path|paths|file|files|file_?names?|file_?paths?|dir|directory|folder|cwd|workdir)", re.I
)
_PATCHED = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |\+\+\+ (?:b/)?)(\S.*?)\s*$", re.M)
_NAME_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

_COMMANDS = ("command", "cmd")
"""Arguments that hold a command; its first word says what it does."""
_READS = frozenset({"read", "open", "view", "cat", "show"})
_EDITS = frozenset({"write", "edit", "create", "apply", "patch", "insert", "replace"})
_RUNS = _set(
    "bash shell sh run exec execute command terminal lint check build test tests compile diagnostics make mypy ruff"
    " flake tsc gcc cc cargo npm pytest python eslint clang pylint pyright"
)


def words_of(text: str) -> list[str]:
    """What stands between blanks, quotes, brackets and commas in the first 2,000 characters; the slash of a closing
    tag is no part of a word."""
    return text[:SCANNED].replace("</", " ").translate(_BREAKS).split()


@lru_cache(maxsize=4096)
def path_of(word: str, *, argument: bool = False) -> str | None:
    """The path that `word` is, without quotes, line numbers and a leading `./`; None when it is none. In prose a pair
    of words with one slash needs something more to be a path; as a whole `argument` of a call it is one."""
    if len(word) > MAX_PATH or ("/" not in word and "." not in word):
        return None
    if "://" in word or _DOMAIN.match(word):
        return None
    word = _PLACE.sub("", word.rpartition("=")[2].rstrip(_EDGES))
    if _MAIL.match(word) or not _PLAIN.fullmatch(word) or _NUMBERS.fullmatch(word):
        return None
    path = _bare(word)
    parts = [part for part in path.split("/") if part]
    if not parts or not any(character.isalpha() for character in path):
        return None
    ending = _EXTENSION.fullmatch(parts[-1], 1)
    extension = ending[1].lower() if ending else ""
    if "/" not in word:
        return path if extension in _EXTENSIONS and not word.endswith("..") else None
    rooted = word.startswith(("/", "./", "../", "~/")) or word.endswith("/")
    if argument or rooted or extension or parts[-1].lower() in _FILES or len(parts) > 2:
        return path
    return None


def _bare(path: str) -> str:
    while path.startswith("./") and len(path) > 2:
        path = path[2:]
    return path.rstrip("/") or "/"


def kind_of(path: str) -> Kind:
    """By its last part: a name with a dot in it, or one such as Makefile, is a file."""
    last = path.rpartition("/")[2]
    return (
        "file"
        if "." in last.strip(".") or (last.startswith(".") and len(last) > 2) or last.lower() in _FILES
        else "folder"
    )


def paths_in(text: str) -> list[str]:
    """Paths in the first 2,000 characters of a text, each once, in order."""
    likely = [word for word in words_of(text) if "/" in word or "." in word]
    return list(dict.fromkeys(path for word in likely if (path := path_of(word)))) if likely else likely


def strings_of(arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values of string arguments, and of the strings in lists, up to a bound."""
    found: list[tuple[str, str]] = []
    for name, value in arguments.items():
        if isinstance(value, str):
            found.append((name, value))
        elif isinstance(value, Sequence) and not isinstance(value, bytes):
            found.extend((name, each) for each in value[:MAX_VALUES] if isinstance(each, str))
        if len(found) >= MAX_VALUES:
            return found[:MAX_VALUES]
    return found


def paths_of(call: ToolCall) -> tuple[str, ...]:
    """Paths that a call names, each once: arguments whose name says so, then words of arguments of one line and of a
    command's first line, then the files of a patch. Other arguments of several lines are content and name none."""
    named: dict[str, None] = {}
    others: dict[str, None] = {}
    for name, value in strings_of(call.arguments):
        first, _, rest = value[:SCANNED].strip().partition("\n")
        if (
            not rest
            and first
            and len(value) <= MAX_PATH
            and _PATH_NAMES.fullmatch(name)
            and "://" not in first
        ):
            named[_bare(first)] = None
            continue
        if not rest or name in _COMMANDS:
            whole = path_of(first, argument=True) if " " not in first else None
            others.update(dict.fromkeys((whole,) if whole else paths_in(first)))
        if rest:
            others.update((_bare(path), None) for path in _PATCHED.findall(value[:SCANNED]))
    return tuple({**named, **others})


@lru_cache(maxsize=1024)
def _verbs(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _NAME_WORDS.findall(name))


def deed_of(call: ToolCall) -> Deed:
    """What the call does with the paths it names: by the first word of its command, if it has one and that says so
    (`cat a.py` in a shell, `view` of an editor), else by the words in the tool's name."""
    command = next((v for n in _COMMANDS if isinstance(v := call.arguments.get(n), str)), "")
    first = command[:SCANNED].split(None, 1)
    for words in (_verbs(first[0]) if first else frozenset(), _verbs(call.name)):
        if words & _EDITS:
            return "edit"
        if words & _READS:
            return "read"
        if words & _RUNS:
            return "run"
    return ""
