"""A streaming query that kills its own driver at one moment of a batch's commit. Run by test_streaming_killed.py."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from committer.events import JobEvent
from committer.spark import CommitterDataSource, foreach_batch, stream_writer
from committer.spark.examining import configure_environment

if TYPE_CHECKING:
    from committer.spark.stream_writer import CommitterStreamWriter

BATCH = 1


def kill(pids: str) -> None:
    """Kills Java and the user's Python, then this process: what a machine that goes dark looks like."""
    for pid in pids.split(","):
        os.kill(int(pid), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_when_publishing(pids: str) -> None:
    def listen(event: JobEvent) -> None:
        if event.kind == "advanced" and event.stage == "job_stage_rename_files":
            kill(pids)

    stream_writer.log_event = listen


class KilledSource(CommitterDataSource):
    """The data source, but its driver dies in the commit of a batch."""

    @classmethod
    def name(cls) -> str:
        return "killed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> CommitterStreamWriter:
        options = dict(self.options)
        when, pids = options.pop("when"), options.pop("pids")
        writer = stream_writer.stream_writer(options, schema, overwrite)
        commit = writer.commit

        def killed(messages: list[WriterCommitMessage | None], batch: int) -> None:
            if batch == BATCH and when == "in the middle":
                kill_when_publishing(pids)
            if batch == BATCH and when == "before":
                kill(pids)
            commit(messages, batch)
            if batch == BATCH:
                kill(pids)

        writer.commit = killed  # type: ignore[method-assign]
        return writer


def main(how: str, when: str, source: str, checkpoint: str, table: str) -> None:
    configure_environment()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    pids = f"{java},{os.getpid()}"
    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(source).repartition(2)
    writer = rows.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    if how == "format":
        spark.dataSource.register(KilledSource)
        query = writer.format("killed").options(when=when, pids=pids).start(table)
    else:
        write = foreach_batch(table)

        def killed(df: DataFrame, batch: int) -> None:
            write(df, batch)
            if batch == BATCH:
                kill(f"{java}")

        query = writer.foreachBatch(killed).start()
    query.awaitTermination()
    raise SystemExit("the query ended, and should have been killed")


if __name__ == "__main__":
    main(*sys.argv[1:])
