"""One job of two worlds in one directory: S3A's own staging committers and these, each taking over from the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.errors import ConfigurationError, JobNotFoundError
from committer.paths import StorePath
from committer.records.success import SuccessData
from committer.stores.s3 import S3Store
from committer.testing.faults import Fault, FaultyStore
from tests.interop.hadoop import IDENTIFIER
from tests.interop.jvm import Jvm, jvm_fixture
from tests.interop.python_side import run_task
from tests.interop.store_job import NAMES
from tests.interop.trees import contents
from tests.s3.bucket import BucketChannel
from tests.s3.hadoop_s3a import StagingJob, jars
from tests.s3.servers import Server
from tests.s3.test_java_jobs import check_committed

pytestmark = pytest.mark.java

jvm = jvm_fixture(jars)

# Hadoop's staging committers drop what is hidden, and a disk takes no name with a slash in it.
OF_A_DISK = [name for name in NAMES if not name.rpartition("/")[2].startswith(("_", "."))]


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


def config_at(tmp_path: Path, **choices: Any) -> CommitterConfig:
    return CommitterConfig(
        pending_set_directory=f"file:{tmp_path}/pending", staging_directories=(str(tmp_path / "python"),), **choices
    )


def pending_sets(tmp_path: Path) -> list[str]:
    """What stands where tasks commit, by name; Java's checksums aside."""
    found = (path for path in (tmp_path / "pending").rglob("*") if path.is_file())
    return sorted(path.name for path in found if not path.name.endswith(".crc"))


async def test_java_tasks_and_a_python_job_commit(
    job: StagingJob,
    name: str,
    root: StorePath,
    channel: BucketChannel,
    options: dict[str, object],
    tmp_path: Path,
) -> None:
    big = bytes(range(256)) * (5 << 12) + b"end"
    await job.setup()
    await job.run_task(0, contents(*OF_A_DISK) | {"empty": b"", "big": big})
    await job.run_task(1, contents("first.csv", "both.csv", salt="0"), attempt=0)
    await job.run_task(1, contents("second.csv", "both.csv", salt="1"), attempt=1)
    assert len(pending_sets(tmp_path)) == 2
    # A driver joins a job that is older than its setup record, which has the time of a second.
    await asyncio.sleep(1.1)
    # Hadoop stamps nothing: the etags of the parts prove the file whose completion had no answer.
    store = FaultyStore(S3Store.open_for(root, options))
    store.faults.append(Fault(kind="lost", operation="complete_upload", path="emoji"))

    spec = JobSpec.for_hadoop(root, job.id, committer=name, config=config_at(tmp_path))
    async with committer.attach_job(spec, storage_options={"store": store}) as attached:
        plan = await attached.plan()
        assert (plan.files, plan.tasks, plan.conflicts, plan.stray) == (len(OF_A_DISK) + 4, 2, [], [])
        report = await attached.commit(tasks=2)
    await store.close()

    expected = contents(*OF_A_DISK) | contents("second.csv", "both.csv", salt="1")
    assert (report.success, report.committer, report.files_committed) == (True, name, len(expected) + 2)
    success = await job.success()
    assert (success["jobId"], success["committer"]) == (job.id, name)
    # What the first attempt of the task sent was named by a set that the second replaced.
    assert sorted(name for name, _id in await channel.uploads()) == ["both.csv", "first.csv"]
    assert sorted(uri.rpartition("/")[2] for uri in report.uploads_left) == ["both.csv", "first.csv"]
    await committer.abort_uploads(root, force=True, storage_options=options)
    await check_committed(channel, expected | {"empty": b"", "big": big})
    assert pending_sets(tmp_path) == []
    again = await committer.recover(root, job.id, storage_options=options)
    assert again.files_committed == len(expected) + 2


async def test_python_tasks_and_a_java_job_commit(
    job: StagingJob,
    name: str,
    root: StorePath,
    channel: BucketChannel,
    options: dict[str, object],
    tmp_path: Path,
) -> None:
    await job.setup()
    spec = JobSpec.for_hadoop(root, job.id, committer=name, config=config_at(tmp_path))
    await run_task(spec, 0, contents(*NAMES) | {"empty": b""}, options)
    await run_task(spec, 1, contents("first.csv", "both.csv", salt="0"), options)
    await run_task(spec, 1, contents("second.csv", "both.csv", salt="1"), options, attempt=1)
    await run_task(spec, 2, {}, options)
    await run_task(spec, 3, contents("checked.csv"), {**options, "checksum_algorithm": "SHA256"})
    await job.run_task(7, contents("p=1/java.csv"))
    await job.commit()

    expected = contents(*NAMES, "p=1/java.csv") | contents("second.csv", "both.csv", salt="1")
    expected |= contents("checked.csv") | {"empty": b""}
    await committer.abort_uploads(root, force=True, storage_options=options)
    await check_committed(channel, expected)
    marker = await committer.load_record(f"{root}/_SUCCESS", storage_options=options)
    assert isinstance(marker, SuccessData)
    assert (marker.jobId, marker.committer, len(marker.filenames)) == (job.id, name, len(expected))
    assert (await committer.validate(root, storage_options=options)).ok


@pytest.mark.parametrize("driver", ["java", "python"])
async def test_tasks_of_both_in_a_job_that_python_set_up(
    job: StagingJob,
    name: str,
    root: StorePath,
    channel: BucketChannel,
    options: dict[str, object],
    tmp_path: Path,
    driver: str,
) -> None:
    config = config_at(tmp_path)
    async with committer.open_job(root, committer=name, config=config, storage_options=options) as made:
        job.join(made.spec.unique_id)
        await run_task(made.spec, 0, contents("p=1/python.csv"), options)
        await job.run_task(1, contents("p=1/java.csv", "p=2/java.csv"))
        assert len(pending_sets(tmp_path)) == 2
        if driver == "python":
            assert (await made.commit(tasks=2)).files_committed == 3
        else:
            await job.commit()
    assert (await job.success())["jobId"] == (job.id if driver == "java" else made.spec.job_id)
    await check_committed(channel, contents("p=1/python.csv", "p=1/java.csv", "p=2/java.csv"))
    assert pending_sets(tmp_path) == []


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
