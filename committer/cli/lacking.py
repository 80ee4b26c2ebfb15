"""What is said where a command lacks one of its words: the command line as typed, with names for what is missing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from inspect import signature
from typing import Final

from cyclopts import App, CycloptsError, MissingArgumentError

from committer.cli.references import choices_of, storage_options_of
from committer.cli.session import Common
from committer.cli.text import command, reach_by
from committer.errors import CommitterError, ConfigurationError
from committer.paths import StorePath
from committer.readable import clean

SEE_HELP: Final = "add --help to see what the command takes"
_JOB_ID: Final = "JOB-ID"


def lacking(app: App, error: MissingArgumentError, arguments: Sequence[str]) -> ConfigurationError | None:
    """The error for a command line that lacks a word which needs no name before it; None for one that lacks another.

    Args:
        app: What the command line was given to.
        error: What it was refused with.
        arguments: The command line.
    """
    argument, name = error.argument, list(error.command_chain or ())
    if argument is None or argument.index is None or error.target is None or list(arguments[: len(name)]) != name:
        return None
    required = [one for one, of in signature(error.target).parameters.items() if of.default is of.empty]
    flags = [f"--{one.replace('_', '-')}" for one in required[argument.index :]]
    missing = [flag.lstrip("-").upper() for flag in flags if not _is_given(flag, arguments)]
    return ConfigurationError(
        f"{' '.join(name)} needs {' and '.join(missing)}",
        operation="command line",
        next_step=_whole_line(app, arguments, required[0], missing),
    )


def _is_given(flag: str, arguments: Sequence[str]) -> bool:
    """Whether a word is there under its name; that name alone, at the end, lacks it."""
    return flag in arguments[:-1] or any(word.startswith(f"{flag}=") for word in arguments)


def _whole_line(app: App, arguments: Sequence[str], place: str, missing: list[str]) -> str:
    """The line to type; only where it would be understood, and all of it may be shown.

    Nothing has checked the words yet: a secret may be among them, in an option or in a URI.
    """
    try:
        # A number and a text can both be 0.
        _command, bound, _rest = app.parse_args(
            [*arguments, *("0" for _ in missing)], exit_on_error=False, print_error=False
        )
        common = bound.arguments.get("common", Common())
        uri = "" if place.upper() in missing else bound.arguments[place]
        if uri:
            StorePath.of(uri)
        storage_options_of(uri, common.storage)
        choices_of(common.option)
    except (CycloptsError, CommitterError):
        return SEE_HELP
    line = clean(shlex.join(["committer", *arguments, *missing]))
    step = f"type this, with what is meant in place of {' and '.join(missing)}: `{line}`"
    if missing == [_JOB_ID]:
        reach_by(common.storage, typed=uri)
        step += f"; `{command('jobs', uri)}` shows the ids of the jobs that are there"
    return step
