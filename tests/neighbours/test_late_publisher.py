"""A driver that is still at work when another one has ended its job, and what a driver says whose job goes on."""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig
from committer.api.recover import check_recovery
from committer.committers import forward_steps, job_call
from committer.errors import CommitterError, JobRolledBackError, RecordError, StoreUnavailableError, UnsupportedError
from committer.stages.facts import DecisionFacts
from committer.testing.faults import Call, SimulatedCrash
from tests.job_paths import INTENT, in_job
from tests.outside import NEW, config, run_task
from tests.places import Place, place_fixture, plain_store

place = place_fixture("gcs")
OLD = {"a=1/old": b"old"}


async def crash_at(place: Place, job: committer.Job, operation: str, name: str) -> None:
    """The driver of a job dies right before a call."""

    async def before_call(call: Call) -> None:
        if (call.operation, call.path.name) == (operation, name):
            raise SimulatedCrash

    place.store.before_call = before_call
    with pytest.raises(SimulatedCrash):
        await job.commit()
    place.store.before_call = None


async def test_what_a_late_driver_moved_aside_comes_back(place: Place) -> None:
    """The rollback is over but for its cleanup, and knows nothing of the old file that was moved after it."""
    await place.run_job(OLD, job_id="before")
    before = place.all_files()
    choices = CommitterConfig(conflict_mode="replace", cleanup_skipped=True)
    job = await place.open_job(job_id="j", config=choices)
    await place.run_task(job, 0, {"a=1/new": b"new"})
    rolled_back = False

    async def before_call(call: Call) -> None:
        nonlocal rolled_back
        if call.path.name == "old" and call.operation not in ("status", "list") and not rolled_back:
            rolled_back = True
            plain = {"store": plain_store(place)}
            report = await committer.recover(place.dest, "j", rollback=True, force=True, storage_options=plain)
            assert not report.success

    place.store.before_call = before_call
    with pytest.raises(JobRolledBackError):
        await job.commit()
    assert rolled_back
    assert {name: data for name, data in place.all_files().items() if not name.startswith("_temporary/")} == before


async def test_a_decided_job_is_not_told_as_unchanged(place: Place) -> None:
    """Its outcome cannot be created: the job is decided, and a recovery finishes it."""
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, OLD)

    async def before_call(call: Call) -> None:
        if call.path.name == "outcome":
            raise StoreUnavailableError("down", operation=call.operation, path=call.path)

    place.store.before_call = before_call
    with pytest.raises(StoreUnavailableError) as caught:
        await job.commit()
    place.store.before_call = None
    assert caught.value.outcome == "partial"
    assert "recover(" in caught.value.next_step
    assert (await place.recover("j")).success


async def test_a_missing_ability_half_way_is_not_told_as_unchanged(place: Place) -> None:
    """That is an error of what was asked for, as options are; but files were published before it."""
    job = await place.open_job(job_id="j", config=CommitterConfig(io_concurrency=1))
    await place.run_task(job, 0, {"a": b"a", "b": b"b"})

    async def before_call(call: Call) -> None:
        if call.operation == "rename_file" and call.destination is not None and call.destination.name == "b":
            raise UnsupportedError("not here", operation="rename_file", path=call.path)

    place.store.before_call = before_call
    with pytest.raises(UnsupportedError) as caught:
        await job.commit()
    assert place.files() == {"a": b"a"}
    assert caught.value.outcome == "partial"


async def test_a_committed_job_is_told_as_committed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a recovery cannot read what is left to do."""
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, OLD)
    await crash_at(place, job, "put", "_SUCCESS")

    async def fail(context: object, decision: object) -> DecisionFacts:
        raise StoreUnavailableError("down", operation="read")

    monkeypatch.setattr(job_call, "read_facts", fail)
    with pytest.raises(StoreUnavailableError) as caught:
        await place.recover("j")
    assert caught.value.outcome == "committed"


async def test_a_driver_that_saw_the_outcome_knows_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last steps fail, and another driver did them meanwhile; no `_SUCCESS` speaks of the job."""
    job = await place.open_job(job_id="j", config=CommitterConfig(mark_successful_jobs=False))
    await place.run_task(job, 0, OLD)
    finish = forward_steps.finish_committed

    async def overtaken(*arguments: object) -> object:
        monkeypatch.setattr(forward_steps, "finish_committed", finish)
        assert (await place.recover("j")).success
        raise CommitterError("refused", outcome="committed", next_step="the output is complete")

    monkeypatch.setattr(forward_steps, "finish_committed", overtaken)
    with pytest.raises(CommitterError) as caught:
        await job.commit()
    assert caught.value.outcome == "committed"
    assert place.files() == OLD


async def test_an_intent_that_is_none_is_all_that_is_told(place: Place) -> None:
    """A recovery that cannot read it began nothing, so it has nothing to roll back."""
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, OLD)
    place.write(in_job(place, "j", INTENT), b"{")
    with pytest.raises(RecordError) as caught:
        await place.recover("j")
    assert caught.value.outcome == "unchanged"
    assert "rolled back" not in caught.value.message


async def test_a_check_asks_for_no_roots_where_a_recovery_does_not(place: Place) -> None:
    """Only cleaning is left of a job that wrote outside its destination."""
    job = await place.open_job(job_id="j-1", config=config(place, cleanup_skipped=True))
    await run_task(place, job, 0, NEW)
    await job.commit()
    await check_recovery(place.dest, "j-1", storage_options=place.options)
    assert (await place.recover("j-1")).success
