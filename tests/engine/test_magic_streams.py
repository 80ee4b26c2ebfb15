"""Files that are sent part by part while they are written."""

from __future__ import annotations

import asyncio

import pytest

import committer
from committer import CommitterConfig
from committer.errors import TaskError
from committer.stores.uploads import UploadPart
from committer.testing.faults import Fault
from tests.engine.places import MemoryPlace, place_fixture
from tests.engine.uploads import peak_of_a_stream, pending

place = place_fixture("s3", delivery="message")


def small_parts(**more: object) -> CommitterConfig:
    return CommitterConfig(multipart_size=10, multipart_in_flight=3, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "parts"), [(0, 1), (9, 1), (10, 1), (11, 2), (30, 3), (31, 4)])
async def test_a_stream_is_cut_into_parts(size: int, parts: int, place: MemoryPlace) -> None:
    data = bytes(range(size))
    async with place.open_job(config=small_parts()) as job, job.task_attempt(0) as task:
        async with task.open("x") as file:
            for start in range(0, size, 7):
                await file.write(data[start : start + 7])
        assert file.tell() == size
    assert place.files() == {"x": data}
    assert place.store.count("put_part") == parts


async def test_no_more_parts_are_under_way_than_allowed(place: MemoryPlace) -> None:
    under_way = most = 0
    inner = place.store.inner.put_part

    async def slow(path, upload_id, number, data):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _turn in range(50):
            await asyncio.sleep(0)
        under_way -= 1
        return await inner(path, upload_id, number, data)

    place.store.inner.put_part = slow
    async with place.open_job(config=small_parts()) as job, job.task_attempt(0) as task, task.open("x") as file:
        await file.write(bytes(200))
    assert most == 3
    assert place.files() == {"x": bytes(200)}


async def test_a_part_that_cannot_be_sent_fails_the_file_and_the_upload_is_ended(place: MemoryPlace) -> None:
    async with place.open_job(config=small_parts()) as job:
        place.faults(Fault(kind="forbidden", operation="put_part", times=None))
        with pytest.raises(committer.CommitterError):
            async with place.open_task(job.spec, 0) as task, task.open("x") as file:
                for _ in range(20):
                    await file.write(bytes(10))
        assert pending(place) == []
        await job.commit([])


async def test_more_parts_than_the_store_takes_are_refused() -> None:
    place = MemoryPlace("s3", max_parts=3)
    with pytest.raises(TaskError, match="more than 3 parts of 10 bytes"):
        async with place.open_job(config=small_parts()) as job, job.task_attempt(0) as task, task.open("x") as file:
            await file.write(bytes(41))
    assert pending(place) == []


async def test_parts_are_as_long_as_the_store_asks_for() -> None:
    place = MemoryPlace("s3", min_part_bytes=25)
    async with place.open_job(config=small_parts()) as job, job.task_attempt(0) as task, task.open("x") as file:
        await file.write(bytes(60))
    assert place.store.count("put_part") == 3
    assert place.files() == {"x": bytes(60)}


async def test_a_long_stream_takes_the_memory_of_two_parts_and_those_under_way(place: MemoryPlace) -> None:
    part = 1 << 20

    async def forgetful(path, upload_id, number, data):
        size = len(data)
        for _turn in range(20):
            await asyncio.sleep(0)
        return UploadPart(number, "etag", size)

    # The counting store keeps copies of its own.
    store = place.store.inner
    store.put_part = forgetful
    config = CommitterConfig(multipart_size=part, multipart_in_flight=3)
    job = await committer.open_job(place.dest, config=config, storage_options={"store": store})
    task = await job.task_attempt(0)
    peak = await peak_of_a_stream(task, bytes(part), 128)
    await job.abort()
    assert 3 * part < peak < (2 + 3) * part
