"""Two jobs that meet at one destination, their store calls interleaved on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count

import committer
from committer import CommitterConfig, Job, JobReport
from committer.errors import CommitterError, DestinationBusyError
from committer.paths import StorePath
from committer.stores.memory import MemorySpace, MemoryStore
from committer.testing.faults import Call, FaultyStore
from tests.memory_table import MemoryTable

_numbers = count()


class Connection(FaultyStore):
    """What one process has: limits of its own, not shared with the other parties, which wait for each other."""

    _opened = count()

    def __init__(self, space: MemorySpace) -> None:
        super().__init__(space.store())
        self._number = next(self._opened)

    @property
    def endpoint(self) -> str:
        return f"{self.inner.endpoint}#{self._number}"


def is_record(path: StorePath) -> bool:
    """Whether a task's record lies there, where task commits are listed."""
    return path.name.endswith(("-manifest.json", ".pendingset"))


def publishes(call: Call, name: str) -> bool:
    """Whether a call makes the file of that last name visible."""
    target = call.destination if call.operation == "rename_file" else call.path
    return call.operation in ("rename_file", "complete_upload") and target is not None and target.name == name


def writes_success(call: Call) -> bool:
    """Whether a call makes a job's `_SUCCESS` visible."""
    if call.operation == "rename_file":
        return call.destination is not None and call.destination.name == "_SUCCESS" and call.path.name.endswith(".tmp")
    return call.operation in ("put", "replace_file") and call.path.name == "_SUCCESS"


class Table(MemoryTable):
    """A destination in memory, seen past the store."""

    def __init__(self, profile: str, files: Mapping[str, bytes] | None = None, **flags: int) -> None:
        self.space = MemoryStore.space(f"neighbours-{next(_numbers)}", profile, **flags)
        self.dest = f"memory://{self.space.name}/table"
        for name, data in (files or {}).items():
            self.write(name, data)

    @property
    def options(self) -> dict[str, object]:
        """Storage options of a process."""
        return {"store": Connection(self.space)}

    def files(self) -> dict[str, bytes]:
        """What a reader sees, `_SUCCESS` left out."""
        return {name: data for name, data in self.all_files().items() if not name.startswith("_")}

    def temporary(self) -> set[str]:
        """What is left of what jobs keep for themselves."""
        return {name for name in self.all_files() if name.startswith(("_temporary", "__magic_job-"))}

    async def job(
        self, job_id: str, files: Mapping[str, bytes], config: CommitterConfig | None = None, delivery: str = "listing"
    ) -> Party:
        """A job whose one task committed; it is about to be committed by a driver with a connection of its own."""
        job = await committer.open_job(
            self.dest, job_id=job_id, config=config, delivery=delivery, storage_options=self.options
        )
        async with committer.open_task(job.spec, task=0, storage_options=self.options) as task:
            for name, data in files.items():
                async with task.open(name) as file:
                    await file.write(data)
        store = Connection(self.space)
        driver = await committer.attach_job(job.spec, storage_options={"store": store})
        store.calls.clear()
        return Party(driver, store, [task.task_commit] if delivery == "message" else None)


@dataclass
class Party:
    """A job about to be committed, and how that went."""

    driver: Job
    store: FaultyStore
    messages: list[committer.TaskCommit] | None
    tasks: int | None = None
    report: JobReport | None = None
    error: CommitterError | None = None
    calls: int = field(default=0)

    async def commit(self) -> None:
        """Commits; keeps what comes of it."""
        self.error = None
        try:
            self.report = await self.driver.commit(self.messages, self.tasks)
        except CommitterError as error:
            self.error = error
        self.calls = self.store.count()

    @property
    def busy(self) -> bool:
        """Whether it withdrew because of another job."""
        return isinstance(self.error, DestinationBusyError)


async def interrupted(first: Party, at: int, what: Callable[[], Awaitable[None]]) -> None:
    """Commits `first`, with `what` happening whole before its call number `at`; afterwards when it has fewer."""
    done = False

    async def before(call: Call) -> None:
        nonlocal done
        if call.number == at:
            done = True
            await what()

    first.store.before_call = before
    await first.commit()
    first.store.before_call = None
    if not done:
        await what()


async def crossed(first: Party, at: int, second: Party, back_at: int) -> None:
    """`first` up to its call `at`, `second` up to its call `back_at`, `first` to its end, `second` to its end."""
    first_over, second_waits = asyncio.Event(), asyncio.Event()
    running: list[asyncio.Task[None]] = []

    async def before_first(call: Call) -> None:
        if call.number == at:
            running.append(asyncio.create_task(second.commit()))
            running[0].add_done_callback(lambda _task: second_waits.set())
            await second_waits.wait()

    async def before_second(call: Call) -> None:
        if call.number == back_at:
            second_waits.set()
            await first_over.wait()

    first.store.before_call, second.store.before_call = before_first, before_second
    await first.commit()
    first_over.set()
    if running:
        await running[0]
    else:
        await second.commit()
    first.store.before_call = second.store.before_call = None
