"""The file that keeps the name of the frozen records once they were brought back: no late freeze takes it."""

from __future__ import annotations

import pytest

import committer
from committer.errors import (
    CommitterError,
    TaskMissingError,
)
from committer.flow.runtime import use_runtime
from committer.paths import StorePath
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore, SimulatedCrash
from committer.testing.virtual_time import VirtualRuntime
from tests.engine.frozen import (
    BOTH,
    clean_up_what_came,
    half_begun,
    profiles,
    run_last_task,
    undo_freeze,
    what_is_late_arrives,
)
from tests.engine.places import Place
from tests.job_paths import in_job


def _keeps_name(path: StorePath) -> bool:
    return path.name == "manifests-frozen" or path.name.startswith("taken-")


def _apart(place: Place) -> list[str]:
    """What stands in the job's own directory under the name of a file that was made apart."""
    directory = in_job(place, "j")
    return [name for name in place.all_files() if name.startswith((f"{directory}/taken-", f"{directory}/."))]


@profiles
@pytest.mark.parametrize("kind", ["again", "late", "lost", "unanswered"])
@pytest.mark.parametrize("operation", ["put", "rename_file"])
async def test_a_request_to_keep_the_name_that_comes_again_has_no_effect(
    profile: str, kind: FaultKind, operation: str
) -> None:
    """It comes when the next commit has taken the file away, before that freezes the records."""
    with use_runtime(VirtualRuntime()):
        place, job = await half_begun(profile)
        place.faults(Fault(kind=kind, operation=operation, path=_keeps_name, delay_s=3600.0))
        with pytest.raises(TaskMissingError) as caught:
            await job.commit(tasks=2)
        assert caught.value.outcome == "unchanged"
        await place.run_task(job, 1, {"a/part-1": b"1"})
        freezes = 0

        async def arrive(call: Call) -> None:
            nonlocal freezes
            if call.operation == "rename_directory" and call.path.name == "manifests":
                freezes += 1
                if freezes == 2:
                    await what_is_late_arrives(place)

        place.store.before_call = arrive
        assert (await job.commit(tasks=2)).files_committed == 2
    assert freezes == 2, place.store.log()
    assert place.files() == BOTH
    assert place.temporary() == set()


@profiles
async def test_nothing_is_left_apart_where_another_driver_keeps_the_name(profile: str) -> None:
    place, job = await half_begun(profile)

    async def keep(call: Call) -> None:
        if call.operation == "rename_file" and call.destination is not None:
            if call.destination.name == "manifests-frozen" and call.path.name.startswith("taken-"):
                place.store.before_call = None
                await undo_freeze(place, job)

    place.store.before_call = keep
    with pytest.raises(TaskMissingError) as caught:
        await job.commit(tasks=2)
    assert caught.value.outcome == "unchanged"
    assert place.store.before_call is None
    assert _apart(place) == []
    await place.run_task(job, 1, {"a/part-1": b"1"})
    assert (await job.commit(tasks=2)).files_committed == 2


@profiles
@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
@pytest.mark.parametrize("operation", ["put", "rename_file"])
@pytest.mark.parametrize("ends", ["commit", "abort", "cleanup"])
async def test_a_driver_that_dies_while_it_keeps_the_name(
    profile: str, kind: FaultKind, operation: str, ends: str
) -> None:
    """What it leaves hinders no commit, and goes with the job."""
    place, job = await half_begun(profile)
    place.faults(Fault(kind=kind, operation=operation, path=_keeps_name))
    with pytest.raises(SimulatedCrash):
        await job.commit(tasks=2)
    options: dict[str, object] = {"store": FaultyStore(place.space.store())}
    [found] = await committer.list_jobs(place.dest, storage_options=options)
    assert (found.job_id, found.state) == ("j", "open")
    if ends == "commit":
        await run_last_task(job, options)
        async with committer.attach_job(job.spec, storage_options=options) as again:
            assert (await again.plan()).files == 2
            assert (await again.commit(tasks=2)).files_committed == 2
        assert (await committer.validate(place.dest, storage_options=options)).ok
        assert place.files() == BOTH
    elif ends == "abort":
        async with committer.attach_job(job.spec, storage_options=options) as again:
            await again.abort()
    else:
        await committer.cleanup(place.dest, job_id="j", force=True, storage_options=options)
    assert place.temporary() == set()


@profiles
async def test_a_file_that_comes_apart_when_the_job_is_over_is_no_job(profile: str) -> None:
    """A put that is served after the job's cleanup: where a write makes directories, a cleanup removes what it made."""
    with use_runtime(VirtualRuntime()):
        place, job = await half_begun(profile)
        place.faults(Fault(kind="again", operation="put", path=_keeps_name, delay_s=3600.0))
        with pytest.raises(TaskMissingError):
            await job.commit(tasks=2)
        await place.run_task(job, 1, {"a/part-1": b"1"})
        assert (await job.commit(tasks=2)).files_committed == 2
        await what_is_late_arrives(place)
    assert (await committer.validate(place.dest, storage_options=place.options)).ok
    await clean_up_what_came(place)
    async with place.open_job(job_id="j") as again:
        await again.abort()
    assert place.temporary() == set()


@profiles
async def test_a_driver_that_is_refused_when_its_job_is_over_leaves_nothing(profile: str) -> None:
    """Another driver aborted the job, and removed it, before this one keeps the name."""
    place, job = await half_begun(profile)

    async def end(call: Call) -> None:
        if _keeps_name(call.path) and call.operation == "put":
            place.store.before_call = None
            await committer.cleanup(
                place.dest, job_id="j", force=True, storage_options={"store": FaultyStore(place.space.store())}
            )

    place.store.before_call = end
    with pytest.raises(CommitterError):
        await job.commit(tasks=2)
    assert place.store.before_call is None
    # Where a write makes directories it left an orphan.
    await clean_up_what_came(place)
