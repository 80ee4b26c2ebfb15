"""Files of every format hold what Spark's own writer puts into them: the same bytes of text, the same rows read back."""

from __future__ import annotations

import bz2
import gzip
import re
import zlib
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from .trees import everything

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# One value of every type that the format holds, odd ones below; `old` are those that not every format reads back.
COLUMNS = """
    true b, 1Y i8, -2S i16, 3 i32, 9223372036854775807L i64, float('1.1') f, double('-1e-7') d, 'é "q", \\\\ x' s,
    cast('1.50' as decimal(5,2)) n, cast(-1e-9 as decimal(38,10)) w, cast(0 as decimal(38,10)) z, date'2024-02-29' day,
    timestamp'2024-11-03T06:30:00.123Z' at, cast('abc' as varchar(5)) vc, cast(null as int) nothing
"""
NESTED = """
    array(1, null) list, array(array('a'), null, array()) lists, map('k', named_struct('x', 1, 'y', cast(null as int), 'at',
    timestamp'2024-01-01 00:00:00'), 'n', null) dict, named_struct('a', array(named_struct('b', date'2024-01-01')),
    'e', cast(null as struct<q:int>)) deep, X'00FF41' bin
"""
LOCAL = (
    "timestamp_ntz'2024-03-10 02:30:00.25' ntz, interval '1 02:03:04.5' day to second took, interval '-3' hour hours"
)
OLD = """
    date'0001-01-01' old, timestamp'1800-01-01 00:00:00.123456' at_old, timestamp_ntz'1500-01-01 00:00:00.5' ntz_old,
    double('-0.0') zero, named_struct('c', timestamp_ntz'2024-01-01 00:00:00') ntz_deep
"""
BY_FORMAT = {
    "parquet": f"{COLUMNS}, {NESTED}, {LOCAL}, {OLD}",
    "orc": f"{COLUMNS}, {NESTED}",
    "json": f"{COLUMNS}, {NESTED}, {LOCAL}, null void",
    "csv": f"{COLUMNS}, {LOCAL}",
}


def save(frame: DataFrame, dest: Path, form: str, **options: str) -> None:
    frame.write.format("committer").option("format", form).options(**options).mode("append").save(str(dest))


def names(root: Path) -> list[str]:
    return sorted(_UUID.sub("<uuid>", name) for name in everything(root))


def contents(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(root.rglob("part-*"))]


def both(frame: DataFrame, tmp_path: Path, form: str, **options: str) -> tuple[Path, Path]:
    ours, golden = tmp_path / "ours", tmp_path / "spark"
    save(frame, ours, form, **options)
    frame.write.format(form).options(**options).save(str(golden))
    return ours, golden


def same_text(frame: DataFrame, tmp_path: Path, form: str, **options: str) -> list[bytes]:
    ours, golden = both(frame.coalesce(1), tmp_path, form, **options)
    assert names(ours) == names(golden)
    assert contents(ours) == contents(golden)
    return contents(ours)


# --- Every type ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", list(BY_FORMAT))
def test_every_type_reads_back_as_it_was(spark: SparkSession, tmp_path: Path, form: str) -> None:
    one = spark.sql(f"select {BY_FORMAT[form]}, 1 k")
    nothing = spark.createDataFrame([(None,) * (len(one.columns) - 1) + (2,)], one.schema.simpleString())
    frame = one.union(nothing).coalesce(1)
    ours, golden = both(frame, tmp_path, form)
    assert names(ours) == names(golden)
    if form in {"csv", "json"}:
        assert contents(ours) == contents(golden)
    read = spark.read.schema(frame.schema) if form in {"csv", "json"} else spark.read
    back = read.format(form).load(str(ours))
    assert back.schema == read.format(form).load(str(golden)).schema
    assert back.orderBy("k").collect() == frame.orderBy("k").collect()


# --- Names and codecs ---------------------------------------------------------------------------------------------

CODECS = [
    *(("parquet", codec) for codec in ("snappy", "gzip", "zstd", "lz4_raw", "none", "uncompressed")),
    *(("orc", codec) for codec in ("zstd", "snappy", "zlib", "lz4", "none", "uncompressed")),
    *(("csv", codec) for codec in ("gzip", "bzip2", "deflate", "none", "uncompressed")),
    *(("json", codec) for codec in ("gzip", "bzip2", "deflate")),
]


@pytest.mark.parametrize(("form", "codec"), CODECS, ids=lambda text: text)
def test_codecs_and_names(spark: SparkSession, tmp_path: Path, form: str, codec: str) -> None:
    frame = spark.range(0, 1000, 1, 1).selectExpr("id", "concat('text ', id) t")
    ours, golden = both(frame, tmp_path, form, compression=codec)
    assert names(ours) == names(golden)
    back = spark.read.schema(frame.schema).format(form).load(str(ours))
    assert back.orderBy("id").collect() == frame.collect()
    unpack = {"gzip": gzip.decompress, "bzip2": bz2.decompress, "deflate": zlib.decompress}.get(codec)
    if unpack and form in {"csv", "json"}:
        assert [unpack(data) for data in contents(ours)] == [unpack(data) for data in contents(golden)]


# --- Text ---------------------------------------------------------------------------------------------------------

STRINGS = [
    *(
        "",
        " ",
        "  lead",
        "trail \t",
        "end\n",
        "end,  ",
        "#c",
        " #d",
        "a#",
        'a"b',
        '"',
        '""',
        '"x"',
        "x,y",
        "l\nm",
        "c\rd",
        "\r\n",
        "\n",
    ),
    *("back\\", 'b\\"', "\\", "\\,x", "\\\\,", "tab\tq", "-", "'", "é/日😀", "\x80\xa0\u2028\u2029\ufeff", "null"),
    "".join(map(chr, range(1, 0x80))),
    "\x01\x02 x \x1f",
    "\x00",
    "a\x00b",
]


def strings(spark: SparkSession) -> DataFrame:
    rows = [(text, STRINGS[-number], number) for number, text in enumerate(STRINGS)]
    return spark.createDataFrame([*rows, (None, "x", 98), ("y", None, 99)], "a string, b string, n int")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"header": "true"},
        {"sep": ";"},
        {"sep": "\t"},
        {"delimiter": "|", "quote": "'"},
        {"escape": '"'},
        {"escape": "^"},
        {"quoteAll": "true"},
        {"nullValue": "NULL", "emptyValue": "EMPTY"},
        {"nullValue": "NULL", "quoteAll": "true"},
        {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"},
        {"ignoreTrailingWhiteSpace": "false"},
    ],
    ids=str,
)
def test_csv_of_odd_strings_is_spark_s(spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> None:
    same_text(strings(spark), tmp_path, "csv", **options)


def test_csv_headers_are_spark_s(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, 2, 3, 4)], '`#x,y` int, ` b ` int, `q"` int, `é` int')
    assert same_text(frame, tmp_path, "csv", header="true")[0].count(b"\n") == 2


def test_csv_of_one_column(spark: SparkSession, tmp_path: Path) -> None:
    same_text(strings(spark).select("a"), tmp_path, "csv")


@pytest.mark.parametrize("options", [{}, {"ignoreNullFields": "false"}], ids=str)
def test_json_of_odd_strings_is_spark_s(spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> None:
    frame = strings(spark).selectExpr("a", 'b as `x"y\n`', "n", "array(a, b) l", "map(coalesce(a, 'k'), b) m")
    same_text(frame, tmp_path, "json", **options)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_strings_that_are_not_utf8(spark: SparkSession, tmp_path: Path, form: str) -> None:
    rows = ", ".join(f"(cast(X'{data}' as string))" for data in ("FFFE61C3", "E282", "F09F98", "EDA080", "61"))
    same_text(spark.sql(f"select * from values {rows} t(a)"), tmp_path, form)


FLOATS = [
    "0",
    "-0.0",
    "NaN",
    "Infinity",
    "-Infinity",
    "1e7",
    "9999999",
    "0.001",
    "0.00099",
    "1e21",
    "123456.789",
    "-2.5",
]
DECIMALS = ["0", "0.0000001", "-0.0000012345", "12345.0000001", "-1", "9999999999999999999999999999.9999999999"]


@pytest.mark.parametrize("form", ["csv", "json"])
def test_numbers_are_spark_s(spark: SparkSession, tmp_path: Path, form: str) -> None:
    rows = [
        f"(double('{f}'), float('{f}'), cast('{d}' as decimal(38,10)), cast('{d}' as decimal(30,0)))"
        for f, d in zip(FLOATS, DECIMALS * 2, strict=True)
    ]
    rows.append("(double('1.7976931348623157e308'), float('3.4028235e38'), null, null)")
    rows.append("(null, null, null, null)")
    same_text(spark.sql(f"select * from values {', '.join(rows)} t(d, f, n, w)"), tmp_path, form)


MOMENTS = [
    *("2024-02-29T13:00:00.123456Z", "1960-01-01T00:00:00.999999Z", "1800-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
    *("2050-07-01T12:00:00Z", "9999-12-31T23:59:59.999999Z", "+12345-07-01T12:00:00.1Z", "-0044-03-15T12:00:00.25Z"),
    *("2024-11-03T05:30:00Z", "2024-11-03T06:30:00Z", "1883-11-18T16:59:59.5Z", "1883-11-18T17:00:00Z"),
    *("1883-11-18T17:03:58Z", "2024-03-10T06:59:59.999Z", "2024-03-10T07:00:00Z", "0000-06-01T00:00:00Z"),
]
PATTERNS = [
    "",
    "yyyy-MM-dd'T'HH:mm:ss.SSSSSS[XXX]",
    "yyyy-MM-dd HH:mm:ss.SSXXX",
    "yyyy-MM-dd HH:mm:ss",
    "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]",
]


@pytest.mark.parametrize("form", ["csv", "json"])
@pytest.mark.parametrize(
    ("pattern", "zone"),
    [
        *((pattern, "America/New_York") for pattern in PATTERNS),
        ("", "UTC"),
        (PATTERNS[1], "Asia/Kolkata"),
        ("", "+02:00"),
    ],
)
def test_timestamps_and_dates_are_spark_s(
    spark: SparkSession, tmp_path: Path, form: str, pattern: str, zone: str
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    local = pattern.replace("XXX", "[XXX]").replace("[[XXX]]", "[XXX]")
    options = {"timestampFormat": pattern, "timestampNTZFormat": local} if pattern else {}
    try:
        rows = ", ".join(
            f"(timestamp'{at}', timestamp_ntz'{at.rstrip('Z')}', date'{at.partition('T')[0]}')" for at in MOMENTS
        )
        frame = spark.sql(f"select * from values {rows}, (null, null, null) t(at, local, day)")
        same_text(frame, tmp_path, form, **options)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


@pytest.mark.parametrize("form", ["csv", "json"])
def test_text_keeps_microseconds_and_blanks_when_told_to(spark: SparkSession, tmp_path: Path, form: str) -> None:
    frame = spark.sql(
        "select timestamp'2024-02-29 13:00:00.123456' at, timestamp_ntz'2024-02-29 13:00:00.123456' l, ' x ' s"
    )
    options = {
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    }
    if form == "csv":
        options |= {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
    save(frame, tmp_path / "t", form, **options)
    assert spark.read.schema(frame.schema).format(form).options(**options).load(str(tmp_path / "t")).collect() == (
        frame.collect()
    )


NESTINGS = [
    "cast(array() as array<int>), cast(map() as map<string,int>), named_struct('x', cast(null as int))",
    "array(null, array(), array(1, null)), map('a', null, 'b', array()), named_struct('x', map('q', null))",
    "cast(null as array<int>), cast(null as map<string,int>), cast(null as struct<x:int>)",
    "array(named_struct('x', null, 'y', 1), null), map('a\"', named_struct('d', date'2024-01-01')), named_struct('é', X'00')",
    "array(map('a', 1), map()), map('a', map('b', double('NaN'))), named_struct('a b', array(float('Infinity'), 1e10))",
]


@pytest.mark.parametrize("ignore", ["true", "false"])
@pytest.mark.parametrize("columns", NESTINGS)
def test_nested_json_is_spark_s(spark: SparkSession, tmp_path: Path, columns: str, ignore: str) -> None:
    frame = spark.sql(f"select {columns}, 1 from range(3) union all select null, null, null, 2").toDF(
        "a", "m", "s", "n"
    )
    same_text(frame, tmp_path, "json", ignoreNullFields=ignore)


def test_intervals_of_all_units(spark: SparkSession, tmp_path: Path) -> None:
    units = ["day", "hour", "minute", "second"]
    kinds = [f"interval {a} to {b}" for i, a in enumerate(units) for b in units[i + 1 :]] + [
        f"interval {unit}" for unit in units
    ]
    casts = ", ".join(f"cast(cast(v as interval day to second) as {kind}) as `{kind}`" for kind in kinds)
    frame = spark.sql(
        f"select {casts} from values (interval '1 02:03:04.5' day to second), (interval '-100 23:59:59.000001' day to"
        " second), (interval '0' day), (null) t(v)"
    )
    same_text(frame, tmp_path, "csv")


# --- Rows a file, and none ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("partitioned", [False, True])
def test_max_records_per_file(spark: SparkSession, tmp_path: Path, form: str, partitioned: bool) -> None:
    frame = spark.range(0, 20, 1, 2).selectExpr("id", "id % 2 k")
    save(frame, tmp_path / "ours", form, maxRecordsPerFile="3", partitionBy="k" if partitioned else "")
    writer = frame.write.format(form).option("maxRecordsPerFile", 3)
    (writer.partitionBy("k") if partitioned else writer).save(str(tmp_path / "spark"))
    assert names(tmp_path / "ours") == names(tmp_path / "spark")
    if form == "csv":
        assert sorted(contents(tmp_path / "ours")) == sorted(contents(tmp_path / "spark"))


@pytest.mark.parametrize("form", ["orc", "csv", "json"])
@pytest.mark.parametrize("partitioned", [False, True])
def test_no_rows(spark: SparkSession, tmp_path: Path, form: str, partitioned: bool) -> None:
    frame = spark.range(0, 6, 1, 2).where("id < 0").selectExpr("id", "cast(id as string) k")
    options = {"header": "true"} if form == "csv" else {}
    save(frame, tmp_path / "ours", form, partitionBy="k" if partitioned else "", **options)
    writer = frame.write.format(form).options(**options)
    (writer.partitionBy("k") if partitioned else writer).save(str(tmp_path / "spark"))
    assert names(tmp_path / "ours") == names(tmp_path / "spark")
    if form == "orc" and not partitioned:
        assert spark.read.orc(str(tmp_path / "ours")).schema == spark.read.orc(str(tmp_path / "spark")).schema
    elif form != "orc":
        assert contents(tmp_path / "ours") == contents(tmp_path / "spark")


# --- What a format cannot hold ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "column"),
    [
        ("csv", "array(1)"),
        ("csv", "X'00'"),
        ("json", "map(1, 2)"),
        ("json", "parse_json('1')"),
        ("orc", "timestamp_ntz'2024-01-01 00:00:00'"),
        ("orc", "named_struct('i', interval '1' day)"),
        ("parquet", "null"),
    ],
)
def test_what_a_format_cannot_hold_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, form: str, column: str
) -> None:
    with pytest.raises(AnalysisException, match=r"the column 'v.* cannot be written as"):
        save(spark.sql(f"select 1 k, {column} v"), tmp_path / "t", form)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "value",
    [
        "date'1582-10-14'",
        "timestamp'1969-12-31T23:59:59.5Z'",
        "timestamp'1500-01-01 00:00:00'",
        "array(named_struct('d', date'0001-01-01'))",
        "map(date'0001-01-01', 1)",
    ],
)
def test_what_orc_would_read_back_wrong_is_refused(spark: SparkSession, tmp_path: Path, value: str) -> None:
    with pytest.raises(Exception, match="would not read back from these ORC files"):
        save(spark.sql(f"select 1 k, {value} v"), tmp_path / "t", "orc")
    assert everything(tmp_path / "t") <= {"_temporary"}


def test_orc_of_every_moment_that_it_holds(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "select * from values (date'1582-10-15', timestamp'1582-10-16 12:00:00Z'), (date'1969-12-31',"
        " timestamp'1969-12-31T23:59:59Z'), (date'9999-12-31', timestamp'9999-12-31T23:59:59.999999Z'), (date'1900-01-01',"
        " timestamp'1883-11-18T17:00:00Z'), (null, timestamp'2024-11-03T05:30:00.000001Z') t(d, t)"
    )
    save(frame.coalesce(1), tmp_path / "t", "orc")
    assert spark.read.orc(str(tmp_path / "t")).collect() == frame.collect()
