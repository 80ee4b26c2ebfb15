"""What the command line says: commands that can be typed as they are shown, and ages."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import datetime
from itertools import chain, pairwise

from committer.errors import InvalidPathError
from committer.paths import StorePath
from committer.readable import clean

# How the running command was told to reach the store: never by a secret itself.
_reach: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("reach", default=())
_typed: ContextVar[str] = ContextVar("typed", default="")


def reach_by(storage: Iterable[str], choices: Iterable[str] = (), *, typed: str = "") -> None:
    """Has every command line that is shown from now on reach the store as this command does, with its choices.

    Args:
        storage: ``KEY=VALUE`` texts, checked: no secret is among them.
        choices: ``KEY=VALUE`` texts of ``-o``.
        typed: The place that this command was told, as it was typed.
    """
    _reach.set((*(("--storage", text) for text in storage), *(("-o", text) for text in choices)))
    _typed.set(typed)


def as_typed(place: str) -> str:
    """A place as this command's user typed it, where it is the same one; else unchanged."""
    typed = _typed.get()
    try:
        return typed if typed and StorePath.of(typed) == StorePath.of(place) else place
    except InvalidPathError:
        return place


def command(*words: object) -> str:
    """A command line that a shell reads as these words, made harmless for a terminal."""
    said = [str(word) for word in words]
    chosen = {word.partition("=")[0] for flag, word in pairwise(said) if flag == "-o"}
    reach = [pair for pair in _reach.get() if not (pair[0] == "-o" and pair[1].partition("=")[0] in chosen)]
    return clean(shlex.join(["committer", *said, *chain.from_iterable(reach)]))


def age(moment: datetime | None, now: datetime) -> str:
    """How long ago in one unit: ``12 s``, ``3 h``; empty when unknown."""
    if moment is None:
        return ""
    passed = int((now - moment).total_seconds())
    if passed < 0:
        return "future"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if passed >= length:
            return f"{passed // length} {unit}"
    return f"{passed} s"
