"""Spark's own Parquet writer and this engine's, side by side in one session.

    uv run --extra spark benchmarks/spark_write.py [--shapes rows,directories] [--scale 1.0] [--rounds 3] [--json FILE]
        [--writers WORD,...]

Two shapes. `rows`: 5,000,000 rows of six columns in 8 partitions, one file each. `directories`: 200,000 rows in 2,000
directories, one file each, laid out so beforehand. The writers take turns, in an order that turns from round to round,
after one round that does not count:

- `committer.spark.write`, as Spark is set up by default;
- the same with `spark.sql.execution.arrow.maxBytesPerBatch` off: Spark then does not ask after each row how large its
  batch has become, which takes it longer than all else on the way to Python;
- a data source that takes the rows, the same way, and drops them: what no writer in Python can do without;
- `df.write.parquet` on Hadoop's local file system, which writes a checksum beside each file and without its native
  library starts a process for each permission it sets;
- the same on a local file system without either (`java/BareFileSystem.java`, needs a JDK): the honest comparison;
- the last two once more through `committer.spark.configure`: the same writer, whose tasks and job this engine commits.

CPU is that of all processes. Linux only.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.compare_java import class_path, with_pyspark
from benchmarks.kept import ROUNDS, aligned, java_version, keep, machine, scratch
from committer.spark import configure, write
from committer.spark.examining import configure_environment
from committer.spark.protocol_session import PROTOCOL, PROTOCOL_KEY

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

NAME = "spark-write"
OURS: Final = "committer"
OURS_UNCOUNTED: Final = "committer, batches not measured"
DROPPED: Final = "handed to Python and dropped, batches not measured"
STOCK: Final = "Spark, Hadoop's local file system"
BARE: Final = "Spark, bare local file system"
STOCK_COMMITTED: Final = "Spark through committer, Hadoop's local file system"
BARE_COMMITTED: Final = "Spark through committer, bare local file system"
COMMITTED: Final = {STOCK: STOCK_COMMITTED, BARE: BARE_COMMITTED}
"""What Spark's own protocol commits, and the same committed by this engine."""
WRITERS: Final = (OURS, OURS_UNCOUNTED, DROPPED, STOCK, BARE, STOCK_COMMITTED, BARE_COMMITTED)
NEED_JAVAC: Final = {BARE, *COMMITTED.values()}
SPARKS_PROTOCOL: Final = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
UNLIMITED: Final = str(2**31 - 1)
"""The one value that keeps Spark from measuring batches."""
PARTITIONS: Final = 8

_COLUMNS = (
    "id",
    "id * 7919 % 1000003 AS shuffled",
    "id / 3.0D AS ratio",
    "cast(id % 100 AS int) AS percent",
    "concat('name-', id % 1000) AS name",
    "timestamp_seconds(1600000000 + id) AS at",
)

_number = itertools.count()


class Table(NamedTuple):
    """What is written.

    Attributes:
        name: Its name.
        frame: Cached.
        rows: How many it has.
        partition_by: The partition columns.
    """

    name: str
    frame: DataFrame
    rows: int
    partition_by: tuple[str, ...] = ()


def rows_table(spark: SparkSession, rows: int) -> Table:
    """Six columns in 8 partitions."""
    frame = spark.range(0, rows, 1, PARTITIONS).selectExpr(*_COLUMNS).cache()
    assert frame.count() == rows
    return Table("rows", frame, rows)


def directories_table(spark: SparkSession, rows: int, directories: int) -> Table:
    """Many directories, each in one partition of the data."""
    frame = spark.range(0, rows, 1, PARTITIONS).selectExpr("id", "id / 3.0D AS ratio", f"id % {directories} AS d")
    frame = frame.repartition(PARTITIONS, "d").cache()
    assert frame.count() == rows
    return Table("directories", frame, rows, ("d",))


def start_session() -> SparkSession:
    """Two cores of this machine, with a heap that holds the input."""
    configure_environment()
    from pyspark.sql import SparkSession

    with warnings.catch_warnings():
        # PySpark's own remarks about the versions of its dependencies.
        warnings.simplefilter("ignore")
        builder = SparkSession.builder
        if shutil.which("javac") is not None:
            builder = configure(builder)
        session = (
            builder.master("local[2]")
            .appName("committer benchmarks")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "4g")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("ERROR")
    return session


def add_bare_file_system(spark: SparkSession, build: Path) -> bool:
    """Makes the class known to a running session; False without a Java compiler.

    Args:
        spark: The session.
        build: Where the class goes; it must stay for as long as the session.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        return False
    source = Path(__file__).parent / "java" / "BareFileSystem.java"
    subprocess.run([compiler, "-nowarn", "-d", str(build), "-cp", class_path(), str(source)], check=True)
    java: Any = spark._jvm
    # The loader that Spark gives to its driver's threads, parent of the one of its tasks, takes more places.
    java.java.lang.Thread.currentThread().getContextClassLoader().addURL(java.java.io.File(str(build)).toURI().toURL())
    return True


def add_dropping_source(spark: SparkSession) -> None:
    """Makes the format `dropped` known to a session."""
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

    # Within a function, so that tasks get the classes themselves: they need not find this module.
    class DroppingWriter(DataSourceArrowWriter):
        def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
            for _rows in iterator:
                pass
            return WriterCommitMessage()

    class DroppingSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "dropped"

        def writer(self, schema: StructType, overwrite: bool) -> DroppingWriter:
            return DroppingWriter()

    spark.dataSource.register(DroppingSource)


@contextmanager
def unmeasured_batches(spark: SparkSession) -> Iterator[None]:
    """Spark's Arrow batches end by their rows alone."""
    spark.conf.set(BATCH_BYTES, UNLIMITED)
    try:
        yield
    finally:
        spark.conf.unset(BATCH_BYTES)


def write_with(writer: str, table: Table, root: Path) -> Path:
    """Writes a table; where."""
    target = root / f"{table.name}-{next(_number)}"
    if writer == OURS:
        write(table.frame, target, partition_by=table.partition_by, writer="python")
    elif writer in (OURS_UNCOUNTED, DROPPED):
        with unmeasured_batches(table.frame.sparkSession):
            if writer == DROPPED:
                table.frame.write.format("dropped").mode("append").save(str(target))
            else:
                write(table.frame, target, partition_by=table.partition_by, writer="python")
    else:
        committed = writer in COMMITTED.values()
        table.frame.sparkSession.conf.set(PROTOCOL_KEY, PROTOCOL if committed else SPARKS_PROTOCOL)
        frame = table.frame.write.partitionBy(*table.partition_by) if table.partition_by else table.frame.write
        if writer in (BARE, BARE_COMMITTED):
            frame = frame.option("fs.file.impl", "BareFileSystem").option("fs.file.impl.disable.cache", "true")
        frame.parquet(f"file://{target}")
    return target


def check(spark: SparkSession, table: Table, target: Path) -> None:
    """Whether all rows are there."""
    found = spark.read.parquet(str(target))
    assert found.count() == table.rows
    assert set(found.columns) == set(table.frame.columns)


def processor_s() -> float:
    """CPU seconds of this process and all below it so far, those that ended and were waited for too; see proc(5)."""
    parents: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            # The name in parentheses may hold anything.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.name))
        used[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    total, pending = 0.0, [os.getpid()]
    while pending:
        process = pending.pop()
        total += used.get(process, 0.0)
        pending.extend(parents.get(process, ()))
    return total


def compare(spark: SparkSession, table: Table, writers: list[str], rounds: int, root: Path) -> dict[str, Any]:
    """Writes a table with each writer, `rounds` times and once to warm up; the measurements by writer."""
    measured: dict[str, list[dict[str, float]]] = {writer: [] for writer in writers}
    order = deque(writers)
    for number in range(rounds + 1):
        print(f"round {number} of {rounds}: {table.name}", file=sys.stderr, flush=True)
        for writer in order:
            cpu, started = processor_s(), perf_counter()
            target = write_with(writer, table, root)
            wall, used = perf_counter() - started, processor_s() - cpu
            if number:
                measured[writer].append({"wall_s": wall, "cpu_s": used})
            elif writer != DROPPED:
                check(spark, table, target)
            shutil.rmtree(target, ignore_errors=writer == DROPPED)
        order.rotate(-1)
    return {"table": table.name, "rows": table.rows, "writers": measured}


def rows(tables: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """One line a writer and table."""
    found: list[tuple[str, ...]] = [
        (
            "",
            "wall s",
            "CPU s",
            "ours/this: wall",
            "CPU",
            "not measured/this: wall",
            "CPU",
            "through us/this: wall",
            "CPU",
        )
    ]
    for table in tables:
        for writer, measured in table["writers"].items():
            medians = (statistics.median(one[key] for one in measured) for key in ("wall_s", "cpu_s"))
            ratios = [
                "" if ours == writer or ours not in table["writers"] else ratio(table, writer, key, ours)
                for ours in (OURS, OURS_UNCOUNTED, COMMITTED.get(writer, writer))
                for key in ("wall_s", "cpu_s")
            ]
            found.append((f"{table['table']}: {writer}", *(f"{value:.2f}" for value in medians), *ratios))
    return found


def ratio(table: dict[str, Any], writer: str, key: str, ours: str = OURS) -> str:
    """What ours took in relation to another writer, round by round."""
    pairs = zip(table["writers"][ours], table["writers"][writer], strict=True)
    ratios = [one[key] / other[key] for one, other in pairs]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Spark's own Parquet writer and this engine's, side by side.")
    parser.add_argument("--shapes", default="rows,directories", help="rows, directories, or both by comma")
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the rows and directories")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--root", help="where the tables go; /dev/shm when it is there")
    parser.add_argument("--writers", default="", help="only those with one of these words in their names")
    parser.add_argument("--json", type=Path, help="writes every measurement there, not into benchmarks/results")
    arguments = parser.parse_args()
    words = arguments.writers.split(",")
    chosen = [writer for writer in WRITERS if any(word in writer for word in words)]
    if not chosen:
        parser.error(f"no writer has one of {words} in its name; there are: {'; '.join(WRITERS)}")
    with_pyspark()
    many, directories = int(200_000 * arguments.scale), int(2_000 * arguments.scale)
    tables: dict[str, Callable[[SparkSession], Table]] = {
        "rows": lambda spark: rows_table(spark, int(5_000_000 * arguments.scale)),
        "directories": lambda spark: directories_table(spark, many, directories),
    }
    about = {**machine(), "java": java_version()}
    with scratch(arguments.root) as root, tempfile.TemporaryDirectory(prefix="benchmark-classes-") as build:
        spark = start_session()
        add_dropping_source(spark)
        has_bare = add_bare_file_system(spark, Path(build))
        writers = [writer for writer in chosen if has_bare or writer not in NEED_JAVAC]
        found = []
        for name in arguments.shapes.split(","):
            table = tables[name](spark)
            found.append(compare(spark, table, writers, arguments.rounds, root))
            table.frame.unpersist()
        spark.stop()
    print(aligned(rows(found)))
    if arguments.json or (not arguments.writers and arguments.rounds >= ROUNDS and arguments.scale == 1.0):
        keep(NAME, {"machine": about, "scale": arguments.scale, "tables": found}, file=arguments.json)


if __name__ == "__main__":
    main()
