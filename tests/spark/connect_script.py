"""What test_connect.py looks at: a Spark Connect session of its own, in a process of its own. Prints JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any


def main(root: Path) -> dict[str, Any]:
    with warnings.catch_warnings():
        # PySpark's own remarks about versions, and about configuration that a server could not change.
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.remote("local[2]").getOrCreate()
        return scenarios(spark, root)


class Touched(BaseException):
    """Not an Exception: nothing that the library catches."""


def guard() -> list[str]:
    """Has Connect's classes raise when the library asks them for what only a classic session has.

    Returns:
        What it asked for.
    """
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.readwriter import DataFrameWriter
    from pyspark.sql.connect.session import SparkSession

    touched: list[str] = []

    def guarded(kind: Any) -> None:
        look_up = kind.__getattribute__

        def __getattribute__(self: Any, name: str) -> Any:
            caller = sys._getframe(1).f_globals.get("__name__", "")
            if name in CLASSIC_ONLY and caller.partition(".")[0] == "committer":
                touched.append(f"{kind.__name__}.{name} in {caller}")
                raise Touched(touched[-1])
            return look_up(self, name)

        kind.__getattribute__ = __getattribute__

    for kind in (SparkSession, DataFrame, DataFrameWriter):
        guarded(kind)
    return touched


CLASSIC_ONLY = {
    "rdd", "sparkContext", "_jconf", "_jdf", "_jsc", "_jsparkSession", "_jvm", "_jwrite", "_sc", "_session_jvm",
}  # fmt: skip


def scenarios(spark: Any, root: Path) -> dict[str, Any]:
    from committer.options.config import CommitterConfig
    from committer.spark import foreach_partition, write

    touched = guard()
    asked = {"__name__": "committer.of_this_test", "spark": spark, "frame": spark.range(1)}
    for question in ("spark.sparkContext", "frame._jdf"):
        try:
            eval(question, asked)
        except Touched:
            continue
        raise AssertionError(f"the guard let {question} pass")
    touched.clear()

    found: dict[str, Any] = {"session": type(spark).__module__}
    dest = str(root / "t")
    frame = spark.range(0, 6, 1, 2).selectExpr("id v", "id % 3 a")

    report = write(frame, dest, partition_by=["a"], job_id="connect-1")
    found["report"] = [report.success, report.job_id, report.files_committed, report.bytes_committed]
    found["rows"] = report.statistics.counters["committer_rows_written"]
    found["error"] = failing(lambda: write(frame, dest))
    found["ignored"] = write(frame, dest, mode="ignore").job_id
    found["undecided"] = failing(lambda: write(frame, dest, partition_by="a", mode="overwrite"))
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    write(frame.where("a = 1").selectExpr("v + 100 v", "a"), dest, partition_by="a", mode="overwrite")
    frame.write.format("committer").option("partitionBy", "a").mode("append").save(dest)
    found["values"] = sorted([row.v, row.a] for row in spark.read.parquet(dest).collect())
    found["partitionBy"] = failing(lambda: frame.write.format("committer").partitionBy("a").mode("append").save(dest))
    found["default mode"] = failing(lambda: frame.write.format("committer").save(dest))

    found["without scheme"] = without_scheme(spark, frame, root)
    found["spark's own"] = own_writers(spark, str(root / "spark"))
    report = foreach_partition(frame, root / "own", write_lines)
    found["own"] = [report.files_committed, sorted(path.name for path in (root / "own").glob("part-*"))]
    found["streams"] = {how: stream(spark, root / how, how) for how in ("format", "foreach_batch")}
    found["no query"] = failing(lambda: start(spark, root / "foreach_batch", "no query").awaitTermination())

    slow = CommitterConfig(io_rate=20.0, io_concurrency=1)
    many = spark.range(0, 40, 1, 1).selectExpr("id v", "id a")
    watcher = threading.Thread(target=interrupt_in_commit, args=(spark, root / "interrupted"))
    watcher.start()
    found["interrupted"] = failing(
        lambda: write(many, root / "interrupted", partition_by="a", config=slow, job_id="connect-2")
    )
    watcher.join()
    found["touched"] = touched
    return found


def without_scheme(spark: Any, frame: Any, root: Path) -> dict[str, Any]:
    """Paths without scheme, which the server resolves: it started in `root`."""
    from committer.spark import foreach_partition, write

    (root / "client").mkdir()
    os.chdir(root / "client")
    write(frame, "relative/write")
    foreach_partition(frame, "relative/own", write_lines)
    os.chdir(root)
    found: dict[str, Any] = {"relative": sorted(path.name for path in (root / "relative").iterdir())}
    spark.conf.set("fs.viewfs.mounttable.cluster.link./data", (root / "client").as_uri())
    spark.conf.set("ipc.client.connect.max.retries", "0")
    for name, file_system in ("viewfs", "viewfs://cluster/"), ("silent", "hdfs://127.0.0.1:1/"):
        spark.conf.set("fs.defaultFS", file_system)
        found[name] = failing(lambda: write(frame, "/data/x"))
    spark.conf.unset("fs.defaultFS")
    return found


def own_writers(spark: Any, dest: str) -> dict[str, Any]:
    """Spark's own writers, whose jobs the server's JVM has a process of Python's commit, by its spark-defaults.conf."""
    spark.range(0, 6, 1, 2).selectExpr("id v", "id % 3 a").write.partitionBy("a").parquet(dest)
    # Of Spark's own protocol this would delete what it reads.
    some = spark.read.parquet(dest).where("a > 0").write.partitionBy("a").mode("overwrite")
    again = failing(lambda: some.option("partitionOverwriteMode", "static").parquet(dest))
    spark.sql(f"insert overwrite directory '{dest}-sql' using parquet select 7L v")
    return {
        "failed": again,
        "rows": sorted([row.v, row.a] for row in spark.read.parquet(dest).collect()),
        "sql": [row.v for row in spark.read.parquet(f"{dest}-sql").collect()],
    }


def write_lines(rows: Any, task: Any) -> None:
    with task.open(f"part-{task.task}.txt") as file:
        file.write("".join(f"{row.v}\n" for row in rows).encode())


# --- Streams -------------------------------------------------------------------------------------------------------


def stream(spark: Any, root: Path, how: str) -> dict[str, Any]:
    """Two batches; then the last one again, as after a driver that died before Spark noted it."""
    for number in range(2):
        source = root / "source" / f"{number}.json"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text("".join(json.dumps({"id": 10 * number + value}) + "\n" for value in range(3)))
        os.utime(source, (1_700_000_000 + number,) * 2)  # Spark takes the oldest first
    start(spark, root, how).awaitTermination()
    before = files(root / "table")
    (root / "checkpoint" / "commits" / "1").unlink()
    (root / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    start(spark, root, how).awaitTermination()
    told = root / "touched"
    return {
        "rows": sorted(row.id for row in spark.read.parquet(str(root / "table")).collect()),
        "repeated": [sorted(before), sorted(files(root / "table"))],
        "noted": sorted(path.name for path in (root / "checkpoint" / "commits").glob("[0-9]*")),
        "touched": told.read_text() if told.exists() else "",
    }


def start(spark: Any, root: Path, how: str) -> Any:
    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(root / "source"))
    table, checkpoint = str(root / "table"), root / ("checkpoint" if how != "no query" else "another checkpoint")
    writer = rows.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    if how == "format":
        return writer.format("committer").start(table)
    told, name = str(root / "touched"), "orders" if how == "foreach_batch" else None

    def write_batch(batch: Any, number: int) -> None:
        # In a process of the server's, with a session of its own; this module is pickled by value.
        from committer.spark import foreach_batch

        touched = guard()
        try:
            foreach_batch(table, query=name)(batch, number)
        finally:
            with open(told, "a") as file:
                file.writelines(touched)

    return writer.foreachBatch(write_batch).start()


def files(table: Path) -> list[str]:
    return [f"{path.name} {path.stat().st_mtime_ns}" for path in table.glob("*.parquet")]


def interrupt_in_commit(spark: Any, dest: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not any(dest.glob("_temporary/*/decision")):
        time.sleep(0.005)
    spark.interruptAll()


def failing(call: Any) -> list[str]:
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)[:2000], *getattr(error, "__notes__", [])]
    return []


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
