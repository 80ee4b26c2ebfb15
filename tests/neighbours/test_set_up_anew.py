"""A driver that is stopped while its job is ended and set up anew, under the same id, as a stream does with a batch.

What it does when it goes on must not reach the new setup: no intent, freeze or decision of it counts there, and what
the new driver commits is what its own tasks wrote.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

import committer
from committer.errors import CommitterError, JobDecidedError, JobNotFoundError, JobUndecidedError
from committer.stores.local.disk import Disk
from committer.testing.faults import Call, SimulatedCrash
from tests.neighbours.meeting import Party, Table, interrupted
from tests.rotation import Share

OLD = {"p=0/old": b"old"}
FIRST = {"p=1/first-0": b"1", "p=1/first-1": b"1"}
SECOND = {"p=1/second-0": b"2", "p=2/second-1": b"2"}
PLACES = pytest.mark.parametrize(
    ("profile", "delivery"),
    [
        ("local", "listing"),
        ("local", "message"),
        ("hdfs", "listing"),
        ("adls", "listing"),
        ("adls", "message"),
        ("gcs", "listing"),
        ("gcs", "message"),
        ("s3", "listing"),
        ("s3", "message"),
    ],
)


# What a driver that dies teaches more than one that goes on, for each kind of store once.
DEATHS = pytest.mark.parametrize(
    ("profile", "delivery"),
    [
        ("local", "listing"),
        pytest.param("local", "message", marks=pytest.mark.slow),
        pytest.param("hdfs", "listing", marks=pytest.mark.slow),
        pytest.param("adls", "listing", marks=pytest.mark.slow),
        ("gcs", "message"),
        pytest.param("gcs", "listing", marks=pytest.mark.slow),
        pytest.param("s3", "listing", marks=pytest.mark.slow),
        pytest.param("s3", "message", marks=pytest.mark.slow),
    ],
)


class Anew:
    """One table on which a job is ended and set up anew."""

    def __init__(self, profile: str, delivery: str) -> None:
        self.table = Table(profile, OLD)
        self.delivery = delivery
        self.second: Party | None = None
        self.recovered = False

    async def first(self) -> Party:
        return await self.table.job("job", FIRST, delivery=self.delivery)

    async def set_up_anew(self) -> None:
        """An operator aborts the job, or finishes what is decided; then another driver sets it up, and its task runs."""
        try:
            async with committer.attach_job(self.table.dest, job_id="job", storage_options=self.table.options) as job:
                await job.abort()
        except JobDecidedError:
            await committer.recover(self.table.dest, "job", storage_options=self.table.options)
        except JobNotFoundError:
            pass
        self.recovered = "p=1/first-0" in self.table.files()
        if self.recovered:
            await committer.recover(self.table.dest, "job", storage_options=self.table.options)
        self.second = await self.table.job("job", SECOND, delivery=self.delivery)

    async def recover_too_early(self) -> None:
        """No driver of the new setup began to commit, so a recovery must not."""
        with pytest.raises(JobUndecidedError):
            await committer.recover(self.table.dest, "job", storage_options=self.table.options)

    async def commit_second(self) -> None:
        assert self.second is not None
        await self.second.commit()
        assert self.second.error is None, self.second.error
        assert self.second.report is not None
        assert self.second.report.files_committed == len(SECOND)
        expected = {**OLD, **SECOND, **(FIRST if self.recovered else {})}
        assert self.table.files() == expected
        assert self.table.temporary() == set()


async def calls_before_cleanup(anew: Anew, *, aborting: bool = False) -> int:
    """How many calls a driver makes until its cleanup looks what there is to delete: from then on it goes by names."""
    driver = await anew.first()
    if aborting:
        await driver.driver.abort()
        looks = [call for call in driver.store.calls if call.operation == "list" and call.path.name == "job"]
        return looks[1].number
    await driver.commit()
    assert driver.error is None
    [success] = [call for call in driver.store.calls if call.operation == "put" and call.path.name == "_SUCCESS"]
    return success.number


@PLACES
async def test_driver_that_goes_on_does_not_reach_the_new_setup(profile: str, delivery: str, share: Share) -> None:
    """Stopped before each of its calls."""
    words = set()
    for number in share.of(range(1, 1 + await calls_before_cleanup(Anew(profile, delivery)))):
        anew = Anew(profile, delivery)
        late = await anew.first()
        await interrupted(late, number, anew.set_up_anew)
        if anew.recovered:
            words.add("recovered")
        else:
            assert isinstance(late.error, JobNotFoundError), (number, late.error)
            assert "set up anew" in late.error.message, (number, late.error)
            assert late.error.outcome == "unchanged", number
            words.add("aborted")
        await anew.recover_too_early()
        await anew.commit_second()
    share.check_seen(words, {"aborted", "recovered"})


@DEATHS
async def test_driver_that_goes_on_and_dies_does_not_reach_the_new_setup(
    profile: str, delivery: str, share: Share
) -> None:
    """Stopped before each of its calls, killed after each later one."""
    for stopped_at in share.of(range(1, 1 + await calls_before_cleanup(Anew(profile, delivery)))):
        lives = 0
        while True:
            lives += 1
            anew = Anew(profile, delivery)
            late = await anew.first()
            if not await _go_on_and_die(anew, late, stopped_at, lives):
                break
            await anew.recover_too_early()
            await anew.commit_second()


async def _go_on_and_die(anew: Anew, late: Party, stopped_at: int, lives: int) -> bool:
    """Whether the driver lived long enough to be stopped, and died before its end."""

    calls = 0

    async def before(call: Call) -> None:
        nonlocal calls
        if call.number == stopped_at:
            await anew.set_up_anew()
        calls += anew.second is not None
        if calls > lives:
            late.store.crashed = True
            raise SimulatedCrash(call)

    late.store.before_call = before
    try:
        await late.commit()
    except BaseException as error:
        if not late.store.crashed:
            raise
        assert "Crash" in repr(error)
    late.calls = late.store.count()
    late.store.before_call = None
    return late.store.crashed


@PLACES
async def test_abort_that_goes_on_does_not_reach_the_new_setup(profile: str, delivery: str) -> None:
    for number in range(1, 1 + await calls_before_cleanup(Anew(profile, delivery), aborting=True)):
        anew = Anew(profile, delivery)
        late = await anew.first()

        async def abort(late: Party = late) -> None:
            try:
                await late.driver.abort()
            except CommitterError as error:
                late.error = error
            late.calls = late.store.count()

        late.commit = abort  # type: ignore[method-assign]
        await interrupted(late, number, anew.set_up_anew)
        await anew.recover_too_early()
        await anew.commit_second()


@PLACES
async def test_spec_of_the_earlier_setup_joins_no_other(profile: str, delivery: str) -> None:
    """A driver that is started anew with it must not commit what the new tasks have written so far."""
    anew = Anew(profile, delivery)
    late = await anew.first()
    spec = late.driver.spec
    await anew.set_up_anew()
    with pytest.raises(JobNotFoundError, match="set up anew") as caught:
        await committer.attach_job(spec, storage_options=anew.table.options)
    assert caught.value.outcome == "unchanged"
    await anew.recover_too_early()
    await anew.commit_second()


@PLACES
async def test_task_attempt_that_goes_on_reaches_no_reader(profile: str, delivery: str) -> None:
    """It had opened its file, and its record may take the place of the new task's: then the new job is refused."""
    table = Table(profile, OLD)
    first = await committer.open_job(table.dest, job_id="job", delivery=delivery, storage_options=table.options)
    late = await committer.open_task(first.spec, task=0, storage_options=table.options)
    async with committer.attach_job(table.dest, job_id="job", storage_options=table.options) as operator:
        await operator.abort()
    second = await table.job("job", SECOND, delivery=delivery)
    with contextlib.suppress(CommitterError):
        async with late, late.open("p=1/late") as file:
            await file.write(b"late")
    await second.commit()
    if second.error is None:
        assert table.files() == {**OLD, **SECOND}
    else:
        assert "set up anew" in second.error.message
        assert table.files() == OLD
        await second.driver.abort()
    assert table.temporary() == set()


@pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])
async def test_job_whose_driver_died_in_its_setup_is_aborted(profile: str) -> None:
    """At every call of the setup: the directory that drivers write to may be missing."""
    number = 0
    while True:
        number += 1
        table = Table(profile)
        store = table.options["store"]

        async def before(call: Call, number: int = number, store: Any = store) -> None:
            if call.number >= number:
                store.crashed = True
                raise SimulatedCrash

        store.before_call = before  # type: ignore[attr-defined]
        try:
            await committer.open_job(table.dest, job_id="job", storage_options={"store": store})
            return
        except SimulatedCrash:
            pass
        try:
            async with committer.attach_job(table.dest, job_id="job", storage_options=table.options) as job:
                await job.abort()
        except JobNotFoundError:
            with contextlib.suppress(JobNotFoundError):
                await committer.cleanup(table.dest, job_id="job", storage_options=table.options)
        assert table.temporary() == set(), number
        second = await table.job("job", SECOND)
        await second.commit()
        assert table.files() == SECOND, number


@pytest.mark.parametrize("record", ["intent", "decision"])
async def test_driver_that_stopped_within_the_write_of_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: str
) -> None:
    """On a real disk: the record is written, and its driver stops before it gets its name."""
    written, go_on = threading.Event(), threading.Event()
    rename = Disk._rename_exclusively

    def stopping(self: Disk, source: Any, destination: Any) -> None:
        if Path(destination.name).name == record and not written.is_set():
            written.set()
            assert go_on.wait(60)
        rename(self, source, destination)

    dest = tmp_path / "table"
    first = await committer.open_job(dest, job_id="job")
    async with first.task_attempt(0) as task, task.open("first") as file:
        await file.write(b"1")
    monkeypatch.setattr(Disk, "_rename_exclusively", stopping)
    late = asyncio.create_task(first.commit())
    assert await asyncio.to_thread(written.wait, 60)
    async with committer.attach_job(dest, job_id="job") as operator:
        await operator.abort()
    second = await committer.open_job(dest, job_id="job")
    async with second.task_attempt(0) as task, task.open("second") as file:
        await file.write(b"2")
    go_on.set()
    with pytest.raises(JobNotFoundError, match="set up anew"):
        await late
    with pytest.raises(JobUndecidedError):
        await committer.recover(dest, "job")
    assert (await second.commit()).files_committed == 1
    assert {path.name for path in dest.iterdir()} == {"second", "_SUCCESS"}
