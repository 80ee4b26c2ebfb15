"""A process that is stopped within its cleanup while the job is ended, and another job of the id commits and keeps its
outcome: a stream goes by that outcome, and would commit its batch a second time without it.
"""

from __future__ import annotations

import asyncio

import pytest

import committer
from committer.operations import forget_outcome
from committer.records.job_state import JobOutcome, decode_record
from committer.testing.faults import Call
from tests.neighbours.meeting import Table
from tests.neighbours.test_cleaner_that_goes_on import CLEANERS, FIRST, OLD, PLACES, SECOND, Stop, end, learns, run
from tests.rotation import Share

KEPT = committer.CommitterConfig(outcome_kept=True)
LATE = {"adls", "gcs", "s3"}
OUTCOME = "_temporary/job/outcome"


async def stopped_until_the_next_job_ended(table: Table, delivery: str, cleaner: str, at: int) -> str | None:
    """Stops a cleaner before its call of a number, runs the next job, and has the cleaner go on.

    Returns:
        The setup of the next job; None where the cleaner had fewer calls.
    """
    late = await table.job("job", FIRST, delivery=delivery)
    stop = Stop(at)
    late.store.before_call = stop.before
    cleaning = asyncio.create_task(run(late, CLEANERS[cleaner]))
    if not await stop.reached(cleaning):
        return None
    await end(table)
    new = await table.job("job", SECOND, KEPT, delivery=delivery)
    await new.commit()
    assert new.error is None, (at, new.error)
    stop.go_on.set()
    await cleaning
    return new.driver.spec.setup


@pytest.mark.one_in(6)
@pytest.mark.parametrize("cleaner", CLEANERS)
@pytest.mark.parametrize(("profile", "delivery"), PLACES)
async def test_cleaner_that_goes_on_leaves_it(profile: str, delivery: str, cleaner: str, share: Share) -> None:
    first = await learns(profile, delivery, CLEANERS[cleaner])
    for number in share.counted():
        if number < first:
            continue
        table = Table(profile, OLD)
        setup = await stopped_until_the_next_job_ended(table, delivery, cleaner, number)
        if setup is None:
            assert number > 10
            return
        if profile in LATE:
            # A late decision may stand beside it, and says nothing.
            await committer.recover(table.dest, "job", storage_options=table.options)
        assert table.temporary() == {OUTCOME}, number
        assert decode_record(table.all_files()[OUTCOME], JobOutcome, source=OUTCOME).setup == setup, number
        assert table.files().items() >= {**OLD, **SECOND}.items(), number


@pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])
async def test_operator_still_removes_it(profile: str) -> None:
    """Found by its own record: no setup record tells the operator's cleanup which setup it is about."""
    table = Table(profile, OLD)
    job = await table.job("job", FIRST, KEPT)
    await job.commit()
    assert table.temporary() == {OUTCOME}
    report = await committer.cleanup(table.dest, job_id="job", force=True, storage_options=table.options)
    assert list(report.removed) == ["job"]
    assert table.temporary() == set()


@pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])
async def test_driver_whose_outcome_was_forgotten_leaves_no_directory(profile: str) -> None:
    """It stood still before it marked its outcome, and another driver did the rest."""
    table = Table(profile, OLD)
    job = await table.job("job", FIRST, KEPT)
    puts = 0

    async def before(call: Call) -> None:
        nonlocal puts
        puts += (call.operation, call.path.name) == ("put", "outcome")
        if puts == 2:
            job.store.before_call = None
            await committer.recover(table.dest, "job", storage_options=table.options)
            await forget_outcome(table.dest, "job", storage_options=table.options)

    job.store.before_call = before
    await job.commit()
    assert puts == 2
    assert job.error is None
    assert table.files() == {**OLD, **FIRST}
    assert table.temporary() == set()
    assert not any("_temporary" in directory for directory in table.space.directories())
