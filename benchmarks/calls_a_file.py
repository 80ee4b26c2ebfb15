"""How many store calls a job commit makes a file, file by file and with whole directories in one rename.

    uv run --extra adls python -m benchmarks.calls_a_file [--shape 1000x10] [--stores local,hdfs,adls,emulator]
        [--json FILE]

Each task writes all its files into a partition of its own, which is new. Counted is what the driver's job commit asks
of the store, each rename of a batch as one: on the local disk, on the profiles of HDFS and of Azure Data Lake Storage
in memory, and, as requests that arrive, on the emulator of the latter. Records are small enough to come with their
messages. Hadoop's manifest committer reads and deletes something for each task, makes its directory and renames each
file: `benchmarks/compare_java.py` counts its calls. Counts are the same on any machine.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import committer
from benchmarks.kept import aligned, keep, machine
from committer import CommitterConfig
from committer.paths import StorePath
from committer.spec import Delivery
from committer.stores.adls import AdlsStore
from committer.stores.base import Store
from committer.stores.local import LocalStore
from committer.stores.memory import MemoryStore
from committer.testing.faults import FaultyStore
from committer_testing.emulators import adls

NAME: Final = "calls-a-file"
TOLD: Final = {
    "local": "local disk",
    "hdfs": "profile of HDFS",
    "adls": "profile of Azure Data Lake Storage",
    "emulator": "emulator of Azure Data Lake Storage, requests",
}
DELIVERIES: Final[tuple[Delivery, ...]] = ("message", "listing")
WAYS: Final = ("file by file", "whole directories")


class Place(NamedTuple):
    """Where a job goes.

    Attributes:
        destination: Its destination.
        connect: Makes a store of a process.
        requests: How many arrived so far; None where calls of the store are counted.
    """

    destination: str
    connect: Callable[[], Store]
    requests: Callable[[], int] | None = None


@asynccontextmanager
async def place(kind: str) -> AsyncIterator[Place]:
    """A new place for one job."""
    if kind == "local":
        # Of a short name, so that a record fits into its message.
        with tempfile.TemporaryDirectory() as directory:
            yield Place(f"{directory}/t", LocalStore)
    elif kind == "emulator":
        async with adls.serve() as emulator:
            emulator.namespace.create_filesystem("data", {})
            options = {"endpoint": emulator.dfs_url, "account_key": emulator.settings.key}
            root = StorePath("abfss", "data@devstoreaccount1.dfs.core.windows.net", "/t")
            log = emulator.conduct.log
            yield Place(root.uri, lambda: AdlsStore.open_for(root, options), lambda: len(log))
    else:
        space = MemoryStore.space(NAME, kind)
        space.clear()
        yield Place(f"memory://{space.name}/t", space.store)
        MemoryStore.forget(space.name)


async def count(kind: str, tasks: int, files: int, delivery: Delivery, config: CommitterConfig) -> int:
    """Calls of one job commit."""
    async with place(kind) as where:
        other, store = where.connect(), FaultyStore(where.connect())
        job = await committer.open_job(
            where.destination, config=config, delivery=delivery, storage_options={"store": other}
        )
        messages = []
        for number in range(tasks):
            async with committer.open_task(job.spec, task=number, storage_options={"store": other}) as task:
                for value in range(files):
                    async with task.open(f"p={number}/part-{value}") as file:
                        await file.write(b"x")
            messages.append(task.task_commit)
        driver = await committer.attach_job(job.spec, storage_options={"store": store})
        before = where.requests() if where.requests else store.count()
        report = await driver.commit(messages if delivery == "message" else None, tasks=tasks)
        after = where.requests() if where.requests else store.count()
        assert report.files_committed == tasks * files
        await store.close()
        await other.close()
        return after - before


def rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """One line a store, and one for Hadoop's."""
    told = [(TOLD[one["store"]], *(f"{one[column]:.3f}" for column in _columns())) for one in found["stores"]]
    hadoops = f"{hadoops_calls(found['tasks'], found['files']):.3f}"
    return [("calls a file", *_columns()), *told, ("Hadoop's manifest committer", "-", hadoops, "-", "-")]


def hadoops_calls(tasks: int, files: int) -> float:
    """What Hadoop's manifest committer makes a file: it reads and deletes for a task, makes its directory, renames."""
    return (tasks * (files + 3) + 9) / (tasks * files)


def _columns() -> list[str]:
    return [f"{way}, by {delivery}" for way in WAYS for delivery in DELIVERIES]


def measure(kind: str, tasks: int, files: int) -> dict[str, Any]:
    """The figures of one store."""
    found: dict[str, Any] = {"store": kind}
    for way in WAYS:
        config = CommitterConfig(promote_directories=way == WAYS[1])
        for delivery in DELIVERIES:
            calls = asyncio.run(count(kind, tasks, files, delivery, config))
            found[f"{way}, by {delivery}"] = calls / (tasks * files)
    return found


def main(arguments: list[str] | None = None) -> None:
    """Counts and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="1000x10", help="tasks x files of a task")
    parser.add_argument("--stores", default=",".join(TOLD), help="by comma")
    parser.add_argument("--json", type=Path, help="writes the figures there, not into benchmarks/results")
    given = parser.parse_args(arguments)
    tasks, files = map(int, given.shape.split("x"))
    about = machine()
    stores = [measure(kind, tasks, files) for kind in given.stores.split(",")]
    found = {"machine": about, "tasks": tasks, "files": files, "stores": stores}
    print(aligned(rows(found)))
    if given.json or given.stores == ",".join(TOLD):
        keep(NAME, found, file=given.json)


if __name__ == "__main__":
    main()
