"""Job commits of very many files over HTTP: how fast one driver is, what a file costs it, and if memory stays flat.

    uv run --extra adls --extra s3 python -m benchmarks.ten_million [--files 200000,1000000] [--stores adls,s3,local]
        [--task-files 1000] [--directories 1000] [--workers 0,2] [--json FILE]

`--files 10000000` is what its name says: some 40 minutes of one core for a store. The driver commits by the public API
on Azure Data Lake Storage's wire and on S3's. What is asked for each file is answered at once by
`benchmarks/quick_server.py`; records, decision and directories are those of the emulator and of SeaweedFS behind it,
and the records are written beforehand. On the local disk files are real, in /dev/shm or `--root`, which needs an inode
a file. With `--workers` a pool of so many processes publishes; 0 is the driver alone. Each job is committed by a fresh
process; memory counts from when that has opened the job. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec

import committer
from benchmarks.adls_rename import emulator
from benchmarks.client_cpu import TEN_MILLION, each, ten_million_rows
from benchmarks.compare_java import Ours, Work
from benchmarks.kept import aligned, keep, machine, scratch
from benchmarks.quick_server import ETAG, LENGTH, quick_server
from committer import sync
from committer.events import names
from committer.paths import StorePath
from committer.records.manifest import DirectoryEntry, decode_task_manifest, encode_task_manifest
from committer.records.pending_set import PartEtag, decode_pending_set, encode_pending_set
from committer.stores.adls import AdlsStore
from committer.stores.base import Store
from committer.stores.s3 import S3Store
from committer_testing.emulators.adls import DEFAULT_KEY
from tests.s3.servers import BUCKET, KEY, KEY_ID, seaweedfs

JOB: Final = "bench"
_FIRST: Final = "p=0/part-0000000-00000"
_KEPT_IN: Final = {"adls": AdlsStore, "s3": S3Store}

Options: TypeAlias = dict[str, Any]


class Job(NamedTuple):
    """What is committed."""

    tasks: int
    files: int
    directories: int

    def name(self, task: int, file: int) -> str:
        """Of a file, below the destination."""
        return f"p={(task * self.files + file) % self.directories}/part-{task:07d}-{file:05d}"


@contextmanager
def served(service: str) -> Iterator[tuple[str, Options]]:
    """A destination and how to reach it."""
    if service == "adls":
        with emulator("--filesystem", "data") as url, quick_server(service, urlsplit(url).port or 0) as port:
            options = {"endpoint": f"http://127.0.0.1:{port}/devstoreaccount1", "account_key": DEFAULT_KEY}
            yield "abfss://data@devstoreaccount1.dfs.core.windows.net/bench", options
        return
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        seaweedfs(Path(directory), volumes=200) as server,
        quick_server(service, urlsplit(server.url).port or 0) as port,
    ):
        url = f"http://127.0.0.1:{port}"
        yield (
            f"s3://{BUCKET}/bench",
            {"endpoint_url": url, "region": "us-east-1", "access_key_id": KEY_ID, "secret_access_key": KEY},
        )


async def prepare(service: str, destination: str, options: Options, job: Job) -> None:
    """Sets a job up, commits one small task, and saves the records of all tasks after that one's example."""
    unlimited = {"io_rate": 0, "azure_io_rate": 0}
    driver = await committer.open_job(destination, job_id=JOB, storage_options=options, config=unlimited)
    async with driver.task_attempt(0) as attempt, attempt.open(_FIRST) as file:
        await file.write(b"x")
    await driver.close()
    store: Any = _KEPT_IN[service].open_for(StorePath.of(destination), options)
    try:
        written = [path async for path in _walk(store, StorePath.of(destination))]
        example = next(path for path in written if path.name.startswith("task_bench"))
        text = await store.read(example, limit=1 << 20)
        if service == "s3":
            # Its upload is a real one, which a cleanup would look for in vain.
            upload = decode_pending_set(text, source="the example").commits[0].uploadId
            await store.abort_upload(StorePath.of(destination) / _FIRST, upload)
            for path in written:
                if "/uploads/" in path.path:
                    await store.delete_file(path)

        async def save(task: int) -> None:
            path = example.parent / example.name.replace("000000", f"{task:06d}")
            await store.put(path, _RECORDS[service](text, job, task))

        await each(job.tasks, 8, save)
    finally:
        await store.close()


async def _walk(store: Store, directory: StorePath) -> AsyncIterator[StorePath]:
    async for status in store.list(directory):
        if status.is_directory:
            async for path in _walk(store, status.path):
                yield path
        else:
            yield status.path


def _manifest(text: bytes, job: Job, task: int) -> bytes:
    known = decode_task_manifest(text.replace(b"m_000000", f"m_{task:06d}".encode()), source="the example")
    first = known.files[0]
    places = [job.name(task, file) for file in range(job.files)]
    source, target = (uri.removesuffix(_FIRST) for uri in (first.s, first.d))
    files = [msgspec.structs.replace(first, s=source + place, d=target + place, z=LENGTH, e=ETAG) for place in places]
    parents = dict.fromkeys(place.partition("/")[0] for place in places)
    directories = [DirectoryEntry(d=target + parent, t=0, l=1) for parent in parents]
    return encode_task_manifest(msgspec.structs.replace(known, files=files, directories=directories))


def _pending_set(text: bytes, job: Job, task: int) -> bytes:
    known = decode_pending_set(text.replace(b"m_000000", f"m_{task:06d}".encode()), source="the example")
    first = known.commits[0]
    places = [job.name(task, file) for file in range(job.files)]
    commits = tuple(
        msgspec.structs.replace(
            first,
            uri=first.uri.replace(_FIRST, place),
            destinationKey=first.destinationKey.replace(_FIRST, place),
            etags=(PartEtag(f'"{ETAG}"'),),
            length=LENGTH,
        )
        for place in places
    )
    return encode_pending_set(msgspec.structs.replace(known, commits=commits))


_RECORDS: Final = {"adls": _manifest, "s3": _pending_set}


class Asked(msgspec.Struct, frozen=True):
    """What a process is to commit."""

    destination: str
    options: Options
    tasks: int
    files: int
    workers: int


def _memory(key: str) -> int:
    found = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{key}:"))
    return int(found.split()[1]) * 1024


def _executor(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def commit(asked: Asked) -> dict[str, float]:
    """Commits a job in this process; what it took."""
    pool = None
    if asked.workers:
        pool = sync.ExecutorPool(lambda: _executor(asked.workers), asked.workers, storage_options=asked.options)
    with sync.attach_job(asked.destination, job_id=JOB, storage_options=asked.options) as driver:
        idle = _memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # see proc(5): forgets the peak
        cpu, began = time.process_time(), time.perf_counter()
        report = driver.commit(tasks=asked.tasks, publish_with=pool)
        wall, used = time.perf_counter() - began, time.process_time() - cpu
        over = _memory("VmHWM") - idle
    if pool is not None:
        pool.close()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert report.files_committed == asked.tasks * asked.files
    return {
        "wall_s": wall,
        "cpu_s": used,
        "workers_cpu_s": children.ru_utime + children.ru_stime,
        "over_idle_bytes": over,
        "requests": report.statistics.counters[names.STORE_IO_REQUEST],
    }


def measure(service: str, job: Job, workers: int, root: Path) -> dict[str, float]:
    """One job commit in a process of its own."""
    if service == "local":
        worker = Ours(root, uvloop=False, warm_ups=0)
        try:
            found = worker.commit(Work(*job, 0, no_op=False))
        finally:
            worker.close()
        over = found["peak_rss_bytes"] - found["idle_rss_bytes"]
        requests = sum(found["calls"].values())
        return {**found, "over_idle_bytes": over, "requests": requests, "workers_cpu_s": 0.0}
    with served(service) as (destination, options):
        asyncio.run(prepare(service, destination, options, job))
        asked = Asked(destination, options, job.tasks, job.files, workers)
        command = [sys.executable, "-m", "benchmarks.ten_million", "--commit"]
        done = subprocess.run(command, input=msgspec.json.encode(asked), stdout=subprocess.PIPE, check=True)
        return dict(json.loads(done.stdout))


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", default="200000,1000000", help="of a job; several by comma")
    parser.add_argument("--stores", default="adls,s3,local", help="by comma")
    parser.add_argument("--task-files", type=int, default=1000, help="files of a task")
    parser.add_argument("--directories", type=int, default=1000, help="over the whole job")
    parser.add_argument("--workers", default="0", help="processes that publish, by comma; 0 is the driver alone")
    parser.add_argument("--root", help="where local files go; /dev/shm when it is there")
    parser.add_argument("--json", type=Path, help="writes the figures there, not into benchmarks/results")
    parser.add_argument("--commit", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.commit:
        print(json.dumps(commit(msgspec.json.decode(sys.stdin.buffer.read(), type=Asked))))
        return
    about = machine()
    jobs: list[dict[str, Any]] = []
    kept = {"machine": about, "task_files": given.task_files, "directories": given.directories, "jobs": jobs}
    with scratch(given.root) as root:
        for files in map(int, given.files.split(",")):
            for service in given.stores.split(","):
                job = Job(files // given.task_files, given.task_files, given.directories)
                for workers in map(int, given.workers.split(",")):
                    if service == "local" and workers:
                        continue
                    print(f"{service}, {files:,} files, {workers} workers", file=sys.stderr, flush=True)
                    found = measure(service, job, workers, root)
                    jobs.append({"store": service, "files": files, "workers": workers, **found})
                    # After each: one may take an hour.
                    keep(TEN_MILLION, kept, file=given.json)
    print(aligned(ten_million_rows(kept)))


if __name__ == "__main__":
    main()
