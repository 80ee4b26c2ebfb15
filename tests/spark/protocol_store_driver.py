"""A driver whose Spark commits its own writers' output to a store that is a server.

    python protocol_store_driver.py MASTER

Reads a scenario a line from stdin, answers a line on stdout. SPARK_SETTINGS holds settings as JSON. Everything here
belongs to `__main__`, so that Spark ships it by value.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import committer.spark
from committer import JobSpec, sync
from committer.events import JobEvent
from committer.spark import configure, last_report

sys.path.append(str(Path(__file__).parents[2]))

from tests.spark.driving import ON_THIS_MACHINE, builder, metrics_of_latest, serve, started

SPARKS_OWN = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
KEY = "spark.sql.sources.commitProtocolClass"
MOMENTS = {
    "before the decision": "job_stage_load_manifests",
    "in the middle": "job_stage_rename_files",
    "in the middle, by uploads": "job_stage_complete_uploads",
    "after the outcome": "job_stage_end_job",
}


class _Killed:
    """Which processes are to die, and at which moment of a commit."""

    at = ""
    pids: tuple[int, ...] = ()


def listen(event: JobEvent) -> None:
    if _Killed.at and event.kind in {"advanced", "stage_completed"} and event.stage == MOMENTS[_Killed.at]:
        for pid in _Killed.pids:
            os.kill(pid, signal.SIGKILL)


def start(master: str) -> SparkSession:
    settings = {
        **ON_THIS_MACHINE,
        "spark.driver.memory": "768m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.maxConcurrentOutputFileWriters": "10",  # else a task sorts its rows before it writes any
        **json.loads(os.environ["SPARK_SETTINGS"]),
    }
    return started(configure(builder(master, "own writers on a server", settings), progress=listen), "OFF")


def failing(partition: int, number: int) -> Any:
    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == partition and context.attemptNumber() < number:
            raise RuntimeError("all rows of this attempt were handed over")

    return fail


def frame(spark: SparkSession, query: str, fails: int) -> DataFrame:
    """What a query gives, of which the second task fails so many times when all of its rows are written."""
    rows = spark.sql(query)
    return rows.mapInArrow(failing(1, fails), rows.schema) if fails else rows


def write(
    spark: SparkSession,
    query: str,
    dest: str,
    *,
    mode: str = "append",
    file_format: str = "parquet",
    by: list[str] | None = None,
    options: dict[str, str] | None = None,
    fails: int = 0,
    sparks_own: bool = False,
    killed: str = "",
) -> dict[str, Any]:
    """One write; what Spark raised, or what it and the engine tell of it."""
    if killed:
        jvm: Any = spark.sparkContext._jvm
        _Killed.at, _Killed.pids = killed, (jvm.java.lang.ProcessHandle.current().pid(), os.getpid())
    ours = spark.conf.get(KEY)
    try:
        if sparks_own:
            spark.conf.set(KEY, SPARKS_OWN)
        writer = frame(spark, query, fails).write.mode(mode).options(**(options or {}))
        writer.partitionBy(*(by or ())).format(file_format).save(dest)
    except Exception as error:
        return {"error": f"{error}\n{traceback.format_exc()}"}
    finally:
        spark.conf.set(KEY, str(ours))
    report = last_report()
    told = None if sparks_own or report is None else [report.files_committed, report.bytes_committed]
    return {"metrics": metrics_of_latest(spark), "report": told}


def call(spark: SparkSession, query: str, dest: str, mode: str) -> dict[str, Any]:
    """One call of `committer.spark.write`."""
    try:
        report = committer.spark.write(
            spark.sql(query),
            dest,
            partition_by="p",
            mode=mode,  # type: ignore[arg-type]
            partition_overwrite_mode="static" if mode == "overwrite" else None,
        )
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    by_java = report.statistics.counters.get("committer_rows_written") is None
    return {"files": report.files_committed, "committer": report.committer, "by_java": by_java}


def write_by_hadoops_committer(spark: SparkSession, spec: str, hadoop: dict[str, str], python: dict[str, Any]) -> None:
    """Stock Spark writes two rows as text by a committer of Hadoop's; its second task runs a task of the engine, too."""
    joined = JobSpec.decode(spec)

    def run(number: int, _numbers: Iterable[int]) -> Iterator[tuple[str, None]]:
        # The first partition is read twice: PySpark looks at a row before it writes.
        if number == 1:
            with sync.open_task(joined, task=7, storage_options=python) as task, task.open("python") as file:
                file.write(b"python")
        yield f"stock {number}", None

    # The directory exists: the job is set up.
    spark.sparkContext._jsc.sc().conf().set("spark.hadoop.validateOutputSpecs", "false")
    rows = spark.sparkContext.parallelize(range(2), 2).mapPartitionsWithIndex(run)
    rows.saveAsNewAPIHadoopFile(
        joined.destination,
        "org.apache.hadoop.mapreduce.lib.output.TextOutputFormat",
        "org.apache.hadoop.io.Text",
        "org.apache.hadoop.io.NullWritable",
        conf=hadoop,
    )


def without_python(spark: SparkSession) -> None:
    """From now on the JVM starts a Python process for each question, as that of spark-sql does."""
    jvm: Any = spark.sparkContext._jvm
    jvm.io.github.lakecommitter.spark.Driver.register(None)
    spark.sparkContext._jsc.sc().conf().set("spark.committer.python", sys.executable)


def sql(spark: SparkSession, statements: list[str]) -> dict[str, Any]:
    """The rows of the last statement, or what Spark raised."""
    try:
        return {"rows": [list(row) for row in [spark.sql(one).collect() for one in statements][-1]]}
    except Exception as error:
        return {"error": f"{error}\n{traceback.format_exc()}"}


def abort_interrupted(spark: SparkSession, dest: str) -> dict[str, Any]:
    """A task attempt that wrote a file is aborted by an interrupted thread, as Spark aborts one that it kills."""
    jvm: Any = spark.sparkContext._jvm
    hadoop, protocols = jvm.org.apache.hadoop, jvm.io.github.lakecommitter.spark
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    task = hadoop.mapreduce.TaskID(hadoop.mapreduce.JobID("aborted", 0), hadoop.mapreduce.TaskType.MAP, 0)
    attempt = hadoop.mapreduce.TaskAttemptID(task, 0)
    context = hadoop.mapreduce.task.TaskAttemptContextImpl(configuration, attempt)
    job_id = str(uuid.uuid4())
    protocol = protocols.CommitProtocol(job_id, dest, False)
    protocol.setupJob(context)
    protocol.setupTask(context)
    path = hadoop.fs.Path(protocol.newTaskTempFile(context, jvm.scala.Option.empty(), ".txt"))
    out = path.getFileSystem(configuration).create(path)
    out.write(bytearray(b"row"))
    out.close()
    jvm.java.lang.Thread.currentThread().interrupt()
    protocol.abortTask(context)
    return {"job_id": job_id, "still_interrupted": jvm.java.lang.Thread.interrupted(), "name": path.getName()}


def write_with_credential(
    spark: SparkSession, query: str, dest: str, local: str, name: str, key: str
) -> dict[str, Any]:
    """Writes to an account and to a local disk where `configure` was given an object that Python goes to the account by."""
    from azure.core.credentials import AzureNamedKeyCredential

    class Counting(AzureNamedKeyCredential):
        asked = 0

        @property
        def named_key(self) -> Any:
            Counting.asked += 1
            return super().named_key

    configure(spark, progress=listen, storage_options={"credential": Counting(name, key)})
    try:
        return {"told": [write(spark, query, dest), write(spark, query, local)], "asked": Counting.asked}
    finally:
        configure(spark, progress=listen)


if __name__ == "__main__":
    scenarios = (write, call, write_by_hadoops_committer, without_python, sql, abort_interrupted, write_with_credential)
    serve(start(sys.argv[1]), scenarios)
