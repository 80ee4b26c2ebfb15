"""The job of a sweep: what stands before it, what it writes, what must stand after it, on which kind of disk."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any, Final

import committer
from committer import CommitterConfig
from committer.flow.runtime import Runtime
from committer.stores.local import LocalStore, kernel_rename
from tests.disk_sweep.account import Tree
from tests.processes.stopping import without_flag

JOB: Final = "j"
NEIGHBOUR: Final = "r"

FLAVOURS: Final[dict[str, dict[str, Any]]] = {
    "append": {},
    "message": {},
    "target": {"existing_target": "replace"},
    "replace": {"conflict_mode": "replace"},
    "promote": {"promote_directories": True},
    "many": {"validate_output": True},
    "fsync": {"durability": "fsync"},
}
DISKS: Final = ("plain", "no flag", "no links")

_OLD: Final = {"p=1/old": "old 1", "p=2/old": "old 2", "other/neighbour": "neighbour"}


def before(flavour: str) -> Tree:
    """Files at the destination before the job."""
    return {**_OLD, "p=1/part-0": "was there"} if flavour == "target" else dict(_OLD)


def written(flavour: str) -> list[Tree]:
    """What each task writes."""
    first = {"p=1/part-0": "0 1", "p=2/part-0": "0 2"}
    if flavour == "many":
        first |= {f"p=1/part-0-{number}": f"0 1 {number}" for number in range(4)}
    second = {"p=1/part-1": "1 1", "p=3/part-1": "1 3", "p=3/part-2": "1 3 2"}
    if flavour == "promote":
        second |= {f"p=3/part-3-{number}": f"1 3 {number}" for number in range(4)}
    return [first, second]


def add_job(tree: Tree, flavour: str) -> Tree:
    """Files at the destination after the job committed."""
    new = {name: text for files in written(flavour) for name, text in files.items()}
    if flavour != "replace":
        return {**tree, **new}
    directories = {name.rpartition("/")[0] for name in new}
    return {**{name: text for name, text in tree.items() if name.rpartition("/")[0] not in directories}, **new}


def add_neighbour(tree: Tree) -> Tree:
    """Files at the destination after the replacing neighbour committed."""
    return {**{name: text for name, text in tree.items() if not name.startswith("p=1/")}, "p=1/r": "r"}


class Impatient(Runtime):
    """Does not wait between two tries."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def _no_links(*args: Any, **kwargs: Any) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def use_disk(disk: str) -> None:
    """Makes the disk of this process one that lacks something."""
    if disk == "no flag":
        kernel_rename.rename_no_replace = without_flag
    if disk == "no links":
        os.link = _no_links


def options() -> dict[str, Any]:
    """Storage options of a process; one thread makes the order of its calls the same each time."""
    return {"store": LocalStore(threads=1)}


async def run(table: str, flavour: str, job_id: str = JOB) -> None:
    """The whole life of the job."""
    config = CommitterConfig(io_concurrency=1, **FLAVOURS[flavour])
    async with committer.open_job(
        table,
        job_id=job_id,
        delivery="message" if flavour == "message" else "listing",
        config=config,
        storage_options=options(),
    ) as job:
        for number, files in enumerate(written(flavour)):
            async with job.task_attempt(number) as task:
                for name, text in files.items():
                    async with task.open(name) as file:
                        await file.write(text.encode())
        await job.commit(tasks=2)


async def run_neighbour(table: str) -> None:
    """The life of a job that replaces one of the directories."""
    config = CommitterConfig(io_concurrency=1, conflict_mode="replace")
    async with committer.open_job(table, job_id=NEIGHBOUR, config=config, storage_options=options()) as job:
        async with job.task_attempt(0) as task:
            async with task.open("p=1/r") as file:
                await file.write(b"r")
        await job.commit(tasks=1)
