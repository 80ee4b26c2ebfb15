"""What test_connect.py looks at: a Spark Connect session of its own, in a process of its own. Prints JSON."""

from __future__ import annotations

import json
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


def scenarios(spark: Any, root: Path) -> dict[str, Any]:
    from committer.config import CommitterConfig
    from committer.spark import write

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

    slow = CommitterConfig(io_rate=20.0, io_concurrency=1)
    many = spark.range(0, 40, 1, 1).selectExpr("id v", "id a")
    watcher = threading.Thread(target=interrupt_in_commit, args=(spark, root / "interrupted"))
    watcher.start()
    found["interrupted"] = failing(
        lambda: write(many, root / "interrupted", partition_by="a", config=slow, job_id="connect-2")
    )
    watcher.join()
    return found


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
