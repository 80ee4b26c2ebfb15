"""Directories and files are named as Spark names them: compared with what Spark itself writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from .trees import names_without_uuid, rows_by_directory, uuids

VALUES: dict[str, list[str]] = {
    "s": ["'x'", "''", "null", "' lead and trail '", "'..'", "'_hidden'", "'é/ü'", "'%41'", "'a=b'", "'日本'"],
    "c": ["cast('ab' as char(4))", "cast('' as char(2))", "null"],
    "b": ["true", "false", "null"],
    "i8": ["127Y", "-128Y", "0Y", "null"],
    "i16": ["32767S", "-1S", "null"],
    "i32": ["2147483647", "-2147483648", "0", "null"],
    "i64": ["9223372036854775807L", "-1L", "null"],
    "f": [
        "float('0.1')",
        "float('-0.0')",
        "float('0.0')",
        "float('NaN')",
        "float('-Infinity')",
        "float('16777216')",
        "null",
    ],
    "d": [
        *(f"double('{text}')" for text in ("1.0", "1e21", "1e-7", "NaN", "Infinity", "-0.0", "0.0", "0.001", "1e7")),
        *(f"double('{text}')" for text in ("9999999", "123456.789", "1.7976931348623157e308", "-1234567.125")),
        "null",
    ],
    "n": ["cast('1.5' as decimal(20,8))", "cast('0.0000001' as decimal(20,8))", "cast('-12' as decimal(20,8))", "null"],
    "w": ["cast('12345678901234567890123456789012345678' as decimal(38,0))", "cast(0 as decimal(38,0))", "null"],
    "day": ["date'2024-02-29'", "date'0001-01-01'", "date'-0044-03-15'", "date'+12345-06-07'", "null"],
    "at": [
        "timestamp'2024-02-29 13:00:00.123'",
        "timestamp'2024-02-29 13:00:00'",
        "timestamp'2024-02-29 13:00:00.000001'",
        "timestamp'2024-11-03T05:30:00Z'",
        "timestamp'2024-11-03T06:30:00.5Z'",
        "timestamp'1800-01-01T00:00:00Z'",
        "timestamp'2050-07-01T12:00:00Z'",
        "timestamp'9999-12-31T23:59:59.999999Z'",
        "timestamp'+10000-07-01T12:00:00Z'",
        "timestamp'+54321-07-01T12:00:00Z'",
        "timestamp'0000-01-01T00:00:00Z'",
        "timestamp'-0001-01-01T00:00:00Z'",
        "null",
    ],
    "time": ["time'12:30:00.5'", "time'00:00:00'", "time'23:59:59.999999'", "null"],
    "took": ["interval '1 02:03:04.5' day to second", "interval '-100 23:59:59.000001' day to second", "null"],
    "hours": ["interval '-3' hour", "interval '1000' hour", "null"],
    "minutes": ["interval '-90:05.25' minute to second", "interval '0:0' minute to second", "null"],
    "ntz": ["timestamp_ntz'2024-03-10 02:30:00.25'", "timestamp_ntz'-0100-01-01 00:00:00'", "null"],
}

# What must be escaped, and what must not, in values; NUL cannot be in a file name at all. In two names instead of 130:
# Hadoop's local file system starts a process a directory.
CHARACTERS = ["".join(map(chr, range(1, 0x80))), "\x80\x9f\xa0ÿ\u2028日\U0001f600", ".", "%2F"]


def table(spark: SparkSession, columns: list[str]) -> DataFrame:
    rows = max(len(VALUES[column]) for column in columns)
    picked = ", ".join(
        f"({number}L, {', '.join(VALUES[column][number % len(VALUES[column])] for column in columns)})"
        for number in range(rows)
    )
    return spark.sql(f"select * from values {picked} as t(v, {', '.join(columns)})")


def write_both(frame: DataFrame, columns: list[str], tmp_path: Path) -> tuple[Path, Path]:
    ours, golden = tmp_path / "ours", tmp_path / "spark"
    frame.write.partitionBy(*columns).parquet(str(golden))
    frame.write.format("committer").option("partitionBy", ",".join(columns)).mode("append").save(str(ours))
    return ours, golden


@pytest.mark.parametrize(
    "columns",
    [
        ["s", "c", "b", "i8", "i16", "i32", "i64"],
        ["f", "d", "n", "w"],
        ["day", "at", "ntz"],
        ["time", "took", "hours", "minutes"],
    ],
    ids=lambda c: c[0],
)
def test_values_of_every_type(spark: SparkSession, tmp_path: Path, columns: list[str]) -> None:
    ours, golden = write_both(table(spark, columns).coalesce(1), columns, tmp_path)
    assert rows_by_directory(ours, "v") == rows_by_directory(golden, "v")
    assert names_without_uuid(ours) == names_without_uuid(golden)
    assert len(uuids(ours)) == 1


def test_characters_in_values_and_in_column_names(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(list(enumerate(CHARACTERS)), "v long, `a b=c/d%` string").coalesce(1)
    ours, golden = write_both(frame, ["a b=c/d%"], tmp_path)
    assert rows_by_directory(ours, "v") == rows_by_directory(golden, "v")
    assert len(rows_by_directory(ours, "v")) == len(CHARACTERS)


def test_a_column_named_in_another_case(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("select 1L v, 2 as Day")
    ours, golden = write_both(frame, ["dAY"], tmp_path)
    assert names_without_uuid(ours) == names_without_uuid(golden)
