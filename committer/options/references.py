"""References to values, ``env:NAME`` and ``file:PATH``, in storage options; each process resolves them for itself."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import Any, Final

from committer.errors import ConfigurationError

FORMS: Final = "env:NAME for an environment variable, file:PATH for a file"
ALLOWED: Final = "COMMITTER_REFERENCES"
"""Environment variable that lists the allowed references, as patterns between commas; without it, all are allowed."""

_LIMIT: Final = 1 << 16


class Secret:
    """A secret, or a reference to one; its repr shows no secret, and only a reference is pickled.

    Args:
        value: The secret as text, ``env:NAME`` or ``file:PATH``; None if another process was given the text.
        option: The storage option it came from.
    """

    def __init__(self, value: str | None, option: str) -> None:
        self._value = value
        self.option: str = option

    @property
    def is_reference(self) -> bool:
        """True if it is a reference."""
        return is_reference(self._value)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self._value!r})" if self.is_reference else f"{type(self).__name__}({self.option})"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._value if self.is_reference else None, self.option)

    def reveal(self) -> str:
        """Returns the secret, blocking for a file; raises `ConfigurationError` if this process cannot find it."""
        if self._value is None:
            raise ConfigurationError(
                f"the option {self.option} was given as text, which never leaves its process",
                operation="open_store",
                next_step=f"give {self.option} as env:NAME, or give storage_options in each process",
            )
        return resolved(self._value, self.option)


class Held:
    """An object that a program gave: an SDK's client, session or credential, or a secret out of one.

    Its repr shows only the option, and it never leaves its process: unpickled it is empty.
    """

    def __init__(self, value: Any, option: str) -> None:
        self._value = value
        self.option: str = option

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.option})"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (None, self.option)

    def reveal(self) -> Any:
        """Returns the object; raises `ConfigurationError` if it stayed in another process."""
        if self._value is None:
            raise ConfigurationError(
                f"the option {self.option} was given as an object, which never leaves its process",
                operation="open_store",
                next_step="give storage_options in each process, or references there (env:NAME), or none where the"
                " process has an identity of its own",
            )
        return self._value


class Found(str):
    """Resolved value with its `reference`, which is shown in its place (the value itself if it is none)."""

    __slots__ = ("reference",)

    reference: str

    @classmethod
    def by(cls, reference: str, option: str) -> Found:
        """Resolves a value; see `resolved`."""
        found = cls(resolved(reference, option))
        found.reference = reference
        return found


def is_reference(value: object) -> bool:
    """Returns True if an option's value is a reference."""
    return isinstance(value, str) and value.startswith(("env:", "file:")) and not value.endswith(":")


def is_in_file(value: object) -> bool:
    """Returns True if an option's value is a reference to a file, whose resolving blocks."""
    return is_reference(value) and str(value).startswith("file:")


def resolved(value: str, option: str) -> str:
    """Resolves a reference, without surrounding space; returns any other value unchanged.

    Blocks to read a file. Errors name `option` and never what was found; `ConfigurationError` is raised if the
    reference leads nowhere, or `ALLOWED` does not list it.
    """
    if not is_reference(value):
        return value
    kind, _, name = value.partition(":")
    _refuse_unlisted(value, option)
    found, problem = _variable(name) if kind == "env" else _file(name)
    if not found:
        where = f"the environment variable {name}" if kind == "env" else f"the file {name}"
        raise ConfigurationError(
            f"the option {option} refers to {where}, which {problem}",
            operation="open_store",
            next_step="set it where this process runs; in Spark for the driver and every executor, before the session's"
            " JVM starts: what os.environ is told afterwards reaches no worker of Spark"
            if kind == "env"
            else "put it where this process runs; in Spark that is the driver's machine and every executor's",
        )
    return found


def _refuse_unlisted(reference: str, option: str) -> None:
    allowed = os.environ.get(ALLOWED)
    if allowed is None:
        return
    kind, _, name = reference.partition(":")
    # By real paths: a pattern for a directory must not reach out of it, and may itself go through a link.
    given = f"{kind}:{os.path.realpath(name) if kind == 'file' else name}"
    if not any(fnmatchcase(given, _without_links(pattern.strip())) for pattern in allowed.split(",")):
        raise ConfigurationError(
            f"the option {option} is {reference}, which {ALLOWED} of this process does not list",
            operation="open_store",
            next_step=f"give a reference that it lists, or have the operator of this process add it to {ALLOWED}",
        )


def _without_links(pattern: str) -> str:
    return f"file:{os.path.realpath(pattern.removeprefix('file:'))}" if pattern.startswith("file:/") else pattern


def _variable(name: str) -> tuple[str, str]:
    text = os.environ.get(name)
    return (text.strip(), "is empty") if text is not None else ("", "is not set")


def _file(path: str) -> tuple[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_LIMIT + 1)
    except (OSError, UnicodeDecodeError) as error:
        return "", f"cannot be read: {type(error).__name__}"
    return (text.strip(), "is empty") if len(text) <= _LIMIT else ("", f"is longer than {_LIMIT} characters")
