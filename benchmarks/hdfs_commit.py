"""What a job commit on a real NameNode costs: beside a bare loop over the same client, and beside Hadoop's committer.

    uv run --extra spark --extra hdfs python -m benchmarks.hdfs_commit [--shape 200x100x100] [--rounds 3]
        [--threads 32,64]

The NameNode, Hadoop's manifest committer, and this process are a process each, on one machine. Files are empty, so that
no DataNode takes part. "bare loop" renames as many files from as many threads as the store has, and nothing else; "bare
loop with a look" asks for each file's status first, as the store does. They take turns in each round. Needs Java.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import committer
from benchmarks.kept import machine
from committer import CommitterConfig, JobSpec
from committer.errors import StoreError
from committer.paths import StorePath
from committer.stores.hdfs import HdfsStore
from committer.stores.hdfs.connection import THREADS
from tests.hdfs.cluster import Cluster, jars
from tests.interop.filesystem import HadoopFileSystem
from tests.interop.jvm import Jvm
from tests.interop.store_job import ManifestCommitterJob

_AT_ONCE: Final = 16
_THREADS_KEY: Final = "mapreduce.manifest.committer.io.threads"
_TICKS: Final = 100


class Cost(NamedTuple):
    """Of one measurement: seconds of wall time and of the client's CPU."""

    wall: float
    cpu: float


class Shape(NamedTuple):
    """Tasks, files of each, directories that each writes to in turn."""

    tasks: int
    files: int
    directories: int

    @property
    def all_files(self) -> int:
        return self.tasks * self.files

    def names(self, task: int) -> list[str]:
        return [f"p={number % self.directories}/part-{task}-{number}" for number in range(self.files)]


class Timed(HdfsStore):
    """A store that knows how long its batches of renames took, from the first to the last."""

    began = 0.0
    ended = 0.0

    async def rename_files(
        self,
        renames: Sequence[tuple[StorePath, StorePath]],
        *,
        seen: Sequence[tuple[str | None, int]] | None = None,
        looks: bool = True,
    ) -> dict[int, StoreError]:
        self.began = self.began or time.perf_counter()
        errors = await super().rename_files(renames, seen=seen, looks=looks)
        self.ended = time.perf_counter()
        return errors


async def write_tasks(spec: JobSpec, shape: Shape, store: HdfsStore) -> None:
    """Every task of a job, sixteen at a time."""
    numbers = iter(range(shape.tasks))

    async def work() -> None:
        for task in numbers:
            async with committer.open_task(spec, task=task, storage_options={"store": store}) as attempt:
                for name in shape.names(task):
                    async with attempt.open(name):
                        pass

    await asyncio.gather(*(work() for _worker in range(_AT_ONCE)))


async def python_commit(root: StorePath, shape: Shape) -> tuple[Cost, Cost]:
    """The whole job commit, and its renames alone, whose CPU is not known apart."""
    store = Timed(root.authority)
    async with committer.open_job(root.uri, storage_options={"store": store}) as job:
        await write_tasks(job.spec, shape, store)
        wall, cpu = time.perf_counter(), time.process_time()
        report = await job.commit(tasks=shape.tasks)
        cost = Cost(time.perf_counter() - wall, time.process_time() - cpu)
    assert report.files_committed == shape.all_files
    await store.close()
    return cost, Cost(store.ended - store.began, 0.0)


async def java_commit(jvm: Jvm, root: StorePath, shape: Shape, threads: int) -> Cost:
    """The same tree, committed by Hadoop's manifest committer."""
    options = {"fs.hdfs.impl.disable.cache": "true", _THREADS_KEY: str(threads)}
    filesystem = await HadoopFileSystem(jvm, root.uri, options).open()
    job = ManifestCommitterJob(jvm, filesystem)
    await job.setup()
    spec = JobSpec.for_hadoop(job.uri, job.id, config=CommitterConfig(hadoop_driver=True))
    store = HdfsStore(root.authority)
    await write_tasks(spec, shape, store)
    wall, cpu = time.perf_counter(), cpu_of(jvm)
    counters = await job.commit()
    cost = Cost(time.perf_counter() - wall, cpu_of(jvm) - cpu)
    assert counters["committer_files_committed"] == shape.all_files
    await store.close()
    await filesystem.close()
    return cost


def cpu_of(jvm: Jvm) -> float:
    """CPU time of a Java process so far."""
    fields = Path(f"/proc/{jvm.process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def bare_loop(authority: str, root: str, shape: Shape, *, looks: bool) -> Cost:
    """Renames alone, by the client that the store has."""
    from hdfs_native import Client, WriteOptions

    client = _clients.setdefault(authority, Client(f"hdfs://{authority}", {"dfs.client.failover.max.attempts": "0"}))
    inner, options = client.inner, WriteOptions(create_parent=False)
    ends = []
    for side in ("from", "to"):
        for directory in range(shape.directories):
            client.mkdirs(f"{root}/{side}/p={directory}", 0o755, True)
    for task in range(shape.tasks):
        ends += [(f"{root}/from/{name}", f"{root}/to/{name}") for name in shape.names(task)]
    _in_threads([(name,) for name, _to in ends], lambda name: inner.create(name, options).close())

    def rename(source: str, target: str) -> None:
        if looks:
            inner.get_file_info(source)
        inner.rename(source, target, False)

    return _in_threads(ends, rename)


_clients: dict[str, Any] = {}


def _in_threads(items: Sequence[tuple[str, ...]], step: Any) -> Cost:
    left = iter(items)

    def work() -> None:
        for one in left:
            step(*one)

    threads = [threading.Thread(target=work) for _thread in range(THREADS)]
    wall, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


async def measure(cluster: Cluster, java: Jvm, shape: Shape, rounds: int, threads: Sequence[int]) -> None:
    """Prints each round, and medians with ratios."""
    numbers = itertools.count()
    found: dict[str, list[Cost]] = {}

    def root() -> StorePath:
        path = StorePath("hdfs", cluster.authority, f"/bench-{next(numbers)}")
        cluster.hdfs.mkdirs(cluster.path(path.path))
        return path

    def note(name: str, cost: Cost) -> None:
        found.setdefault(name, []).append(cost)
        each = 1e6 / shape.all_files
        print(
            f"{name:28} {shape.all_files / cost.wall:8.0f} files/s {cost.cpu * each:7.1f} us of CPU a file", flush=True
        )

    for number in threads[:1]:
        await java_commit(java, root(), shape, number)  # Java compiles as it runs.
    for _round in range(rounds):
        for looks in (False, True):
            cost = bare_loop(cluster.authority, root().path, shape, looks=looks)
            note("bare loop with a look" if looks else "bare loop", cost)
        whole, renames = await python_commit(root(), shape)
        note("renames of a job commit", renames)
        note("job commit", whole)
        for number in threads:
            note(f"Hadoop's, {number} threads", await java_commit(java, root(), shape, number))

    def ratio(one: str, other: str, what: str) -> str:
        ratios = [getattr(a, what) / getattr(b, what) for a, b in zip(found[one], found[other], strict=True)]
        return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"

    for loop in ("bare loop", "bare loop with a look"):
        print(f"rate of the renames to the {loop}: {ratio(loop, 'renames of a job commit', 'wall')}")
    for number in threads:
        name = f"Hadoop's, {number} threads"
        print(f"job commit to {name}: wall {ratio('job commit', name, 'wall')}, CPU {ratio('job commit', name, 'cpu')}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shape", default="200x100x100", help="tasks x files of each x directories")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", default="32,64", help="of Hadoop's committer; '' leaves it out")
    given = parser.parse_args()
    shape = Shape(*(int(number) for number in given.shape.split("x")))
    threads = [int(number) for number in given.threads.split(",") if number]
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "java").mkdir()
        server, java = Jvm(Path(scratch), jars()), Jvm(Path(scratch) / "java", jars())
        try:
            cluster = Cluster(server, Path(scratch))
            print(machine())
            asyncio.run(measure(cluster, java, shape, given.rounds, threads))
        finally:
            java.close()
            server.close()


if __name__ == "__main__":
    main()
