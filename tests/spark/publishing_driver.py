"""A Spark driver for tests of executors that fail while they publish: a scenario a line from stdin, an answer a line.

    python publishing_driver.py MASTER

Everything here belongs to `__main__`, so that Spark ships it by value: executors have the library and not its tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession

from committer import sync
from committer.errors import UnsupportedError
from committer.options.config import CommitterConfig
from committer.spark import configure, foreach_partition, jar_path

sys.path.append(str(Path(__file__).parents[2]))

from tests.spark.driving import ON_A_CLUSTER, builder, event_log, serve, started

PATIENCE_S = 120.0
FILES = 240
# Some seconds, shared out over the workers: time to lose some.
ON_EXECUTORS = CommitterConfig(publish="spark", io_rate=40)


def start(master: str) -> SparkSession:
    """A session whose chunks run twice where one takes longer than a second, and that tells what became of its tasks."""
    settings = {
        **ON_A_CLUSTER,
        **event_log(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.speculation": "true",
        # A chunk is the only task of its job: it has no neighbours to be compared with.
        "spark.speculation.task.duration.threshold": "1s",
    }
    building = builder(master, "committer publishing", settings)
    with contextlib.suppress(UnsupportedError):
        building = building.config("spark.jars", jar_path())
    return started(building)


def executors(spark: SparkSession) -> list[int]:
    """The Java processes of this application's executors."""
    own = spark.sparkContext.applicationId
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_text() if entry.name.isdigit() else ""
            if "CoarseGrainedExecutorBackend" in command and own in command:
                found.append(int(entry.name))
    return sorted(found)


def python_workers(executor: int) -> list[int]:
    """The Python processes below one."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    below, left = [], [executor]
    while left:
        children = parents.get(left.pop(), [])
        below += children
        left += children
    return below


def published(dest: str) -> int:
    return sum(1 for _path in Path(dest).glob("d=*/*"))


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("what was waited for did not come")
        time.sleep(0.01)


# --- What happens while executors publish ---------------------------------------------------------------------------


def kill_an_executor(spark: SparkSession) -> None:
    """Its machine is gone."""
    executor = executors(spark)[0]
    for pid in (executor, *python_workers(executor)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_workers(spark: SparkSession) -> None:
    """The Python processes of all executors are killed, as where memory is short."""
    for executor in executors(spark):
        for pid in python_workers(executor):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def stop_an_executor(spark: SparkSession) -> None:
    """It stands still, copies of its chunks are published elsewhere, and then it goes on."""
    executor = executors(spark)[0]
    pids = (executor, *python_workers(executor))
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    time.sleep(4.0)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


HAPPENINGS = {one.__name__: one for one in (kill_an_executor, kill_workers, stop_an_executor)}


# --- Scenarios -------------------------------------------------------------------------------------------------------


def write_rows(rows: Iterable[Row], task: sync.TaskAttempt) -> None:
    """A file for each row."""
    for row in rows:
        with task.open(f"d={row.id % 7}/part-{row.id:04}.txt") as file:
            file.write(f"{row.id}\n".encode())


def publish(spark: SparkSession, way: str, happening: str, dest: str) -> dict[str, Any]:
    """Writes a table whose executors publish it; something happens to them when some of it is in place."""
    wait_for(lambda: len(executors(spark)) == 2)
    seen: dict[str, Any] = {}

    def happen() -> None:
        try:
            wait_for(lambda: published(dest) > FILES // 10)
            seen["published before"] = published(dest)
            HAPPENINGS[happening](spark)
        except Exception:
            seen["failed"] = traceback.format_exc()

    thread = threading.Thread(target=happen)
    thread.start()
    log = events_of(spark)
    logged = log.stat().st_size
    try:
        if way == "messages":
            report = foreach_partition(spark.range(0, FILES, 1, 4), dest, write_rows, config=ON_EXECUTORS)
            seen["reported"] = report.files_committed
        else:
            configure(spark, config=ON_EXECUTORS)
            rows = spark.range(0, FILES, 1, 4).selectExpr("id", f"id % {FILES // 4} d")
            rows.write.partitionBy("d").parquet(dest)
            seen["reported"] = published(dest)
    finally:
        thread.join()
    with log.open() as file:
        file.seek(logged)
        return seen | counts(json.loads(line) for line in file if line.endswith("\n"))


def events_of(spark: SparkSession) -> Path:
    [log] = Path("events").glob(f"{spark.sparkContext.applicationId}*")
    return log


def counts(events: Iterator[dict[str, Any]]) -> dict[str, int]:
    """What Spark says of its tasks and executors."""
    found = {"chunks": 0, "copies": 0, "lost executors": 0}
    chunks: set[int] = set()
    for event in events:
        kind = event["Event"]
        if kind == "SparkListenerJobStart":
            group = (event.get("Properties") or {}).get("spark.jobGroup.id", "")
            if group.startswith("committer-publish-"):
                chunks.update(event["Stage IDs"])
                found["chunks"] += 1
        elif kind == "SparkListenerTaskStart" and event["Stage ID"] in chunks:
            found["copies"] += event["Task Info"]["Speculative"]
        elif kind == "SparkListenerExecutorRemoved":
            found["lost executors"] += 1
    return found


if __name__ == "__main__":
    serve(start(sys.argv[1]), (publish,))
