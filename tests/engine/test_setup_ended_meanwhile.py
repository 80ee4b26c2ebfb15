"""A setup whose record may have stood is never made again under its name: who ended it would take the job for that one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count

import pytest

import committer
from committer import CommitterConfig
from committer.errors import JobExistsError, StorePermissionError
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


class Held(FaultyStore):
    """A store to which the first setup record comes late: right before the second one."""

    came: str = ""

    def __init__(self, space: MemorySpace, then: Callable[[], Awaitable[None]] | None = None) -> None:
        super().__init__(space.store(), [Fault(kind="late", operation="put", path="/setup")])
        self.before_call = self._before
        self._space, self._then = space, then

    def _send_later(self, call: Call, effect: Callable[[], Awaitable[object]], delay_s: float) -> None:
        self._effect = effect

    async def _before(self, call: Call) -> None:
        if call.operation == "put" and call.path.name == "setup" and self.count("put") == 2:
            await self._effect()
            self.came = setup_of(self._space.files()[call.path.path])
            if self._then is not None:
                await self._then()


class Joined:
    """A driver that joins the job by its id; it stands still before it commits the job, or before its second file is
    published.
    """

    def __init__(self, space: MemorySpace, *, decides: bool = True) -> None:
        self._space, self._decides = space, decides
        self._half, self._goes_on, self._published = asyncio.Event(), asyncio.Event(), 0

    async def begin(self) -> None:
        """It comes as far as that."""
        self._driver = asyncio.create_task(self._drive())
        half = asyncio.create_task(self._half.wait())
        await asyncio.wait([self._driver, half], return_when=asyncio.FIRST_COMPLETED)

    async def end(self) -> committer.JobReport:
        """It goes on."""
        self._goes_on.set()
        return await self._driver

    async def _drive(self) -> committer.JobReport:
        store = FaultyStore(self._space.store())
        store.before_call = self._stand_still
        job = await committer.attach_job(self._space.path("out"), job_id="J", storage_options={"store": store})
        await write(job, 2)
        if not self._decides:
            await self._stop()
        return await job.commit(tasks=1)

    async def _stop(self) -> None:
        self._half.set()
        await self._goes_on.wait()

    async def _stand_still(self, call: Call) -> None:
        to = call.destination or call.path
        ends = call.operation in ("rename_file", "complete_upload", "put_block_list")
        self._published += ends and to.parent == self._space.path("out")
        if self._published == 2:
            await self._stop()


@pytest.mark.parametrize("space", ["azure-flat", "gcs", "s3"], indirect=True)
@pytest.mark.parametrize("decides", [False, True], ids=["joined", "decided"])
async def test_setup_that_was_given_up_and_that_another_driver_joined_is_not_taken_back(
    space: MemorySpace, *, decides: bool
) -> None:
    """G4: its decision would go when half of its files are published."""
    joined = Joined(space, decides=decides)
    store = Held(space, joined.begin)
    with use_runtime(Impatient(1)):
        with pytest.raises(JobExistsError):
            await committer.open_job(space.path("out"), job_id="J", storage_options={"store": store})
        assert (await joined.end()).files_committed == 2
    assert {"/out/part-0", "/out/part-1", "/out/_SUCCESS"} <= space.files().keys()
    assert "/out/_temporary/J/setup" not in space.files()


@pytest.mark.parametrize("space", PROFILES, indirect=True)
async def test_setup_that_was_given_up_is_taken_back_where_it_comes_late(space: MemorySpace) -> None:
    store = Held(space)
    with use_runtime(Impatient(1)):
        job = await committer.open_job(space.path("out"), job_id="J", storage_options={"store": store})
        assert job.spec.setup == setup_of(space.files()["/out/_temporary/J/setup"]) != store.came
        await write(job, 1)
        assert (await job.commit()).files_committed == 1
    assert not any("_temporary" in path for path in space.files())


@pytest.mark.parametrize("space", ["azure-flat", "gcs", "s3"], indirect=True)
async def test_setup_that_fails_once_another_driver_decided_the_job_is_not_removed(space: MemorySpace) -> None:
    """G4, likewise."""
    store, joined = (
        FaultyStore(space.store(), [Fault(kind="forbidden", operation="read", path="/setup")]),
        Joined(space),
    )

    async def before(call: Call) -> None:
        if call.operation == "read" and call.path.name == "setup" and store.count("read") == 1:
            await joined.begin()

    store.before_call = before
    with use_runtime(Impatient(1)):
        with pytest.raises(StorePermissionError, match="may still be there"):
            await committer.open_job(space.path("out"), job_id="J", storage_options={"store": store})
        assert (await joined.end()).files_committed == 2
    assert {"/out/part-0", "/out/part-1", "/out/_SUCCESS"} <= space.files().keys()
    assert "/out/_temporary/J/setup" not in space.files()


@pytest.mark.parametrize("space", PROFILES, indirect=True)
async def test_kept_outcome_of_an_earlier_setup_that_comes_late_ends_no_other_job(space: MemorySpace) -> None:
    """G5: a driver that took it for the outcome of its own job would publish nothing, and say that it committed."""
    options, config = {"store": space.store()}, CommitterConfig(outcome_kept=True, existing_target="replace")
    outcome = space.path("out/_temporary/J/outcome")
    with use_runtime(Impatient(1)):
        async with committer.open_job(space.path("out"), job_id="J", config=config, storage_options=options) as earlier:
            await write(earlier, 1)
            await earlier.commit()
        late = space.files()[outcome.path]
        await space.store().delete_file(outcome)
        await space.store().delete_file(space.path("out/part-0"))
        async with committer.open_job(space.path("out"), job_id="J", config=config, storage_options=options) as job:
            await write(job, 2)
            space.write(outcome.path, late)
            assert (await job.commit()).files_committed == 2
    assert {"/out/part-0", "/out/part-1", "/out/_SUCCESS"} <= space.files().keys()
