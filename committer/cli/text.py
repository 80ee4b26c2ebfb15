"""Texts, advice and exit codes of the command line."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import datetime
from enum import IntEnum
from itertools import chain, pairwise
from typing import Final, cast

from committer.committers.advising import HIDDEN
from committer.errors import (
    CommitterError,
    ConfigurationError,
    DestinationBusyError,
    DestinationNotFoundError,
    InvalidPathError,
    JobExistsError,
    JobNotFoundError,
    StoreNotFoundError,
)
from committer.layout import TEMPORARY
from committer.paths import StorePath
from committer.readable import clean

# Storage options and choices of the running command; never a secret itself.
_reach: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("reach", default=())
_typed: ContextVar[str] = ContextVar("typed", default="")


def reach_by(storage: Iterable[str], choices: Iterable[str] = (), *, typed: str = "") -> None:
    """Makes every command line shown from now on reach the store as this one; no secret is among these texts."""
    _reach.set((*(("--storage", text) for text in storage), *(("-o", text) for text in choices)))
    _typed.set(typed)


def as_typed(place: str) -> str:
    """Returns a place as the user typed it if it is the same; else unchanged."""
    typed = _typed.get()
    try:
        return typed if typed and StorePath.of(typed) == StorePath.of(place) else place
    except InvalidPathError:
        return place


def command(*words: object) -> str:
    """Quotes a command line for a shell, and makes it safe for a terminal."""
    said = [str(word) for word in words]
    chosen = {word.partition("=")[0] for flag, word in pairwise(said) if flag == "-o"}
    reach = [pair for pair in _reach.get() if not (pair[0] == "-o" and pair[1].partition("=")[0] in chosen)]
    return clean(shlex.join(["committer", *said, *chain.from_iterable(reach)]))


def usage_error(message: str, next_step: str = "") -> ConfigurationError:
    """Builds the error for an invalid command line."""
    return ConfigurationError(message, operation="command line", next_step=next_step)


def age(moment: datetime | None, now: datetime) -> str:
    """Returns an age in one unit: ``12 s``, ``3 h``; empty if unknown."""
    if moment is None:
        return ""
    passed = int((now - moment).total_seconds())
    if passed < 0:
        return "future"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if passed >= length:
            return f"{passed // length} {unit}"
    return f"{passed} s"


_CALL: Final = re.compile(r"`await committer\.(\w+\([^`]*\))`")
_COMMAND: Final = re.compile(r"`(committer [^`]*)`")
_COMMANDS: Final = {"list_jobs": "jobs"}
_FLAGS: Final = frozenset({"rollback", "force"})
_OF_THE_PLACE: Final = frozenset({"--job", "--storage", "-o"})
_BETWEEN: Final = " ,;:."


def as_commands(advice: str) -> str:
    """Replaces each call of the library in an advice (`committer.advice`) by its command."""
    return _CALL.sub(lambda found: f"`{_as_command(found[1])}`", advice.removesuffix(HIDDEN))


def _as_command(text: str) -> str:
    name = text.partition("(")[0]
    made = cast("ast.Call", ast.parse(text, mode="eval").body)
    place, *more = (ast.literal_eval(one) for one in made.args)
    words = [_COMMANDS.get(name, name), as_typed(place), *more]
    for keyword in made.keywords:
        if keyword.arg == "storage_options":
            # The command gets the store options of the failed one.
            continue
        value = ast.literal_eval(keyword.value)
        if keyword.arg in _FLAGS:
            words.append(f"--{keyword.arg}")
        elif keyword.arg == "job_id":
            words += ["--job", value]
        elif keyword.arg == "config":
            words += [word for key, one in value.items() for word in ("-o", f"{key}={_as_text(one)}")]
    return command(*words)


def _as_text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def commands_of(advice: str) -> list[str]:
    """Returns the commands in backticks in an advice; ``N`` and ``FILE`` in them are for the user to fill in."""
    return _COMMAND.findall(advice)


def has_sentence(advice: str) -> bool:
    """Reports whether an advice says more than its commands."""
    return bool(_COMMAND.sub("", advice).strip(_BETWEEN))


def sentence_of(advice: str) -> str:
    """Shortens each command in an advice to name and flags; the whole commands are shown below it."""
    return _COMMAND.sub(lambda found: f"`{_in_short(found[1])}`", advice)


def _in_short(text: str) -> str:
    _program, name, *rest = shlex.split(text)
    flags: list[str] = []
    shown = False
    for word in rest:
        if word.startswith("-"):
            shown = word not in _OF_THE_PLACE
        elif not flags:
            # The destination and the job.
            shown = False
        if shown:
            flags.append(word)
    return " ".join([name, *flags])


class Exit(IntEnum):
    """Exit code of the process.

    Attributes:
        OK: Done, or nothing is wrong.
        FAILED: The command failed, or a comparison does not match. Nothing is half done.
        USAGE: The command line is invalid, or a command that changes things was not confirmed.
        UNKNOWN: The job may be committed, wholly or in part: run ``recover``, which finds out and finishes.
        NOT_FOUND: There is no such job, record, path, bucket or container.
        BUSY: Another job holds the destination, or a driver that may be alive holds the job.
        NOT_ALL_COMPARED: All that could be compared matches, but not everything could be compared.
    """

    OK = 0
    FAILED = 1
    USAGE = 2
    UNKNOWN = 3
    NOT_FOUND = 4
    BUSY = 5
    NOT_ALL_COMPARED = 6


def exit_of(error: CommitterError) -> Exit:
    """Returns the exit code of an error; its outcome comes first, since a script must learn of an unsettled job."""
    if isinstance(error, DestinationBusyError):
        return Exit.BUSY
    if error.outcome in ("unknown", "partial"):
        return Exit.UNKNOWN
    if isinstance(error, JobExistsError):
        return Exit.BUSY
    if isinstance(error, DestinationNotFoundError | JobNotFoundError | StoreNotFoundError):
        return Exit.NOT_FOUND
    if isinstance(error, ConfigurationError):
        return Exit.USAGE
    return Exit.FAILED


def destination_above(uri: str) -> str:
    """Returns the destination, as typed, whose `_temporary` holds a place; empty if none does."""
    above, found, rest = uri.partition(f"/{TEMPORARY}")
    return above if found and above and rest[:1] in ("", "/") else ""


def told_destination(above: str) -> str:
    """Returns the next step for a user who named a place in `_temporary`."""
    return f"name the destination whose jobs work there: `{command('jobs', above)}`"
