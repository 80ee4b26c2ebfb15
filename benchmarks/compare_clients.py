"""Job commits on emulated cloud stores: this engine beside Hadoop's committers with the vendor's Java client.

    uv run --extra spark --extra gcs --extra adls --extra s3 python -m benchmarks.compare_clients [gcs|adls|s3]...
        [--shape 1000x10x100] [--threads 64,256] [--rounds 3] [--json DIRECTORY]

On Google Cloud Storage Java's side is the manifest committer with gcs-connector, on Azure Data Lake Storage Gen2 the
same with hadoop-azure, on S3 (SeaweedFS) the magic committer of hadoop-aws; Maven fetches them once into build/. A
shape is tasks x files of a task x directories. All sides commit jobs whose tasks this engine ran, of empty files,
against one server in a process of its own, each in its default configuration and by plain HTTP; the virtual machine is
warm after two jobs. Every round measures each side once, in an order that turns, so only ratios
within a round are claims. CPU is that of the client's process, its compiler and garbage collector among it. Wall time
is the emulator's as much as the client's: it answers one request at a time. Three rounds or more are kept in
`benchmarks/results/`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import uuid4

import uvloop

import committer
from benchmarks.client_sides import rows
from benchmarks.compare_java import OURS, OURS_ON_UVLOOP, Sides, Work
from benchmarks.kept import ROUNDS, aligned, java_version, keep, machine
from committer import CommitterConfig, JobSpec
from committer.records.success import SuccessData
from tests.emulators import hadoop_azure, hadoop_google
from tests.interop.jvm import Jvm
from tests.interop.python_side import FOR_JAVA_DRIVER
from tests.interop.store_job import ManifestCommitterJob, StoreJob
from tests.s3 import hadoop_s3a
from tests.s3.servers import BUCKET, KEY, KEY_ID, Server, seaweedfs
from tests.stores.adls_process import Account, account_process
from tests.stores.gcs_process import RemoteBucket, bucket_process

STORES = ("gcs", "adls", "s3")
WARM_UP = Work.of("100x10x10")
WARM_UPS = 2
# The tests' virtual machine starts quickly, with the quick compiler alone; this one is to run fast.
FAST = "-XX:TieredStopAtLevel=4 -Xmx2g"
_AT_ONCE = 16


class Measured(NamedTuple):
    """One commit: seconds, seconds of the client's processor, requests that the server got."""

    wall_s: float
    cpu_s: float
    requests: int


class Lake:
    """One emulated store and its clients.

    Args:
        name: One of `STORES`.
        above: The URI of what all destinations lie in.
        options: Storage options that lead this engine there.
        jvm: Where Java runs.
        java: Makes a job of Hadoop's, given the last name of its destination and the number of its threads.
        requests: How many requests the server got; None where it does not say.
        tasks: How the tasks of Java's jobs are configured.
    """

    def __init__(
        self,
        name: str,
        above: str,
        options: Mapping[str, object],
        jvm: Jvm,
        java: Callable[[str, int], Awaitable[StoreJob]],
        *,
        requests: Callable[[], int] | None = None,
        tasks: CommitterConfig | None = None,
    ) -> None:
        self.name = name
        self.committer = "magic" if name == "s3" else "manifest"
        self._above = above
        self._options = options
        self._java = java
        self._requests = requests or (lambda: 0)
        self._tasks = tasks
        self._pid = int(jvm.view.java.lang.ProcessHandle.current().pid())
        self._numbers = iter(range(1_000_000))

    def commit_ours(self, work: Work, *, fast: bool) -> Measured:
        """This engine commits a job, on uvloop or on asyncio's own loop."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if fast else None) as runner:
            return runner.run(self._ours(work))

    def commit_java(self, work: Work, threads: int) -> Measured:
        """Java commits one."""
        with asyncio.Runner() as runner:
            return runner.run(self._javas(work, threads))

    async def _ours(self, work: Work) -> Measured:
        uri = f"{self._above}/ours-{next(self._numbers)}"
        async with committer.open_job(uri, storage_options=self._options) as job:
            await self._run_tasks(job.spec, work)
            before = self._requests()
            cpu, wall = time.process_time(), time.perf_counter()
            report = await job.commit(tasks=work.tasks)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            assert report.files_committed == work.tasks * work.files
        return Measured(wall, cpu, self._requests() - before)

    async def _javas(self, work: Work, threads: int) -> Measured:
        job = await self._java(f"java-{next(self._numbers)}", threads)
        await job.setup()
        await self._run_tasks(JobSpec.for_hadoop(job.uri, job.id, config=self._tasks), work)
        before = self._requests()
        cpu, wall = _cpu_of(self._pid), time.perf_counter()
        await job.commit()
        cpu, wall = _cpu_of(self._pid) - cpu, time.perf_counter() - wall
        marker = await committer.load_record(f"{job.uri}/_SUCCESS", storage_options=self._options)
        assert isinstance(marker, SuccessData)
        assert (marker.jobId, len(marker.filenames)) == (job.id, min(100, work.tasks * work.files))
        requests = self._requests() - before
        await asyncio.to_thread(job.filesystem().close)
        return Measured(wall, cpu, requests)

    async def _run_tasks(self, spec: JobSpec, work: Work) -> None:
        numbers = iter(range(work.tasks))

        async def run() -> None:
            for task in numbers:
                async with committer.open_task(spec, task=task, attempt=0, storage_options=self._options) as running:
                    for number in range(work.files):
                        directory = (task * work.files + number) % work.directories
                        async with running.open(f"d={directory}/part-{task:05}-{number:03}"):
                            pass

        await asyncio.gather(*(run() for _ in range(_AT_ONCE)))


@contextmanager
def lake(name: str) -> Iterator[Lake]:
    """A store with both clients, while the block runs."""
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-clients-")))
        os.environ["_JAVA_OPTIONS"] = FAST
        found = {"gcs": hadoop_google, "adls": hadoop_azure, "s3": hadoop_s3a}[name].jars()
        jvm = stack.enter_context(closing(Jvm(temporary, found)))
        if name == "gcs":
            yield _on_gcs(jvm, stack.enter_context(bucket_process()))
        elif name == "adls":
            yield _on_adls(jvm, stack.enter_context(account_process()))
        else:
            yield _on_s3(jvm, stack.enter_context(seaweedfs(temporary)))


def _on_gcs(jvm: Jvm, bucket: RemoteBucket) -> Lake:
    service: Any = SimpleNamespace(url=bucket.url, settings=SimpleNamespace(project="emulated"))

    async def java(name: str, threads: int) -> StoreJob:
        client = await hadoop_google.Gcs(jvm, service, "data", **_threads(threads)).open()
        return _at(ManifestCommitterJob(jvm, client), name)

    options = {"endpoint": bucket.url}
    return Lake("gcs", "gs://data", options, jvm, java, requests=_counted(bucket), tasks=FOR_JAVA_DRIVER)


def _on_adls(jvm: Jvm, account: Account) -> Lake:
    place = SimpleNamespace(account=account.url.rpartition("/")[2], key=account.key)
    emulator: Any = SimpleNamespace(url=account.url, settings=place)

    async def java(name: str, threads: int) -> StoreJob:
        client = await hadoop_azure.Abfs(jvm, emulator, "data", **_threads(threads)).open()
        return _at(hadoop_azure.ManifestJob(jvm, client), name)

    above, options = account.uri("x").rpartition("/")[0], {"endpoint": account.endpoint, "account_key": account.key}
    return Lake("adls", above, options, jvm, java, requests=_counted(account), tasks=FOR_JAVA_DRIVER)


def _on_s3(jvm: Jvm, server: Server) -> Lake:
    async def java(name: str, threads: int) -> StoreJob:
        # Its pool of connections, of 500, holds more than any number of threads here asks for.
        return hadoop_s3a.MagicJob(
            jvm, server, f"s3a://{BUCKET}/{name}", str(uuid4()), **{"fs.s3a.committer.threads": str(threads)}
        )

    options = {"endpoint_url": server.url, "region": "us-east-1", "access_key_id": KEY_ID, "secret_access_key": KEY}
    return Lake("s3", f"s3a://{BUCKET}", options, jvm, java)


def compare(one: Lake, work: Work, threads: list[int], rounds: int) -> Sides:
    """Warms all sides up and measures them; what each took, in the order of the rounds."""
    sides: dict[str, Callable[[Work], Measured]] = {
        OURS: partial(one.commit_ours, fast=False),
        OURS_ON_UVLOOP: partial(one.commit_ours, fast=True),
        **{f"{one.committer}, {count} threads": partial(one.commit_java, threads=count) for count in threads},
    }
    for _ in range(WARM_UPS):
        for commit in sides.values():
            commit(min(WARM_UP, work))
    found: Sides = {name: [] for name in sides}
    order = deque(sides)
    for number in range(rounds):
        print(f"{one.name}, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for name in order:
            found[name].append(sides[name](work)._asdict())
        order.rotate(-1)
    return found


def _at(job: ManifestCommitterJob, name: str) -> ManifestCommitterJob:
    job.uri = f"{job.uri.rpartition('/')[0]}/{name}"
    return job


def _counted(remote: Account | RemoteBucket) -> Callable[[], int]:
    return lambda: int(remote.control("GET", "counters")["served"])


def _threads(count: int) -> dict[str, str]:
    return {"mapreduce.manifest.committer.io.threads": str(count)}


def _cpu_of(pid: int) -> float:
    # The name of the program, in brackets, may hold blanks.
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Clients of cloud stores, side by side.")
    parser.add_argument("stores", nargs="*", default=list(STORES), help=f"of {', '.join(STORES)}; all")
    parser.add_argument("--shape", default="1000x10x100", help="tasks x files of a task x directories")
    parser.add_argument("--threads", default="64,256", help="threads of Hadoop's manifest committer, by comma")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="writes every measurement there, not into benchmarks/results")
    arguments = parser.parse_args(given)
    if unknown := set(arguments.stores) - set(STORES):
        parser.error(f"there is no store {min(unknown)}: {', '.join(STORES)}")
    work, threads = Work.of(arguments.shape), [int(text) for text in arguments.threads.split(",")]
    about = {**machine(), "java": java_version()}
    for name in arguments.stores:
        with lake(name) as one:
            sides = compare(one, work, threads, arguments.rounds)
        print(f"{name}: {arguments.shape}; medians, ratios as median (least to most)")
        print(aligned(rows(work.tasks * work.files, sides)))
        if arguments.json or arguments.rounds >= ROUNDS:
            key = f"clients-{name}-{arguments.shape}"
            file = arguments.json / f"{key}.json" if arguments.json else None
            keep(key, {"work": arguments.shape, **work._asdict(), "machine": about, "sides": sides}, file=file)


if __name__ == "__main__":
    main()
