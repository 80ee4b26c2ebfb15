"""What jobs of the staging committers alone do on a server that speaks S3, looked at by the vendor's client."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

import committer
from committer.paths import StorePath
from tests.s3.jobs import Jobs
from tests.s3.servers import Server


@pytest.fixture
def jobs(server: Server, root: StorePath, tmp_path: Path) -> Jobs:
    return Jobs("directory", server, root, tmp_path)


async def test_many_long_files_are_sent_in_the_memory_of_one(jobs: Jobs) -> None:
    block = bytes(1 << 20)
    async with jobs.open(multipart_size=5 << 20, multipart_in_flight=2) as job:
        task = await committer.open_task(job.spec, task=0, storage_options=jobs.options)
        for number in range(8):
            async with task.open(f"f-{number}") as file:
                for _ in range(16):
                    await file.write(block)
        tracemalloc.start()
        try:
            await task.commit()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 8 * (5 << 20)
        await job.commit(tasks=1)
    assert len(await jobs.channel.files()) == 9


@pytest.mark.parametrize("mode", ["append", "replace"])
async def test_conflict_modes(mode: str, jobs: Jobs) -> None:
    old = {"a=1/old": b"1", "a=2/old": b"2", "top": b"3"}
    for name, data in old.items():
        await jobs.channel.write(name, data)
    await jobs.commit({"a=1/new": b"new"}, conflict_mode=mode)
    found = await jobs.channel.files()
    del found["_SUCCESS"]
    assert found == {"a=1/new": b"new", **(old if mode == "append" else {})}
