"""What jobs of the magic committer alone do on a server that speaks S3, looked at by the vendor's client."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import committer
from committer.errors import PreflightError, RecordError, TargetExistsError
from committer.paths import StorePath
from committer.stores.s3 import S3Store
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from committer_testing.simulate.markers import is_same_marker
from tests.s3.bucket import BucketChannel
from tests.s3.jobs import Jobs
from tests.s3.servers import Server
from tests.waiting_uploads import peak_of_a_stream


@pytest.fixture
def jobs(server: Server, root: StorePath, tmp_path: Path) -> Jobs:
    return Jobs("magic", server, root, tmp_path)


async def test_a_long_stream_takes_the_memory_of_two_parts_and_those_under_way(jobs: Jobs) -> None:
    part = 5 << 20
    chunk = bytes(1 << 20)
    async with jobs.open(multipart_size=part, multipart_in_flight=3) as job, job.task_attempt(0) as task:
        async with task.open("first") as file:
            await file.write(chunk)
        peak = await peak_of_a_stream(task, chunk, 80)
    assert 3 * part < peak < (2 + 3) * part


async def test_a_target_that_appears_takes_the_job_back(jobs: Jobs, channel: BucketChannel) -> None:
    await jobs.commit({"old": b"old"}, job_id="earlier")
    before = await channel.files()
    store = FaultyStore(S3Store.open_for(jobs.root, jobs.options))

    async def another_program(call: Call) -> None:
        if call.operation == "complete_upload" and call.path.name == "b":
            await channel.write("b", b"another job's")

    store.before_call = another_program
    with pytest.raises(TargetExistsError) as caught:
        await jobs.commit(dict.fromkeys("abc", b"new"), store=store, io_concurrency=1)
    await store.close()
    assert caught.value.outcome == "unchanged"
    found = await channel.files()
    # A rollback writes the old marker with a blank more: its etag changes.
    assert is_same_marker(found.pop("_SUCCESS"), before.pop("_SUCCESS"))
    assert found == {**before, "b": b"another job's"}
    assert await channel.uploads() == []


async def test_a_rollback_by_the_other_scheme_changes_nothing(jobs: Jobs, channel: BucketChannel) -> None:
    """Records hold the whole URI of a file, so they are out of reach by another name of the bucket."""
    root, options = jobs.root, jobs.options
    store = FaultyStore(S3Store.open_for(root, options), [Fault(kind="crash_after", operation="complete_upload")])
    with pytest.raises(SimulatedCrash):
        await jobs.commit(dict.fromkeys("ab", b"new"), store=store, job_id="j")
    await store.inner.close()
    before = await channel.files()
    other = StorePath("s3a", root.authority, root.path)
    with pytest.raises(RecordError) as caught:
        await committer.recover(other, "j", rollback=True, storage_options=options)
    assert "s3: in place of s3a:" in caught.value.next_step
    assert await channel.files() == before
    assert (await committer.recover(root, "j", storage_options=options)).files_committed == 2


@pytest.mark.parametrize("mode", ["same names", "directories"])
async def test_replacing(mode: str, jobs: Jobs, channel: BucketChannel) -> None:
    await jobs.commit({"a=1/old": b"1", "a=2/old": b"2", "a=1/both": b"3"}, job_id="earlier")
    same = mode == "same names"
    choices = {"existing_target": "replace"} if same else {"conflict_mode": "replace", "validate_output": True}
    await jobs.commit({"a=1/both": b"new", "a=1/new": b"4"}, job_id="later", **choices)
    found = await channel.files()
    assert json.loads(found.pop("_SUCCESS"))["jobId"] == "later"
    kept = {"a=1/old": b"1"} if same else {}
    assert found == {"a=1/both": b"new", "a=1/new": b"4", "a=2/old": b"2", **kept}
    assert await channel.uploads() == []


async def test_a_server_that_keeps_no_file_beside_a_directory_of_its_name_takes_the_job_back(
    jobs: Jobs, channel: BucketChannel
) -> None:
    """S3 does; SeaweedFS has directories underneath, and refuses to complete the upload."""
    await channel.write("x/old", b"old")
    with pytest.raises(TargetExistsError) as caught:
        await jobs.commit({"x": b"new", "y": b"new"}, existing_target="replace")
    assert caught.value.outcome == "unchanged"
    assert (await channel.files(), await channel.uploads()) == ({"x/old": b"old"}, [])


async def test_an_old_file_that_no_record_may_name_is_refused_before_the_decision(
    moto_server: Server, jobs: Jobs
) -> None:
    """A recoverer that had to finish the job, or roll it back, would refuse a decision that names it."""
    jobs = jobs._replace(server=moto_server)
    await jobs.channel.write("a=1/..", b"old")
    with pytest.raises(PreflightError, match=r"a=1/\.\. cannot be moved aside") as caught:
        await jobs.commit({"a=1/new": b"new"}, conflict_mode="replace")
    assert caught.value.outcome == "unchanged"
    assert await jobs.channel.files() == {"a=1/..": b"old"}
    assert await jobs.channel.uploads() == []
