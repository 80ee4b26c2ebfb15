"""A rollback puts an old `_SUCCESS` back, but not over one that a committer of another kind has written since.

And one that failed names the call that takes the job back.
"""

from __future__ import annotations

import asyncio
import json

import pytest

import committer
from committer.errors import CommitterError
from committer.testing.faults import Call, Fault, FaultyStore
from tests.places import Place, place_fixture, plain_store

place = place_fixture("disk", "local", "adls", "gcs")


async def die_before_the_outcome(place: Place) -> None:
    """Has the driver of job `j` die when all is published, and nothing says how the job ended."""
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, {"a=1/new": b"new"})
    store = FaultyStore(plain_store(place))
    driver = await committer.attach_job(job.spec, storage_options={"store": store})

    async def before_call(call: Call) -> None:
        if call.operation == "put" and call.path.name == "outcome":
            raise asyncio.CancelledError

    store.before_call = before_call
    with pytest.raises(asyncio.CancelledError):
        await driver.commit()
    assert "_SUCCESS" not in place.all_files()


@pytest.mark.parametrize("says", ["nothing", "an older time"])
async def test_success_of_another_committer_outlives_a_rollback(place: Place, says: str) -> None:
    """Hadoop's file output committer leaves an empty one, S3A's one with the time of its own machine."""
    await place.run_job({"a=1/old": b"old"}, job_id="before")
    record = json.loads(place.read("_SUCCESS"))
    theirs = b""
    if says == "an older time":
        del record["diagnostics"]["committer.decided.by"]
        theirs = json.dumps({**record, "jobId": "job_1_0001", "timestamp": record["timestamp"] - 60_000}).encode()
    await die_before_the_outcome(place)
    place.write("_SUCCESS", theirs)
    await place.recover("j", rollback=True, force=True)
    assert place.read("_SUCCESS") == theirs
    assert set(place.all_files()) == {"a=1/old", "_SUCCESS"}


async def test_old_success_comes_back_where_none_stands(place: Place) -> None:
    await place.run_job({"a=1/old": b"old"}, job_id="before")
    before = place.all_files()
    await die_before_the_outcome(place)
    await place.recover("j", rollback=True, force=True)
    assert place.all_files() == before


async def test_rollback_that_failed_names_the_call_that_takes_the_job_back(place: Place) -> None:
    """Where no driver can be fenced off that call has force, as the one that failed had."""
    await die_before_the_outcome(place)
    forced = not plain_store(place).capabilities.atomic_directory_rename
    store = FaultyStore(plain_store(place))
    store.faults.append(Fault(kind="forbidden", operation="put", path="/outcome"))
    with pytest.raises(CommitterError) as caught:
        await committer.recover(place.dest, "j", rollback=True, force=forced, storage_options={"store": store})
    assert ("force=True" in caught.value.next_step) is forced
    assert not (await place.recover("j", rollback=True, force=forced)).success
    assert place.files() == {}
