"""Renders values, records and errors as text for people."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Sized
from datetime import datetime
from html import escape
from itertools import islice
from math import isfinite
from typing import Any, Final

import msgspec

from committer.paths import StorePath

# Cc and Cf are terminal controls and marks that reorder text; Zl and Zp break lines; Cs cannot be encoded.
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def clean(value: object) -> str:
    r"""Returns text that cannot move a cursor, change a colour, reorder or break a line.

    Control characters, bidirectional marks, line separators and surrogates are escaped as Python does
    (``\x1b``, ``\u202e``). A backslash stays as it is.
    """
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape", "surrogatepass").decode() if unicodedata.category(character) in _HARMFUL
        else character
        for character in text
    )  # fmt: skip


def count(number: int, what: str) -> str:
    """Renders a number of things: ``1 file``, ``1,234 files``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def size(number: float) -> str:
    """Renders bytes in decimal units with three digits: ``512 B``, ``1.23 MB``."""
    unit = 0
    while number >= 999.5 and unit < len(_UNITS) - 1:
        number /= 1000
        unit += 1
    digits = 0 if unit == 0 or number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f} {_UNITS[unit]}"


def seconds(number: float) -> str:
    """Renders a duration in one or two units: ``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 10 min``, ``3 d 4 h``."""
    if number < 10:
        return f"{number:.1f} s"
    whole = round(number)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


_MOST_IN_LINE: Final = 3
_MOST_IN_TABLE: Final = 10
_LONGEST_TEXT: Final = 200


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of results: reports, plans, descriptions of jobs."""

    def to_dict(self) -> dict[str, Any]:
        """Returns every field by name, uncut, in JSON's types; times are ISO texts."""
        return {name: _value(getattr(self, name)) for name in self.__struct_fields__}

    def to_json(self, *, indent: int | None = None) -> str:
        """Returns `to_dict` as JSON text in ASCII, where invalid Unicode is escaped; `indent` is in spaces a level."""
        return json.dumps(self.to_dict(), indent=indent)

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={_brief(value)}" for name, value in self._told())
        return f"{type(self).__name__}({said})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{_cell(value)}</td></tr>'
            for name, value in self._told()
        )
        return f"<table><caption>{escape(type(self).__name__)}</caption><tbody>{rows}</tbody></table>"

    def _told(self) -> Iterator[tuple[str, object]]:
        """Yields the fields to show: those without a default, numbers, and those that differ from their default."""
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if field.required or isinstance(value, int | float) or value != _default(field):
                yield field.name, value


def _value(value: object) -> object:
    if isinstance(value, Shown):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [_value(one) for one in value]
    return str(value) if isinstance(value, StorePath) else msgspec.to_builtins(value, enc_hook=str)


def _default(field: msgspec.structs.FieldInfo) -> object:
    return field.default_factory() if callable(field.default_factory) else field.default


def _brief(value: object) -> str:
    if isinstance(value, StorePath | datetime):
        return str(value)
    if isinstance(value, msgspec.Struct) and not isinstance(value, Shown):
        return f"{type(value).__name__}(…)"
    if isinstance(value, dict):
        pairs = [f"{_brief(key)}: {_brief(one)}" for key, one in islice(value.items(), _MOST_IN_LINE)]
        return f"{{{', '.join(pairs + _rest(value, _MOST_IN_LINE))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join([_brief(one) for one in value[:_MOST_IN_LINE]] + _rest(value, _MOST_IN_LINE))}]"
    if isinstance(value, float) and isfinite(value):
        # Readers need no more than milliseconds of a duration.
        return repr(round(value, 3))
    return _cut(repr(value))


def _cell(value: object) -> str:
    """Renders a value as an HTML table cell: escaped, so that a file's name cannot be markup."""
    if isinstance(value, dict):
        value = [f"{key}: {one}" for key, one in value.items()]
    if isinstance(value, list | tuple):
        return "<br>".join(map(_plain, [*value[:_MOST_IN_TABLE], *_rest(value, _MOST_IN_TABLE)]))
    return _plain(value)


def _plain(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = _cut(value if isinstance(value, str) else _brief(value))
    return escape(text.encode(errors="backslashreplace").decode())


def _rest(values: Sized, most: int) -> list[str]:
    return [f"… {len(values) - most:,} more"] if len(values) > most else []


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


# Neither text that is not UTF-8 nor deeply nested lists raise an error of msgspec's.
UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of decoding what a store, a service or another process sent: catch all of these."""


def encoded(data: object) -> bytes | str:
    """Returns data to decode in the type that msgspec takes; raises `TypeError` for neither text nor a buffer."""
    if isinstance(data, str):
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"it is bytes or text, not a {type(data).__name__}")
