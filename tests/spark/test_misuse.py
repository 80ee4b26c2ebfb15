"""What Spark's own calls cannot do with the data source, and what they say then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter
from pyspark.sql.types import StructType


def test_reading_with_it_says_what_to_read_with(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.range(3).write.format("committer").option("format", "orc").mode("append").save(path)
    advice = f'spark.read.format("orc").load("{path}")'
    readers = [
        lambda: spark.read.format("committer").option("format", "orc").load(path),
        lambda: spark.read.format("committer").option("format", "orc").schema("id bigint").load(path).collect(),
        lambda: spark.readStream.format("committer").option("format", "orc").load(path),
    ]
    for read in readers:
        with pytest.raises(PySparkException) as caught:
            read()
        assert 'format("committer") only writes' in str(caught.value)
        assert advice in str(caught.value)
    assert eval(advice, {"spark": spark}).count() == 3


def test_partition_by_of_a_batch_is_refused_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(3).selectExpr("id", "id % 2 AS k")
    for mode in ("append", "overwrite"):
        with pytest.raises(PySparkException, match="partitioning or clustering columns do not match"):
            frame.write.format("committer").partitionBy("k").mode(mode).save(str(tmp_path / mode))
    assert list(tmp_path.iterdir()) == []


def test_a_data_source_in_python_is_told_nothing_of_a_streams_partition_by(spark: SparkSession, tmp_path: Path) -> None:
    """Why the data source cannot refuse it, as docs/spark.md says; once Spark tells, this fails."""
    source, seen = str(tmp_path / "source"), str(tmp_path / "seen")
    spark.range(3).selectExpr("id", "id % 2 AS k").write.json(source)

    class Nothing(DataSourceStreamWriter):
        def write(self, iterator):  # type: ignore[no-untyped-def]
            raise ZeroDivisionError

    class Told(DataSource):
        @classmethod
        def name(cls) -> str:
            return "told"

        def streamWriter(self, schema: StructType, overwrite: bool) -> Nothing:
            with open(f"{seen}-{self.options['which']}", "w") as file:
                told = {key: value for key, value in self.options.items() if key not in ("which", "checkpointlocation")}
                json.dump([told, sorted(self.__dict__), schema.jsonValue(), overwrite], file)
            return Nothing()

    spark.dataSource.register(Told)
    frame = spark.readStream.schema("id bigint, k bigint").json(source)
    for which in ("plain", "partitioned"):
        writer = frame.writeStream.format("told").option("which", which).trigger(availableNow=True)
        if which == "partitioned":
            writer = writer.partitionBy("k")
        with pytest.raises(PySparkException):
            writer.option("checkpointLocation", str(tmp_path / which)).start(str(tmp_path / "t")).awaitTermination()
    assert Path(f"{seen}-plain").read_text() == Path(f"{seen}-partitioned").read_text()
