"""What a user gets back, shown in four ways: as values, as JSON, as one short line, and as a table in a notebook."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sized
from datetime import datetime
from html import escape
from itertools import islice
from math import isfinite
from typing import Any, Final

import msgspec

from committer.paths import StorePath

_MOST_IN_LINE: Final = 3
_MOST_IN_TABLE: Final = 10
_LONGEST_TEXT: Final = 200


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A result: a report, a plan, what is known of a job."""

    def to_dict(self) -> dict[str, Any]:
        """Every field by its name, in values that JSON has: nothing is cut off, times are ISO texts."""
        return {name: _value(getattr(self, name)) for name in self.__struct_fields__}

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as JSON text, in ASCII: names that are not valid Unicode come through as escapes.

        Args:
            indent: Spaces a level; None writes one line.
        """
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
        """Fields that say something: those without a default, numbers, and what is not as by default."""
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
    """A value in one short line."""
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
        # A millisecond is as much as a reader wants to know of a duration.
        return repr(round(value, 3))
    return _cut(repr(value))


def _cell(value: object) -> str:
    """A value in a cell of a table: escaped, so that a file's name cannot be markup."""
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
