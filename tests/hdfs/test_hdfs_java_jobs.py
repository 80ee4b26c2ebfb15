"""One job of two worlds on a real NameNode: Hadoop's manifest committer and this one, each taking over from the other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import committer
from committer import JobSpec
from committer.paths import StorePath
from tests.hdfs.channel import JavaChannel
from tests.hdfs.cluster import Cluster
from tests.interop.filesystem import HadoopFileSystem
from tests.interop.jvm import Jvm
from tests.interop.python_side import FOR_JAVA_DRIVER, run_task
from tests.interop.store_job import NAMES, ManifestCommitterJob
from tests.interop.trees import contents

BOTH = contents(*NAMES) | contents("second.csv", "both.csv", salt="1")


@pytest.fixture
async def job(jvm: Jvm, cluster: Cluster, directory: StorePath) -> AsyncIterator[ManifestCommitterJob]:
    filesystem = await HadoopFileSystem(jvm, directory.uri, {"fs.hdfs.impl.disable.cache": "true"}).open()
    yield ManifestCommitterJob(jvm, filesystem)
    await filesystem.close()


@pytest.fixture
def table(cluster: Cluster, directory: StorePath) -> JavaChannel:
    return JavaChannel(cluster, directory / "table")


async def published(table: JavaChannel) -> dict[str, bytes]:
    found = await table.files()
    assert found.pop("_SUCCESS")
    return found


async def test_java_tasks_and_a_python_job_commit(job: ManifestCommitterJob, table: JavaChannel) -> None:
    """Java's manifests hold no identity there: the driver looks it up before it decides."""
    await job.setup()
    await job.run_task(0, contents(*NAMES))
    await job.run_task(1, contents("first.csv", "both.csv", salt="0"), attempt=0)
    await job.run_task(1, contents("second.csv", "both.csv", salt="1"), attempt=1)
    async with committer.attach_job(JobSpec.for_hadoop(job.uri, job.id)) as attached:
        plan = await attached.plan()
        assert (plan.files, plan.conflicts) == (len(BOTH), [])
        report = await attached.commit(tasks=2)
    assert (report.success, report.files_committed) == (True, len(BOTH))
    success = await job.success()
    assert success["jobId"] == job.id
    assert success["iostatistics"]["counters"]["committer_files_committed"] == len(BOTH)
    assert await published(table) == BOTH


async def test_python_tasks_and_a_java_job_commit(job: ManifestCommitterJob, table: JavaChannel) -> None:
    await job.setup()
    spec = JobSpec.for_hadoop(job.uri, job.id, config=FOR_JAVA_DRIVER)
    await run_task(spec, 0, contents(*NAMES))
    await run_task(spec, 1, contents("first.csv", "both.csv", salt="0"), attempt=0)
    await run_task(spec, 1, contents("second.csv", "both.csv", salt="1"), attempt=1)
    assert (await job.commit())["committer_files_committed"] == len(BOTH)
    found = await published(table)
    report = await committer.recover(job.uri, job.id)
    assert (report.success, report.files_committed) == (True, len(BOTH))
    assert (await committer.validate(job.uri)).ok
    assert found == BOTH


@pytest.mark.parametrize("driver", ["java", "python"])
async def test_tasks_of_both_in_a_job_that_python_set_up(
    job: ManifestCommitterJob, table: JavaChannel, driver: str
) -> None:
    config = FOR_JAVA_DRIVER if driver == "java" else None
    async with committer.open_job(job.uri, delivery="listing", config=config) as made:
        job.join(made.spec.unique_id)
        await run_task(made.spec, 0, contents("p=1/python.csv"))
        await job.run_task(1, contents("p=1/java.csv", "p=2/java.csv"))
        if driver == "python":
            assert (await made.commit(tasks=2)).files_committed == 3
        else:
            assert (await job.commit())["committer_files_committed"] == 3
    assert (await job.success())["jobId"] == (job.id if driver == "java" else made.spec.job_id)
    assert await published(table) == contents("p=1/python.csv", "p=1/java.csv", "p=2/java.csv")
