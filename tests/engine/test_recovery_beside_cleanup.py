"""A recovery that begins while the job's driver cleans up must not take what is left for an open job of Hadoop's."""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig
from committer.errors import JobNotFoundError
from committer.testing.faults import Call, FaultyStore
from tests.engine.places import MemoryPlace
from tests.job_paths import in_job


@pytest.mark.parametrize("rollback", [False, True])
async def test_a_job_that_is_cleaned_up_while_it_is_looked_up(flat: MemoryPlace, rollback: bool) -> None:
    """The listing still shows the setup record, which is gone when it is read; a late task made its directory again."""
    job = await flat.open_job(job_id="j", delivery="message", config=CommitterConfig(mark_successful_jobs=False))
    message = await flat.run_task(job, 0, {"part-0": b"data"})
    operator = FaultyStore(flat.store.inner)
    over = False

    async def before(call: Call) -> None:
        nonlocal over
        if call.operation == "read" and call.path is not None and call.path.name == "setup" and not over:
            over = True
            await job.commit([message])
            flat.write(in_job(flat, "j", "00/tasks/attempt_j_m_000000_1-3048fef4dfa7/part-0"), b"late")

    operator.before_call = before
    with pytest.raises(JobNotFoundError):
        await committer.recover(flat.dest, "j", rollback=rollback, storage_options={"store": operator})
    assert over
    assert flat.read("part-0") == b"data"
