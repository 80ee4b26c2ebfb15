"""One job of two worlds on an emulated bucket: Hadoop's manifest committer and this one, each taking over from the other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import committer
from committer import JobSpec
from committer.records.success import SuccessData
from committer.testing.emulators.gcs import Fault, GcsEmulator
from tests.interop.jvm import Jvm
from tests.interop.python_side import FOR_JAVA_DRIVER, run_task
from tests.interop.store_job import NAMES
from tests.interop.trees import contents

from .hadoop_google import Gcs, GoogleManifestJob

pytestmark = pytest.mark.java


@pytest.fixture
async def job(google_jvm: Jvm, gcs: GcsEmulator) -> AsyncIterator[GoogleManifestJob]:
    connector = await Gcs(google_jvm, gcs, "data").open()
    yield GoogleManifestJob(google_jvm, connector)
    await connector.close()


@pytest.fixture
def options(gcs: GcsEmulator) -> dict[str, object]:
    return {"endpoint": gcs.url}


def standing(gcs: GcsEmulator) -> dict[str, bytes]:
    """Every file of the destination, by the emulator's own memory; none is below `_temporary`."""
    found = {
        name.removeprefix("table/"): one.data
        for name, one in gcs.namespace.buckets["data"].objects.items()
        if not name.endswith("/")
    }
    assert not [name for name in found if name.startswith("_temporary")]
    return found


def file_moves(gcs: GcsEmulator) -> list[str]:
    """What became of each rename of a file."""
    return [one.path for one in gcs.conduct.log if one.operation == "move" and "/tasks/" in one.source]


async def test_java_tasks_and_a_python_job_commit(
    job: GoogleManifestJob, gcs: GcsEmulator, options: dict[str, object]
) -> None:
    await job.setup()
    await job.run_task(0, contents(*NAMES))
    await job.run_task(1, contents("first.csv", "both.csv", salt="0"), attempt=0)
    await job.run_task(1, contents("second.csv", "both.csv", salt="1"), attempt=1)
    gcs.conduct.log.clear()
    # Java records no identities there: the driver looks them up before it decides, so that a lost answer is no doubt.
    gcs.conduct.faults.append(Fault("reset-after", operation="move", path_prefix="data/table/unicode"))
    spec = JobSpec.for_hadoop(job.uri, job.id)
    async with committer.attach_job(spec, storage_options=options) as attached:
        plan = await attached.plan()
        assert (plan.files, plan.conflicts) == (len(NAMES) + 2, [])
        report = await attached.commit(tasks=2)

    assert (report.success, report.files_committed, report.renames_recovered) == (True, len(NAMES) + 2, 1)
    assert len(file_moves(gcs)) == len(NAMES) + 2
    found = standing(gcs)
    success = await job.success()
    assert success["jobId"] == job.id
    assert success["iostatistics"]["counters"]["committer_files_committed"] == len(NAMES) + 2
    del found["_SUCCESS"]
    assert found == contents(*NAMES) | contents("second.csv", "both.csv", salt="1")


async def test_python_tasks_and_a_java_job_commit(
    job: GoogleManifestJob, gcs: GcsEmulator, options: dict[str, object]
) -> None:
    await job.setup()
    spec = JobSpec.for_hadoop(job.uri, job.id, config=FOR_JAVA_DRIVER)
    await run_task(spec, 0, contents(*NAMES), options)
    await run_task(spec, 1, contents("first.csv", "both.csv", salt="0"), options, attempt=0)
    await run_task(spec, 1, contents("second.csv", "both.csv", salt="1"), options, attempt=1)
    # Java sends a request whose answer was lost again, with the token it had, and the service repeats its answer.
    gcs.conduct.faults.append(Fault("reset-after", operation="move", path_prefix="data/table/unicode", count=1))
    counters = await job.commit()

    assert counters["committer_files_committed"] == len(NAMES) + 2
    found = standing(gcs)
    report = await committer.recover(job.uri, job.id, storage_options=options)
    assert (report.success, report.files_committed) == (True, len(NAMES) + 2)
    marker = await committer.load_record(f"{job.uri}/_SUCCESS", storage_options=options)
    assert isinstance(marker, SuccessData)
    assert (marker.jobId, len(marker.filenames)) == (job.id, len(NAMES) + 2)
    assert (await committer.validate(job.uri, storage_options=options)).ok
    del found["_SUCCESS"]
    assert found == contents(*NAMES) | contents("second.csv", "both.csv", salt="1")


@pytest.mark.parametrize("driver", ["java", "python"])
async def test_tasks_of_both_in_a_job_that_python_set_up(
    job: GoogleManifestJob, gcs: GcsEmulator, options: dict[str, object], driver: str
) -> None:
    config = FOR_JAVA_DRIVER if driver == "java" else None
    async with committer.open_job(
        job.uri, job_id=job.id, delivery="listing", config=config, storage_options=options
    ) as made:
        await run_task(made.spec, 0, contents("p=1/python.csv"), options)
        await job.run_task(1, contents("p=1/java.csv", "p=2/java.csv"))
        if driver == "python":
            assert (await made.commit(tasks=2)).files_committed == 3
        else:
            assert (await job.commit())["committer_files_committed"] == 3

    found = standing(gcs)
    assert (await job.success())["jobId"] == job.id
    del found["_SUCCESS"]
    assert found == contents("p=1/python.csv", "p=1/java.csv", "p=2/java.csv")
