"""One job of two worlds on an emulated account: Hadoop's committer for Azure and this one, each taking over from the other."""

from __future__ import annotations

from typing import Any

import pytest

import committer
from committer import JobSpec
from committer.errors import RecordError
from committer.records.success import SuccessData
from committer.testing.emulators.adls import AdlsEmulator, Fault
from tests.interop.jvm import Jvm
from tests.interop.python_side import FOR_JAVA_DRIVER, run_task
from tests.interop.store_job import NAMES
from tests.interop.trees import contents

from .hadoop_azure import Abfs, ManifestJob

pytestmark = pytest.mark.java


@pytest.fixture
def job(jvm: Jvm, abfs: Abfs) -> ManifestJob:
    return ManifestJob(jvm, abfs)


@pytest.fixture
def options(emulator: AdlsEmulator) -> dict[str, object]:
    return {"endpoint": emulator.dfs_url, "account_key": emulator.settings.key}


def standing(emulator: AdlsEmulator) -> dict[str, bytes]:
    """Every file of the destination, by the emulator's own memory; none is below `_temporary`."""
    found: dict[str, bytes] = {}

    def enter(node: Any, base: str) -> None:
        for name, child in (node.children or {}).items():
            if child.is_directory:
                assert name != "_temporary"
                enter(child, f"{base}{name}/")
            else:
                found[base + name] = child.data

    enter(emulator.namespace.get("data", "table"), "")
    return found


def file_renames(emulator: AdlsEmulator) -> list[str]:
    """What became of each rename of a file."""
    return [one.path for one in emulator.conduct.log if one.operation == "rename" and "/tasks/" in one.source]


async def test_java_tasks_and_a_python_job_commit(
    job: ManifestJob, emulator: AdlsEmulator, options: dict[str, object]
) -> None:
    await job.setup()
    await job.run_task(0, contents(*NAMES))
    await job.run_task(1, contents("first.csv", "both.csv", salt="0"), attempt=0)
    await job.run_task(1, contents("second.csv", "both.csv", salt="1"), attempt=1)
    emulator.conduct.log.clear()
    # The etags that Java recorded prove each file, so that its rename is one request, and a lost answer is no doubt.
    emulator.conduct.faults.append(Fault("reset-after", operation="rename", path_prefix="data/table/unicode"))
    spec = JobSpec.for_hadoop(job.uri, job.id)
    async with committer.attach_job(spec, storage_options=options) as attached:
        plan = await attached.plan()
        assert (plan.files, plan.conflicts) == (len(NAMES) + 2, [])
        report = await attached.commit(tasks=2)

    assert (report.success, report.files_committed, report.renames_recovered) == (True, len(NAMES) + 2, 1)
    assert len(file_renames(emulator)) == len(NAMES) + 2
    found = standing(emulator)
    success = await job.success()
    assert success["jobId"] == job.id
    assert success["iostatistics"]["counters"]["committer_files_committed"] == len(NAMES) + 2
    del found["_SUCCESS"]
    assert found == contents(*NAMES) | contents("second.csv", "both.csv", salt="1")


async def test_a_job_goes_by_the_scheme_that_its_tasks_used(
    job: ManifestJob, emulator: AdlsEmulator, options: dict[str, object]
) -> None:
    """As with Hadoop, to which `abfs:` and `abfss:` are two file systems; nothing is done, and the error says what to do."""
    await job.setup()
    await job.run_task(0, contents("a.csv"))
    uri = job.uri.replace("abfs:", "abfss:", 1)
    async with committer.attach_job(JobSpec.for_hadoop(uri, job.id), storage_options=options) as attached:
        with pytest.raises(RecordError, match="does not lie below") as caught:
            await attached.commit(tasks=1)
    assert caught.value.outcome == "unchanged"
    assert "with abfs: in place of abfss:" in caught.value.next_step
    async with committer.attach_job(JobSpec.for_hadoop(job.uri, job.id), storage_options=options) as attached:
        await attached.commit(tasks=1)
    assert standing(emulator).keys() == {"a.csv", "_SUCCESS"}


async def test_python_tasks_and_a_java_job_commit(
    job: ManifestJob, emulator: AdlsEmulator, options: dict[str, object]
) -> None:
    await job.setup()
    spec = JobSpec.for_hadoop(job.uri, job.id, config=FOR_JAVA_DRIVER)
    await run_task(spec, 0, contents(*NAMES), options)
    await run_task(spec, 1, contents("first.csv", "both.csv", salt="0"), options, attempt=0)
    await run_task(spec, 1, contents("second.csv", "both.csv", salt="1"), options, attempt=1)
    # The etags that Python recorded are what Java recovers by. (Java's HTTP client sends a request again by itself when
    # a connection it kept is dropped; the second drop is what Hadoop sees.)
    emulator.conduct.faults += [
        Fault("reset-after", operation="rename", path_prefix="data/table/unicode", count=1),
        Fault("reset", operation="rename", path_prefix="data/table/unicode", skip=1, count=1),
    ]
    counters = await job.commit()

    assert counters["committer_files_committed"] == len(NAMES) + 2
    assert counters["commit_file_rename_recovered"] == 1
    found = standing(emulator)
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
    job: ManifestJob, emulator: AdlsEmulator, options: dict[str, object], driver: str
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

    found = standing(emulator)
    assert (await job.success())["jobId"] == job.id
    del found["_SUCCESS"]
    assert found == contents("p=1/python.csv", "p=1/java.csv", "p=2/java.csv")
