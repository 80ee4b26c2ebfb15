"""A destination that is itself an object: readers that look at the name find that, and none of the job's files."""

from __future__ import annotations

import pytest

import committer
from committer.errors import StoreNotADirectoryError
from committer.stores.memory import MemoryStore
from committer.testing.faults import Call, Fault, FaultyStore
from tests.neighbours.meeting import Table

FLAT = ["gcs", "s3", "azure-flat"]


@pytest.mark.parametrize("profile", [*FLAT, "adls", "local"])
async def test_a_job_is_refused_where_its_destination_is_a_file(profile: str) -> None:
    table = Table(profile)
    path = table.space.path("table").path
    table.space.write(path, b"a file")
    store = FaultyStore(table.space.store())
    with pytest.raises(StoreNotADirectoryError, match="a file stands where a directory must be") as caught:
        await committer.open_job(table.dest, storage_options={"store": store})
    assert caught.value.outcome == "unchanged"
    assert "choose another destination, or remove the file" in caught.value.next_step
    assert table.space.files() == {path: b"a file"}
    assert not store.count("put")


@pytest.mark.parametrize("profile", FLAT)
async def test_what_looks_for_a_file_there_makes_a_setup_wait_no_longer(profile: str) -> None:
    """It is asked beside the listing of the job's directory."""
    table = Table(profile)
    store = FaultyStore(table.space.store())
    under_way: list[set[str]] = []

    async def before(call: Call) -> None:
        under_way.append({one.operation for one in store.calls if not one.result})

    store.before_call = before
    async with committer.open_job(table.dest, storage_options={"store": store}) as job:
        await job.abort()
    assert {"list", "status"} in under_way
    assert sum(call.operation == "status" and call.path == table.space.path("table") for call in store.calls) == 1


@pytest.mark.parametrize("profile", FLAT)
async def test_a_bucket_is_a_destination_without_a_look(profile: str) -> None:
    space = MemoryStore.space(f"bucket-{profile}", profile)
    store = FaultyStore(space.store())
    async with committer.open_job(space.path(""), storage_options={"store": store}) as job:
        await job.abort()
    assert not [call for call in store.calls if call.operation == "status" and not call.path.name]


@pytest.mark.parametrize("profile", FLAT)
async def test_a_policy_for_what_lies_below_the_destination_is_enough(profile: str) -> None:
    """AWS grants `bucket/table/*` without `bucket/table`."""
    table = Table(profile)
    path = table.space.path("table")
    store = FaultyStore(
        table.space.store(), [Fault(kind="forbidden", operation="status", path=lambda asked: asked == path, times=None)]
    )
    async with committer.open_job(table.dest, storage_options={"store": store}) as job:
        async with job.task_attempt(0) as task, task.open("part-0") as file:
            await file.write(b"x")
    assert table.files() == {"part-0": b"x"}
