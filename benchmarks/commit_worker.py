"""One side of a comparison: prepares jobs and commits them, each commit measured by itself.

    python benchmarks/commit_worker.py [uvloop]   reads one shape a line from standard input, prints one result a line
    python benchmarks/commit_worker.py prepare    writes one job, whose shape is the line on standard input, and ends

A job is prepared by a process of its own, so that what writing it took counts in no measurement.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

import committer
from benchmarks.old_files import OldFilesStore, old_file
from benchmarks.slow_store import SlowStore, described_file
from committer import CommitterConfig, TaskCommit
from committer.events import Listener, names
from committer.layout import JobLayout
from committer.records.manifest import DirectoryEntry, FileEntry, TaskManifest, encode_task_manifest
from committer.stores.base import Store

JOB = "bench"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """One job commit to be measured.

    Attributes:
        destination: A directory that is not there yet.
        tasks: Tasks of the job.
        files: Files of a task.
        directories: Directories over the whole job; file n of the job lies in directory n modulo this.
        latency_ms: What each store call waits; 0 commits on the local store itself.
        concurrency: `io_concurrency`; 0 for the default.
        rate: `io_rate`, calls a second; 0 for none.
        no_op: Whether renames and new directories are not carried out, and no file is written beforehand.
        old: Files of an earlier job, over the same directories; with any, the job replaces all that exists there. None
            for the plain store of the other benchmarks.
        by_message: Whether the driver is given the tasks' messages, which lie beside the destination until then, and
            reads no record that one of them holds.
    """

    destination: str
    tasks: int
    files: int
    directories: int
    latency_ms: float = 0.0
    concurrency: int = 0
    rate: float = 0.0
    no_op: bool = False
    old: int | None = None
    by_message: bool = False

    @property
    def messages(self) -> Path:
        """Where the messages of the tasks are kept."""
        return Path(f"{self.destination}.messages")

    def config(self) -> CommitterConfig:
        """What the job is set up with, and so committed with, by any driver."""
        config = CommitterConfig(io_rate=self.rate)
        if self.old:
            config = config.replace(conflict_mode="replace", superseded_scope="destination")
        return config.replace(io_concurrency=self.concurrency) if self.concurrency else config

    def partition(self, task: int, file: int) -> str:
        """The directory of a file."""
        return f"p={(task * self.files + file) % self.directories}"


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One job commit.

    Attributes:
        wall_s: From the call of `commit` to its report.
        cpu_s: CPU time of the process meanwhile, all threads.
        peak_rss_bytes: Largest resident set meanwhile.
        idle_rss_bytes: The resident set before.
        calls: Store calls by name; all together where the local store was used as it is.
        stages: Seconds by stage.
    """

    wall_s: float
    cpu_s: float
    peak_rss_bytes: int
    idle_rss_bytes: int = 0
    calls: dict[str, int] = {}
    stages: dict[str, float] = {}


async def prepare(shape: Shape) -> None:
    """Writes what an earlier job left, sets a job up and commits its tasks."""
    if not shape.no_op:
        _write_old(shape)
    delivery = "message" if shape.by_message else "listing"
    job = await committer.open_job(shape.destination, job_id=JOB, delivery=delivery, config=shape.config())
    messages: list[bytes] = []
    if shape.no_op:
        _describe(shape, job.spec.layout)
        await job.close()
        return
    for task in range(shape.tasks):
        async with job.task_attempt(task=task) as attempt:
            made: set[str] = set()
            for file in range(shape.files):
                directory = shape.partition(task, file)
                path = attempt.work_path(f"{directory}/part-{task:05d}-{file:05d}.parquet")
                if directory not in made:
                    Path(path).parent.mkdir(parents=True, exist_ok=True)
                    made.add(directory)
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        if shape.by_message:
            messages.append(attempt.task_commit.encode())
    await job.close()
    if shape.by_message:
        shape.messages.write_bytes(msgspec.msgpack.encode(messages))


def _write_old(shape: Shape) -> None:
    for number in range(shape.old or 0):
        path = Path(shape.destination, old_file(number, shape.directories))
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def _describe(shape: Shape, layout: JobLayout) -> None:
    """Saves the manifests of tasks whose files were never written."""
    destination = layout.destination.uri
    Path(layout.manifests.path).mkdir(parents=True, exist_ok=True)
    for task in range(shape.tasks):
        attempt = layout.task_attempt_directory(task, 0, "0" * 12).uri
        partitions = {shape.partition(task, file): None for file in range(shape.files)}
        manifest = TaskManifest(
            jobId=layout.unique_id,
            taskID=layout.task_id(task),
            taskAttemptID=layout.task_attempt_id(task, 0),
            taskAttemptDir=attempt,
            files=[
                FileEntry(
                    s=f"{attempt}/{(place := f'{shape.partition(task, file)}/part-{task:05d}-{file:05d}.parquet')}",
                    d=f"{destination}/{place}",
                    z=described_file(task, file)[0],
                    e=described_file(task, file)[2],
                )
                for file in range(shape.files)
            ],
            directories=[DirectoryEntry(d=f"{destination}/{name}", t=0, l=1) for name in partitions],
        )
        Path(layout.manifest(task).path).write_bytes(encode_task_manifest(manifest))


async def measure(shape: Shape, *, store: Store | None = None, listeners: Iterable[Listener] = ()) -> Measured:
    """Commits a prepared job.

    Args:
        shape: The job.
        store: What to commit it on, in place of what the shape says.
        listeners: Who is told of the job's progress.
    """
    slow = _slow_store(shape) if shape.latency_ms or shape.no_op else None
    used_store = store or slow
    options = {"store": used_store} if used_store else None
    # They come to a driver with its tasks' results, which no committer waits for.
    sent = msgspec.msgpack.decode(shape.messages.read_bytes(), type=list[bytes]) if shape.by_message else None
    messages = None if sent is None else [TaskCommit.decode(message) for message in sent]
    gc.collect()
    idle = memory("VmRSS")
    _forget_peak()
    cpu, started = time.process_time(), time.perf_counter()
    async with committer.attach_job(shape.destination, job_id=JOB, storage_options=options, listeners=listeners) as job:
        report = await job.commit(messages, tasks=shape.tasks)
    wall, used = time.perf_counter() - started, time.process_time() - cpu
    assert report.success
    assert report.files_committed == shape.tasks * shape.files
    means = report.statistics.meanstatistics
    stages = {
        name.removesuffix(names.MEAN): mean.sum / 1000
        for name, mean in means.items()
        if "_stage_" in name and names.FAILURES not in name
    }
    return Measured(
        wall_s=wall,
        cpu_s=used,
        peak_rss_bytes=memory("VmHWM"),
        idle_rss_bytes=idle,
        calls=dict(slow.calls) if slow else {"all": report.statistics.counters[names.STORE_IO_REQUEST]},
        stages=stages,
    )


def _slow_store(shape: Shape) -> SlowStore:
    latency_s = shape.latency_ms / 1000
    if shape.no_op and shape.old is not None:
        return OldFilesStore(latency_s, shape.destination, shape.old, shape.directories)
    return SlowStore(latency_s, no_op=shape.no_op)


def _forget_peak() -> None:
    # See proc(5), clear_refs.
    Path("/proc/self/clear_refs").write_text("5")


def memory(key: str) -> int:
    """What the kernel says of this process's memory, in bytes; see proc(5), status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(key)


def prepare_apart(shape: Shape) -> None:
    """Prepares a job in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["", *sys.path])}
    line = msgspec.json.encode(shape).decode()
    subprocess.run([sys.executable, __file__, "prepare"], input=line, text=True, check=True, env=environment)


def _run(shape: Shape) -> Measured:
    prepare_apart(shape)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            measured = runner.run(measure(shape))
        if not shape.no_op:
            standing = [name for _, _, names in os.walk(shape.destination) for name in names]
            assert sum(name.startswith("part-") for name in standing) == shape.tasks * shape.files, len(standing)
            assert not any(name.startswith("old-") for name in standing), len(standing)
        return measured
    finally:
        shutil.rmtree(shape.destination, ignore_errors=True)
        shape.messages.unlink(missing_ok=True)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if "uvloop" not in sys.argv[1:]:
        return None
    import uvloop

    return uvloop.new_event_loop


def main() -> None:
    for line in sys.stdin:
        shape = msgspec.json.decode(line, type=Shape)
        if sys.argv[1:] == ["prepare"]:
            asyncio.run(prepare(shape))
        else:
            print(msgspec.json.encode(_run(shape)).decode(), flush=True)


if __name__ == "__main__":
    main()
