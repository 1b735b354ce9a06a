"""Exact probabilities of choices from an engine that only generates: which prefixes to ask for next.

The choices are paths of a tree of token ids. An engine is asked to go on greedily after a prefix and to give,
at each step, the log-probabilities of all tokens that any choice needs. As long as what it generates
runs along some choice, one request answers node after node; where it leaves the tree, the nodes not yet
answered are asked for by their own prefix. Pure; knows no engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: generate up to `steps` tokens after `path`, reporting the tokens `watched`."""

    path: Path
    steps: int
    watched: tuple[int, ...]


class ChoiceWalk:
    """The state of one cell. `choices`: label → token ids, none a prefix of another. `most_watched`: so many
    tokens can be reported per step."""

    def __init__(self, choices: Mapping[str, Sequence[int]], most_watched: int) -> None:
        self._choices = {label: tuple(ids) for label, ids in choices.items()}
        self._most = most_watched
        self._children: dict[Path, set[int]] = {}
        for ids in self._choices.values():
            for depth, token in enumerate(ids):
                self._children.setdefault(ids[:depth], set()).add(token)
        if any(len(children) > most_watched for children in self._children.values()):
            raise ValueError(f"more than {most_watched} choices part at one token")
        self._known: dict[Path, Mapping[int, float]] = {}
        self._asked: set[Path] = set()

    @property
    def done(self) -> bool:
        return len(self._known) == len(self._children)

    def asks(self) -> list[Ask]:
        """What to ask now: the open nodes next to answered ones that no request is on its way to."""
        fresh = [
            path
            for path in self._children
            if path not in self._known and path not in self._asked and (not path or path[:-1] in self._known)
        ]
        self._asked.update(fresh)
        return [self._ask(path) for path in fresh]

    def _ask(self, path: Path) -> Ask:
        below = [node for node in self._children if node[: len(path)] == path]
        watched = set().union(*(self._children[node] for node in below))
        if len(watched) > self._most:
            return Ask(path, 1, tuple(sorted(self._children[path])))
        deepest = max(len(node) for node in below)
        return Ask(path, deepest - len(path) + 1, tuple(sorted(watched)))

    def take(self, path: Path, logprobs: Mapping[int, float], sampled: int) -> Path | None:
        """Notes one generated step after `path`. Returns the node to which the next step belongs, or None
        where the reply has left the tree or met what is known: the request can end."""
        self._known[path] = {token: logprobs[token] for token in self._children[path]}
        self._asked.discard(path)
        onward = (*path, sampled)
        if onward in self._children and onward not in self._known and onward not in self._asked:
            self._asked.add(onward)
            return onward
        return None

    def leave(self, path: Path) -> None:
        """The request that was on its way to `path` has ended without it: it can be asked for anew."""
        self._asked.discard(path)

    def totals(self) -> dict[str, float]:
        """Label → natural log of the product of its tokens' probabilities."""
        return {
            label: sum(self._known[ids[:depth]][token] for depth, token in enumerate(ids))
            for label, ids in self._choices.items()
        }
