"""What is said of the choices of a commit: each value, and where it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Explained(NamedTuple):
    """One choice, and where it comes from.

    Attributes:
        field: The field of `CommitterConfig`.
        value: Its value.
        origin: ``default``, ``argument``, or the option key that gave it.
        key: The option key that can give it.
    """

    field: str
    value: object
    origin: str
    key: str


class Explanation(str):
    """A table of all choices as text; `rows` holds the same as values."""

    __slots__ = ("rows",)
    rows: tuple[Explained, ...]

    @classmethod
    def of(cls, rows: Sequence[Explained]) -> Explanation:
        """The table of these choices."""
        explanation = cls(_table(rows))
        explanation.rows = tuple(rows)
        return explanation


def _table(rows: Sequence[Explained]) -> str:
    cells = [(row.field, "none" if row.value is None else repr(row.value), row.origin, row.key) for row in rows]
    cells.insert(0, ("choice", "value", "from", "option key"))
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )
