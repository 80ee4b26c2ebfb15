"""Twin of Hadoop's TestJobThroughManifestCommitter: one job, told as a story, looked at after every step.

The script: tasks 0 and 1, of which task 0 is run twice and the second attempt wins, attempt 11 is aborted and cannot
commit, the job is committed, validated, damaged, validated again, cleaned up.
"""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig
from committer.errors import JobExistsError, JobNotFoundError, TaskError
from committer.events import names
from committer.records.manifest import TaskManifest
from committer.records.success import SuccessData
from tests.places import Place, write_file

JOB_ID = "job_202601010000_0001"


def files(task: int, attempt: int) -> dict[str, bytes]:
    return {f"p={number}/part-{task}-{number}": b"%d%d" % (task, attempt) for number in range(4)}


async def test_one_job_from_setup_to_cleanup(place: Place) -> None:
    job = await place.open_job(job_id=JOB_ID, config=CommitterConfig(cleanup_skipped=True, validate_output=True))
    layout = job.spec.layout

    # Set up once only; another job attempt number of the same job would be Hadoop's way to start anew.
    with pytest.raises(JobExistsError):
        await place.open_job(job_id=JOB_ID)

    # Tasks are set up; two runs of one attempt never share a directory.
    attempt_00, attempt_01 = await place.open_task(job.spec, 0, 0), await place.open_task(job.spec, 0, 1)
    attempt_10, attempt_11 = await place.open_task(job.spec, 1, 0), await place.open_task(job.spec, 1, 1)
    again_00 = await place.open_task(job.spec, 0, 0)
    assert again_00.directory != attempt_00.directory
    assert attempt_00.directory.name.startswith("attempt_202601010000_0001_m_000000_0-")

    # 11 is aborted, and cannot commit afterwards.
    await attempt_11.abort()
    with pytest.raises(TaskError):
        await attempt_11.commit()

    # 00 commits, then 01 replaces its record.
    for attempt, number in ((attempt_00, 0), (attempt_01, 1)):
        for name, data in files(0, number).items():
            await write_file(attempt, name, data)
        await attempt.commit()
        record = await committer.load_record(str(layout.manifest(0)), storage_options=place.options)
        assert isinstance(record, TaskManifest)
        assert record.taskAttemptID == f"attempt_202601010000_0001_m_000000_{number}"
        assert record.taskID == "task_202601010000_0001_m_000000"
        assert (record.jobId, record.jobAttemptNumber) == (job.spec.unique_id, 0)

    for name, data in files(1, 0).items():
        await write_file(attempt_10, name, data)
    await attempt_10.commit()

    # A late abort of 11 by the driver leaves task 1's record alone.
    await job.abort_task(1, 1)
    plan = await job.plan()
    assert (plan.tasks, plan.files, plan.conflicts) == (2, 8, [])
    assert place.files() == {}

    # Commit: exactly 01's and 10's files.
    report = await job.commit(tasks=2)
    expected = {**files(0, 1), **files(1, 0)}
    assert place.files() == expected
    assert report.files_committed == 8
    assert report.statistics.counters[names.COMMITTER_TASKS_COMPLETED] == 2
    marker = await committer.load_record(f"{place.dest}/_SUCCESS", storage_options=place.options)
    assert isinstance(marker, SuccessData)
    assert len(marker.filenames) == 8
    assert marker.jobIdSource == "JobID"

    # Validation finds nothing, then a deleted file, then a changed length.
    assert (await committer.validate(place.dest, storage_options=place.options)).ok
    victim = "p=0/part-0-0"
    place.remove(victim)
    found = await committer.validate(place.dest, storage_options=place.options)
    assert len(found.missing) == 1
    place.write(victim, b"longer than before")
    found = await committer.validate(place.dest, storage_options=place.options)
    assert len(found.wrong) == 1

    # Cleanup, then nothing is left to clean.
    assert await place.states() == {JOB_ID: "committed"}
    cleaned = await committer.cleanup(place.dest, job_id=JOB_ID, storage_options=place.options)
    assert cleaned.removed == [JOB_ID]
    assert place.temporary() == set()
    with pytest.raises(JobNotFoundError):
        await committer.cleanup(place.dest, job_id=JOB_ID, storage_options=place.options)
    assert set(place.files()) == set(expected)
