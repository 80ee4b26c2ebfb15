"""Reference models of committers that are known to be unsafe, small enough to be read beside their descriptions.

`file-v1` and `file-v2` are the two algorithms of Hadoop's FileOutputCommitter, `direct` writes where the file goes.
They run in the same world as the engine so that the checker can be seen to find what their documents say is wrong with
them; `file-v1`, undisturbed after its tasks, is the control.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Literal, Self, TypeAlias

from committer import JobReport, TaskCommit
from committer.errors import StoreIsADirectoryError
from committer.layout import SUCCESS
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.helpers import exists
from committer_testing.simulate.worlds import directory_of

ModelName: TypeAlias = Literal["file-v1", "file-v2", "direct"]

TEMPORARY = "_temporary"


class _Places:
    """Where a FileOutputCommitter keeps what; the job attempt is always 0."""

    def __init__(self, destination: StorePath, job_id: str) -> None:
        self.job_attempt: StorePath = destination.parent / f"{directory_of(job_id, '')}0"

    def working(self, task: int, attempt: int) -> StorePath:
        """What an attempt writes to."""
        return self.job_attempt / TEMPORARY / f"attempt_{task}_{attempt}"

    def committed(self, task: int) -> StorePath:
        """What a committed task left, with algorithm 1."""
        return self.job_attempt / f"task_{task}"


async def merge(store: Store, source: StorePath, target: StorePath) -> None:
    """Moves a tree into another one; in every conflict the source wins."""
    children = [child async for child in store.list(source)]
    await store.make_directory(target, parents=True)
    for child in children:
        place = target / child.path.name
        if child.is_directory:
            await merge(store, child.path, place)
        else:
            try:
                await store.delete_file(place)
            except StoreIsADirectoryError:
                await store.delete_directory(place, recursive=True)
            await store.rename_file(child.path, place)


class ModelTask:
    """One task attempt. Leaving its block commits it, with an error aborts it.

    Args:
        store: The executor's.
        destination: Where the job writes to.
        job_id: The job.
        kind: Which committer.
        task: The task.
        attempt: The attempt.
    """

    def __init__(
        self, store: Store, destination: StorePath, job_id: str, kind: ModelName, task: int, attempt: int
    ) -> None:
        self._store = store
        self._destination = destination
        self._kind = kind
        self._places = _Places(destination, job_id)
        self._directory = destination if kind == "direct" else self._places.working(task, attempt)
        self._task = task
        self.message: TaskCommit = TaskCommit(
            job_id=job_id, task=task, attempt=attempt, nonce="", record="", digest="", length=0, files=0, size=0
        )

    async def write(self, name: str, data: bytes) -> None:
        """Writes one file."""
        path = self._directory / name
        await self._store.make_directory(path.parent, parents=True)
        await self._store.put(path, data)

    async def _commit(self) -> None:
        if self._kind == "direct" or not await exists(self._store, self._directory):
            return
        if self._kind == "file-v2":
            await merge(self._store, self._directory, self._destination)
            return
        committed = self._places.committed(self._task)
        await self._store.delete_directory(committed, recursive=True)
        await self._store.rename_directory(self._directory, committed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self._commit()
        elif self._kind != "direct" and isinstance(error, Exception):
            await self._store.delete_directory(self._directory, recursive=True)


class ModelJob:
    """A job in its driver. Leaving its block with an error aborts it.

    Args:
        store: The driver's.
        destination: Where the job writes to.
        job_id: The job.
        kind: Which committer.
    """

    def __init__(self, store: Store, destination: StorePath, job_id: str, kind: ModelName) -> None:
        self._store = store
        self._destination = destination
        self._job_id = job_id
        self._kind = kind
        self._places = _Places(destination, job_id)

    async def commit(self) -> JobReport:
        """Algorithm 1 moves what tasks committed; all then clean up. `mark` comes next."""
        if self._kind == "file-v1":
            children = [child.path async for child in self._store.list(self._places.job_attempt)]
            for child in sorted(children):
                if child.name != TEMPORARY:
                    await merge(self._store, child, self._destination)
        await self._clean_up()
        return JobReport(success=True, job_id=self._job_id, committer=self._kind)

    async def mark(self) -> None:
        """Writes `_SUCCESS`, which is empty in Hadoop and names its job here, as the checker wants to know."""
        text = f'{{"jobId":"{self._job_id}"}}'
        await self._store.put(self._destination / SUCCESS, text.encode())

    async def abort_task(self, task: int, attempt: int) -> None:
        """Deletes what an attempt wrote, as far as it is known where that is."""
        if self._kind != "direct":
            await self._store.delete_directory(self._places.working(task, attempt), recursive=True)

    async def _clean_up(self) -> None:
        await self._store.delete_directory(self._destination / TEMPORARY, recursive=True)

    async def __aenter__(self) -> Self:
        await self._store.make_directory(self._places.job_attempt, parents=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception | asyncio.CancelledError):
            await self._clean_up()
