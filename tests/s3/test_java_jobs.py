"""One job of two worlds in one directory: S3A's own committers and these, each taking over from the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.errors import PreflightError
from committer.paths import StorePath
from committer.records.pending_set import PendingSet
from committer.records.success import SuccessData
from committer.stores.s3 import S3Store
from committer.testing.faults import Fault, FaultyStore
from tests.interop.hadoop import IDENTIFIER
from tests.interop.jvm import Jvm, jvm_fixture
from tests.interop.python_side import run_task
from tests.interop.store_job import NAMES
from tests.interop.trees import contents
from tests.s3.bucket import BucketChannel
from tests.s3.hadoop_s3a import MagicJob, StagingJob, jars
from tests.s3.servers import Server

pytestmark = pytest.mark.java

jvm = jvm_fixture(jars)


@pytest.fixture
def root(root: StorePath) -> StorePath:
    """Named as Hadoop names it."""
    return StorePath("s3a", root.authority, root.path)


@pytest.fixture
async def job(jvm: Jvm, server: Server, root: StorePath) -> AsyncIterator[MagicJob]:
    job = MagicJob(jvm, server, str(root), str(uuid4()))
    yield job
    await job.close()


class Both:
    """A job that Hadoop and this engine take part in.

    Attributes:
        job: Hadoop's side.
        committer: The committer's name.
        names: Files that Hadoop's tasks can write.
        config: Choices that this engine needs to take part.
    """

    def __init__(self, jvm: Jvm, server: Server, root: StorePath, disk: Path, committer: str) -> None:
        self.committer = committer
        self.staging = committer != "magic"
        self._root = root
        self._disk = disk
        uuid = str(uuid4())
        if self.staging:
            self.job: MagicJob = StagingJob(jvm, server, str(root), uuid, disk, committer)
            # Hadoop's staging committers drop what is hidden, and a disk takes no name with a slash in it.
            self.names = [name for name in NAMES if not name.rpartition("/")[2].startswith(("_", "."))]
        else:
            self.job = MagicJob(jvm, server, str(root), uuid)
            self.names = list(NAMES)
        self.config = config_at(disk) if self.staging else None

    def spec(self) -> JobSpec:
        return JobSpec.for_hadoop(self._root, self.job.id, committer=self.committer, config=self.config)

    def check_pending_sets(self, count: int) -> None:
        """Those of staging committers, which lie outside the bucket."""
        if self.staging:
            assert len(pending_sets(self._disk)) == count


def config_at(disk: Path, **choices: Any) -> CommitterConfig:
    return CommitterConfig(
        pending_set_directory=f"file:{disk}/pending", staging_directories=(str(disk / "python"),), **choices
    )


def pending_sets(disk: Path) -> list[str]:
    """Returns the names of the records that tasks committed, without Java's checksums."""
    found = (path for path in (disk / "pending").rglob("*") if path.is_file())
    return sorted(path.name for path in found if not path.name.endswith(".crc"))


@pytest.fixture(params=["magic", "directory", "partitioned"])
async def both(
    request: pytest.FixtureRequest, jvm: Jvm, server: Server, root: StorePath, tmp_path: Path
) -> AsyncIterator[Both]:
    both = Both(jvm, server, root, tmp_path, request.param)
    yield both
    await both.job.close()


async def check_committed(channel: BucketChannel, files: Mapping[str, bytes]) -> None:
    """Exactly these files exist there, with `_SUCCESS`, no upload waits, and nothing is left of the job."""
    found = await channel.files()
    # S3A marks the destination as a directory.
    assert {name: data for name, data in found.items() if name not in ("", "_SUCCESS")} == files
    assert "_SUCCESS" in found
    assert await channel.uploads() == []


async def test_java_tasks_and_a_python_job_commit(
    jvm: Jvm, both: Both, root: StorePath, channel: BucketChannel, server: Server, options: dict[str, object]
) -> None:
    job, tasks = both.job, 2
    big = bytes(range(256)) * (5 << 12) + b"end"
    expected = contents(*both.names) | {"empty": b"", "big": big}
    await job.setup()
    await job.run_task(0, expected)
    await job.run_task(1, contents("first.csv", "both.csv", salt="0"), attempt=0)
    await job.run_task(1, contents("second.csv", "both.csv", salt="1"), attempt=1)
    expected |= contents("second.csv", "both.csv", salt="1")
    both.check_pending_sets(2)
    if both.staging:
        # A driver joins a job that is older than its setup record, which has the time of a second.
        await asyncio.sleep(1.1)
    else:
        checked = MagicJob(jvm, server, job.uri, job.id, **{"fs.s3a.create.checksum.algorithm": "CRC32C"})
        await checked.run_task(2, contents("checked.csv"))
        await checked.run_task(3, {})
        await checked.close()
        expected |= contents("checked.csv")
        tasks = 4
    # Hadoop stamps nothing: the etags of the parts prove the file whose completion had no answer.
    store = FaultyStore(S3Store.open_for(root, options))
    store.faults.append(Fault(kind="lost", operation="complete_upload", path="emoji"))

    async with committer.attach_job(both.spec(), storage_options={"store": store}) as attached:
        plan = await attached.plan()
        assert (plan.files, plan.tasks, plan.conflicts, plan.stray) == (len(expected), tasks, [], [])
        report = await attached.commit(tasks=tasks)
    await store.close()

    assert (report.success, report.committer, report.files_committed) == (True, both.committer, len(expected))
    success = await job.success()
    assert (success["jobId"], success["committer"]) == (job.id, both.committer)
    assert len(success["filenames"]) == len(expected)
    # What the first attempt of the task sent was named by a set that the second replaced.
    assert sorted(name for name, _id in await channel.uploads()) == ["both.csv", "first.csv"]
    assert sorted(uri.rpartition("/")[2] for uri in report.uploads_left) == ["both.csv", "first.csv"]
    await committer.abort_uploads(root, force=True, storage_options=options)
    await check_committed(channel, expected)
    both.check_pending_sets(0)
    again = await committer.recover(root, job.id, storage_options=options)
    assert again.files_committed == len(expected)


async def test_python_tasks_and_a_java_job_commit(
    both: Both, root: StorePath, channel: BucketChannel, options: dict[str, object]
) -> None:
    job, spec = both.job, both.spec()
    await job.setup()
    expected = contents(*NAMES, "p=1/java.csv", "checked.csv") | {"empty": b""}
    expected |= contents("second.csv", "both.csv", salt="1")
    await run_task(spec, 0, contents(*NAMES) | {"empty": b""}, options)
    if both.staging:
        await run_task(spec, 1, contents("first.csv", "both.csv", salt="0"), options)
    await run_task(spec, 1, contents("second.csv", "both.csv", salt="1"), options, attempt=1)
    await run_task(spec, 2, {}, options)
    await run_task(spec, 3, contents("checked.csv"), {**options, "checksum_algorithm": "SHA256"})
    await job.run_task(7, contents("p=1/java.csv"))
    await job.commit()

    if both.staging:
        await committer.abort_uploads(root, force=True, storage_options=options)
    await check_committed(channel, expected)
    marker = await committer.load_record(f"{root}/_SUCCESS", storage_options=options)
    assert isinstance(marker, SuccessData)
    assert (marker.jobId, marker.committer, len(marker.filenames)) == (job.id, both.committer, len(expected))
    assert (await committer.validate(root, storage_options=options)).ok
    report = await committer.recover(root, job.id, storage_options=options)
    assert (report.success, report.files_committed) == (True, len(expected))


@pytest.mark.parametrize("driver", ["java", "python"])
async def test_tasks_of_both_in_a_job_that_python_set_up(
    both: Both, root: StorePath, channel: BucketChannel, options: dict[str, object], driver: str
) -> None:
    job = both.job
    async with committer.open_job(
        root, committer=both.committer, delivery="listing", config=both.config, storage_options=options
    ) as made:
        job.join(made.spec.unique_id)
        await run_task(made.spec, 0, contents("p=1/python.csv"), options)
        await job.run_task(1, contents("p=1/java.csv", "p=2/java.csv"))
        both.check_pending_sets(2)
        if driver == "python":
            assert (await made.commit(tasks=2)).files_committed == 3
        else:
            await job.commit()
    assert (await job.success())["jobId"] == (job.id if driver == "java" else made.spec.job_id)
    await check_committed(channel, contents("p=1/python.csv", "p=1/java.csv", "p=2/java.csv"))
    both.check_pending_sets(0)


async def test_java_aborts_an_attempt_of_python(
    jvm: Jvm, server: Server, root: StorePath, channel: BucketChannel, options: dict[str, object]
) -> None:
    # Hadoop names attempts by the id of MapReduce's job; under that one both name them alike.
    job = MagicJob(jvm, server, str(root), f"job_{IDENTIFIER}_0001")
    await job.setup()
    spec = JobSpec.for_hadoop(root, job.id)
    task = await committer.open_task(spec, task=0, storage_options=options)
    for name, data in contents("a b.csv", "p=1/x.csv").items():
        async with task.open(name) as file:
            await file.write(data)
    marker = next(name for name in await channel.files() if name.endswith("/a b.csv"))
    assert await job.length_said_by(marker) == str(len(contents("a b.csv")["a b.csv"]))
    assert len([name for name in await channel.files() if name.endswith(".pending")]) == 2
    await job.abort_task(0)
    assert await channel.uploads() == []
    assert [name for name in await channel.files() if "/tasks/" in name] == []
    # A commit of it would name uploads that are gone.
    await task.commit()
    async with committer.attach_job(spec, storage_options=options) as attached:
        with pytest.raises(PreflightError, match="are gone"):
            await attached.commit(tasks=1)
        await attached.abort()
    await job.close()
    assert [name for name in await channel.files() if name] == []


@pytest.mark.parametrize("committed", [False, True])
async def test_python_aborts_an_attempt_of_java(
    job: MagicJob, root: StorePath, channel: BucketChannel, options: dict[str, object], committed: bool
) -> None:
    await job.setup()
    await job.run_task(0, contents("a b.csv", "p=1/x.csv"), commits=committed)
    await job.run_task(1, contents("other.csv"))
    assert len(await channel.uploads()) == 3
    record = f"{job.uri}/__magic_job-{job.id}/job-{job.id}/00/task_202401010000_0001_m_000001.pendingset"
    kept = await committer.load_record(record, storage_options=options)
    assert isinstance(kept, PendingSet)
    async with committer.attach_job(JobSpec.for_hadoop(root, job.id), storage_options=options) as attached:
        await attached.abort()
    assert await channel.uploads() == []
    assert [name for name in await channel.files() if name] == []
