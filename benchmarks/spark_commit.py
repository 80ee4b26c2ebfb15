"""Job commits inside Spark on a store that is far away: this engine's, and those of Hadoop's committers.

    uv run --extra spark benchmarks/spark_commit.py [--shape 100x100x100] [--latency-ms 20] [--rounds 3] [--v1-rounds 1]
        [--json FILE]

A shape is tasks x files of a task x directories. Spark writes the same frame through each commit protocol: this
engine's (`committer.spark.configure`), its own with FileOutputCommitter v1, and one that binds Hadoop's manifest
committer as `PathOutputCommitProtocol` does, which PySpark does not bring. Tasks write to the bare local file system.
During the job commit each store call waits: in Java in a file system of its own (`java/CommitBench.java`), here in the
store (`slow_store.py`). What is measured is the job commit alone. Both engines work with the concurrency that they have
by themselves (the manifest committer 32 threads). v1 makes its calls one by one, 40,000 of them, so it is measured less
often. Needs a JDK and Linux.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final

from benchmarks.compare_java import class_path, with_pyspark
from benchmarks.kept import ROUNDS, aligned, java_version, keep, machine, scratch
from benchmarks.slow_store import SlowStore
from benchmarks.spark_write import start_session
from committer.api.job_opening import attach_job
from committer.spark import job_side
from committer.spark.protocol_session import PROTOCOL, PROTOCOL_KEY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "spark-commit"
OURS: Final = "committer"
V1: Final = "FileOutputCommitter v1"
MANIFEST: Final = "manifest committer"
PROTOCOLS: Final = {OURS: PROTOCOL, V1: "FarCommits", MANIFEST: "FarCommits$Manifest"}
AIMS: Final = {V1: 0.25, MANIFEST: 0.5}
_SOURCES: Final = ("BareFileSystem.java", "CommitBench.java", "FarCommits.java")


class FarJobs:
    """This engine's job commits, on a store each call of which waits.

    Attributes:
        measured: The latest.
    """

    def __init__(self, latency_s: float) -> None:
        self.measured: dict[str, float] = {}
        self._latency_s = latency_s
        self._commit = job_side.commit

    async def commit(self, *arguments: Any, **named: Any) -> Any:
        """In place of the job side's: the same, on that store."""
        slow, started, used = SlowStore(self._latency_s), perf_counter(), process_time()

        async def attach(*given: Any, **options: Any) -> Any:
            return await attach_job(*given, **{**options, "storage_options": {"store": slow}})

        job_side.attach_job = attach  # type: ignore[assignment]
        try:
            return await self._commit(*arguments, **named)
        finally:
            job_side.attach_job = attach_job
            self.measured = {
                "wall_s": perf_counter() - started,
                "cpu_s": process_time() - used,
                "calls": slow.calls.total(),
            }


def add_classes(spark: SparkSession, build: Path) -> None:
    """Makes Hadoop's side known to a running session."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise SystemExit("javac was not found: install a JDK, 17 or later")
    java = Path(__file__).parent / "java"
    jars = f"{Path(class_path().partition(':')[0]).parent}/*"
    sources = [str(java / source) for source in _SOURCES]
    subprocess.run([compiler, "-nowarn", "-d", str(build), "-cp", jars, *sources], check=True)
    jvm: Any = spark._jvm
    jvm.java.lang.Thread.currentThread().getContextClassLoader().addURL(jvm.java.io.File(str(build)).toURI().toURL())


def asked(spark: SparkSession, method: str) -> float:
    """What Hadoop's side says of its latest job commit."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    found = jvm.java.lang.Class.forName("FarCommits", True, loader).getMethod(method, None)
    return float(found.invoke(None, None))


def measure(spark: SparkSession, side: str, shape: tuple[int, int, int], latency_ms: int, root: Path) -> dict[str, Any]:
    """Writes once; what the job commit took, and how many calls."""
    tasks, files, directories = shape
    target = root / "table"
    spark.conf.set(PROTOCOL_KEY, PROTOCOLS[side])
    frame = spark.range(0, tasks * files, 1, tasks).selectExpr("id", f"id % {directories} AS d")
    here = frame.write.partitionBy("d").option("mapreduce.fileoutputcommitter.algorithm.version", "1")
    far = FarJobs(latency_ms / 1000)
    started = perf_counter()
    if side == OURS:
        job_side.commit = far.commit
        here = here.option("fs.file.impl", "BareFileSystem").option("fs.file.impl.disable.cache", "true")
        here.csv(f"file://{target}")
        measured = far.measured
    else:
        slow = here.option("fs.slow.impl", "CommitBench$SlowFileSystem").option("benchmark.latency-ms", str(latency_ms))
        slow.csv(f"slow://{target}")
        measured = {
            "wall_s": asked(spark, "seconds"),
            "cpu_s": asked(spark, "processor"),
            "calls": asked(spark, "calls"),
        }
    found = sum(1 for _ in target.rglob("part-*.csv"))
    assert found == tasks * files, found
    assert (target / "_SUCCESS").exists()
    shutil.rmtree(target)
    return {**measured, "write_s": perf_counter() - started}


def rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """One line a committer."""
    head = (found["work"], "job commit s", "CPU s", "calls", "ours/this", "aim", "rounds")
    sides: dict[str, list[dict[str, float]]] = found["sides"]
    lines = [head]
    for side, measured in sides.items():
        lines.append(
            (
                side,
                f"{statistics.median(one['wall_s'] for one in measured):.2f}",
                f"{statistics.median(one['cpu_s'] for one in measured):.2f}",
                f"{statistics.median(one['calls'] for one in measured):.0f}",
                "" if side == OURS else ratio(found, side),
                f"<= {AIMS[side]:g}" if side in AIMS else "",
                str(len(measured)),
            )
        )
    return lines


def ratio(found: dict[str, Any], side: str) -> str:
    """What ours took in relation to another, round by round."""
    sides = found["sides"]
    ratios = [ours["wall_s"] / one["wall_s"] for ours, one in zip(sides[OURS], sides[side], strict=False)]
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Job commits inside Spark on a store that is far away.")
    parser.add_argument("--shape", default="100x100x100", help="tasks x files of a task x directories")
    parser.add_argument("--latency-ms", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--v1-rounds", type=int, default=1)
    parser.add_argument("--root", help="where the tables go; /dev/shm when it is there")
    parser.add_argument("--json", type=Path, help="writes every measurement there, not into benchmarks/results")
    arguments = parser.parse_args()
    with_pyspark()
    tasks, files, directories = map(int, arguments.shape.split("x"))
    about = {**machine(), "java": java_version()}
    sides: dict[str, list[dict[str, Any]]] = {side: [] for side in PROTOCOLS}
    order = deque(PROTOCOLS)
    with scratch(arguments.root) as root, tempfile.TemporaryDirectory(prefix="benchmark-classes-") as build:
        spark = start_session()
        add_classes(spark, Path(build))
        for side in order:
            measure(spark, side, (4, 10, 10), 0, root)  # to warm up
        for number in range(arguments.rounds):
            for side in order:
                if side != V1 or number < arguments.v1_rounds:
                    print(f"round {number + 1} of {arguments.rounds}: {side}", file=sys.stderr, flush=True)
                    sides[side].append(measure(spark, side, (tasks, files, directories), arguments.latency_ms, root))
            order.rotate(-1)
        spark.stop()
    found = {
        "machine": about,
        "work": f"{tasks * files:,} files in {directories} directories, {arguments.latency_ms} ms a call",
        "sides": sides,
    }
    print(aligned(rows(found)))
    if arguments.json or arguments.rounds >= ROUNDS:
        keep(NAME, found, file=arguments.json)


if __name__ == "__main__":
    main()
