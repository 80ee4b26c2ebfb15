"""A setup whose record may have stood is never made again under its name: who ended it would take the job for that one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

import committer
from committer import CommitterConfig
from committer.flow.runtime import use_runtime
from committer.records.job_state import JobSetup, decode_record
from committer.stores.memory import MemorySpace, MemoryStore
from committer.testing.faults import Call, Fault, FaultyStore
from tests.guarantees.cluster import Impatient

PROFILES = ["adls", "gcs", "hdfs", "s3"]
_numbers = count()


@pytest.fixture
def space(request: pytest.FixtureRequest) -> Iterator[MemorySpace]:
    made = MemoryStore.space(f"ended-{next(_numbers)}", getattr(request, "param", "gcs"))
    yield made
    MemoryStore.forget(made.name)


class Driver(FaultyStore):
    """A driver's store that loses the answer to the first put of the setup record; a test acts before the next look."""

    def __init__(self, space: MemorySpace, kind: str = "lost") -> None:
        super().__init__(space.store(), [Fault(kind=kind, operation="put", path="/setup", delay_s=0.0)])  # type: ignore[arg-type]
        self.before_call = self._before
        self.lost: list[str] = []
        self.space = space

    async def _before(self, call: Call) -> None:
        if call.operation == "read" and call.path.name == "setup" and not self.lost:
            data = self.space.files().get("/out/_temporary/J/setup")
            self.lost.append(setup_of(data) if data is not None else "")
            await self.act()

    async def act(self) -> None:
        """What happens then."""


def setup_of(data: bytes) -> str:
    return decode_record(data, JobSetup, source="setup").spec.setup


async def write(job: committer.Job, files: int) -> None:
    async with job.task_attempt(0) as task:
        for number in range(files):
            async with task.open(f"part-{number}") as file:
                await file.write(b"x")


@pytest.mark.parametrize("space", PROFILES, indirect=True)
async def test_setup_that_was_ended_before_its_driver_looked_gets_another_name(space: MemorySpace) -> None:
    class Ended(Driver):
        async def act(self) -> None:
            await committer.cleanup(space.path("out"), job_id="J", storage_options={"store": space.store()})

    store = Ended(space)
    with use_runtime(Impatient(1)):
        job = await committer.open_job(space.path("out"), job_id="J", storage_options={"store": store})
        assert job.spec.setup == setup_of(space.files()["/out/_temporary/J/setup"])
        assert store.lost[0] not in ("", job.spec.setup)
        await write(job, 1)
        assert (await job.commit()).files_committed == 1
    assert not any("_temporary" in path for path in space.files())


@pytest.mark.parametrize("space", PROFILES, indirect=True)
async def test_cleanup_that_stands_still_takes_nothing_of_the_next_setup(space: MemorySpace) -> None:
    """G4, G7: it would delete the commit decision, of a job that has published half of its files."""
    stands, goes_on = asyncio.Event(), asyncio.Event()
    slow = FaultyStore(space.store())

    async def stand_still(call: Call) -> None:
        if call.path.name == "decision" and call.operation in ("delete_file_if", "delete_file", "rename_file"):
            stands.set()
            await goes_on.wait()

    slow.before_call = stand_still
    cleaners: list[asyncio.Task[object]] = []

    async def clean(store: FaultyStore) -> object:
        return await committer.cleanup(space.path("out"), job_id="J", storage_options={"store": store})

    class Ended(Driver):
        async def act(self) -> None:
            cleaners.append(asyncio.create_task(clean(slow)))
            await stands.wait()
            await clean(FaultyStore(space.store()))

        async def _before(self, call: Call) -> None:
            await super()._before(call)
            if call.operation == "put" and call.path.name == "outcome" and not goes_on.is_set():
                goes_on.set()
                await asyncio.wait(cleaners)

    config = CommitterConfig(existing_target="replace")
    with use_runtime(Impatient(1)):
        job = await committer.open_job(
            space.path("out"), job_id="J", config=config, storage_options={"store": Ended(space)}
        )
        await write(job, 2)
        report = await job.commit()
    assert report.success
    assert report.files_committed == 2
    assert goes_on.is_set()
    await asyncio.gather(*cleaners, return_exceptions=True)
    assert {"/out/part-0", "/out/part-1", "/out/_SUCCESS"} <= space.files().keys()


@pytest.mark.parametrize("space", PROFILES, indirect=True)
async def test_setup_record_that_comes_beside_a_kept_outcome_is_no_other_jobs(space: MemorySpace) -> None:
    """Another name would make the outcome that of a job before, and a stream that repeats the batch would find none."""
    path = space.path("out/_temporary/J/setup")
    late: list[bytes] = []

    class Late(Driver):
        async def act(self) -> None:
            late.append(space.files()[path.path])
            await space.store().delete_file(path)

    options = {"store": Late(space)}
    config = CommitterConfig(outcome_kept=True)
    with use_runtime(Impatient(1)):
        job = await committer.open_job(space.path("out"), job_id="J", config=config, storage_options=options)
        await write(job, 1)
        assert (await job.commit()).files_committed == 1
        await job.close()
        space.write(path.path, late[0])
        report = await committer.recover(space.path("out"), "J", storage_options=options)
    assert (report.success, report.files_committed) == (True, 1)
    assert [name for name in space.files() if "_temporary" in name] == ["/out/_temporary/J/outcome"]


@pytest.mark.parametrize("space", PROFILES, indirect=True)
@pytest.mark.parametrize("kind", ["unanswered", "late"])
async def test_setup_record_that_never_came_or_comes_late_is_no_other_drivers(space: MemorySpace, kind: str) -> None:
    store = Driver(space, kind)
    with use_runtime(Impatient(1)):
        job = await committer.open_job(space.path("out"), job_id="J", storage_options={"store": store})
        for late in store.under_way:
            await late
        assert job.spec.setup == setup_of(space.files()["/out/_temporary/J/setup"])
        await write(job, 1)
        assert (await job.commit()).files_committed == 1
    assert not any("_temporary" in path for path in space.files())
