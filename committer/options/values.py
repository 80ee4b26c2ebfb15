"""Parsers of option texts, and a check of flags.

Booleans may have any case, integers are of 32 bits, decimal or hexadecimal, sizes may have a binary suffix.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, Literal, TypeAlias

import msgspec

from committer.errors import ConfigurationError

Kind: TypeAlias = Literal[
    "boolean", "int", "threads", "size", "rate", "weight", "seconds", "text", "lower", "list", "local"
]

SPARK_HADOOP: Final = "spark.hadoop."
"""Spark's prefix for the keys that it hands to Hadoop."""

_INT = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|[0-9]+)")
_FILE = re.compile(r"file:(?://)?(?=/)")
_SIZE = re.compile(r"([+-]?[0-9]+)([kmgtpe]?)", re.IGNORECASE)
_LONGEST_NAME = 64
_WORD = re.compile("[A-Z]?[a-z]{0,24}(?:[A-Z][a-z]{1,24}){0,4}|[A-Z]{1,16}|[a-z]{0,4}[0-9]{1,2}[a-z]{0,4}")
_INT_BOUND = 1 << 31
_LONG_BOUND = 1 << 63


def is_wordy(name: str) -> bool:
    """Returns True if a name consists of words, as names do and secrets do not."""
    return len(name) <= _LONGEST_NAME and all(_WORD.fullmatch(word) for word in re.split("[._-]", name))


def shown_name(name: object) -> str:
    """Renders an unknown option's name for an error, unless a secret may have been given in its place."""
    if is_wordy(str(name)):
        return repr(name)
    return f"of this name ({len(str(name))} characters, not repeated: a secret may stand in the place of the name)"


def plain_keys(options: Mapping[str, object]) -> Iterator[tuple[str, str, object]]:
    """Yields each key without Spark's prefix, the key as written, and its value; a plain key wins."""
    # Some mappings use None for "unset".
    for written_as, value in options.items():
        key = written_as.removeprefix(SPARK_HADOOP)
        if value is not None and (key == written_as or options.get(key) is None):
            yield key, written_as, value


def parse(kind: Kind, key: str, value: object) -> object:
    """Parses an option's text; raises `ConfigurationError` with key and value if it is not of this kind."""
    if kind == "boolean":
        return _boolean(key, value)
    if kind == "int":
        return read_int(key, value)
    if kind == "threads":
        threads = read_int(key, value)
        return threads if threads > 0 else -threads * (os.cpu_count() or 1) or 1
    if kind == "size":
        return _size(key, value)
    if kind == "rate":
        return _number(key, value, "it must be a number of calls per second, or 0 for no limit")
    if kind in ("weight", "seconds"):
        return _number(key, value, "it must be a number of zero or more")
    if kind == "list":
        return values_of_list(value)
    if kind == "local":
        return tuple(_FILE.sub("", text) for text in values_of_list(value))
    text = str(value).strip()
    return text.lower() if kind == "lower" else text


def values_of_list(value: object) -> tuple[str, ...]:
    """Splits a text at commas, or reads it as a JSON list, whose values may hold commas."""
    if isinstance(value, list | tuple):
        return tuple(text for part in value if (text := str(part).strip()))
    text = str(value).strip()
    with suppress(msgspec.DecodeError):
        return tuple(msgspec.json.decode(text, type=list[str]))
    return values_of_list(text.split(","))


def _boolean(key: str, value: object) -> bool:
    text = str(value).strip().lower()
    if text not in {"true", "false"}:
        raise bad_option(key, value, "it must be true or false")
    return text == "true"


def asks_for(asked: bool, key: str, value: object) -> bool:
    """Returns True if a boolean option is given and equals `asked`."""
    return value != "" and _boolean(key, value) == asked


def read_int(key: str, value: object) -> int:
    """Parses a 32-bit integer, decimal or hexadecimal."""
    match = _INT.fullmatch(str(value).strip())
    if match is not None:
        digits = match[2]
        number = int(digits, 16) if digits[:2] in {"0x", "0X"} else int(digits)
        if match[1] == "-":
            number = -number
        if -_INT_BOUND <= number < _INT_BOUND:
            return number
    raise bad_option(key, value, "it must be a 32-bit integer")


def _size(key: str, value: object) -> int:
    match = _SIZE.fullmatch(str(value).strip())
    if match is not None:
        size = int(match[1]) << (10 * " kmgtpe".index(match[2].lower() or " "))
        if 1 <= size < _LONG_BOUND:
            return size
    raise bad_option(
        key, value, "it must be a number of bytes above zero, with k, m, g, t, p or e after it for larger units"
    )


def _number(key: str, value: object, rule: str) -> float:
    try:
        number = float(str(value).strip())
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise bad_option(key, value, rule)
    return number


def bad_option(key: str, value: object, rule: str) -> ConfigurationError:
    """Builds the error for an invalid value of an option."""
    return ConfigurationError(
        f"the option {key} cannot be {value!r}: {rule}",
        operation="from_hadoop",
        next_step=f"give another value, or leave {key} out",
    )


def check_flag(value: object, what: str, operation: str) -> None:
    """Refuses a flag other than True or False where data is deleted or reverted: any text, ``"false"`` too, is true."""
    if not isinstance(value, bool):
        raise ConfigurationError(
            f"{what} must be True or False, not {value!r}",
            operation=operation,
            next_step=f"give {what}=True, or leave it out",
        )
