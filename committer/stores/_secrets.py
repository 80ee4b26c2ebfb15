"""Secrets that storage options give: as text, or as a reference to where a process finds them."""

from __future__ import annotations

import os
from typing import Final

from committer.errors import ConfigurationError

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


def is_reference(value: str | None) -> bool:
    """Whether an option's value says where to find a secret."""
    return value is not None and value.startswith(("env:", "file:"))


def resolved(value: str, option: str) -> str:
    """What a value refers to, without space around it; the value itself when it is no reference.

    Raises:
        ConfigurationError: There is nothing.
    """
    found: str | None = value
    if value.startswith("env:"):
        found = os.environ.get(value[4:], "").strip()
    elif value.startswith("file:"):
        try:
            with open(value[5:], encoding="utf-8") as file:
                found = file.read(_LIMIT).strip()
        except (OSError, UnicodeDecodeError):
            found = None
    if not found:
        raise ConfigurationError(
            f"the option {option} refers to {value}, which this process cannot read, or which is empty",
            operation="open_store",
        )
    return found
