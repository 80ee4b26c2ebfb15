"""What is said where a command lacks one of its words: the command line as typed, with names for what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from inspect import signature
from itertools import chain
from typing import Final

from cyclopts import App, CycloptsError, MissingArgumentError

from committer.cli.references import storage_options_of
from committer.cli.session import Common
from committer.cli.text import command, reach_by
from committer.errors import CommitterError, ConfigurationError

_STORAGE: Final = "--storage"
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
    common, uri = Common(), ""
    # Where a number is missing, no name can stand for it.
    with suppress(CycloptsError):
        _command, bound, _rest = app.parse_args([*arguments, *missing], exit_on_error=False, print_error=False)
        common, uri = bound.arguments.get("common", common), bound.arguments.get("uri", uri)
    uri = "" if "URI" in missing else uri
    reach_by(_shown(common.storage, uri), typed=uri)
    step = f"type this, with what is meant in place of {' and '.join(missing)}: "
    step += f"`{command(*_without_storage(arguments), *missing)}`"
    if missing == [_JOB_ID] and uri:
        step += f"; `{command('jobs', uri)}` shows the ids of the jobs that are there"
    return ConfigurationError(
        f"{' '.join(name)} needs {' and '.join(missing)}", operation="command line", next_step=step
    )


def _is_given(flag: str, arguments: Sequence[str]) -> bool:
    """Whether a word is there under its name; that name alone, at the end, lacks it."""
    return flag in arguments[:-1] or any(word.startswith(f"{flag}=") for word in arguments)


def _shown(storage: tuple[str, ...], uri: str) -> tuple[str, ...]:
    """The storage options, where no secret is among them: nothing has checked them yet."""
    try:
        storage_options_of(uri, storage)
    except CommitterError:
        return ()
    return storage


def _without_storage(arguments: Sequence[str]) -> list[str]:
    """The words of a command line but storage options, which `command` adds."""
    pairs = zip(chain([""], arguments), arguments, strict=False)
    return [word for before, word in pairs if _STORAGE not in (before, word.partition("=")[0])]
