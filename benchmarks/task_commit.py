"""What a task commit asks of a store: calls, and round trips of which each waits for the one before.

    uv run benchmarks/task_commit.py [--files 10] [--latency-ms 20] [--rounds 3] [--json FILE]

One task attempt writes its files, each into a directory of its own. Our side counts from the end of the last file to
the end of the task commit, for both deliveries; opening files is measured beside it, since it makes the directories.
Hadoop's side is the manifest committer's setup and commit of such a task, whose calls come one after another; making
files and directories in between is free for it. Times are with the latency that each call is given. Needs a JDK.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import committer
from benchmarks.compare_java import Java, Work, with_pyspark
from benchmarks.kept import ROUNDS, aligned, java_version, keep, machine, scratch
from benchmarks.slow_store import SlowStore
from benchmarks.traced_store import Span, TracedStore, round_trips

NAME = "task-commit"
DELIVERIES: tuple[Literal["message", "listing"], ...] = ("message", "listing")


async def ours(delivery: Literal["message", "listing"], files: int, latency_ms: float, root: Path) -> dict[str, Any]:
    """One task attempt of a new job."""
    store = TracedStore(SlowStore(latency_ms / 1000))
    async with committer.open_job(root, delivery=delivery, storage_options={"store": store}) as job:
        started = perf_counter()
        attempt = await job.task_attempt(task=0)
        for file in range(files):
            async with attempt.open(f"p={file}/part-00000") as handle:
                await handle.write(b"x")
        written, before = perf_counter(), len(store.spans)
        await attempt.commit()
        ended, after = perf_counter(), len(store.spans)
        report = await job.commit(tasks=1)
    assert report.files_committed == files
    writing = [span for span in store.spans[:before] if span.start >= started]
    return {
        "commit": _told(store.spans[before:after], ended - written),
        "setup_and_writing": _told(writing, written - started),
    }


def _told(spans: Sequence[Span], wall_s: float) -> dict[str, Any]:
    calls: dict[str, int] = {}
    for span in spans:
        calls[span.name] = calls.get(span.name, 0) + 1
    return {"calls": calls, "round_trips": round_trips(spans), "wall_s": wall_s}


def rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """One line a side."""
    table: list[tuple[str, ...]] = [("task commit", "calls", "one after another", "wall ms")]
    for name in DELIVERIES:
        commits = [one["commit"] for one in found["ours"][name]]
        table.append(
            (
                f"committer, delivery by {name}",
                str(max(sum(one["calls"].values()) for one in commits)),
                str(max(one["round_trips"] for one in commits)),
                f"{statistics.median(one['wall_s'] for one in commits) * 1000:.0f}",
            )
        )
    calls = max(sum(one["calls"].values()) for one in found["java"])
    wall = statistics.median(one["wall_s"] for one in found["java"]) * 1000
    table.append(("Hadoop's manifest committer", str(calls), str(calls), f"{wall:.0f}"))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="What a task commit asks of a store.")
    parser.add_argument("--files", type=int, default=10, help="files, each in a directory of its own")
    parser.add_argument("--latency-ms", type=float, default=20.0, help="what each store call waits")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="writes every measurement there, not into benchmarks/results")
    arguments = parser.parse_args()
    with_pyspark()
    about = {**machine(), "java": java_version()}
    found: dict[str, Any] = {
        "machine": about,
        "files": arguments.files,
        "latency_ms": arguments.latency_ms,
        "ours": {name: [] for name in DELIVERIES},
        "java": [],
    }
    work = Work(1, arguments.files, arguments.files, arguments.latency_ms, no_op=False)
    with scratch() as root, tempfile.TemporaryDirectory(prefix="benchmark-classes-") as build:
        java = Java(Path(build), root)
        try:
            for number in range(arguments.rounds):
                for name in DELIVERIES:
                    one = asyncio.run(ours(name, arguments.files, arguments.latency_ms, root / f"{name}-{number}"))
                    found["ours"][name].append(one)
                found["java"].append(java.commit("task", work, 32))
        finally:
            java.close()
    print(f"{arguments.files} files in {arguments.files} directories, {arguments.latency_ms:g} ms a call")
    print(aligned(rows(found)))
    if arguments.json or arguments.rounds >= ROUNDS:
        keep(NAME, found, file=arguments.json)


if __name__ == "__main__":
    main()
