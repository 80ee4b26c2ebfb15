"""A process that meets the claim of a cleanup, which removes what is left of a job that committed.

The claim is a setup record, and then a decision against the job. Neither says how the job ended: `_SUCCESS` does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

import committer
from committer import JobReport
from committer.errors import CommitterError, JobNotFoundError, JobStateError
from committer.testing.faults import Call, SimulatedCrash
from tests.neighbours.meeting import Connection, Table
from tests.rotation import Share

FILES = {"p=1/a": b"a"}
REMAINS = "_temporary/job/.abc.tmp"
LATE_TASK = "_temporary/job/00/attempts/attempt_job_m_000000_1-0123456789ab-manifest.json"
PROFILES = pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])

Options: TypeAlias = dict[str, object]
Other: TypeAlias = Callable[[str, Options], Awaitable[JobReport | None]]


async def _commit(dest: str, options: Options) -> JobReport | None:
    async with committer.attach_job(dest, job_id="job", storage_options=options) as job:
        return await job.commit()


async def _abort(dest: str, options: Options) -> JobReport | None:
    async with committer.attach_job(dest, job_id="job", storage_options=options) as job:
        await job.abort()
    return None


OTHERS: dict[str, Other] = {
    "recover": lambda dest, options: committer.recover(dest, "job", storage_options=options),
    "roll back": lambda dest, options: committer.recover(dest, "job", rollback=True, storage_options=options),
    "by force": lambda dest, options: committer.recover(dest, "job", force=True, storage_options=options),
    "commit": _commit,
    "abort": _abort,
}


async def committed(profile: str, left: str = REMAINS) -> tuple[Table, bytes]:
    """A table whose job committed and was cleaned up; then something of it came late. With `_SUCCESS`."""
    table = Table(profile)
    party = await table.job("job", FILES)
    await party.commit()
    assert table.temporary() == set()
    table.write(left, b"late")
    return table, table.all_files()["_SUCCESS"]


async def clean_up(table: Table, store: Connection) -> None:
    # The other one may have done it.
    with contextlib.suppress(JobNotFoundError):
        await committer.cleanup(table.dest, job_id="job", storage_options={"store": store})


async def check_told(run: Other, dest: str, options: Options) -> None:
    """What the other one says is true: the job is committed, or nothing speaks of it any more."""
    try:
        report = await run(dest, options)
    except (JobNotFoundError, JobStateError) as error:
        # A rollback of a committed job is refused.
        assert isinstance(error, JobNotFoundError) or error.outcome == "committed", error
    else:
        assert report is None or report.success, report


async def check_untouched(table: Table, marker: bytes) -> None:
    assert table.files() == FILES
    assert table.all_files()["_SUCCESS"] == marker
    assert table.temporary() == set()
    assert (await committer.recover(table.dest, "job", storage_options=table.options)).success


@pytest.mark.one_in(3)
@PROFILES
@pytest.mark.parametrize("other", OTHERS)
async def test_process_that_meets_a_claim_says_how_the_job_ended(profile: str, other: str, share: Share) -> None:
    await check_meeting(profile, REMAINS, OTHERS[other], share)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("profile", ["adls", "gcs", "s3"])
@pytest.mark.parametrize("other", OTHERS)
async def test_process_that_meets_the_abort_of_what_a_late_task_left_says_how_the_job_ended(
    profile: str, other: str, share: Share
) -> None:
    """It made the directory of a job attempt again, which looks like a job of Hadoop's."""
    await check_meeting(profile, LATE_TASK, OTHERS[other], share)


async def check_meeting(profile: str, left: str, other: Other, share: Share) -> None:
    """The cleanup stands still before one of its calls, and the other one before one of its own."""
    for at in share.counted():
        most = 1
        for back_at in share.counted():
            table, marker = await committed(profile, left)
            cleaner, store = Connection(table.space), Connection(table.space)
            waits, goes_on = asyncio.Event(), asyncio.Event()
            told: list[asyncio.Task[None]] = []

            async def before_cleaner(
                call: Call, table: Table = table, store: Connection = store, at: int = at, waits: asyncio.Event = waits,
                told: list[asyncio.Task[None]] = told,
            ) -> None:  # fmt: skip
                if call.number == at:
                    told.append(asyncio.create_task(check_told(other, table.dest, {"store": store})))
                    told[0].add_done_callback(lambda _task: waits.set())
                    await waits.wait()

            async def before_other(
                call: Call, back_at: int = back_at, waits: asyncio.Event = waits, goes_on: asyncio.Event = goes_on
            ) -> None:
                if call.number == back_at:
                    waits.set()
                    await goes_on.wait()

            cleaner.before_call, store.before_call = before_cleaner, before_other
            await clean_up(table, cleaner)
            goes_on.set()
            if not told:
                return
            await told[0]
            await clean_up(table, Connection(table.space))
            await check_untouched(table, marker)
            most = max(most, store.count())
            if back_at > most:
                break


@pytest.mark.one_in(3)
@PROFILES
@pytest.mark.parametrize("other", OTHERS)
async def test_claim_of_a_cleanup_that_died_goes_with_the_process_that_meets_it(
    profile: str, other: str, share: Share
) -> None:
    for at in share.counted():
        table, marker = await committed(profile)
        cleaner = Connection(table.space)

        async def before(call: Call, cleaner: Connection = cleaner, at: int = at) -> None:
            if call.number == at:
                cleaner.crashed = True
                raise SimulatedCrash(call)

        cleaner.before_call = before
        try:
            await clean_up(table, cleaner)
        except (SimulatedCrash, ExceptionGroup):
            pass
        else:
            return
        claimed = "_temporary/job/setup" in table.all_files()
        if claimed:
            (info,) = await committer.list_jobs(table.dest, storage_options=table.options)
            assert info.state == "unknown", (at, info)
        await check_told(OTHERS[other], table.dest, table.options)
        if claimed:
            assert table.temporary() == set(), at
        await clean_up(table, Connection(table.space))
        await check_untouched(table, marker)


@PROFILES
async def test_claim_of_a_job_that_never_was_is_no_job(profile: str) -> None:
    table = Table(profile)
    table.write(REMAINS, b"late")
    cleaner = Connection(table.space)

    async def before(call: Call) -> None:
        if "_temporary/job/decision" in table.all_files():
            cleaner.crashed = True
            raise SimulatedCrash(call)

    cleaner.before_call = before
    with pytest.raises((SimulatedCrash, ExceptionGroup)):
        await clean_up(table, cleaner)
    with pytest.raises(JobNotFoundError):
        await committer.recover(table.dest, "job", rollback=True, storage_options=table.options)
    assert table.temporary() == set()
    with pytest.raises(CommitterError):
        await committer.recover(table.dest, "job", storage_options=table.options)
