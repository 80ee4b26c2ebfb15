"""Where the engine's functional tests run: a disk and memory spaces, each with a way to look past the engine."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from itertools import count
from pathlib import Path
from typing import Literal

import pytest

import committer
from committer import CommitterConfig, Job, JobSpec, TaskAttempt, TaskCommit
from committer.layout import DirectoryName, JobLayout
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.local import LocalStore
from committer.stores.memory import MemoryStore
from committer.testing.faults import Fault, FaultyStore
from tests.job_paths import unique_id
from tests.memory_table import MemoryTable

Delivery = Literal["listing", "message"]

PROFILES = ("disk", "local", "hdfs", "adls", "gcs")
STAGING = ("directory", "partitioned")
EVERY_COMMITTER = (*PROFILES, "s3", "azure-flat", "directory")
OF_JOBS = ("_temporary/", "__magic_job-")


class Place(ABC):
    """A destination, an injected store that counts calls, and a channel past both.

    Attributes:
        dest: The destination as a user gives it.
        store: The store every call of the test goes through.
        committer: The committer that jobs have here.
        publishes_by: The call that makes one file visible.
        delivery: How its jobs learn of task commits.
        listed_record: How the name of a task's record ends, where records are listed.
        asked_for: Whether jobs name it, since the store's default is another.
        writes_to_disk: Whether tasks write to a disk of their machine until they commit.
    """

    dest: str
    store: FaultyStore
    committer: str = "manifest"
    publishes_by: str = "rename_file"
    listed_record: str = "manifest.json"
    asked_for: bool = False
    writes_to_disk: bool = False
    delivery: Delivery = "listing"

    @property
    def options(self) -> dict[str, object]:
        """Storage options with the counting store."""
        return {"store": self.store}

    def faults(self, *faults: Fault) -> None:
        """Makes calls fail from now on."""
        self.store.faults.extend(faults)

    def layout(self, job_id: str, job_attempt: int = 0) -> JobLayout:
        """Where a job lives."""
        names = [*self.all_files(), *self.directories()]
        setup = DirectoryName.of(unique_id(names, job_id)).setup
        return JobLayout(StorePath.of(self.dest), job_id, job_attempt, setup=setup)

    @abstractmethod
    def all_files(self) -> dict[str, bytes]:
        """Every file below the destination, by relative name."""

    @abstractmethod
    def directories(self) -> set[str]:
        """Every directory below the destination, by relative name."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Puts a file there, with its directories."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Deletes a file, or a directory with all in it."""

    def read(self, name: str) -> bytes:
        """One file."""
        return self.all_files()[name]

    def waiting(self) -> list[str]:
        """Every file that is there or waits to be, by relative name: uploads that are not completed yet, too."""
        return list(self.all_files())

    def files(self) -> dict[str, bytes]:
        """What a reader sees: every file but `_SUCCESS`, and what jobs keep for themselves."""
        return {
            name: data for name, data in self.all_files().items() if name != "_SUCCESS" and not name.startswith(OF_JOBS)
        }

    def temporary(self) -> set[str]:
        """What jobs left of what they keep for themselves, directories too."""
        return {
            name
            for name in {*self.all_files(), *self.directories()}
            if name == "_temporary" or name.startswith(OF_JOBS)
        }

    # -- the engine ---------------------------------------------------------------------------------------------

    def open_job(self, **arguments: object):
        """`committer.open_job` at this place."""
        arguments.setdefault("delivery", self.delivery)
        if self.asked_for:
            arguments.setdefault("committer", self.committer)
        return committer.open_job(self.dest, storage_options=self.options, **arguments)

    def attach_job(self, job_id: str, **arguments: object):
        """`committer.attach_job` at this place."""
        return committer.attach_job(self.dest, job_id=job_id, storage_options=self.options, **arguments)

    def open_task(self, spec: JobSpec, task: int, attempt: int = 0):
        """`committer.open_task` at this place."""
        return committer.open_task(spec, task=task, attempt=attempt, storage_options=self.options)

    async def run_task(
        self, job: Job | JobSpec, task: int, files: Mapping[str, bytes] | None = None, attempt: int = 0
    ) -> TaskCommit:
        """Runs one task attempt; returns its message."""
        spec = job.spec if isinstance(job, Job) else job
        async with self.open_task(spec, task, attempt) as writer:
            for name, data in (files or {}).items():
                async with writer.open(name) as file:
                    await file.write(data)
        return writer.task_commit

    async def run_job(
        self,
        *tasks: Mapping[str, bytes],
        job_id: str | None = None,
        delivery: Delivery = "listing",
        config: CommitterConfig | None = None,
    ) -> committer.JobReport:
        """Runs a job whole."""
        async with self.open_job(job_id=job_id, delivery=delivery, config=config) as job:
            messages = [await self.run_task(job, number, files) for number, files in enumerate(tasks)]
            return await job.commit(messages if delivery == "message" else None, tasks=len(tasks))

    async def recover(self, job_id: str, **arguments: object) -> committer.JobReport:
        """`committer.recover` at this place."""
        return await committer.recover(self.dest, job_id, storage_options=self.options, **arguments)

    async def states(self) -> dict[str, str]:
        """State by job."""
        return {info.job_id: info.state for info in await committer.list_jobs(self.dest, storage_options=self.options)}


class DiskPlace(Place):
    """A directory of this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root / "table"
        self.dest = str(self.root)
        self.store = FaultyStore(LocalStore(threads=1))

    def all_files(self) -> dict[str, bytes]:
        found = {}
        for directory, _below, names in os.walk(self.root):
            for name in names:
                path = Path(directory, name)
                try:
                    found[path.relative_to(self.root).as_posix()] = path.read_bytes()
                except FileNotFoundError:
                    # Renamed by a call that runs in another thread.
                    continue
        return found

    def directories(self) -> set[str]:
        return {
            Path(directory, name).relative_to(self.root).as_posix()
            for directory, below, _names in os.walk(self.root)
            for name in below
        }

    def write(self, name: str, data: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def remove(self, name: str) -> None:
        path = self.root / name
        if path.is_dir():
            import shutil

            shutil.rmtree(path)
        else:
            path.unlink()


class MemoryPlace(MemoryTable, Place):
    """A memory space."""

    _numbers = count()

    def __init__(self, profile: str = "local", *, delivery: Delivery = "listing", **flags: bool) -> None:
        self.delivery = delivery
        self.space = MemoryStore.space(f"engine-{next(self._numbers)}", profile, **flags)
        self.dest = f"memory://{self.space.name}/table"
        self.store = FaultyStore(self.space.store())
        if profile == "s3":
            self.committer, self.publishes_by, self.listed_record = "magic", "complete_upload", ".pendingset"
        elif profile == "azure-flat":
            self.committer, self.publishes_by = "block-list", "put_block_list"

    def waiting(self) -> list[str]:
        uploads = [upload.path.path.removeprefix("/table/") for upload in self.space.uploads]
        return [*self.all_files(), *uploads]

    def directories(self) -> set[str]:
        return {name.removeprefix("/table/") for name in self.space.directories() if name.startswith("/table/")}


def place_fixture(*kinds: str, delivery: Delivery = "listing"):
    """A fixture that is each of these kinds of place in turn, and how jobs there learn of task commits."""

    @pytest.fixture(params=kinds)
    async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
        made = make_place(request.param, request.getfixturevalue("tmp_path") if request.param == "disk" else None)
        made.delivery = delivery
        yield made
        await made.store.close()

    return place


class StagingPlace(MemoryPlace):
    """A memory space that is like S3, whose jobs have a committer that keeps files on a disk until tasks commit."""

    asked_for = writes_to_disk = True

    def __init__(self, committer_name: str, *, delivery: Delivery = "listing") -> None:
        super().__init__("s3", delivery=delivery)
        self.committer, self.listed_record = committer_name, "manifest.json"


def make_place(kind: str, tmp_path: Path | None) -> Place:
    """The place of a kind: `disk`, in a directory of its own, a memory profile, or a staging committer's."""
    if kind in STAGING:
        return StagingPlace(kind)
    return DiskPlace(tmp_path) if kind == "disk" and tmp_path is not None else MemoryPlace(kind)


async def write_file(task: TaskAttempt, name: str, data: bytes) -> None:
    """Writes one file whole."""
    async with task.open(name) as file:
        await file.write(data)


def plain_store(place: Place) -> Store:
    """The place's store without the counting one around it."""
    return place.store.inner


place = place_fixture(*PROFILES)


@pytest.fixture
def memory() -> MemoryPlace:
    """A memory space that is like a local disk."""
    return MemoryPlace("local")


@pytest.fixture
def flat() -> MemoryPlace:
    """A memory space without directories."""
    return MemoryPlace("gcs")
