"""One job of two worlds in one directory: S3A's own magic committer and this one, each taking over from the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from uuid import uuid4

import pytest

import committer
from committer import JobSpec
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
from tests.s3.hadoop_s3a import MagicJob, jars
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


async def check_committed(channel: BucketChannel, files: Mapping[str, bytes]) -> None:
    """Exactly these files stand there, with `_SUCCESS`, no upload waits, and nothing is left of the job."""
    found = await channel.files()
    # S3A marks the destination as a directory.
    assert {name: data for name, data in found.items() if name not in ("", "_SUCCESS")} == files
    assert "_SUCCESS" in found
    assert await channel.uploads() == []


async def test_java_tasks_and_a_python_job_commit(
    jvm: Jvm, job: MagicJob, root: StorePath, channel: BucketChannel, server: Server, options: dict[str, object]
) -> None:
    big = bytes(range(256)) * (5 << 12) + b"end"
    await job.setup()
    await job.run_task(0, contents(*NAMES) | {"empty": b"", "big": big})
    await job.run_task(1, contents("first.csv", "both.csv", salt="0"), attempt=0)
    await job.run_task(1, contents("second.csv", "both.csv", salt="1"), attempt=1)
    checked = MagicJob(jvm, server, job.uri, job.id, **{"fs.s3a.create.checksum.algorithm": "CRC32C"})
    await checked.run_task(2, contents("checked.csv"))
    await checked.run_task(3, {})
    await checked.close()
    # Hadoop stamps nothing: the etags of the parts prove the file whose completion had no answer.
    store = FaultyStore(S3Store.open_for(root, options))
    store.faults.append(Fault(kind="lost", operation="complete_upload", path="emoji"))

    async with committer.attach_job(JobSpec.for_hadoop(root, job.id), storage_options={"store": store}) as attached:
        plan = await attached.plan()
        assert (plan.files, plan.tasks, plan.conflicts, plan.stray) == (len(NAMES) + 5, 4, [], [])
        report = await attached.commit(tasks=4)
    await store.close()

    expected = contents(*NAMES) | contents("second.csv", "both.csv", salt="1") | contents("checked.csv")
    assert (report.success, report.committer, report.files_committed) == (True, "magic", len(expected) + 2)
    success = await job.success()
    assert (success["jobId"], success["committer"]) == (job.id, "magic")
    assert len(success["filenames"]) == len(expected) + 2
    # What the first attempt of the task sent was named by a set that the second replaced.
    assert sorted(name for name, _id in await channel.uploads()) == ["both.csv", "first.csv"]
    assert sorted(uri.rpartition("/")[2] for uri in report.uploads_left) == ["both.csv", "first.csv"]
    await committer.abort_uploads(root, force=True, storage_options=options)
    await check_committed(channel, expected | {"empty": b"", "big": big})


async def test_python_tasks_and_a_java_job_commit(
    job: MagicJob, root: StorePath, channel: BucketChannel, options: dict[str, object]
) -> None:
    await job.setup()
    spec = JobSpec.for_hadoop(root, job.id)
    await run_task(spec, 0, contents(*NAMES) | {"empty": b""}, options)
    await run_task(spec, 1, contents("second.csv", "both.csv", salt="1"), options)
    await run_task(spec, 2, {}, options)
    await run_task(spec, 3, contents("checked.csv"), {**options, "checksum_algorithm": "SHA256"})
    await job.commit()

    expected = contents(*NAMES) | contents("second.csv", "both.csv", salt="1") | contents("checked.csv")
    await check_committed(channel, expected | {"empty": b""})
    marker = await committer.load_record(f"{root}/_SUCCESS", storage_options=options)
    assert isinstance(marker, SuccessData)
    assert (marker.jobId, marker.committer, len(marker.filenames)) == (job.id, "magic", len(expected) + 1)
    assert (await committer.validate(root, storage_options=options)).ok
    report = await committer.recover(root, job.id, storage_options=options)
    assert (report.success, report.files_committed) == (True, len(expected) + 1)


@pytest.mark.parametrize("driver", ["java", "python"])
async def test_tasks_of_both_in_a_job_that_python_set_up(
    job: MagicJob, root: StorePath, channel: BucketChannel, options: dict[str, object], driver: str
) -> None:
    async with committer.open_job(root, delivery="listing", storage_options=options) as made:
        job.join(made.spec.unique_id)
        await run_task(made.spec, 0, contents("p=1/python.csv"), options)
        await job.run_task(1, contents("p=1/java.csv", "p=2/java.csv"))
        if driver == "python":
            assert (await made.commit(tasks=2)).files_committed == 3
        else:
            await job.commit()
    assert (await job.success())["jobId"] == (job.id if driver == "java" else made.spec.job_id)
    await check_committed(channel, contents("p=1/python.csv", "p=1/java.csv", "p=2/java.csv"))


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
