"""`file-v2` with `commit_attempts`: a job commit that is tried again, as Hadoop's algorithm 2 does."""

from __future__ import annotations

import pytest

from committer import CommitterConfig
from committer.errors import CommitterError, PreflightError
from committer.events import names
from committer.flow.runtime import use_runtime
from committer.testing.faults import Fault
from committer.testing.virtual_time import VirtualRuntime
from tests.engine.file_places import FileInMemory


@pytest.mark.parametrize(("committer_name", "tries"), [("file-v2", 3), ("manifest", 1)])
async def test_a_job_commit_is_tried_as_often_as_said(committer_name: str, tries: int) -> None:
    """Of Hadoop's committers `file-v2` alone does that, too. What a try wrote is what the next one goes on with."""
    config = CommitterConfig.from_hadoop({"mapreduce.fileoutputcommitter.failures.attempts": "3"})
    place = FileInMemory(committer_name, "local")
    for failures in (tries - 1, tries):
        job = await place.open_job(job_id=f"j{failures}", config=config)
        await place.run_task(job, 0, {f"part-{failures}": b"x"})
        place.faults(Fault(kind="forbidden", operation="put", path="/outcome", times=failures))
        if failures < tries:
            assert (await job.commit(tasks=1)).files_committed == 1
            continue
        with pytest.raises(CommitterError):
            await job.commit(tasks=1)
        assert (await place.recover(job.job_id)).success


async def test_a_refusal_is_no_reason_to_try_again() -> None:
    calls = []
    for attempts in (1, 5):
        place = FileInMemory("file-v2", "local")
        job = await place.open_job(job_id="j", config=CommitterConfig(commit_attempts=attempts))
        await place.run_task(job, 0, {"part-0": b"x", "part-1": b"x"})
        place.remove("part-1")
        with pytest.raises(PreflightError):
            await job.commit()
        calls.append(place.store.count())
    assert calls[0] == calls[1]


async def test_the_report_counts_what_the_last_try_did() -> None:
    """Not what failed tries did before; the setup of the job counts in each."""
    counters = []
    for failures in (0, 1):
        place = FileInMemory("file-v2", "local")
        # Of the machine's time, how many digits it has would count: records hold it.
        with use_runtime(VirtualRuntime()):
            job = await place.open_job(job_id="j", config=CommitterConfig(io_concurrency=1, commit_attempts=2))
            for task in range(3):
                await place.run_task(job, task, {f"part-{task}": b"x"})
            if failures:
                place.faults(Fault(kind="forbidden", operation="status", path="/part-2"))
            counters.append((await job.commit()).statistics.counters)
    # A try's own calls differ by what the one before left: only what is counted of the job is compared.
    of_job = [{name: n for name, n in each.items() if not name.startswith(("op_", "store_"))} for each in counters]
    assert of_job[1] == of_job[0]
    assert counters[1][names.OP_LOAD_MANIFEST] == 3
    assert counters[1][names.JOB_STAGE_SETUP] == 1
