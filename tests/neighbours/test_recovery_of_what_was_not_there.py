"""A recovery while another job is set up under the id: of one that found no job, and of one that found an earlier one.

A recovery reads the directory of one setup only. If it does not find that directory, it changes nothing,
and the same call made again finds the new job.
"""

from __future__ import annotations

import json
from itertools import count

import pytest

import committer
from committer import CommitterConfig
from committer.errors import JobNotFoundError, JobUndecidedError
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.job_paths import has_in_job, in_job
from tests.neighbours.meeting import Connection, Table

OLD = {"p=1/old": b"old", "p=2/old": b"old"}
NEW = {"p=1/new-0": b"1", "p=1/new-1": b"2"}
REPLACED = {"p=2/old": b"old", **NEW}
CONFIG = CommitterConfig(conflict_mode="replace", io_concurrency=1)


async def begun(table: Table, delivery: str, dies_before: str) -> None:
    """A job whose driver died in its commit."""
    party = await table.job("job", NEW, CONFIG, delivery=delivery)
    operation, _, path = dies_before.partition(" ")
    party.store.faults.append(Fault(kind="crash_before", operation=operation, path=path))
    with pytest.raises(SimulatedCrash):
        await party.commit()


@pytest.mark.parametrize("dies_before", ["put outcome", "put decision"])
@pytest.mark.parametrize("rollback", [False, True], ids=["recover", "roll back"])
@pytest.mark.parametrize("delivery", ["listing", "message"])
@pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])
async def test_a_job_that_is_set_up_meanwhile_is_found_whole_or_not_at_all(
    profile: str, delivery: str, rollback: bool, dies_before: str
) -> None:
    for at in count(1):
        table = Table(profile, OLD)
        operator = Connection(table.space)
        done = False

        async def before(call: Call, at: int = at, table: Table = table) -> None:
            nonlocal done
            if call.number == at and not done:
                done = True
                await begun(table, delivery, dies_before)

        operator.before_call = before
        try:
            report = await committer.recover(
                table.dest, "job", rollback=rollback, force=True, storage_options={"store": operator}
            )
        except JobNotFoundError as error:
            assert error.outcome == "unchanged"
            if not done:
                break
            report = await committer.recover(table.dest, "job", force=True, storage_options=table.options)
        assert table.files() == (REPLACED if report.success else OLD)
        assert table.temporary() == set()
    assert at > 1


@pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])
async def test_a_job_whose_id_is_set_up_anew_while_it_is_recovered(profile: str) -> None:
    for at in count(1):
        table = Table(profile, OLD)
        await begun(table, "message", "put decision")
        operator = Connection(table.space)
        outcomes: list[bytes] = []
        done = False

        async def before(call: Call, at: int = at, table: Table = table, outcomes: list[bytes] = outcomes) -> None:
            nonlocal done
            if call.number == at and not done and not has_in_job(table, "job", "decision"):
                done = True
                await committer.cleanup(table.dest, job_id="job", storage_options=table.options)
                await begun(table, "message", "put outcome")
            if has_in_job(table, "job", "outcome"):
                outcomes.append(table.all_files()[in_job(table, "job", "outcome")])

        operator.before_call = before
        try:
            report = await committer.recover(table.dest, "job", force=True, storage_options={"store": operator})
        except (JobNotFoundError, JobUndecidedError):
            report = await committer.recover(table.dest, "job", force=True, storage_options={"store": operator})
        assert report.success
        assert table.files() == REPLACED
        assert len({json.loads(outcome)["created"] for outcome in outcomes}) == 1
        if not done:
            break
    assert at > 3
