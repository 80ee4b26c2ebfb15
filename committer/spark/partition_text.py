"""How Spark spells a partition value in a directory's name: the text it gets by casting the value to a string.

A value spelled another way would open a second directory beside the one that Spark itself wrote. What Spark spells in a
way that cannot be read back (binary) or not at all (nested types) is refused before anything is written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from committer.errors import UnsupportedError
from committer.spark.zones import local_micros

if TYPE_CHECKING:
    import pyarrow as pa

_DAY_US: Final = 86_400_000_000
_UNITS: Final = ("day", "hour", "minute", "second")
_UNIT_US: Final = {"day": _DAY_US, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
_NUMBER: Final = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?")


def partition_texts(values: pa.Array, spark_type: str = "") -> list[str | None]:
    """Spells each value as Spark does; None for null.

    Args:
        values: Values of one partition column, in the Arrow type that Spark hands over, where the zone of a timestamp
            is the session's.
        spark_type: Spark's name of the type; an interval's says which units it is told in.

    Raises:
        UnsupportedError: Spark has no spelling for the type that could be read back, the session's time zone is unknown
            to this machine, or a string is not UTF-8, which Spark would put into one directory with others.
    """
    import pyarrow as pa
    from pyarrow import types

    kind = values.type
    if types.is_floating(kind):
        # Arrow's text has the fewest digits that tell the value from its neighbours, in the width of its type.
        pairs = zip(values.to_pylist(), values.cast(pa.string()).to_pylist(), strict=True)
        return [None if value is None else java_floating(value, text) for value, text in pairs]
    spell: Callable[[Any], str] = str
    if types.is_boolean(kind):
        spell = _boolean
    elif types.is_decimal(kind):
        spell = _decimal
    elif types.is_date32(kind):
        values, spell = values.cast(pa.int32()), date_text
    elif types.is_timestamp(kind):
        zone = kind.tz
        values = values.cast(pa.timestamp("us", zone)).cast(pa.int64())
        spell = timestamp_text if zone is None else lambda micros: timestamp_text(local_micros(micros, zone))
    elif types.is_time64(kind):
        values, spell = values.cast(pa.int64()), _time
    elif types.is_duration(kind):
        values, spell = values.cast(pa.int64()), lambda micros: interval_text(micros, spark_type)
    elif types.is_string(kind) or types.is_large_string(kind):
        _check_utf8(values)
    elif not types.is_integer(kind):
        raise UnsupportedError(
            f"values of type {kind} cannot name partitions",
            operation="partition",
            next_step="cast the column to a string, a number, a date or a timestamp",
        )
    return [None if value is None else spell(value) for value in values.to_pylist()]


def java_floating(value: float, shortest: str) -> str:
    """Spells a float or double as Java 19 and later do (earlier ones may add a digit to few values).

    Args:
        value: The value.
        shortest: A text with the fewest digits that read back as `value`.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = _digits(shortest)
    if len(digits) == 1 and digits != "0":
        # Java compares candidates of at least two digits: the least double is 4.9E-324, though 5E-324 reads back too.
        sign, digits, exponent = _digits(f"{value:.1e}")
    if digits == "0":
        return f"{sign}0.0"
    if -3 <= exponent < 7:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
        whole, rest = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
        return f"{sign}{whole}.{rest or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def date_text(days: int) -> str:
    """Spells a date by its days since the epoch, in the Gregorian calendar: ``2024-02-29``, ``-0043-03-15``."""
    # 400 years have always the same number of days, which widens the years 1 to 9999 that `date` knows.
    cycles, ordinal = divmod(days + 719_162, 146_097)
    day = date.fromordinal(ordinal + 1)
    year = day.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{day:%m-%d}"


def timestamp_text(micros: int) -> str:
    """Spells wall time by its microseconds since the epoch: ``2024-02-29 13:00:00.123``."""
    days, rest = divmod(micros, _DAY_US)
    seconds, fraction = divmod(rest, 1_000_000)
    text = f"{date_text(days)} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def interval_text(micros: int, spark_type: str) -> str:
    """Spells a day-time interval in the units of its type: ``INTERVAL '1 02:03:04.5' DAY TO SECOND``.

    Args:
        micros: Its length.
        spark_type: Spark's name of the type, such as ``interval day to second`` or ``interval hour``.
    """
    units = spark_type.removeprefix("interval ")
    first, _, last = units.partition(" to ")
    span = _UNITS[_UNITS.index(first) : _UNITS.index(last or first) + 1]
    rest, texts = abs(micros), []
    for place, unit in enumerate(span):
        # The first unit takes all that greater ones would.
        count, rest = divmod(rest, _UNIT_US[unit])
        texts.append(str(count) if unit == "day" else f"{count:02d}")
        if place:
            texts[-1] = (" " if unit == "hour" else ":") + texts[-1]
    fraction = f".{rest:06d}".rstrip("0") if span[-1] == "second" and rest else ""
    return f"INTERVAL '{'-' if micros < 0 else ''}{''.join(texts)}{fraction}' {units.upper()}"


def _time(nanos: int) -> str:
    seconds, fraction = divmod(nanos, 1_000_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:09d}".rstrip("0") if fraction else text


def _check_utf8(values: pa.Array) -> None:
    import pyarrow as pa

    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise UnsupportedError(
            "a string that is not UTF-8 cannot name a partition",
            operation="partition",
            next_step="partition by hex() or base64() of the bytes",
        ) from error


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _decimal(value: Decimal) -> str:
    return format(value, "f")


def _digits(text: str) -> tuple[str, str, int]:
    """Sign, digits without zeros at either end, and the decimal exponent of the first digit."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise UnsupportedError(
            f"a number spelled {text!r} cannot name a partition",
            operation="partition",
            next_step="cast the column to a string",
        )
    sign, whole, fraction, exponent = found[1], found[2], found[3] or "", int(found[4] or 0)
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + len(digits) - len(whole + fraction)
    return sign, digits.rstrip("0") or "0", exponent + point - 1
