"""Spells values as Spark does in CSV and JSON files: a column at a time, in Python only where Arrow differs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from committer.errors import UnsupportedError
from committer.spark.formats.base import compute
from committer.spark.partition_text import date_text, interval_text, java_floating, local_micros

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

_DAY_US: Final = 86_400_000_000
_HOUR_US: Final = 3_600_000_000
_SECOND_US: Final = 1_000_000
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
        raise UnsupportedError(
            f"the {option} {pattern!r} cannot be written",
            operation="save",
            next_step="use yyyy-MM-dd'T'HH:mm:ss.SSSSSS[XXX] or the like, or write a string made by date_format()",
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
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    text = f"{date_text(days)}{style.separator}{clock}"
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
