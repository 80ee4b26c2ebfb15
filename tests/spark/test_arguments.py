"""What users hand to the calls of this binding by mistake: typed errors before anything happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from committer.errors import ConfigurationError
from committer.spark import foreach_batch, foreach_partition, task_attempt, write
from committer.spark.arguments import check_frame, check_write_function, column_names, option_texts


def nothing(rows: Iterator[object], task: object) -> None: ...


async def later(rows: object, task: object) -> None: ...


def generated(rows: object, task: object) -> Iterator[int]:
    yield 1


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.range(4).selectExpr("id", "id % 2 AS month", "id % 3 AS day")


@pytest.fixture
def calls(frame: DataFrame) -> list[Callable[[Any, Path], object]]:
    """Each call that takes a DataFrame, of it and the destination."""
    return [
        lambda df, path: write(df, path),
        lambda df, path: foreach_partition(df, path, nothing),
        lambda df, path: foreach_batch(path, query="q")(df, 0),
    ]


def test_what_is_no_frame_of_spark_is_told_apart(
    calls: list[Callable[[Any, Path], object]], frame: DataFrame, tmp_path: Path
) -> None:
    import pandas as pd

    for call in calls:
        with pytest.raises(ConfigurationError, match=r"not pandas\S*DataFrame;.*spark\.createDataFrame\(df\)"):
            call(pd.DataFrame({"a": [1]}), tmp_path / "t")
        for other in ("frame", None, frame.rdd):
            with pytest.raises(ConfigurationError, match="df must be a DataFrame of Spark"):
                call(other, tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_a_destination_that_is_none_is_told(frame: DataFrame) -> None:
    for other in (None, 5, b"/data", frame):
        with pytest.raises(ConfigurationError, match="the destination must be a path or a URI, not a"):
            write(frame, other)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="the destination must be a path or a URI, not a"):
            foreach_partition(frame, other, nothing)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="the destination must be a path or a URI, not a"):
            foreach_batch(other)  # type: ignore[arg-type]


def test_partition_columns_are_names(frame: DataFrame, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    assert column_names(None, "write") == column_names([], "write") == ()
    assert column_names("day", "write") == column_names(iter(["day"]), "write") == ("day",)
    for given in (frame.day, [frame.day], F.col("day"), ["day", frame.day]):
        with pytest.raises(ConfigurationError, match="names of columns, not a Column") as caught:
            write(frame, tmp_path / "t", partition_by=given)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="names of columns, not a Column"):
            foreach_batch(tmp_path / "t", partition_by=given)  # type: ignore[arg-type]
        assert "partition_by=['day'" in caught.value.next_step
    with pytest.raises(ConfigurationError, match=r"not a int.*partition_by=\['month', 'day'\]"):
        write(frame, tmp_path / "t", partition_by=5)  # type: ignore[arg-type]
    assert not (tmp_path / "t").exists()


def test_several_names_in_one_text_are_told_as_a_list(frame: DataFrame, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        write(frame, tmp_path / "t", partition_by="month, DAY")
    assert 'several are given as a list: ["month", "DAY"]' in caught.value.next_step
    report = write(frame, tmp_path / "t", partition_by=["month", "DAY"])
    assert report.files_committed > 1


def test_no_partition_columns_and_no_compression_can_be_none(frame: DataFrame, tmp_path: Path) -> None:
    write(frame, tmp_path / "t", partition_by=None, compression=None, options={"compression": None})
    assert [path.name.split(".", 1)[1] for path in (tmp_path / "t").glob("part-*")] == ["snappy.parquet"] * 2


def test_compression_is_an_argument_too(frame: DataFrame, tmp_path: Path) -> None:
    write(frame, tmp_path / "t", compression="gzip")
    foreach_batch(tmp_path / "t", query="q", compression="zstd")(frame, 0)
    kinds = {path.name.split(".", 1)[1] for path in (tmp_path / "t").glob("part-*")}
    assert kinds == {"gz.parquet", "zstd.parquet"}
    for call in (write, lambda _, path, **more: foreach_batch(path, **more)):
        with pytest.raises(ConfigurationError, match=r"compression 'zip' is not known.*use one of snappy, gzip"):
            call(frame, tmp_path / "t", compression="zip")
    with pytest.raises(ConfigurationError, match="Compression is given twice"):
        write(frame, tmp_path / "t", compression="gzip", options={"Compression": "gzip"})


def test_options_are_mappings(frame: DataFrame, tmp_path: Path) -> None:
    assert option_texts({"header": True, "sep": None, "maxRecordsPerFile": 5}, "options", "write") == {
        "header": "true",
        "maxRecordsPerFile": "5",
    }
    wrong: Any
    for wrong in ("compression=gzip", [("compression", "gzip")], {5: "gzip"}):
        for name in ("options", "storage_options"):
            with pytest.raises(ConfigurationError, match=f"^{name} must be a mapping"):
                write(frame, tmp_path / "t", **{name: wrong})
        with pytest.raises(ConfigurationError, match=r"^options must be a mapping"):
            foreach_batch(tmp_path / "t", options=wrong)
        with pytest.raises(ConfigurationError, match=r"^storage_options must be a mapping"):
            foreach_partition(frame, tmp_path / "t", nothing, storage_options=wrong)


def test_modes_are_texts(frame: DataFrame, tmp_path: Path) -> None:
    for mode in (None, 1):
        with pytest.raises(ConfigurationError, match=f"mode cannot be '?{mode}"):
            write(frame, tmp_path / "t", mode=mode)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"partitionOverwriteMode cannot be '?5"):
        write(frame, tmp_path / "t", mode="overwrite", partition_overwrite_mode=5)  # type: ignore[arg-type]
    foreach_batch(tmp_path / "t", query="q", mode="Append")(frame, 0)
    with pytest.raises(ConfigurationError, match="query cannot be 5"):
        foreach_batch(tmp_path / "t", query=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (None, "must be a function, not None"),
        ("/data/t", "must be a function, not '/data/t'"),
        (lambda rows: None, "must take two arguments"),
        (later, "is an async function"),
        (generated, "is a generator"),
    ],
)
def test_a_writer_that_cannot_be_called_is_refused_before_the_job(given: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^write_fn {problem}"):
        check_write_function(given)


def test_a_writer_without_job_or_setup(frame: DataFrame, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="write_fn must be a function"):
        foreach_partition(frame, tmp_path / "t", None)  # type: ignore[call-overload]
    assert not (tmp_path / "t").exists()
    check_write_function(nothing)
    check_write_function(print)
    for wrong in (None, "/data/t"):
        with pytest.raises(ConfigurationError, match=r"takes a JobSpec, not a .*give job\.spec"):
            task_attempt(wrong)  # type: ignore[arg-type]


def test_a_session_that_was_stopped_is_told(frame: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    # What SparkContext.stop leaves; the session itself is shared by all tests.
    check_frame(frame, "write")
    monkeypatch.setattr(frame.sparkSession.sparkContext, "_jsc", None)
    with pytest.raises(ConfigurationError, match=r"session of this DataFrame was stopped.*getOrCreate"):
        check_frame(frame, "write")


def test_columns_that_differ_in_case_only_go_by_the_session(spark: SparkSession, tmp_path: Path) -> None:
    """As with Spark's own writers: refused, unless ``spark.sql.caseSensitive`` is true."""
    frame = spark.range(2).selectExpr("id AS a", "id + 1 AS A", "id")
    with pytest.raises(Exception, match="COLUMN_ALREADY_EXISTS"):
        frame.write.parquet(str(tmp_path / "spark"))
    for call in (
        lambda: write(frame, tmp_path / "t"),
        lambda: write(frame, tmp_path / "t", partition_by="a"),
        lambda: foreach_batch(tmp_path / "t", query="q")(frame, 0),
        lambda: frame.write.format("committer").mode("append").save(str(tmp_path / "t")),
    ):
        with pytest.raises(Exception, match="columns 'A' and 'a' differ in case only"):
            call()
    assert list(tmp_path.glob("t/*")) == []
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        write(frame, tmp_path / "t")
        foreach_batch(tmp_path / "t", query="q")(frame, 0)
        frame.write.format("committer").option("caseSensitive", "true").mode("append").save(str(tmp_path / "t"))
        assert sorted(spark.read.parquet(str(tmp_path / "t")).select("a", "A").collect()) == [(0, 1)] * 3 + [(1, 2)] * 3
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
