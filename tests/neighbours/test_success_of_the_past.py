"""A driver stopped between its outcome and its `_SUCCESS`, while others end its job and later jobs replace its data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, DestinationBusyError, JobDecidedError
from committer.records.success import decode_success
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.job_paths import has_in_job, in_job
from tests.neighbours.meeting import Connection, Party, Table, crossed, interrupted, writes_success
from tests.sweeps import Share

PROFILES = pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])
OLD = {"p=1/old": b"old"}
PAST = {"p=1/past": b"past", "p=2/same": b"past"}
APPEND = CommitterConfig(io_concurrency=1)
REPLACE = CommitterConfig(io_concurrency=1, conflict_mode="replace")
OVERWRITE = CommitterConfig(io_concurrency=1, existing_target="replace")
LATER = {
    "append": ({"p=1/later": b"later"}, APPEND),
    "replace": ({"p=1/later": b"later"}, REPLACE),
    "overwrite": ({"p=2/same": b"later"}, OVERWRITE),
}
KINDS = pytest.mark.parametrize("kind", LATER)
PASTS = pytest.mark.parametrize("past", [APPEND, REPLACE], ids=["append", "replace"])


@dataclass
class After(Party):
    """A job that comes once the one before it was recovered."""

    table: Table | None = None

    async def commit(self) -> None:
        assert self.table is not None
        await recovered(self.table)
        await super().commit()


async def recovered(table: Table) -> None:
    await committer.recover(table.dest, "past", storage_options=table.options)


async def later(table: Table, kind: str, job_id: str = "later") -> After:
    files, config = LATER[kind]
    made = await table.job(job_id, files, config)
    return After(made.driver, made.store, made.messages, table=table)


def marked(table: Table) -> str:
    """The job that `_SUCCESS` speaks of; each file that it names must be there."""
    marker = decode_success(table.all_files()["_SUCCESS"], source="")
    for uri in marker.filenames:
        name = uri.rpartition("/table/")[2]
        assert name in table.files(), (marker.jobId, name)
    return marker.jobId


async def call_of_success(profile: str, past: CommitterConfig) -> int:
    """The number of the call that writes `_SUCCESS`."""
    return next(number for number, name in await marks(profile, past) if name == "_SUCCESS")


async def calls_after_outcome(profile: str, past: CommitterConfig) -> range:
    """The numbers of a commit's calls from the one that follows its outcome to some that follow `_SUCCESS`."""
    (outcome, _), (success, _) = await marks(profile, past)
    return range(outcome + 1, success + 4)


async def marks(profile: str, past: CommitterConfig) -> list[tuple[int, str]]:
    """The calls that write the outcome and `_SUCCESS`."""
    party = await Table(profile, OLD).job("past", PAST, past)
    found: list[tuple[int, str]] = []

    async def before(call: Call) -> None:
        if writes_success(call):
            found.append((call.number, "_SUCCESS"))
        elif call.operation == "put" and call.path.name == "outcome":
            found.append((call.number, "outcome"))

    party.store.before_call = before
    await party.commit()
    assert [name for _number, name in found] == ["outcome", "_SUCCESS"]
    return found


@PROFILES
@PASTS
async def test_a_driver_that_wakes_when_its_files_are_gone_writes_no_success(
    profile: str, past: CommitterConfig, share: Share
) -> None:
    """Another driver ended its job, and what replaced the data took `_SUCCESS` away and left none, as Hadoop's may."""
    files, _config = LATER["replace"]
    unmarked = CommitterConfig(io_concurrency=1, conflict_mode="replace", mark_successful_jobs=False)
    for at in share.of(await calls_after_outcome(profile, past)):
        table = Table(profile, OLD)
        first, second = await table.job("past", PAST, past), await table.job("later", files, unmarked)

        async def replace(table: Table = table, second: Party = second) -> None:
            await recovered(table)
            table.remove("_SUCCESS")
            await second.commit()

        await interrupted(first, at, replace)
        assert second.error is None, (at, second.error)
        assert "p=1/past" not in table.files(), at
        # E1: on objects the driver may stand still between its look and its put.
        if profile not in ("gcs", "s3") or at != await call_of_success(profile, past):
            assert "_SUCCESS" not in table.all_files(), at
        assert table.temporary() == set(), at


@dataclass
class Recoverer(Party):
    """A recovery of the job, beside its driver."""

    table: Table | None = None

    async def commit(self) -> None:
        assert self.table is not None
        self.report = await committer.recover(self.table.dest, "past", storage_options={"store": self.store})
        self.calls = self.store.count()


@PROFILES
async def test_a_recovery_beside_a_driver_that_ends_the_job_leaves_its_success(profile: str, share: Share) -> None:
    """The driver stands still once it wrote `_SUCCESS`, and goes on before each call of the recovery.

    The recovery found the marker and read no record, so it cannot prove that the files stand. It lets the marker be.
    """
    at = await call_of_success(profile, APPEND) + 1
    most = 1
    for back_at in share.counted():
        table = Table(profile, OLD)
        first = await table.job("past", PAST, APPEND)
        second = Recoverer(first.driver, Connection(table.space), None, table=table)
        await crossed(first, at, second, back_at)
        assert [party.report is not None and party.report.success for party in (first, second)] == [True, True], back_at
        assert marked(table) == "past", back_at
        assert table.temporary() == set(), back_at
        most = max(most, second.calls)
        if back_at >= most:
            break


@PROFILES
@KINDS
@PASTS
async def test_a_driver_that_wakes_after_a_later_job_leaves_its_success(
    profile: str, kind: str, past: CommitterConfig, share: Share
) -> None:
    for at in share.of(await calls_after_outcome(profile, past)):
        table = Table(profile, OLD)
        first, second = await table.job("past", PAST, past), await later(table, kind)
        await interrupted(first, at, second.commit)
        assert second.error is None, (at, second.error)
        assert marked(table) == "later", at
        assert table.temporary() == set(), at


@pytest.mark.parametrize(
    "profile",
    ["local", "adls", "s3", pytest.param("hdfs", marks=pytest.mark.slow), pytest.param("gcs", marks=pytest.mark.slow)],
)
@KINDS
@PASTS
async def test_a_driver_that_wakes_while_a_later_job_commits(
    profile: str, kind: str, past: CommitterConfig, share: Share
) -> None:
    """Stopped right before its `_SUCCESS`, it goes on before each call of the later job."""
    at = await call_of_success(profile, past)
    for back_at in share.counted():
        table = Table(profile, OLD)
        first, second = await table.job("past", PAST, past), await later(table, kind)
        await crossed(first, at, second, back_at)
        assert second.error is None, (at, back_at, second.error)
        assert marked(table) == "later", (at, back_at)
        assert table.temporary() == set(), (at, back_at)
        if back_at >= second.calls:
            break


STAYING = {
    "left": CommitterConfig(io_concurrency=1, cleanup_skipped=True),
    "kept": CommitterConfig(io_concurrency=1, outcome_kept=True),
}


@PROFILES
@pytest.mark.parametrize("stays", STAYING)
@pytest.mark.parametrize("settled", [False, True], ids=["left", "settled"])
async def test_a_driver_whose_directory_stays_leaves_the_success_of_a_later_job(
    profile: str, stays: str, settled: bool
) -> None:
    """Stopped right before its `_SUCCESS`, while a recovery ends its job, or dies on the way, and a later job comes.

    Of one that died another recovery does the rest, before the driver wakes or after.
    """
    at = await call_of_success(profile, STAYING[stays])
    kept_out = False
    for dies_at in count(1):
        table = Table(profile, OLD)
        first, second = await table.job("past", PAST, STAYING[stays]), await table.job("later", *LATER["replace"])
        killer = Connection(table.space)
        killer.faults.append(Fault(kind="crash_before", call=dies_at))
        died = False

        async def end(table: Table = table, killer: Connection = killer, second: Party = second) -> None:
            nonlocal died, kept_out
            try:
                await committer.recover(table.dest, "past", storage_options={"store": killer})
            except SimulatedCrash:
                died = True
            await second.commit()
            if second.busy and settled:
                kept_out = True
                await recovered(table)
                await second.commit()

        await interrupted(first, at, end)
        assert first.error is None, dies_at
        if second.busy:
            await recovered(table)
            await second.commit()
        assert second.error is None, (dies_at, second.error)
        assert marked(table) == "later", dies_at
        if not died:
            break
    assert kept_out or not settled


@PROFILES
async def test_a_job_whose_failed_cleanup_is_ignored_keeps_no_replacing_job_out(profile: str) -> None:
    table = Table(profile, OLD)
    past = CommitterConfig(io_concurrency=1, cleanup_failures_ignored=True)
    first, second = await table.job("past", PAST, past), await table.job("later", *LATER["replace"])
    for operation in ("list_uploads", "delete_directory"):
        first.store.faults.append(Fault(kind="forbidden", operation=operation, times=None))
    await first.commit()
    assert first.error is None
    await second.commit()
    assert second.error is None
    assert marked(table) == "later"
    await committer.cleanup(table.dest, job_id="past", storage_options=table.options)
    assert table.temporary() == set()


@PROFILES
@pytest.mark.parametrize("kind", ["replace", "overwrite"])
async def test_a_job_that_has_not_finished_keeps_replacing_jobs_out(profile: str, kind: str) -> None:
    """Alive or dead: its data stays until it wrote `_SUCCESS`, and recovering it lets them in."""
    seen: set[bool] = set()
    for at in await calls_after_outcome(profile, APPEND):
        table = Table(profile, OLD)
        first = await table.job("past", PAST, APPEND)
        files, config = LATER[kind]
        second = await table.job("later", files, config)
        first.store.faults.append(Fault(kind="crash_before", call=at))
        with pytest.raises(SimulatedCrash):
            await first.commit()
        finished = not has_in_job(table, "past", "setup")
        await second.commit()
        seen.add(finished)
        if not finished:
            assert isinstance(second.error, DestinationBusyError), (at, second.error)
            assert second.error.owners == ("past",)
            assert "recover(" in second.error.next_step
            assert table.files() == {**OLD, **PAST}
            await recovered(table)
            assert marked(table) == "past"
            await second.commit()
        assert second.error is None, (at, second.error)
        assert marked(table) == "later"
        await committer.cleanup(table.dest, older_than=0, storage_options=table.options)
        assert marked(table) == "later"
    assert False in seen


@pytest.mark.parametrize("profile", ["local", "adls"])
async def test_a_job_that_is_being_rolled_back_keeps_replacing_jobs_out(profile: str) -> None:
    """Its driver dies while it puts old files back: they come back before another job takes them away."""
    past = {"p=1/past-0": b"past", "p=1/past-1": b"past"}
    at, seen = 0, set()
    while True:
        at += 1
        table = Table(profile, OLD)
        first, second = await table.job("past", past, REPLACE), await table.job("later", *LATER["replace"])
        first.store.faults.append(Fault(kind="crash_before", operation="put", path="outcome"))
        with pytest.raises(SimulatedCrash):
            await first.commit()
        killer = Connection(table.space)
        killer.faults.append(Fault(kind="crash_before", call=at))
        try:
            await committer.recover(table.dest, "past", rollback=True, storage_options={"store": killer})
        except SimulatedCrash:
            pass
        else:
            break
        undoing = has_in_job(table, "past", "outcome") and has_in_job(table, "past", "setup")
        await second.commit()
        if undoing:
            assert second.busy, (at, second.error)
            seen.add("rolling back")
            assert second.error is not None
            assert "rolled back" in str(second.error) or "replaces data" in str(second.error)
            await committer.recover(table.dest, "past", rollback=True, storage_options=table.options)
            assert table.files() == OLD
            await second.commit()
            assert second.error is None
            assert table.files() == LATER["replace"][0]
    assert seen == {"rolling back"}


@pytest.mark.parametrize("profile", ["gcs", "s3", "azure-flat"])
async def test_a_rollback_puts_the_marker_back_that_a_slow_driver_sets_aside_meanwhile(profile: str) -> None:
    table = Table(profile, OLD)
    await (await table.job("before", {"p=2/before": b"before"}, APPEND)).commit()
    old = table.all_files()["_SUCCESS"]
    first = await table.job("past", PAST, APPEND)
    first.store.faults.append(Fault(kind="crash_after", operation="put", path="/decision"))
    with pytest.raises(SimulatedCrash):
        await first.commit()
    store, aside = Connection(table.space), in_job(table, "past", "work/superseded/_SUCCESS")
    set_aside = False

    async def before(call: Call) -> None:
        nonlocal set_aside
        if call.operation == "read" and str(call.path).endswith("/table/_SUCCESS") and not set_aside:
            set_aside = True
            table.write(aside, old)
            table.remove("_SUCCESS")

    store.before_call = before
    await committer.recover(table.dest, "past", rollback=True, force=True, storage_options={"store": store})
    assert set_aside
    assert table.all_files()["_SUCCESS"].rstrip() == old.rstrip()
    assert table.temporary() == set()


# -- several in the way ------------------------------------------------------------------------------------------------


async def test_busy_error_names_every_owner_and_its_advice_works_for_each(tmp_path: Path) -> None:
    dest = str(tmp_path / "table")
    for job_id in ("dead-1", "dead-2", "dead-3"):
        job = await committer.open_job(dest, job_id=job_id)
        async with job.task_attempt(0) as task, task.open(f"p=1/{job_id}") as file:
            await file.write(b"x")
        crash = "decision" if job_id == "dead-2" else "outcome"
        await job.close()
        store = await faulty(crash)
        with pytest.raises(SimulatedCrash):
            async with committer.attach_job(dest, job_id=job_id, storage_options={"store": store}) as again:
                await again.commit()
    job = await committer.open_job(dest, job_id="job", config=REPLACE)
    async with job.task_attempt(0) as task, task.open("p=1/new") as file:
        await file.write(b"new")
    with pytest.raises(DestinationBusyError) as caught:
        await job.commit()
    error = caught.value
    assert error.owners == ("dead-1", "dead-2", "dead-3")
    assert error.owner == "dead-1"
    assert error.outcome == "unchanged"
    assert "jobs dead-1, dead-2, dead-3" in error.message
    assert "commit again" in error.next_step
    for number, owner in enumerate(error.owners):
        if number:
            await committer.recover(dest, owner)
            continue
        # Decided to be committed: an abort says so, and recover is what ends it.
        async with committer.attach_job(dest, job_id=owner) as dead:
            with pytest.raises(JobDecidedError):
                await dead.abort()
        await committer.recover(dest, owner)
    await job.commit()
    assert {path.name for path in (tmp_path / "table" / "p=1").iterdir()} == {"new"}
    await job.close()


async def faulty(crash: str) -> Connection:
    from committer.stores.local import LocalStore

    store = Connection.__new__(Connection)
    from committer.testing.faults import FaultyStore

    FaultyStore.__init__(store, LocalStore())
    store._number = next(Connection._opened)
    store.faults.append(Fault(kind="crash_before", operation="put", path=crash))
    return store


async def test_busy_error_that_leaves_the_block_says_to_run_a_new_job(tmp_path: Path) -> None:
    """The job is aborted then: to commit it again is no use, and is not what the error says."""
    dest = str(tmp_path / "table")
    other = await committer.open_job(dest, job_id="other")
    async with other.task_attempt(0) as task, task.open("p=1/other") as file:
        await file.write(b"x")
    store = await faulty("decision")
    with pytest.raises(SimulatedCrash):
        async with committer.attach_job(dest, job_id="other", storage_options={"store": store}) as again:
            await again.commit()

    async def run() -> None:
        async with committer.open_job(dest, job_id="job", config=REPLACE) as job:
            async with job.task_attempt(0) as task, task.open("p=1/new") as file:
                await file.write(b"new")

    with pytest.raises(DestinationBusyError) as caught:
        await run()
    assert "commit again" not in caught.value.next_step
    assert "run the job again" in caught.value.next_step
    assert "recover(" in caught.value.next_step
    await committer.recover(dest, caught.value.owner)
    await run()
    assert {path.name for path in (tmp_path / "table" / "p=1").iterdir()} == {"new"}


async def test_advice_of_an_error_caught_inside_the_block_holds(tmp_path: Path) -> None:
    dest = str(tmp_path / "table")
    async with committer.open_job(dest, job_id="job") as job:
        async with job.task_attempt(0) as task, task.open("a") as file:
            await file.write(b"a")
        with pytest.raises(CommitterError) as caught:
            await job.commit(tasks=2)
        assert "then commit again" in caught.value.next_step
        async with job.task_attempt(1) as task, task.open("b") as file:
            await file.write(b"b")
        report = await job.commit(tasks=2)
    assert report.files_committed == 2
