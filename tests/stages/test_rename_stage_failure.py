"""Twin of Hadoop's TestRenameStageFailure: renames that raise, lie, lose their answer or find something in the way.

Where this engine differs: resilience holds on every store with identity (Hadoop: ABFS only), "rename returned false"
does not exist, and a missing source is an unknown outcome with advice, not a file not found.
"""

from __future__ import annotations

import pytest

from committer import CommitterConfig
from committer.errors import CommitterError, OutcomeUnknownError, StorePermissionError
from committer.events import JobEvent, names
from committer.testing.faults import Fault
from tests.places import MemoryPlace, Place

FILES = {f"part-{number:02}": b"%d" % number for number in range(20)}


def renames(**how: object) -> Fault:
    return Fault(operation="rename_file", **how)  # type: ignore[arg-type]


async def test_resilience_is_as_expected(place: Place) -> None:
    """Every answer to a rename is lost, and every file is found in place."""
    job = await place.open_job()
    await place.run_task(job, 0, FILES)
    place.faults(renames(kind="lost", path="/tasks/", times=None))
    report = await job.commit()
    assert report.renames_recovered == len(FILES)
    assert report.statistics.counters[names.COMMIT_FILE_RENAME_RECOVERED] == len(FILES)
    assert place.files() == FILES


@pytest.mark.parametrize(("kind", "outcome"), [("unavailable", "partial"), ("unanswered", "unknown")])
async def test_renames_that_never_come_through(place: Place, kind: str, outcome: str) -> None:
    """A rename that the store says was not done is not unknown; the files are where they were."""
    job = await place.open_job(job_id="job-1")
    await place.run_task(job, 0, {"part": b"1"})
    place.faults(renames(kind=kind, path="/tasks/", times=None))
    with pytest.raises(CommitterError) as caught:
        await job.commit()
    assert caught.value.outcome == outcome
    assert "recover(" in caught.value.next_step
    assert place.files() == {}
    place.store.faults.clear()
    await place.recover("job-1")
    assert place.files() == {"part": b"1"}


async def test_rename_that_raises_stops_the_stage(place: Place) -> None:
    events: list[JobEvent] = []
    job = await place.open_job(config=CommitterConfig(io_concurrency=2))
    job.listen(events.append)
    await place.run_task(job, 0, FILES)
    place.faults(renames(kind="forbidden", path="part-07"))
    with pytest.raises(StorePermissionError, match="injected: no right") as caught:
        await job.commit()
    assert caught.value.outcome == "partial"
    assert 0 < len(place.files()) < len(FILES)
    failed = [event for event in events if event.kind == "stage_failed" and event.stage == "job_stage_rename_files"]
    assert len(failed) == 1
    assert failed[0].done > 0
    report = await job.commit()
    assert report.statistics.counters[names.JOB_STAGE_RENAME_FILES] == 1
    assert place.files() == FILES


async def test_without_identity_a_lost_answer_is_unknown() -> None:
    place = MemoryPlace("hdfs", identity=False)
    job = await place.open_job(job_id="job-1")
    await place.run_task(job, 0, {"part-0": b"x"})
    place.faults(renames(kind="lost", path="/tasks/"))
    with pytest.raises(OutcomeUnknownError, match="cannot prove") as caught:
        await job.commit()
    assert caught.value.outcome == "unknown"
    assert place.files() == {"part-0": b"x"}
    assert await place.states() == {"job-1": "committing"}
