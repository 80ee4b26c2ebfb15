"""Partition values are spelled as Spark spells them. What Spark itself makes of them: test_golden_directories.py."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from committer.errors import UnsupportedError
from committer.spark.formats.spelling import (
    date_text,
    interval_text,
    local_micros,
    partition_texts,
    timestamp_text,
    zone,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEAR_2 = datetime.fromisoformat("0002-01-01")
YEAR_9998 = datetime.fromisoformat("9998-01-01")


def text_of(value: object, kind: pa.DataType) -> str | None:
    return partition_texts(pa.array([value], kind))[0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (1e21, "1.0E21"),
        (1e-7, "1.0E-7"),
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (None, None),
    ],
)
def test_doubles(value: float | None, text: str | None) -> None:
    assert text_of(value, pa.float64()) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1 / 3, "0.33333334"),
        (16777216.0, "1.6777216E7"),
        (3.4028234663852886e38, "3.4028235E38"),
        (1e-45, "1.4E-45"),
    ],
)
def test_floats_have_the_digits_of_their_width(value: float, text: str) -> None:
    assert text_of(value, pa.float32()) == text


@given(st.floats())
def test_every_double_reads_back(value: float) -> None:
    text = text_of(value, pa.float64())
    assert text is not None
    back = float(text)
    assert struct.pack("d", back) == struct.pack("d", value) or value != value


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_every_float_reads_back(value: float) -> None:
    text = text_of(value, pa.float32())
    assert text is not None
    assert struct.pack("f", float(text)) == struct.pack("f", value)


@pytest.mark.parametrize(
    ("value", "text"), [("1.500", "1.500"), ("0.00000010", "0.00000010"), ("-12", "-12.00000000"), ("0", "0.00000000")]
)
def test_decimals_keep_their_scale(value: str, text: str) -> None:
    scale = 3 if value == "1.500" else 8
    assert text_of(Decimal(value), pa.decimal128(20, scale)) == text


def test_numbers_booleans_and_text() -> None:
    assert text_of(-128, pa.int8()) == "-128"
    assert text_of(2**63 - 1, pa.int64()) == "9223372036854775807"
    assert partition_texts(pa.array([True, False, None])) == ["true", "false", None]
    assert partition_texts(pa.array(["", " é/", None], pa.large_string())) == ["", " é/", None]


@given(st.dates())
def test_dates_of_four_digits(day: date) -> None:
    assert text_of(day, pa.date32()) == day.isoformat()


def test_dates_beyond_four_digits() -> None:
    assert date_text((date(9999, 12, 31) - date(1970, 1, 1)).days + 1) == "+10000-01-01"
    assert date_text((date(1, 1, 1) - date(1970, 1, 1)).days - 1) == "0000-12-31"
    assert date_text((date(1, 1, 1) - date(1970, 1, 1)).days - 367) == "-0001-12-31"


@given(st.datetimes())
def test_wall_time(moment: datetime) -> None:
    text = text_of(moment, pa.timestamp("us"))
    assert text is not None
    fraction = f".{moment:%f}".rstrip("0") if moment.microsecond else ""
    assert text == f"{moment.date().isoformat()} {moment:%H:%M:%S}{fraction}"
    assert not text.endswith("0") or not fraction


@given(st.datetimes(YEAR_2, YEAR_9998, timezones=st.just(UTC)))
def test_timestamps_are_told_in_the_zone_of_the_session(moment: datetime) -> None:
    local = moment.astimezone(ZoneInfo("America/New_York"))
    text = text_of(moment, pa.timestamp("us", "America/New_York"))
    assert text is not None
    assert text.startswith(f"{local.date().isoformat()} {local:%H:%M:%S}")


def test_summer_time_goes_on_after_2037() -> None:
    summer = datetime(2050, 7, 1, 12, tzinfo=UTC)
    assert text_of(summer, pa.timestamp("us", "America/New_York")) == "2050-07-01 08:00:00"


@pytest.mark.parametrize("years", [400, 400 * 20, 400 * 600])
def test_zones_beyond_the_year_9999_follow_the_calendar_cycle(years: int) -> None:
    summer = (datetime(9600, 7, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    later = summer + years // 400 * 146_097 * 86_400_000_000
    assert local_micros(later, "America/New_York") - later == -4 * 3_600_000_000


def test_before_the_year_one_zones_are_on_local_mean_time() -> None:
    long_ago = -100_000_000_000_000_000
    assert local_micros(long_ago, "America/New_York") - long_ago == -(4 * 3600 + 56 * 60 + 2) * 1_000_000
    assert timestamp_text(long_ago).startswith("-1199-")


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("Z", 0),
        ("UTC", 0),
        ("GMT", 0),
        ("+02:00", 7200),
        ("-05:30", -19800),
        ("GMT+2", 7200),
        ("UTC-11", -39600),
        ("+010203", 3723),
    ],
)
def test_offsets_as_java_spells_them(name: str, seconds: int) -> None:
    assert zone(name).utcoffset(None) == timedelta(seconds=seconds)


@pytest.mark.parametrize("name", ["PST8PST", "No/Where", "../etc/passwd", "", "America"])
def test_unknown_zones_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match="time zone"):
        zone(name)


@pytest.mark.parametrize("kind", [pa.binary(), pa.list_(pa.int32()), pa.struct([]), pa.null()])
def test_other_types_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedError, match="cannot name partitions"):
        partition_texts(pa.array([], kind))


@pytest.mark.parametrize(
    ("micros", "kind", "text"),
    [
        (93_784_500_000, "interval day to second", "INTERVAL '1 02:03:04.5' DAY TO SECOND"),
        (-93_784_000_001, "interval day to second", "INTERVAL '-1 02:03:04.000001' DAY TO SECOND"),
        (93_784_500_000, "interval day", "INTERVAL '1' DAY"),
        (93_784_500_000, "interval day to hour", "INTERVAL '1 02' DAY TO HOUR"),
        (360_000_000_000, "interval hour", "INTERVAL '100' HOUR"),
        (93_784_500_000, "interval minute to second", "INTERVAL '1563:04.5' MINUTE TO SECOND"),
        (-(2**63), "interval day to second", "INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND"),
    ],
)
def test_intervals_are_told_in_the_units_of_their_type(micros: int, kind: str, text: str) -> None:
    assert interval_text(micros, kind) == text
    assert partition_texts(pa.array([micros, None], pa.duration("us")), kind) == [text, None]


def test_times() -> None:
    times = pa.array([0, 45_000_500_000_000, 86_399_999_999_000, None], pa.time64("ns"))
    assert partition_texts(times) == ["00:00:00", "12:30:00.5", "23:59:59.999999", None]


def test_strings_that_are_not_utf8_are_refused() -> None:
    text = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    with pytest.raises(UnsupportedError, match="not UTF-8"):
        partition_texts(text)
