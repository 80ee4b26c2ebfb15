"""The scope of a job: the directories that it writes files into, and the subtrees that it replaces. No store calls.

Two jobs whose scopes meet exclude each other while they commit (`committer.stages.entries`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from committer.config import CommitterConfig
from committer.stages.names import NameFolding, is_absolute

MOST_NAMES: Final = 10_000
"""The longest list of directories in an entry; a longer one is coarsened to parents."""


class Scope(NamedTuple):
    """Directories by name: relative to the destination, ``""`` being that, or absolute.

    Attributes:
        writes: Directories that the job writes files into.
        replaces: Subtrees in which the job takes old files away, or relies on there being none.
    """

    writes: tuple[str, ...]
    replaces: tuple[str, ...] = ()

    def meets(self, other: Scope, fold: Callable[[str], str]) -> bool:
        """Returns whether a subtree that one scope replaces equals, contains or lies below a directory of the other.

        Args:
            other: The scope of another job of the destination.
            fold: Gives names that the store takes for one the same text.
        """
        return _touch(self.replaces, (*other.writes, *other.replaces), fold) or _touch(
            other.replaces, self.writes, fold
        )


EVERYTHING: Final = Scope(("", "/"), ("", "/"))
"""The scope of a job whose entry cannot be read."""


_TOPS: Final = frozenset(("", "/"))


def scope_of(config: CommitterConfig, written: Iterable[str], folding: NameFolding) -> Scope:
    """Returns the scope of a job that writes into `written`.

    A job without files may still write `_SUCCESS`, so it counts as writing into the destination. A job that refuses
    directories in use counts as replacing them: no other job may fill them between its look and its decision.
    """
    given = sorted(written)
    names = given or [""]
    replaces = list[str]()
    if config.conflict_mode == "replace":
        replaces = superseded_scope(config, given, folding)
    elif config.refuses_used_destination:
        replaces = ["", *filter(is_absolute, names)]
    elif config.conflict_mode == "fail":
        replaces = list(filter(None, given)) if config.superseded_scope == "partitions" else given
    if config.existing_target == "replace":
        replaces = [*replaces, *given]
    return Scope(tuple(coarsened(names)), tuple(coarsened(replaces)))


def superseded_scope(config: CommitterConfig, written: list[str], folding: NameFolding) -> list[str]:
    """Returns the directories whose subtrees are superseded by a job that replaces and writes into `written`."""
    if config.replaces_destination:
        return ["", *filter(is_absolute, {*written, *config.superseded_directories})]
    if config.superseded_directories:
        named = {folding.fold(name): name for name in config.superseded_directories}
        # Those that are written to below them are named too: a link on the way there is gone through.
        return sorted({*named.values(), *filter(config.supersedes, written)})
    return list(filter(None, written)) if config.superseded_scope == "partitions" else written


def coarsened(names: Iterable[str], most: int = MOST_NAMES) -> list[str]:
    """Returns the names sorted, the deepest ones replaced by their parents until there are at most `most`."""
    found = set(names)
    while len(found) > most and not found <= _TOPS:
        depth = max(name.count("/") for name in found if name not in _TOPS)
        found = {_parent(name) if name not in _TOPS and name.count("/") == depth else name for name in found}
    return sorted(found)


def _parent(name: str) -> str:
    return name.rpartition("/")[0] or ("/" if is_absolute(name) else "")


def _touch(subtrees: tuple[str, ...], directories: tuple[str, ...], fold: Callable[[str], str]) -> bool:
    """Whether a subtree equals, contains or lies below a directory: in n log n of their number."""
    keys = sorted({_key(name, fold) for name in directories})
    known = set(keys)
    for name in subtrees:
        key = _key(name, fold)
        at = bisect_left(keys, key)
        if at < len(keys) and keys[at].startswith(key):
            return True
        if any(key[: end + 1] in known for end, letter in enumerate(key) if letter == "/"):
            return True
    return False


def _key(name: str, fold: Callable[[str], str]) -> str:
    """A text that begins with those of all directories above: relative names begin with ``./``."""
    name = name if is_absolute(name) else f"./{name}"
    return f"{fold(name).rstrip('/')}/"
