"""What only S3A's staging committers have: pending sets on a disk, which both name alike, or do not find."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

import committer
from committer import JobSpec
from committer.errors import ConfigurationError, JobNotFoundError
from committer.paths import StorePath
from tests.interop.hadoop import IDENTIFIER
from tests.interop.jvm import Jvm, jvm_fixture
from tests.interop.python_side import run_task
from tests.interop.trees import contents
from tests.s3.bucket import BucketChannel
from tests.s3.hadoop_s3a import StagingJob, jars
from tests.s3.servers import Server
from tests.s3.test_java_jobs import check_committed, config_at, pending_sets

pytestmark = pytest.mark.java

jvm = jvm_fixture(jars)


@pytest.fixture
def root(root: StorePath) -> StorePath:
    """Named as Hadoop names it."""
    return StorePath("s3a", root.authority, root.path)


@pytest.fixture(params=["directory", "partitioned"])
async def job(
    request: pytest.FixtureRequest, jvm: Jvm, server: Server, root: StorePath, tmp_path: Path
) -> AsyncIterator[StagingJob]:
    job = StagingJob(jvm, server, str(root), str(uuid4()), tmp_path, request.param)
    yield job
    await job.close()


@pytest.fixture
def name(job: StagingJob, request: pytest.FixtureRequest) -> str:
    kind: str = request.node.callspec.params["job"]
    return kind


async def test_a_python_task_that_commits_again_after_java(
    jvm: Jvm, server: Server, root: StorePath, channel: BucketChannel, options: dict[str, object], tmp_path: Path
) -> None:
    # Hadoop names tasks by the id of MapReduce's job; under that one both name them alike, and replace one another's.
    job = StagingJob(jvm, server, str(root), f"job_{IDENTIFIER}_0001", tmp_path)
    await job.setup()
    spec = JobSpec.for_hadoop(root, job.id, committer="directory", config=config_at(tmp_path))
    await job.run_task(0, contents("java.csv", "both.csv", salt="0"))
    await run_task(spec, 0, contents("python.csv", "both.csv", salt="1"), options, attempt=1)
    await run_task(spec, 1, contents("other-python.csv", salt="2"), options)
    await job.run_task(1, contents("other-java.csv", salt="3"), attempt=1)
    assert len(pending_sets(tmp_path)) == 2
    await job.commit()
    await job.close()
    await committer.abort_uploads(root, force=True, storage_options=options)
    expected = contents("python.csv", "both.csv", salt="1") | contents("other-java.csv", salt="3")
    await check_committed(channel, expected)


async def test_python_aborts_a_job_of_java(
    job: StagingJob, name: str, root: StorePath, channel: BucketChannel, options: dict[str, object], tmp_path: Path
) -> None:
    await job.setup()
    await job.run_task(0, contents("a b.csv", "p=1/x.csv"))
    spec = JobSpec.for_hadoop(root, job.id, committer=name, config=config_at(tmp_path))
    await run_task(spec, 1, contents("other.csv"), options)
    assert len(await channel.uploads()) == 3
    async with committer.attach_job(spec, storage_options=options) as attached:
        await attached.abort()
    assert await channel.uploads() == []
    assert [name for name in await channel.files() if name] == []
    assert pending_sets(tmp_path) == []


async def test_a_job_of_java_that_python_does_not_find(
    job: StagingJob, name: str, root: StorePath, options: dict[str, object], tmp_path: Path
) -> None:
    await job.setup()
    await job.run_task(0, contents("a.csv"))
    config = config_at(tmp_path)
    for wrong, error in (
        (JobSpec.for_hadoop(root, job.id, committer=name), ConfigurationError),
        (JobSpec.for_hadoop(root, job.id, 1, committer=name, config=config), JobNotFoundError),
        (
            JobSpec.for_hadoop(root, job.id, committer=name, config=config.replace(pending_set_user="another")),
            JobNotFoundError,
        ),
    ):
        with pytest.raises(error):
            await committer.attach_job(wrong, storage_options=options)
        with pytest.raises(error):
            await committer.open_task(wrong, task=1, storage_options=options)
    assert len(pending_sets(tmp_path)) == 1
    assert await job.user() in str(next((tmp_path / "pending").iterdir()))
