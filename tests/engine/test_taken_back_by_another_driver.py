"""A driver that was to take its job back finds that another driver did, and cleaned up, a moment ago."""

from __future__ import annotations

import pytest

from committer import CommitterConfig
from committer.errors import TargetExistsError
from committer.testing.faults import Call
from tests.engine.places import MemoryPlace
from tests.few_facts import list_in_side_files

OLD = {f"p/{number}": b"old" for number in range(6)}


@pytest.mark.parametrize("listed", ["in the decision", "in side files"])
async def test_it_tells_why_the_job_was_taken_back(listed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stood at names of its files is gone with the job's directory, and is not asked for any more."""
    if listed == "in side files":
        list_in_side_files(monkeypatch)
    place = MemoryPlace("local")
    await place.run_job(OLD, job_id="before")
    job = await place.open_job(job_id="J", config=CommitterConfig(existing_target="replace"))
    await place.run_task(job, 0, {**dict.fromkeys(OLD, b"new"), "p/other": b"new"})
    ended = taken_back = False

    async def before(call: Call) -> None:
        nonlocal ended, taken_back
        path = str(call.path)
        if call.operation == "rename_file" and "/tasks/" in path:
            place.write("p/other", b"another writer's")
        if ended and not taken_back and ("/superseded" in path or "/plan-" in path):
            taken_back = True
            assert not (await place.recover("J", rollback=True)).success
        ended = ended or (call.operation == "put" and path.endswith("/outcome"))

    place.store.before_call = before
    with pytest.raises(TargetExistsError, match=r"p/other, where J publishes a file") as caught:
        await job.commit(tasks=1)
    # It may be another job's output, which nothing but a look at who wrote it lets a user remove.
    assert caught.value.next_step.startswith("find out whether another job committed it")
    assert taken_back
    assert place.files() == {**OLD, "p/other": b"another writer's"}
    assert not place.temporary()
