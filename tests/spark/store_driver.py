"""A Spark driver that writes to a store that is a server: reads a scenario a line from stdin, answers a line on stdout.

    python store_driver.py MASTER

Everything here belongs to `__main__`, so that Spark ships it by value.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from committer.spark import write

sys.path.append(str(Path(__file__).parents[2]))

from tests.spark.driving import ON_A_CLUSTER, builder, event_log, serve, speculating, started

ROWS = 40
PATIENCE_S = 60.0


def start(master: str) -> SparkSession:
    settings = {
        **ON_A_CLUSTER,
        **speculating(master),
        **event_log(),
        # Every plan, too.
        "spark.sql.ui.explainMode": "extended",
        "spark.sql.maxMetadataStringLength": "100000",
    }
    return started(builder(master, "committer on a server", settings))


def frame_of(spark: SparkSession, act: Callable[[int, int], None]) -> DataFrame:
    """3 partitions, 4 directories; `act` is called in each task when all of its rows were handed over."""

    def stamped(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            number = pa.array([context.attemptNumber()] * batch.num_rows, pa.int32())
            yield pa.RecordBatch.from_arrays([*batch.columns, number], names=["id", "d", "attempt"])
        act(context.partitionId(), context.attemptNumber())

    rows = spark.range(0, 3 * ROWS, 1, 3).selectExpr("id", "id % 4 d")
    return rows.mapInArrow(stamped, "id long, d long, attempt int")


def nothing(partition: int, number: int) -> None:
    pass


def failing(partition: int, number: int) -> None:
    """The first attempts of two tasks fail when all is written: one raises, the process of the other dies."""
    if number == 0 and partition == 1:
        raise ValueError("the attempt fails")
    if number == 0 and partition == 2:
        os._exit(7)


def losing(flag: str) -> Callable[[int, int], None]:
    """The first attempt of partition 1 hangs until its copy is done."""

    def act(partition: int, number: int) -> None:
        if partition != 1:
            return
        if number > 0:
            Path(flag).touch()
            return
        deadline = time.monotonic() + PATIENCE_S
        while not Path(flag).exists():
            if time.monotonic() > deadline:
                raise TimeoutError("no copy came")
            time.sleep(0.05)

    return act


def save(spark: SparkSession, dest: str, storage: dict[str, str], way: str, flag: str = "") -> dict[str, Any]:
    """Appends through the data source; tells what Spark raised."""
    act = {"failing": failing, "losing": losing(flag), "plain": nothing}[way]
    # Copies of the records stay, for the test that looks for secrets in them.
    reports = dest.rpartition("/")[0] + "/reports"
    options = {
        "partitionBy": "d",
        "summary_report_directory": reports,
        "diagnostics_manifest_directory": reports,
        **{f"storage.{key}": value for key, value in storage.items()},
    }
    try:
        frame_of(spark, act).write.format("committer").options(**options).mode("append").save(dest)
    except Exception:
        return {"error": traceback.format_exc()}
    return {}


def overwrite(spark: SparkSession, dest: str, storage: dict[str, str]) -> dict[str, Any]:
    """Replaces everything by the rows of attempts that all succeed."""
    report = write(
        frame_of(spark, nothing),
        dest,
        partition_by="d",
        mode="overwrite",
        partition_overwrite_mode="static",
        storage_options=storage,
    )
    return {"files": report.files_committed, "success": report.success, "report": repr(report)}


if __name__ == "__main__":
    serve(start(sys.argv[1]), (save, overwrite))
