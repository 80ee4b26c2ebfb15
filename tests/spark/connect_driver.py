"""Runs one's own writers in Spark Connect: ``python connect_driver.py DIRECTORY``, each result on a line of stdout.

A script, and not a test: a Connect session and a classic one do not live in one process. What it defines belongs to
`__main__`, so that Spark ships it by value.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from committer import sync
from committer.errors import UnsupportedError
from committer.spark import foreach_partition, task_attempt


def write(rows: Iterator[Row], task: sync.TaskAttempt) -> None:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    number = context.attemptNumber()
    with task.open(f"part-{task.task}-{number}.txt") as file:
        for row in rows:
            file.write(f"{row.id}\n".encode())
    if task.task == 1 and number == 0:
        os._exit(7)


def write_batches(batches: Iterator[Any], task: sync.TaskAttempt) -> None:
    with task.open(f"part-{task.task}.txt") as file:
        for batch in batches:
            file.write("".join(f"{value}\n" for value in batch.column("id").to_pylist()).encode())


def by_listing(frame: DataFrame, dest: Path, tasks: int) -> int:
    with sync.open_job(dest) as job:
        spec = job.spec

        def callback(rows: Iterator[Row]) -> None:
            with task_attempt(spec) as task:
                write(rows, task)

        frame.repartition(tasks).foreachPartition(callback)
        return job.commit(tasks=tasks).files_committed


def values(dest: Path) -> list[int]:
    return sorted(int(line) for path in dest.glob("part-*") for line in path.read_text().splitlines())


def main(root: Path) -> None:
    spark = (
        SparkSession.builder.remote("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )

    def say(name: str, result: object) -> None:
        print(json.dumps([name, result]), flush=True)

    say("session", type(spark).__module__)
    empty_parts = spark.range(0, 30, 1, 3).where("id < 20")
    report = foreach_partition(empty_parts, root / "messages", write)
    say("messages", [report.files_committed, values(root / "messages")])
    report = foreach_partition(spark.range(0, 10, 1, 2), root / "arrow", write_batches, arrow=True)
    say("arrow", [report.files_committed, values(root / "arrow")])
    report = foreach_partition(spark.range(10).limit(0), root / "nothing", write)
    say("nothing", [report.files_committed, sorted(os.listdir(root / "nothing"))])
    say("listing", [by_listing(spark.range(20), root / "listing", 3), values(root / "listing")])
    try:
        foreach_partition(spark.range(0, 4, 1, 2), root / "bad", lambda rows, task: 1 // task.task)
    except Exception as error:
        say("bad", ["ZeroDivisionError" in str(error), os.listdir(root / "bad")])
    try:
        foreach_partition(spark.readStream.format("rate").load(), root / "stream", write)
    except UnsupportedError as error:
        say("stream", error.next_step)
    source = root / "source"
    spark.range(0, 20, 1, 2).write.parquet(str(source))
    stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(source))

    def save_batch(batch: DataFrame, batch_id: int) -> None:
        foreach_partition(batch, root / "batches" / str(batch_id), write_batches, arrow=True)

    query = (
        stream.writeStream.foreachBatch(save_batch)
        .option("checkpointLocation", str(root / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    say("batches", sorted(value for batch in (0, 1) for value in values(root / "batches" / str(batch))))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
