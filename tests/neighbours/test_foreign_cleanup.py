"""A Hadoop committer with default cleanup deletes all of `_temporary`, under the feet of jobs that still run."""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, JobNotFoundError
from committer.records.success import SuccessData, encode_success
from tests.job_paths import has_in_job
from tests.neighbours.meeting import Table, interrupted
from tests.sweeps import Share

OLD = {"p=1/old": b"old"}
NEW = {f"p={number % 3}/new-{number}": b"new" for number in range(6)}
ONE_BY_ONE = CommitterConfig(io_concurrency=1)

PROFILES = pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])
DELIVERIES = pytest.mark.parametrize("delivery", ["listing", "message"])


@PROFILES
@DELIVERIES
@pytest.mark.parametrize("mode", ["append", "replace"])
async def test_temporary_is_deleted_before_every_call_of_a_commit(
    profile: str, delivery: str, mode: str, share: Share
) -> None:
    """Before the decision nothing is published; after it the error tells the truth, and no `_SUCCESS` lies."""
    seen: set[str] = set()
    for number in share.counted():
        table = Table(profile, OLD)
        config = CommitterConfig(io_concurrency=1, conflict_mode=mode)  # type: ignore[arg-type]
        party = await table.job("job", NEW, config, delivery)
        decided = False

        async def delete(table: Table = table) -> None:
            nonlocal decided
            decided = has_in_job(table, "job", "decision")
            if any(name.startswith("_temporary/") for name in table.all_files()):
                table.remove("_temporary")

        await interrupted(party, number, delete)
        found = table.files()
        new = {name for name in found if name in NEW}
        if party.error is None:
            assert new == set(NEW), number
            assert party.report is not None
            assert party.report.success
            seen.add("committed")
        elif not decided or (party.error.outcome == "unchanged" and found == OLD):
            # Also when it is deleted while the decision is made: that is looked at once more.
            assert isinstance(party.error, JobNotFoundError), (number, party.error)
            assert party.error.outcome == "unchanged", (number, party.error)
            assert found == OLD
            assert "_SUCCESS" not in table.all_files()
            seen.add("detected")
        else:
            # What was published stays: no record says what else there was. But nothing claims to be complete.
            assert party.error.outcome in ("unknown", "partial", "committed"), (number, party.error)
            assert party.error.next_step
            if "_SUCCESS" in table.all_files():
                assert new == set(NEW)
            if party.error.outcome == "committed":
                assert new == set(NEW)
            seen.add(f"decided, {party.error.outcome}")
        if mode == "append":
            assert found["p=1/old"] == b"old"
        if number > party.calls:
            break
    share.check_seen(seen, {"detected", "committed", "decided, unknown"}, {"decided, partial", "decided, committed"})


@PROFILES
@DELIVERIES
async def test_temporary_is_deleted_while_tasks_run(profile: str, delivery: str) -> None:
    table = Table(profile, OLD)
    options = table.options
    job = await committer.open_job(table.dest, job_id="job", delivery=delivery, storage_options=options)  # type: ignore[arg-type]
    async with committer.open_task(job.spec, task=0, storage_options=options) as done:
        async with done.open("p=1/new") as file:
            await file.write(b"new")
    running = await committer.open_task(job.spec, task=1, storage_options=options)
    table.remove("_temporary")
    with pytest.raises(JobNotFoundError):
        await running.commit()
    with pytest.raises(JobNotFoundError):
        await committer.open_task(job.spec, task=2, storage_options=options)
    with pytest.raises(JobNotFoundError):
        await job.commit([done.task_commit] if delivery == "message" else None)
    assert table.files() == OLD
    await job.abort()
    assert table.files() == OLD


@PROFILES
async def test_job_with_the_same_id_is_set_up_again_meanwhile(profile: str) -> None:
    """The new job's directory is not the old one's, whatever it is called."""
    table = Table(profile, OLD)
    party = await table.job("job", NEW, ONE_BY_ONE, "message")
    table.remove("_temporary")
    again = await table.job("job", {"p=1/again": b"again"}, ONE_BY_ONE, "message")
    await party.commit()
    assert isinstance(party.error, CommitterError)
    assert party.error.outcome == "unchanged"
    assert table.files() == OLD
    await again.commit()
    assert again.error is None, again.error
    assert table.files() == {**OLD, "p=1/again": b"again"}


@pytest.mark.parametrize(
    ("profile", "delivery"), [("local", "listing"), ("adls", "message"), ("gcs", "listing"), ("s3", "message")]
)
@pytest.mark.parametrize("mode", ["append", "replace"])
async def test_marker_of_an_earlier_job_stands_while_nothing_is_decided(profile: str, delivery: str, mode: str) -> None:
    before = {**OLD, "_SUCCESS": encode_success(SuccessData(jobId="before", success=True))}
    config = CommitterConfig(io_concurrency=1, conflict_mode=mode)  # type: ignore[arg-type]
    number = undecided = 0
    while undecided == number:
        number += 1
        table = Table(profile, before)
        party = await table.job("job", NEW, config, delivery)
        decided = False

        async def delete(table: Table = table) -> None:
            nonlocal decided
            decided = has_in_job(table, "job", "decision")
            table.remove("_temporary")

        await interrupted(party, number, delete)
        if not decided:
            undecided += 1
            assert isinstance(party.error, JobNotFoundError), (number, party.error)
            assert party.error.outcome == "unchanged"
            assert table.all_files() == before, number
    assert undecided > 5
