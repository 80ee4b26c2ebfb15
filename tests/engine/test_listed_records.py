"""A job by listing rests on copies of what was listed: what tasks commit later changes nothing."""

from __future__ import annotations

import pytest

from committer.stages.load import load_records, planned_files
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.engine.places import Place
from tests.engine.test_forced_cleanup import revive

FILES = {"a/part-0": b"0"}
MANY = [{f"a/part-{task}": b"x"} for task in range(5)]


@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies"])
async def test_what_tasks_commit_while_their_job_commits_is_not_part_of_it(place: Place, dies: bool) -> None:
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    again, late = await place.open_task(job.spec, task=0, attempt=1), await place.open_task(job.spec, task=1)
    for attempt, name in ((again, "a/part-0"), (late, "a/late")):
        async with attempt.open(name) as file:
            await file.write(b"late")

    async def commit_late(call: Call) -> None:
        if call.operation == "put" and call.path.name == "decision":
            place.store.before_call = None
            await again.commit()
            await late.commit()

    place.store.before_call = commit_late
    if dies:
        place.faults(Fault(kind="crash_after", operation="put", path="/decision"))
        with pytest.raises(SimulatedCrash):
            await job.commit()
        revive(place)
        assert (await place.recover("j")).files_committed == 1
    else:
        assert (await job.commit()).files_committed == 1
    assert place.store.before_call is None
    assert place.files() == FILES
    assert place.temporary() == set()


async def test_a_recovery_reads_the_copies_of_many_records(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some side files hold several records, and the last one the rest."""
    job = await place.open_job(job_id="j")
    lengths = [(await place.run_task(job, number, files)).length for number, files in enumerate(MANY)]
    monkeypatch.setattr(load_records, "BYTES_OF_COPIES", sum(lengths) // 2)
    monkeypatch.setattr(planned_files, "BYTES_IN_A_RUN", lengths[0])
    place.faults(Fault(kind="crash_after", operation="put", path="/decision"))
    with pytest.raises(SimulatedCrash):
        await job.commit()
    revive(place)
    assert 1 < len([name for name in place.all_files() if "/plan-" in name]) < len(MANY)
    assert (await place.recover("j")).files_committed == len(MANY)
    assert place.files() == {name: data for files in MANY for name, data in files.items()}
