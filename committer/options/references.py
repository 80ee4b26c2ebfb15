"""Values that say where they are found, ``env:NAME`` and ``file:PATH``: the one reader of them.

Storage options take them in Python, in Spark and on the command line. Each process resolves them for itself.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import Any, Final

from committer.errors import ConfigurationError

FORMS: Final = "env:NAME for an environment variable, file:PATH for a file"
ALLOWED: Final = "COMMITTER_REFERENCES"
"""The environment variable that lists what references may name, patterns between commas; without it, anything."""

_LIMIT: Final = 1 << 16


class Secret:
    """A secret, or where to find one; shows neither in its text, and pickles a reference only.

    Args:
        value: The secret as text, ``env:NAME`` or ``file:PATH``; None for one that was given as text in another
            process and did not travel.
        option: The storage option it came from.
    """

    def __init__(self, value: str | None, option: str) -> None:
        self._value = value
        self.option: str = option

    @property
    def is_reference(self) -> bool:
        """Whether it says where to find the secret."""
        return is_reference(self._value)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self._value!r})" if self.is_reference else f"{type(self).__name__}({self.option})"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._value if self.is_reference else None, self.option)

    def reveal(self) -> str:
        """The secret; blocks when it is in a file.

        Raises:
            ConfigurationError: It cannot be found, or did not travel.
        """
        if self._value is None:
            raise ConfigurationError(
                f"the option {self.option} was given as text, which never leaves its process",
                operation="open_store",
                next_step=f"give {self.option} as env:NAME, or give storage_options in each process",
            )
        return resolved(self._value, self.option)


class Held:
    """What a program gave as an object: an SDK's client, session or credential, or a secret out of one.

    It shows its kind only, and never leaves its process: unpickled it is empty.

    Args:
        value: The object; None in another process.
        option: The storage option it came from.
    """

    def __init__(self, value: Any, option: str) -> None:
        self._value = value
        self.option: str = option

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.option})"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (None, self.option)

    def reveal(self) -> Any:
        """The object.

        Raises:
            ConfigurationError: It did not travel.
        """
        if self._value is None:
            raise ConfigurationError(
                f"the option {self.option} was given as an object, which never leaves its process",
                operation="open_store",
                next_step="give storage_options in each process, or references there (env:NAME), or none where the"
                " process has an identity of its own",
            )
        return self._value


class Found(str):
    """What a reference led to, which remembers the reference: that is what is shown of it.

    Attributes:
        reference: ``env:NAME`` or ``file:PATH``, or the value itself where it was none.
    """

    __slots__ = ("reference",)

    reference: str

    @classmethod
    def by(cls, reference: str, option: str) -> Found:
        """What a value refers to, as `resolved` says."""
        found = cls(resolved(reference, option))
        found.reference = reference
        return found


def is_reference(value: object) -> bool:
    """Whether an option's value says where to find the value."""
    return isinstance(value, str) and value.startswith(("env:", "file:")) and not value.endswith(":")


def is_in_file(value: object) -> bool:
    """Whether an option's value is a reference whose resolving blocks."""
    return is_reference(value) and str(value).startswith("file:")


def resolved(value: str, option: str) -> str:
    """What a value refers to, without space around it; the value itself when it is no reference.

    Blocks when it is in a file. No error repeats what was found.

    Args:
        value: ``env:NAME``, ``file:PATH``, or a value.
        option: What the value was given for, as its user spelled it.

    Raises:
        ConfigurationError: There is nothing, or `ALLOWED` does not list it.
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
    # By where a path leads: a pattern of a directory must not reach out of it.
    given = f"{kind}:{os.path.realpath(name) if kind == 'file' else name}"
    if not any(fnmatchcase(given, pattern.strip()) for pattern in allowed.split(",")):
        raise ConfigurationError(
            f"the option {option} is {reference}, which {ALLOWED} of this process does not list",
            operation="open_store",
            next_step=f"give a reference that it lists, or have the operator of this process add it to {ALLOWED}",
        )


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
