"""Jobs of the staging committers whose task records are in a place that the caller named, on another store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

import msgspec
import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.errors import (
    CommitterError,
    ConfigurationError,
    JobNotFoundError,
    JobUndecidedError,
    RecordError,
    TaskMissingError,
)
from committer.events import JobEvent
from committer.flow.runtime import use_runtime
from committer.paths import StorePath
from committer.records.job_state import JobSetup
from committer.records.pending_set import decode_pending_set
from committer.stores.memory import MemoryStore
from committer.stores.registry import register_store, unregister_store
from committer.testing.faults import Fault, FaultKind, FaultyStore, SimulatedCrash
from committer.testing.virtual_time import VirtualRuntime
from tests.job_paths import in_job, unique_id
from tests.places import MemoryPlace, StagingPlace, write_file
from tests.waiting_uploads import pending

FILES = {"p=1/a": b"1", "p=2/b": b"22"}
MORE = {"p=1/c": b"333"}


class There:
    """A store that holds records, and what it was asked."""

    _numbers = count()

    def __init__(self, profile: str) -> None:
        self.space = MemoryStore.space(f"elsewhere-{next(self._numbers)}", profile)
        self.space.write("/tmp/keep", b"")
        self.store = FaultyStore(self.space.store())
        self.uri = f"memory://{self.space.name}/tmp"

    def names(self) -> list[str]:
        """The files there but the one that keeps the directory."""
        return sorted(name.removeprefix("/tmp/") for name in self.space.files() if name != "/tmp/keep")

    def restart(self) -> None:
        """What another process has in hand."""
        self.store = FaultyStore(self.space.store())


@pytest.fixture(params=["hdfs", "s3"])
def there(request: pytest.FixtureRequest) -> Iterator[There]:
    made = There(request.param)

    def find(path: StorePath, options: Mapping[str, object]) -> FaultyStore:
        assert path.authority == made.space.name
        assert not options
        return made.store

    register_store("memory", find)
    yield made
    unregister_store("memory")


@pytest.fixture(params=["directory", "partitioned"])
def place(request: pytest.FixtureRequest) -> MemoryPlace:
    return StagingPlace(request.param)


@pytest.fixture
def config(there: There, tmp_path: Path) -> CommitterConfig:
    return CommitterConfig(
        pending_set_directory=there.uri, pending_set_user="ana", staging_directories=(str(tmp_path),)
    )


def restarted(place: MemoryPlace) -> None:
    place.store = FaultyStore(place.space.store())


def sets_of(place: MemoryPlace, user: str = "ana") -> str:
    """Where the pending sets of job j are, below the place that its user named."""
    return f"{user}/{unique_id(place, 'j')}/staging-uploads/_temporary/0"


# -- a healthy job ------------------------------------------------------------------------------------------------------


async def test_records_are_there_and_the_rest_at_the_destination(
    place: MemoryPlace, there: There, config: CommitterConfig
) -> None:
    async with place.open_job(job_id="j", config=config) as job:
        await place.run_task(job, 0, FILES)
        await place.run_task(job, 1, MORE)
        await place.run_task(job, 2, {})
        directory = sets_of(place)
        assert there.names() == [f"{directory}/task_j_m_00000{task}" for task in range(3)]
        record = await committer.load_record(f"{there.uri}/{directory}/task_j_m_000001")
        assert [one.destinationKey for one in record.commits] == ["table/p=1/c"]
        assert not [name for name in place.all_files() if "manifest" in name]
        plan = await job.plan(tasks=3)
        assert (plan.files, plan.tasks, plan.stray) == (3, 3, [])
        report = await job.commit(tasks=3)
    assert report.files_committed == 3
    assert place.files() == FILES | MORE
    assert place.temporary() == set()
    assert pending(place) == []
    assert there.names() == []
    assert {*there.space.directories()} <= {"/", "/tmp", "/tmp/ana"}


async def test_progress_counts_the_records_there(place: MemoryPlace, there: There, config: CommitterConfig) -> None:
    counts: list[int] = []

    def listen(event: JobEvent) -> None:
        if event.kind == "tasks_committed":
            counts.append(event.done)

    with use_runtime(VirtualRuntime(auto_advance=False)) as runtime:
        async with place.open_job(job_id="j", config=config, progress=listen) as job:
            for task in range(2):
                await place.run_task(job, task, {f"p=1/{task}": b"1"})
            there.space.write(f"/tmp/{sets_of(place)}/_attempt_j_m_000002_0-1a.tmp", b"")
            await runtime.advance(5)
    assert counts == [2]


async def test_a_job_commit_costs_the_destination_nothing_more(
    place: MemoryPlace, there: There, config: CommitterConfig
) -> None:
    """A record costs what it would at the destination; but the removal of the place looks once whose it is."""
    counts = []
    for choices in (config, config.replace(pending_set_directory="")):
        restarted(place)
        there.restart()
        async with place.open_job(config=choices) as job:
            for task in range(4):
                await place.run_task(job, task, {f"{job.spec.job_id}-{task}": b"x"})
            before, made = len(place.store.calls), len(there.store.calls)
            await job.commit(tasks=4)
        counts.append((len(place.store.calls) - before, len(there.store.calls) - made))
    (with_place, beside), (without, none) = counts
    assert none == 0
    # A listing and a read for each record, the listing of what names uploads, two deletes.
    assert beside <= 1 + 4 + 1 + 2
    assert with_place <= without + 1


async def test_a_task_that_commits_twice_counts_once(place: MemoryPlace, config: CommitterConfig) -> None:
    async with place.open_job(config=config) as job:
        await place.run_task(job, 0, FILES)
        await place.run_task(job, 0, MORE, attempt=1)
        await job.commit(tasks=1)
    assert place.files() == MORE
    assert pending(place) == []


async def test_a_committed_attempt_that_is_aborted_does_not_count(
    place: MemoryPlace, there: There, config: CommitterConfig
) -> None:
    async with place.open_job(config=config) as job:
        await place.run_task(job, 0, FILES)
        await place.run_task(job, 1, MORE)
        await job.abort_task(0, 0)
        await job.abort_task(1, 7)
        with pytest.raises(TaskMissingError):
            await job.commit(tasks=2)
        await job.commit(tasks=1)
    assert place.files() == MORE
    assert pending(place) == []
    assert there.names() == []


async def test_messages_say_which_attempts_win(place: MemoryPlace, config: CommitterConfig) -> None:
    async with place.open_job(config=config) as job:
        message = await place.run_task(job, 0, FILES)
        await place.run_task(job, 1, MORE)
        assert await job.recover_task(0, 0) == msgspec.structs.replace(message, nonce="")
        await job.commit([message], tasks=1)
    assert place.files() == FILES
    assert pending(place) == []


@pytest.mark.parametrize("choice", [{"delivery": "message"}, {"committer": "magic"}], ids=str)
async def test_a_place_that_has_no_use_is_said_to_have_none(
    place: MemoryPlace, there: There, config: CommitterConfig, choice: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with place.open_job(config=config, **choice) as job:
        assert "pending_set_directory has no effect" in caplog.text
        await job.commit([await place.run_task(job, 0, FILES)], tasks=1)
    assert place.files() == FILES
    assert there.store.calls == []


@pytest.mark.parametrize("name", ["", "/records", "/_temporary/x"])
async def test_a_place_among_the_output_is_refused(place: MemoryPlace, config: CommitterConfig, name: str) -> None:
    with pytest.raises(ConfigurationError, match="pending_set_directory"):
        await place.open_job(config=config.replace(pending_set_directory=f"{place.dest}{name}"))
    assert place.all_files() == {}


async def test_a_place_on_the_destinations_own_store(place: MemoryPlace, config: CommitterConfig) -> None:
    """It is reached as the destination is, with what the caller gave for that."""
    beside = place.dest.replace("/table", "/records")
    async with place.open_job(config=config.replace(pending_set_directory=beside), job_id="j") as job:
        await place.run_task(job, 0, FILES)
        records = [name for name in place.space.files() if name.startswith("/records/")]
        assert records == [f"/records/{sets_of(place)}/task_j_m_000000"]
        await job.commit(tasks=1)
    assert place.files() == FILES
    assert not [name for name in place.space.files() if name.startswith("/records/")]


async def test_two_jobs_have_records_of_their_own(place: MemoryPlace, there: There, config: CommitterConfig) -> None:
    async with place.open_job(job_id="one", config=config) as one, place.open_job(job_id="two", config=config) as two:
        await place.run_task(one, 0, FILES)
        await place.run_task(two, 0, MORE)
        await one.commit(tasks=1)
        assert place.files() == FILES
        await two.commit(tasks=1)
    assert place.files() == FILES | MORE
    assert there.names() == []


# -- who else comes: a record never says where ----------------------------------------------------------------------------


async def left(place: MemoryPlace, config: CommitterConfig, *, intends: bool = False) -> None:
    """A job `j` whose driver died."""
    job = await place.open_job(job_id="j", config=config)
    await place.run_task(job, 0, FILES)
    if intends:
        place.faults(Fault(kind="crash_before", path="/decision"))
        with pytest.raises(SimulatedCrash):
            await job.commit(tasks=1)
    restarted(place)


async def test_without_the_place_no_driver_commits(place: MemoryPlace, there: There, config: CommitterConfig) -> None:
    await left(place, config)
    before = place.all_files()
    there.restart()
    for given in (None, {"pending_set_directory": f"{there.uri}/other"}, {"pending_set_directory": there.uri}):
        async with place.attach_job("j", config=given) as job:
            for call in (job.plan, job.commit):
                with pytest.raises(ConfigurationError, match=r"commit to memory://elsewhere-.*pending_set_directory"):
                    await call()
    assert there.store.calls == []
    assert place.all_files() == before
    async with place.attach_job("j", config=config) as job:
        assert (await job.plan()).files == 2
        await job.commit(tasks=1)
    assert place.files() == FILES


async def test_a_recovery_of_an_undecided_job_is_told_the_place(
    place: MemoryPlace, there: There, config: CommitterConfig
) -> None:
    await left(place, config, intends=True)
    with pytest.raises(ConfigurationError, match="commit to memory://"):
        await place.recover("j")
    with pytest.raises((ConfigurationError, JobUndecidedError)):
        await place.recover("j", force=True)
    assert place.files() == {}
    assert (await place.recover("j", config=config)).files_committed == 2
    assert place.files() == FILES
    assert (pending(place), place.temporary(), there.names()) == ([], set(), [])


@pytest.mark.parametrize("rollback", [False, True])
async def test_a_decided_job_rests_on_nothing_there(
    place: MemoryPlace, there: There, config: CommitterConfig, rollback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A cluster that is gone took its records with it."""
    job = await place.open_job(job_id="j", config=config)
    await place.run_task(job, 0, FILES)
    place.faults(Fault(kind="crash_before", operation="complete_upload"))
    with pytest.raises(SimulatedCrash):
        await job.commit(tasks=1)
    restarted(place)
    there.restart()
    report = await place.recover("j", rollback=rollback)
    assert report.success is not rollback
    assert place.files() == ({} if rollback else FILES)
    assert (pending(place), place.temporary()) == ([], set())
    assert there.store.calls == []
    assert re.search(r"recorded stays at memory://elsewhere-", caplog.text)


@pytest.mark.parametrize("given", [False, True])
async def test_a_cleanup_ends_uploads_and_says_what_stays(
    place: MemoryPlace, there: There, config: CommitterConfig, given: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await left(place, config)
    await committer.cleanup(place.dest, job_id="j", config=config if given else None, storage_options=place.options)
    assert (place.all_files(), pending(place)) == ({}, [])
    assert bool(there.names()) is not given
    assert ("recorded stays at" in caplog.text) is not given
    # The next job of the id has a place of its own.
    async with place.open_job(job_id="j", config=config) as job:
        await place.run_task(job, 0, MORE)
    assert place.files() == MORE


async def test_a_place_is_not_used_for_a_job_that_has_none(
    place: MemoryPlace, there: There, config: CommitterConfig
) -> None:
    there.space.write(f"/tmp/{sets_of(place)}/task_j_m_000000", b"another's")
    job = await place.open_job(job_id="j", config=config.replace(pending_set_directory=""))
    await place.run_task(job, 0, FILES)
    await job.close()
    async with place.attach_job("j", config=config) as attached:
        await attached.commit(tasks=1)
    assert place.files() == FILES
    job = await place.open_job(job_id="j", config=config.replace(pending_set_directory=""))
    await job.close()
    await committer.cleanup(place.dest, job_id="j", config=config, storage_options=place.options)
    assert len(there.names()) == 1


async def test_a_setup_record_names_no_place_of_its_own(
    place: MemoryPlace, there: There, config: CommitterConfig
) -> None:
    """G10: who can write at the destination sends no driver to another user's records."""
    await left(place, config)
    others = f"{sets_of(place, 'eve')}/task_j_m_000000"
    there.space.write(f"/tmp/{others}", b"another's")
    setup = msgspec.json.decode(place.read(in_job(place, "j", "setup")), type=JobSetup)
    evil = setup.spec.config.replace(pending_set_user="eve")
    told = setup.spec.records_at.replace("/ana/", "/eve/")
    place.write(
        in_job(place, "j", "setup"),
        msgspec.json.encode(
            msgspec.structs.replace(setup, spec=msgspec.structs.replace(setup.spec, config=evil, records_at=told))
        ),
    )
    async with place.attach_job("j", config=config) as job:
        with pytest.raises(ConfigurationError):
            await job.commit(tasks=1)
        await job.abort()
    assert others in there.names()


def _elsewhere(record: bytes) -> bytes:
    return record.replace(b"table/p=1", b"other/p=1")


def _cut_short(record: bytes) -> bytes:
    return record[:-20]


@pytest.mark.parametrize("change", [_elsewhere, _cut_short])
async def test_a_set_that_is_damaged_or_names_a_file_outside_is_refused(
    place: MemoryPlace, there: There, config: CommitterConfig, change: Callable[[bytes], bytes]
) -> None:
    async with place.open_job(job_id="j", config=config) as job:
        await place.run_task(job, 0, MORE)
        name = f"/tmp/{sets_of(place)}/task_j_m_000000"
        there.space.write(name, change(there.space.files()[name]))
        with pytest.raises(RecordError, match="task_j_m_000000"):
            await job.commit(tasks=1)
        await job.abort()
    assert (place.all_files(), there.names()) == ({}, [])
    # Its list at the destination names its uploads, too.
    assert pending(place) == []
    assert not [name for name in place.space.files() if name.startswith("/other")]


# -- tasks that come late ---------------------------------------------------------------------------------------------


async def test_a_task_of_a_job_that_is_over_commits_nothing(place: MemoryPlace, config: CommitterConfig) -> None:
    job = await place.open_job(job_id="j", config=config)
    late = await place.open_task(job.spec, 1)
    await write_file(late, "late", b"late")
    await place.run_task(job, 0, FILES)
    await job.commit(tasks=1)
    await job.close()
    with pytest.raises(CommitterError):
        await late.commit()
    assert place.files() == FILES
    assert pending(place) == []
    again = await place.open_job(job_id="again", config=config)
    await again.abort()
    await again.close()


async def test_a_late_record_of_an_earlier_job_of_the_id_counts_not(
    place: MemoryPlace, there: There, config: CommitterConfig
) -> None:
    async with place.open_job(job_id="j", config=config) as job:
        await place.run_task(job, 0, FILES)
        name = f"/tmp/{sets_of(place)}/task_j_m_000000"
        late = there.space.files()[name]
        await job.abort()
    async with place.open_job(job_id="j", config=config) as job:
        await place.run_task(job, 0, MORE)
        there.space.write(name, late)
        await job.commit(tasks=1)
    assert place.files() == MORE


# -- jobs of Hadoop's -------------------------------------------------------------------------------------------------


def as_java(data: bytes) -> bytes:
    """A set as Hadoop's staging committers leave it: it names neither its job, nor the attempt, nor a run."""
    record = msgspec.json.decode(data)
    record["jobId"], record["extraData"] = "", {}
    for one in record["commits"]:
        one["jobId"] = one["taskId"] = ""
        one["extraData"] = {}
    return msgspec.json.encode(record)


async def java_job(place: MemoryPlace, there: There, config: CommitterConfig) -> JobSpec:
    """A job that Hadoop set up, with a task that committed."""
    there.space.write("/tmp/ana/job_1_0001/staging-uploads/_temporary/0/_temporary/x", b"")
    spec = JobSpec.for_hadoop(place.dest, "job_1_0001", committer=place.committer, config=config)
    await place.run_task(spec, 0, FILES)
    name = "/tmp/ana/job_1_0001/staging-uploads/_temporary/0/task_1_0001_m_000000"
    there.space.write(name, as_java(there.space.files()[name]))
    assert decode_pending_set(there.space.files()[name], source="").jobId == ""
    return spec


async def joined(place: MemoryPlace, spec: JobSpec) -> committer.Job:
    return await committer.attach_job(spec, storage_options=place.options)


async def test_a_job_of_hadoops_is_joined_like_every_other(
    place: MemoryPlace, there: There, config: CommitterConfig
) -> None:
    spec = await java_job(place, there, config)
    first, second = await joined(place, spec), await joined(place, spec)
    await place.run_task(spec, 1, MORE)
    assert await place.states() == {"job_1_0001": "open"}
    assert first.spec == second.spec
    assert (await second.plan(tasks=2)).files == 3
    assert (await first.commit(tasks=2)).files_committed == 3
    await first.close()
    await second.close()
    assert place.files() == FILES | MORE
    assert (place.temporary(), there.names()) == (set(), [])
    assert (await place.recover("job_1_0001")).files_committed == 3
    with pytest.raises(JobNotFoundError):
        await joined(place, spec)


async def test_a_set_of_java_that_an_abort_left_aside_is_put_back(
    place: MemoryPlace, there: There, config: CommitterConfig
) -> None:
    """The driver died between taking a record and seeing that Java's task had replaced it meanwhile."""
    spec = await java_job(place, there, config)
    directory = "/tmp/ana/job_1_0001/staging-uploads/_temporary/0"
    data = there.space.files()[f"{directory}/task_1_0001_m_000000"]
    there.space.tree.delete_file(there.space.path(f"{directory[1:]}/task_1_0001_m_000000"))
    there.space.write(f"{directory}/_attempt_1_0001_m_000000_0-aborted.tmp", data)
    async with await joined(place, spec) as job:
        await job.commit(tasks=1)
    assert place.files() == FILES


async def test_a_conflict_mode_means_what_it_means_there(
    place: MemoryPlace, there: There, config: CommitterConfig
) -> None:
    place.write("p=1/old", b"old")
    place.write("p=9/old", b"old")
    spec = await java_job(place, there, config.replace(conflict_mode="replace"))
    async with await joined(place, spec) as job:
        await job.commit(tasks=1)
    kept = {"p=9/old": b"old"} if place.committer == "partitioned" else {}
    assert place.files() == FILES | kept


async def test_a_job_joined_as_something_else_is_refused(
    place: MemoryPlace, there: There, config: CommitterConfig
) -> None:
    spec = await java_job(place, there, config)
    await (await joined(place, spec)).close()
    other = "partitioned" if place.committer == "directory" else "directory"
    with pytest.raises(CommitterError, match="was joined before"):
        await joined(place, msgspec.structs.replace(spec, committer=other))


# -- faults at every call ---------------------------------------------------------------------------------------------


async def whole_job(place: MemoryPlace, config: CommitterConfig) -> None:
    async with place.open_job(job_id="j", config=config) as job:
        await place.run_task(job, 0, FILES)
        await place.run_task(job, 1, MORE)
        await job.commit(tasks=2)


@pytest.mark.parametrize("kind", ["forbidden", "unavailable", "unanswered", "lost", "crash_before", "crash_after"])
async def test_a_fault_at_any_call_there(
    place: MemoryPlace, there: There, config: CommitterConfig, kind: FaultKind
) -> None:
    """Whatever fails there, the output is all there after a recovery, or none of it, and nothing is left."""
    await whole_job(place, config)
    calls = len(there.store.calls)
    assert calls >= 8
    committed = 0
    for number in range(1, calls + 1):
        fresh = StagingPlace(place.committer)
        there.restart()
        there.store.faults.append(
            Fault(kind=kind, call=number) if kind.startswith("crash") else Fault(kind=kind, call=number, times=1)
        )
        failed = False
        try:
            await whole_job(fresh, config)
        except (CommitterError, SimulatedCrash):
            failed = True
        there.restart()
        restarted(fresh)
        state = (await fresh.states()).get("j")
        if state == "committing" or state == "committed":
            await fresh.recover("j", config=config)
        elif state is not None:
            await committer.cleanup(fresh.dest, job_id="j", config=config, force=True, storage_options=fresh.options)
        done = "_SUCCESS" in fresh.all_files()
        assert done or failed, number
        committed += done
        assert fresh.files() == (FILES | MORE if done else {}), (kind, number)
        assert (fresh.temporary(), pending(fresh)) == (set(), []), (kind, number)
        if not done:
            await whole_job(fresh, config)
            assert fresh.files() == FILES | MORE
        assert there.names() == [], (kind, number)
    assert committed
