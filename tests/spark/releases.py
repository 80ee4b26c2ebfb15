"""Tries the features of this package on one release of Spark: python releases.py DIRECTORY [--connect] [FEATURE ...].

Run by test_releases.py. Prints a JSON object: for each feature an empty text, or the error that ended it. Imports nothing of the tests, as it runs in
an environment with this release of PySpark alone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.errors import PySparkException

import committer.spark
from committer import sync
from committer.errors import UnsupportedError

HERE = Path(sys.argv[1]) if __name__ == "__main__" else Path()
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.warehouse.dir": str(HERE / "warehouse"),
    "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Dderby.system.home={HERE}",
}


def rows(spark: Any, where: Path, columns: str = "id") -> list[Any]:
    return sorted(tuple(row) for row in spark.read.parquet(str(where)).selectExpr(*columns.split()).collect())


def files(where: Path) -> set[str]:
    """The data files below a directory; fails if anything of a job is left."""
    assert not (where / "_temporary").exists(), list(where.rglob("*"))
    return {str(path.relative_to(where)) for path in where.rglob("*") if path.is_file() and path.name[0] not in "._"}


# --- Spark's own writers -------------------------------------------------------------------------------------------


def own_writers(spark: Any) -> None:
    out = HERE / "own"
    for number in range(2):
        spark.range(number * 10, number * 10 + 10, 1, 2).write.mode("append").parquet(str(out))
        report = committer.spark.last_report()
        assert report is not None
        assert report.files_committed == 2
    assert rows(spark, out) == [(number,) for number in range(20)]
    spark.range(0, 4, 1, 2).write.mode("overwrite").parquet(str(out))
    assert rows(spark, out) == [(number,) for number in range(4)]
    overwrites(spark, HERE / "partitioned")
    failures(spark, HERE / "failing")
    tables(spark, HERE / "table")


def overwrites(spark: Any, out: Path) -> None:
    frame = spark.range(0, 30, 1, 2).selectExpr("id", "id % 3 p")
    frame.write.partitionBy("p").parquet(str(out))
    assert {name.partition("/")[0] for name in files(out)} == {"p=0", "p=1", "p=2"}
    again = frame.where("p = 1").selectExpr("id + 100 id", "p").write.partitionBy("p").mode("overwrite")
    again.option("partitionOverwriteMode", "dynamic").parquet(str(out))
    expected = [number for number in range(30) if number % 3 != 1] + [number + 100 for number in range(1, 30, 3)]
    assert rows(spark, out) == [(number,) for number in expected]
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    frame.where("p = 2").write.partitionBy("p").mode("overwrite").parquet(str(out))
    assert rows(spark, out) == [(number,) for number in expected]
    spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    frame.where("p = 2").write.partitionBy("p").mode("overwrite").parquet(str(out))
    assert {name.partition("/")[0] for name in files(out)} == {"p=2"}


def failures(spark: Any, out: Path) -> None:
    def failing(attempts: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
        def batches(given: Iterator[Any]) -> Iterator[Any]:
            yield from given
            context = TaskContext.get()
            assert context is not None
            if context.partitionId() == 1 and context.attemptNumber() < attempts:
                raise ValueError("this task fails")

        return batches

    spark.range(0, 10, 1, 2).write.parquet(str(out))
    before = files(out)
    try:
        spark.range(50, 60, 1, 2).mapInArrow(failing(9), "id long").write.mode("overwrite").parquet(str(out))
    except Exception as error:
        assert "this task fails" in str(error), error
    else:
        raise AssertionError("a write whose task fails succeeded")
    assert files(out) == before
    # Spark runs the task again, in an attempt of its own.
    spark.range(50, 60, 1, 2).mapInArrow(failing(1), "id long").write.mode("overwrite").parquet(str(out))
    assert rows(spark, out) == [(number,) for number in range(50, 60)]
    assert len(files(out)) == 2


def tables(spark: Any, out: Path) -> None:
    frame = spark.range(0, 10, 1, 2).selectExpr("id", "id % 2 p")
    frame.write.option("path", str(out)).partitionBy("p").saveAsTable("located")
    report = committer.spark.last_report()
    assert report is not None
    assert report.files_committed == len(files(out))
    spark.sql("insert into located partition (p = 5) values (77)")
    assert [tuple(row) for row in spark.sql("select id from located where p = 5").collect()] == [(77,)]
    spark.sql("insert overwrite located partition (p = 5) values (78)")
    assert rows(spark, out / "p=5") == [(78,)]
    spark.sql("create table made using parquet as select 1 id")
    assert spark.table("made").count() == 1
    assert files(HERE / "warehouse" / "made")


# --- The rest ------------------------------------------------------------------------------------------------------


def write(spark: Any) -> None:
    report = committer.spark.write(spark.range(0, 10, 1, 2), HERE / "written")
    assert report.files_committed == 2
    assert rows(spark, HERE / "written") == [(number,) for number in range(10)]
    if importlib.util.find_spec("pyspark.sql.datasource") is None:
        try:
            committer.spark.write(spark.range(9), HERE / "named", job_id="one")
        except UnsupportedError as error:
            assert "job_id is given" in str(error)
        else:
            raise AssertionError("Spark's own writers draw the ids of their jobs")


def write_by_python(spark: Any) -> None:
    frame = spark.range(0, 10, 1, 2).selectExpr("id", "id % 2 p")
    report = committer.spark.write(frame, HERE / "by_python", partition_by="p", writer="python")
    assert report.files_committed == len(files(HERE / "by_python"))
    assert rows(spark, HERE / "by_python") == [(number,) for number in range(10)]


def data_source(spark: Any) -> None:
    spark.range(0, 10, 1, 2).write.format("committer").mode("append").save(str(HERE / "by_format"))
    assert rows(spark, HERE / "by_format") == [(number,) for number in range(10)]


def _stream(spark: Any) -> Any:
    spark.range(0, 10, 1, 2).write.mode("overwrite").parquet(str(HERE / "source"))
    return spark.readStream.schema("id long").parquet(str(HERE / "source")).writeStream


def stream(spark: Any) -> None:
    query = _stream(spark).format("committer").option("checkpointLocation", str(HERE / "checkpoint"))
    query.trigger(availableNow=True).start(str(HERE / "streamed")).awaitTermination()
    assert rows(spark, HERE / "streamed") == [(number,) for number in range(10)]


def foreach_batch(spark: Any) -> None:
    query = _stream(spark).foreachBatch(committer.spark.foreach_batch(HERE / "batches"))
    query.option("checkpointLocation", str(HERE / "checkpoint2")).trigger(availableNow=True).start().awaitTermination()
    assert rows(spark, HERE / "batches") == [(number,) for number in range(10)]


def foreach_partition(spark: Any) -> None:
    def lines(given: Iterator[Any], task: sync.TaskAttempt) -> None:
        with task.open(f"part-{task.task}.txt") as file:
            for row in given:
                file.write(f"{row.id} {row['x.y']}\n".encode())

    report = committer.spark.foreach_partition(
        spark.range(0, 10, 1, 3).selectExpr("id", "id + 1 `x.y`"), HERE / "rows", lines
    )
    assert report.files_committed == 3
    said = "".join(path.read_text() for path in sorted((HERE / "rows").glob("part-*")))
    assert said == "".join(f"{number} {number + 1}\n" for number in range(10))

    def failing(given: Iterator[Any], task: sync.TaskAttempt) -> None:
        raise ValueError("it fails")

    try:
        committer.spark.foreach_partition(spark.range(9), HERE / "failed", failing)
    except PySparkException as error:
        assert "it fails" in str(error)
    else:
        raise AssertionError("a failing task was passed over")
    assert files(HERE / "failed") == set()


def foreach_partition_arrow(spark: Any) -> None:
    def count(given: Iterator[Any], task: sync.TaskAttempt) -> None:
        with task.open(f"part-{task.task}.txt") as file:
            file.write(str(sum(batch.num_rows for batch in given)).encode())

    report = committer.spark.foreach_partition(spark.range(0, 10, 1, 2), HERE / "batched", count, arrow=True)
    assert report.files_committed == 2
    assert [path.read_text() for path in sorted((HERE / "batched").glob("part-*"))] == ["5", "5"]


def task_attempt(spark: Any) -> None:
    frame = spark.range(0, 10, 1, 2)
    with sync.open_job(HERE / "attempts") as job:
        spec = job.spec

        def callback(given: Iterator[Any]) -> None:
            with committer.spark.task_attempt(spec) as task, task.open(f"part-{task.task}.txt") as file:
                file.write(str(sum(row.id for row in given)).encode())

        frame.foreachPartition(callback)
        job.commit(tasks=2)
    assert sum(int(path.read_text()) for path in (HERE / "attempts").glob("part-*")) == 45


def own_writers_of_server(spark: Any) -> None:
    spark.range(0, 10, 1, 2).write.mode("append").parquet(str(HERE / "on_server"))
    assert rows(spark, HERE / "on_server") == [(number,) for number in range(10)]
    # Spark's own is empty.
    assert (HERE / "on_server" / "_SUCCESS").read_text().startswith("{")


CLASSIC = {
    "own writers": own_writers,
    "`committer.spark.write`": write,
    '… with `writer="python"`': write_by_python,
    '`format("committer")`': data_source,
    '`writeStream.format("committer")`': stream,
    "`foreach_batch`": foreach_batch,
    "`foreach_partition`": foreach_partition,
    "… with `arrow=True`": foreach_partition_arrow,
    "`task_attempt`": task_attempt,
}
CONNECT = {
    "own writers of a Connect server": own_writers_of_server,
    "`committer.spark.write` through Connect": write,
    '`format("committer")` through Connect': data_source,
    "`foreach_partition` through Connect": foreach_partition,
    "… with `arrow=True`, through Connect": foreach_partition_arrow,
}


def classic() -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2,2]")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    return committer.spark.configure(builder).getOrCreate()


def connect() -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote("local[2]")
    own = {
        "spark.jars": ",".join(filter(None, [committer.spark.jar_path(), os.environ.get("CONNECT_JAR")])),
        "spark.sql.sources.commitProtocolClass": "io.github.lakecommitter.spark.CommitProtocol",
        "spark.committer.python": sys.executable,
    }
    for key, value in {**SETTINGS, **own}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    connected = "--connect" in sys.argv
    spark = connect() if connected else classic()
    told: dict[str, str] = {}
    features = [text for text in sys.argv[2:] if text != "--connect"]
    for name, check in (CONNECT if connected else CLASSIC).items():
        if features and name not in features:
            continue
        try:
            check(spark)
        except Exception as error:
            if not isinstance(error, UnsupportedError):
                traceback.print_exc()
            told[name] = f"{type(error).__name__}: {error}"
        else:
            told[name] = ""
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main()
