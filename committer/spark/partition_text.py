"""Spells partition values as Spark does.

A different spelling would open a second directory beside Spark's. Values that Spark spells irreversibly (binary)
or not at all (nested types) are refused before anything is written. Time zones come from zoneinfo: Arrow up to
version 26 ignores daylight saving time after 2037 and knows no zone like ``GMT+2``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from committer.errors import UnsupportedError

if TYPE_CHECKING:
    import pyarrow as pa


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CYCLE_S: Final = 146_097 * 86_400
"""400 years: the Gregorian calendar then repeats, weekdays included."""
_FIRST_S: Final = (datetime(2, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
_LAST_S: Final = (datetime(9998, 12, 31, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?\Z")


@lru_cache(maxsize=64)
def zone(name: str) -> tzinfo:
    """Returns the time zone with Spark's name: a region, or an offset such as ``+02:00``, ``UTC-5`` or ``Z``."""
    if name in {"Z", "UTC", "GMT", "UT"}:
        return UTC
    offset = _OFFSET.match(name)
    if offset:
        sign = -1 if offset[1] == "-" else 1
        hours, minutes, seconds = (int(part or 0) for part in offset.group(2, 3, 4))
        return timezone(sign * timedelta(hours=hours, minutes=minutes, seconds=seconds))
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # unknown, malformed, a directory of zones
        raise UnsupportedError(
            f"the session's time zone {name!r} is unknown to this Python, and partition names are spelled in it",
            operation="partition",
            next_step="set spark.sql.session.timeZone to a region such as Europe/Paris; where no region is known,"
            " pip install tzdata",
        ) from error


def local_micros(micros: int, name: str) -> int:
    """Shifts microseconds since the epoch to local wall time."""
    rules, seconds = zone(name), micros // 1_000_000
    # Before year 2 every region has its local mean time; after 9998 its last rules continue, in 400-year cycles.
    seconds = max(seconds, _FIRST_S)
    if seconds > _LAST_S:
        seconds -= -((_LAST_S - seconds) // _CYCLE_S) * _CYCLE_S
    offset = (_EPOCH + timedelta(seconds=seconds)).astimezone(rules).utcoffset() or timedelta()
    return micros + offset // timedelta(microseconds=1)


_DAY_US: Final = 86_400_000_000
_UNITS: Final = ("day", "hour", "minute", "second")
_UNIT_US: Final = {"day": _DAY_US, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
_NUMBER: Final = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?")


def partition_texts(values: pa.Array, spark_type: str = "") -> list[str | None]:
    """Spells each value of a partition column as Spark does; None for null.

    A timestamp's zone is the session's; `spark_type`, Spark's type name, gives an interval's units. Refuses types
    without a reversible spelling, unknown time zones, and strings that are not UTF-8 (Spark would merge such
    strings).
    """
    import pyarrow as pa
    from pyarrow import types

    kind = values.type
    if types.is_floating(kind):
        # Arrow's text has the fewest digits that identify the value in its width.
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
    """Spells a float or double as Java 19 and later do (earlier versions may add a digit to few values).

    `shortest` is a text with the fewest digits that read back as `value`.
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
    # 400 years always have the same number of days, which extends `date`'s years 1 to 9999.
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
    """Spells a day-time interval in its type's units (``interval day to second``): ``INTERVAL '1 02:03:04.5' DAY
    TO SECOND``.
    """
    units = spark_type.removeprefix("interval ")
    first, _, last = units.partition(" to ")
    span = _UNITS[_UNITS.index(first) : _UNITS.index(last or first) + 1]
    rest, texts = abs(micros), []
    for place, unit in enumerate(span):
        # The first unit includes all greater ones.
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
    """Returns sign, digits without zeros at either end, and the decimal exponent of the first digit."""
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
