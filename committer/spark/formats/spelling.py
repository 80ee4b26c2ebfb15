"""Spells values as Spark does, in CSV and JSON files and in names of partition directories.

A column at a time, in Python only where Arrow differs. A different spelling of a partition would open a second
directory beside Spark's. Time zones come from zoneinfo: Arrow up to version 26 ignores daylight saving time after 2037
and knows no zone like ``GMT+2``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import msgspec

from committer.errors import UnsupportedError
from committer.spark.formats.base import compute
from committer.spark.refusals import unsupported_write

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

_DAY_US: Final = 86_400_000_000
_HOUR_US: Final = 3_600_000_000
_SECOND_US: Final = 1_000_000
_UNITS: Final = ("day", "hour", "minute", "second")
_UNIT_US: Final = {"day": _DAY_US, "hour": _HOUR_US, "minute": 60_000_000, "second": _SECOND_US}
_NUMBER: Final = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?")
_FIRST_DAY: Final = -719_162
"""0001-01-01: from here to 9999-12-31 Arrow spells dates as Java does."""
_LAST_DAY: Final = 2_932_896
_PATTERN: Final = re.compile(r"yyyy-MM-dd('T'| )HH:mm:ss(?:\.(S{1,6})|\[\.(S{1,6})\])?(XXX|\[XXX\])?")

_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


class TimestampStyle(msgspec.Struct, frozen=True):
    """Format of timestamps; the defaults are Spark's, which truncate to milliseconds (`digits` of the fraction).

    `offset_seconds` includes the seconds of an offset, which old local mean times have.
    """

    separator: str = "T"
    digits: int = 3
    offset: bool = True
    offset_seconds: bool = True


def timestamp_style(option: str, pattern: str, *, zoned: bool) -> TimestampStyle:
    """Parses a supported pattern, such as ``yyyy-MM-dd'T'HH:mm:ss.SSSSSS[XXX]``: ISO, any fraction, an
    offset or none.
    """
    found = _PATTERN.fullmatch(pattern)
    if found is None or (not zoned and found[4] == "XXX"):
        raise unsupported_write(
            f"the {option} {pattern!r} cannot be written",
            "use yyyy-MM-dd'T'HH:mm:ss.SSSSSS[XXX] or the like, or write a string made by date_format()",
        )
    fraction = found[2] or found[3] or ""
    return TimestampStyle(
        separator=found[1].strip("'"), digits=len(fraction), offset=zoned and found[4] is not None, offset_seconds=False
    )


class Spelling(msgspec.Struct, frozen=True):
    """Text of columns that hold single values; `local_timestamps` have no zone."""

    timestamps: TimestampStyle = TimestampStyle()
    local_timestamps: TimestampStyle = TimestampStyle(offset=False)

    def texts(self, values: pa.Array, kind: DataType) -> pa.Array:
        """Spells values as Spark does; null stays null."""
        import pyarrow as pa
        from pyspark.sql.types import DayTimeIntervalType

        match kind.typeName():
            case "string" | "char" | "varchar":
                return _valid(values)
            case "float" | "double":
                return _floats(values)
            case "date":
                return _dates(values.cast(pa.int32()))
            case "timestamp" | "timestamp_ntz":
                zone = values.type.tz
                style = self.local_timestamps if zone is None else self.timestamps
                return _timestamps(values.cast(pa.timestamp("us", zone)).cast(pa.int64()), zone, style)
            case "daytimeinterval" if isinstance(kind, DayTimeIntervalType):
                units = kind.simpleString()
                return _each(values.cast(pa.int64()), lambda micros: interval_text(micros, units))
            case "void":
                return pa.nulls(len(values), pa.string())
            case _:  # booleans, integers, decimals: Arrow spells them as Java does
                return values.cast(pa.string())


def _valid(values: pa.Array) -> pa.Array:
    import pyarrow as pa

    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        # Spark accepts any bytes as a string, and its text writers put U+FFFD where they are not UTF-8.
        raw = values.cast(pa.binary()).to_pylist()
        return pa.array([None if data is None else _decoded(data) for data in raw], pa.string())
    return values.cast(pa.string())


SPARK_SPELLING: Final = Spelling()
"""Spark's default spelling."""


def _decoded(data: bytes) -> str:
    # Java makes one U+FFFD of a surrogate spelled in three bytes, where Python makes three.
    return _SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


def _floats(values: pa.Array) -> pa.Array:
    import pyarrow as pa

    pc = compute()
    texts = values.cast(pa.string())
    size = pc.abs(values)
    plain = pc.or_(pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7)), pc.equal(size, 0.0))
    whole = pc.invert(pc.match_substring(texts, "."))
    spelled = pc.if_else(whole, pc.binary_join_element_wise(texts, "0", "."), texts)
    return _patched(spelled, plain, lambda place: java_floating(values[place].as_py(), texts[place].as_py()))


def _dates(days: pa.Array) -> pa.Array:
    import pyarrow as pa

    common = _between(days, _FIRST_DAY, _LAST_DAY)
    texts = compute().if_else(common, days, pa.scalar(0, pa.int32())).cast(pa.date32()).cast(pa.string())
    return _patched(texts, common, lambda place: date_text(days[place].as_py()))


def _timestamps(micros: pa.Array, zone: str | None, style: TimestampStyle) -> pa.Array:
    pc = compute()
    if zone is None:
        return _wall_times(micros, style)
    offsets = _offsets(micros, zone)
    texts = _wall_times(pc.add(micros, offsets), style)
    if not style.offset:
        return texts
    return pc.binary_join_element_wise(texts, _each(offsets, lambda offset: _offset_text(offset, style)), "")


def _wall_times(wall: pa.Array, style: TimestampStyle) -> pa.Array:
    import pyarrow as pa

    pc = compute()
    common = _between(wall, _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1)
    # Always 26 characters; the front is kept.
    texts = pc.if_else(common, wall, 0).cast(pa.timestamp("us")).cast(pa.string())
    end = 20 + style.digits if style.digits else 19
    texts = pc.binary_join_element_wise(
        pc.utf8_slice_codeunits(texts, 0, 10), pc.utf8_slice_codeunits(texts, 11, end), style.separator
    )
    return _patched(texts, common, lambda place: _wall_time(wall[place].as_py(), style))


def _wall_time(micros: int, style: TimestampStyle) -> str:
    days, rest = divmod(micros, _DAY_US)
    seconds, fraction = divmod(rest, _SECOND_US)
    text = f"{date_text(days)}{style.separator}{_clock(seconds)}"
    return f"{text}.{fraction:06d}"[: len(text) + 1 + style.digits] if style.digits else text


def _offsets(micros: pa.Array, zone: str) -> pa.Array:
    """Returns the zone's offset at each moment, in microseconds; computed once per hour that occurs."""
    import pyarrow as pa

    pc = compute()
    below = pc.if_else(pc.less(micros, 0), _HOUR_US - 1, 0)
    hours = pc.divide(pc.subtract(micros, below), _HOUR_US).dictionary_encode()
    found = []
    for hour in hours.dictionary.to_pylist():
        start = hour * _HOUR_US
        first = local_micros(start, zone) - start
        last = local_micros(start + _HOUR_US - 1, zone) - start - _HOUR_US + 1
        found.append(first if first == last else None)
    offsets = pa.array(found, pa.int64()).take(hours.indices)
    # Hours in which the offset changes are computed value by value.
    known = pc.or_(pc.is_valid(offsets), pc.is_null(micros))
    return _patched(offsets, known, lambda place: local_micros(at := micros[place].as_py(), zone) - at)


def _offset_text(offset: int, style: TimestampStyle) -> str:
    seconds = offset // _SECOND_US
    if seconds == 0:
        return "Z"
    sign, size = ("-", -seconds) if seconds < 0 else ("+", seconds)
    text = f"{sign}{size // 3600:02d}:{size // 60 % 60:02d}"
    return f"{text}:{size % 60:02d}" if style.offset_seconds and size % 60 else text


def _between(values: pa.Array, least: int, most: int) -> pa.Array:
    pc = compute()
    return pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))


def _each(values: pa.Array, spell: Callable[[Any], str]) -> pa.Array:
    """Spells each distinct value once."""
    import pyarrow as pa

    encoded = values.dictionary_encode()
    return pa.array([spell(value) for value in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)


def _patched(values: pa.Array, good: pa.Array, make: Callable[[int], Any]) -> pa.Array:
    """Replaces values where `good` is false by `make(position)`; null where `good` is null."""
    import pyarrow as pa

    pc = compute()
    bad = pc.invert(good)
    if not pc.any(bad).as_py():
        return values
    places = pc.indices_nonzero(bad.fill_null(False)).to_pylist()
    return pc.replace_with_mask(values, bad.fill_null(False), pa.array([make(place) for place in places], values.type))


# -- values ----------------------------------------------------------------------------------------------------------

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
    seconds, fraction = divmod(rest, _SECOND_US)
    text = f"{date_text(days)} {_clock(seconds)}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _time(nanos: int) -> str:
    seconds, fraction = divmod(nanos, 1_000_000_000)
    return f"{_clock(seconds)}.{fraction:09d}".rstrip("0") if fraction else _clock(seconds)


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


# -- names of partitions ---------------------------------------------------------------------------------------------


def partition_texts(values: pa.Array, spark_type: str = "") -> list[str | None]:
    """Spells each value of a partition column as Spark does; None for null.

    A timestamp's zone is the session's; `spark_type`, Spark's type name, gives an interval's units. Refuses types
    without a reversible spelling (binary, nested), unknown time zones, and strings that are not UTF-8 (Spark would
    merge such strings).
    """
    import pyarrow as pa
    from pyarrow import types

    kind = values.type
    if types.is_floating(kind):
        texts = _floats(values)
    elif types.is_boolean(kind) or types.is_integer(kind):
        texts = values.cast(pa.string())
    elif types.is_decimal(kind):
        texts = _each(values, lambda value: format(value, "f"))
    elif types.is_date32(kind):
        texts = _dates(values.cast(pa.int32()))
    elif types.is_timestamp(kind):
        zone = kind.tz
        micros = values.cast(pa.timestamp("us", zone)).cast(pa.int64())
        texts = _each(micros, timestamp_text if zone is None else lambda at: timestamp_text(local_micros(at, zone)))
    elif types.is_time64(kind):
        texts = _each(values.cast(pa.int64()), _time)
    elif types.is_duration(kind):
        texts = _each(values.cast(pa.int64()), lambda micros: interval_text(micros, spark_type))
    elif types.is_string(kind) or types.is_large_string(kind):
        _check_utf8(values)
        texts = values
    else:
        raise UnsupportedError(
            f"values of type {kind} cannot name partitions",
            operation="partition",
            next_step="cast the column to a string, a number, a date or a timestamp",
        )
    found: list[str | None] = texts.to_pylist()
    return found


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
