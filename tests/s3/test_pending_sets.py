"""Delivery by listing on a server: what Hadoop would find there while a task runs, and nothing of it afterwards."""

from __future__ import annotations

import pytest

import committer
from committer import JobSpec
from committer.paths import StorePath
from committer.spec import Delivery
from tests.s3.bucket import BucketChannel, options_for
from tests.s3.servers import Server

JOB = "0b6d7c1e-5a4f-4c36-9a55-2b1d8f0c9e11"


async def test_a_job_by_listing(server: Server, root: StorePath) -> None:
    channel, options = BucketChannel(server.client, root), options_for(server)
    async with committer.open_job(root, job_id=JOB, delivery="listing", storage_options=options) as job:
        task = await committer.open_task(job.spec, task=0, storage_options=options)
        async with task.open("p=1/a b.csv") as file:
            await file.write(b"hello")
        (marker,) = [name for name in await channel.files() if name.endswith("/p=1/a b.csv")]
        said = await channel.head(marker)
        assert (said["ContentLength"], said["Metadata"]) == (0, {"x-hadoop-s3a-magic-data-length": "5"})
        await task.commit()
        assert [name.rpartition("/")[2] for name in await channel.files() if name.startswith("__magic")] == [
            f"task_{JOB}_m_000000.pendingset",
            "00001",
        ]
    assert {name for name in await channel.files() if name != "_SUCCESS"} == {"p=1/a b.csv"}
    assert await channel.uploads() == []


@pytest.mark.parametrize("delivery", ["message", "listing"])
async def test_directories_that_nothing_is_in_any_more_are_no_job(
    delivery: Delivery, server: Server, root: StorePath
) -> None:
    """SeaweedFS lists them on, where S3 knows none."""
    options = options_for(server)
    for name in ("first", "second"):
        async with committer.open_job(root, job_id="again", delivery=delivery, storage_options=options) as job:
            (info,) = await committer.list_jobs(root, storage_options=options)
            assert (info.job_id, info.state, info.delivery) == ("again", "open", delivery)
            async with job.task_attempt(0) as task, task.open(name) as file:
                await file.write(b"x")
        assert await committer.list_jobs(root, storage_options=options) == []
        assert (await committer.cleanup(root, older_than=0, storage_options=options)).removed == []


async def test_a_magic_directory_with_nothing_but_its_marker_is_a_job_of_hadoops(
    server: Server, root: StorePath
) -> None:
    """As Hadoop 3.5 leaves it in its job's setup."""
    channel, options = BucketChannel(server.client, root), options_for(server)
    await channel.write(f"__magic_job-{JOB}/", b"")
    (info,) = await committer.list_jobs(root, storage_options=options)
    assert (info.job_id, info.state, info.committer, info.delivery) == (JOB, "open", "magic", None)
    async with committer.open_task(JobSpec.for_hadoop(root, JOB), task=0, storage_options=options) as task:
        async with task.open("x") as file:
            await file.write(b"x")
    async with committer.attach_job(JobSpec.for_hadoop(root, JOB), storage_options=options) as job:
        assert (await job.commit(tasks=1)).files_committed == 1
    assert {name for name in await channel.files() if name != "_SUCCESS"} == {"x"}
