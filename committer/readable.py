"""Text for people: what comes from records and paths made harmless, and numbers, sizes and times in few letters."""

from __future__ import annotations

import unicodedata

# Cc and Cf hold terminal controls and marks that reorder text; Zl and Zp break lines; Cs cannot be encoded.
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def clean(value: object) -> str:
    r"""Text that cannot move a cursor, change a colour, reorder or break a line.

    A control character, a bidirectional mark, a line separator and half of a surrogate pair are written as Python
    writes them (``\x1b``, ``\u202e``). A backslash stays as it is.
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
    """``1 file``, ``1,234 files``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def size(number: float) -> str:
    """Bytes in decimal units with three digits: ``512 B``, ``1.23 MB``."""
    unit = 0
    while number >= 999.5 and unit < len(_UNITS) - 1:
        number /= 1000
        unit += 1
    digits = 0 if unit == 0 or number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f} {_UNITS[unit]}"


def seconds(number: float) -> str:
    """A duration in one or two units: ``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 10 min``, ``3 d 4 h``."""
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
