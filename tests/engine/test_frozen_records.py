"""A commit that is refused leaves no request behind that puts the records of later tasks out of a later commit's sight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig, Job
from committer.committers.context import open_context
from committer.errors import (
    CommitterError,
    JobNotFoundError,
    JobStateError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    TaskError,
    TaskMissingError,
)
from committer.flow.runtime import use_runtime
from committer.paths import StorePath
from committer.stages.job_directory import JobState
from committer.stages.listed_records import freeze_manifests, unfreeze_manifests
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore, SimulatedCrash
from committer.testing.virtual_time import VirtualRuntime
from tests.engine.places import MemoryPlace, Place, make_place
from tests.rotation import Share

profiles = pytest.mark.parametrize("profile", ["adls", "hdfs", "local"])
kinds_of_place = pytest.mark.parametrize("kind_of_place", ["disk", "adls", "hdfs", "local"])
BOTH = {"a/part-0": b"0", "a/part-1": b"1"}


async def _open(place: Place) -> Job:
    """A job of which one of two tasks committed."""
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, {"a/part-0": b"0"})
    return job


async def _begun(profile: str) -> tuple[MemoryPlace, Job]:
    place = MemoryPlace(profile)
    return place, await _open(place)


def _freezes(kind: FaultKind, times: int = 1, delay_s: float = 0.05) -> Fault:
    return Fault(kind=kind, operation="rename_directory", path="00/manifests", times=times, delay_s=delay_s)


async def _arrive(place: Place) -> None:
    for task in list(place.store.under_way):
        await task


@kinds_of_place
@pytest.mark.parametrize("kind", ["unanswered", "lost", "late", "again"])
async def test_a_commit_goes_on_where_the_answer_to_the_freeze_is_lost(
    kind_of_place: str, tmp_path: Path, kind: FaultKind
) -> None:
    place = make_place(kind_of_place, tmp_path)
    job = await _open(place)
    place.faults(_freezes(kind, 4 if kind == "unanswered" else 1))
    assert (await job.commit(tasks=1)).success
    await _arrive(place)
    assert place.files() == {"a/part-0": b"0"}
    assert place.temporary() == set()


@profiles
@pytest.mark.parametrize("kind", ["unanswered", "late"])
async def test_a_commit_whose_freezes_are_all_lost_is_done_again(profile: str, kind: FaultKind) -> None:
    """What the error says holds: nothing changed, tasks go on, and a commit that follows counts them."""
    # The requests come long after the last try, however busy the machine is.
    with use_runtime(VirtualRuntime()):
        place, job = await _begun(profile)
        place.faults(_freezes(kind, 5, delay_s=3600.0))
        with pytest.raises(StoreOutcomeUnknownError) as caught:
            await job.commit()
        assert (caught.value.outcome, caught.value.next_step) == ("unchanged", "commit the job again")
        await _arrive(place)
        await place.run_task(job, 1, {"a/part-1": b"1"})
        assert (await job.plan()).files == 2
        assert (await job.commit()).files_committed == 2
    assert place.files() == BOTH
    assert place.temporary() == set()


@kinds_of_place
@pytest.mark.parametrize("kind", ["late", "again", "unanswered", "lost"])
@pytest.mark.parametrize("arrives", ["before the task", "after the task"])
async def test_a_freeze_that_comes_when_it_was_undone(
    kind_of_place: str, tmp_path: Path, kind: FaultKind, arrives: str
) -> None:
    place = make_place(kind_of_place, tmp_path)
    job = await _open(place)
    for _refused in range(2):
        place.faults(_freezes(kind))
        with pytest.raises(TaskMissingError) as caught:
            await job.commit(tasks=2)
        assert caught.value.outcome == "unchanged"
        if arrives == "before the task":
            await _arrive(place)
    await place.run_task(job, 1, {"a/part-1": b"1"})
    await _arrive(place)
    assert (await job.plan()).files == 2
    assert (await job.commit()).files_committed == 2
    assert place.files() == BOTH
    assert place.temporary() == set()


@profiles
@pytest.mark.parametrize("kind", [None, "again"])
async def test_a_record_that_is_brought_in_comes_once(profile: str, kind: FaultKind | None) -> None:
    """A task committed again beside the frozen records; the rename that brings its record in is served twice.

    It would take the record out of the next commit's sight, or all others.
    """
    place, job = await _begun(profile)
    await place.run_task(job, 1, {"a/part-1": b"1"})

    async def commit_again(call: Call) -> None:
        frozen = [name for name in place.all_files() if "/manifests-frozen/task_j_m_000000" in name]
        if frozen and call.operation == "list":
            place.store.before_call = None
            place.write(f"_temporary/j/00/manifests/{frozen[0].rpartition('/')[2]}", place.all_files()[frozen[0]])

    place.store.before_call = commit_again
    if kind is not None:
        place.faults(Fault(kind=kind, operation="rename_file", path="00/manifests/", delay_s=0.05))
    with pytest.raises(TaskMissingError) as caught:
        await job.commit(tasks=3)
    assert caught.value.outcome == "unchanged"
    assert place.store.before_call is None
    await _arrive(place)
    assert (await job.plan()).files == 2
    assert (await job.commit()).files_committed == 2
    assert place.files() == BOTH
    assert place.temporary() == set()


@profiles
async def test_an_attempt_that_did_not_commit_is_told_so_where_a_freeze_was_undone(profile: str) -> None:
    _place, job = await _begun(profile)
    with pytest.raises(TaskMissingError):
        await job.commit(tasks=2)
    assert (await job.recover_task(0, 0)).task == 0
    with pytest.raises(TaskError):
        await job.recover_task(1, 0)
    await job.abort()


async def _troubled(profile: str, kind: FaultKind, share: Share) -> AsyncIterator[tuple[MemoryPlace, Job, FaultyStore]]:
    """A job whose commit was refused, once for each call from there on that meets trouble."""
    for number in share.counted():
        place, job = await _begun(profile)
        with pytest.raises(TaskMissingError):
            await job.commit(tasks=2)
        before = place.store.count()
        place.faults(Fault(kind=kind, call=before + number, delay_s=0.05))
        yield place, job, place.store
        if place.store.count() < before + number:
            return
        await job.close()


@profiles
@pytest.mark.parametrize("kind", ["crash_after", "crash_before", "lost", "unanswered", "late", "again"])
async def test_trouble_in_the_commit_after_a_refused_one(profile: str, kind: FaultKind, share: Share) -> None:
    async for place, job, store in _troubled(profile, kind, share):
        options = {"store": FaultyStore(place.space.store())}
        await _run_last_task(job, options)
        with suppress(CommitterError, SimulatedCrash):
            await job.commit(tasks=2)
        await _finish(place, job, options)
        assert place.files() == BOTH, store.log()


@profiles
@pytest.mark.parametrize("kind", ["lost", "unanswered", "late", "again"])
async def test_trouble_in_a_second_commit_that_is_refused(profile: str, kind: FaultKind, share: Share) -> None:
    """Where it says that nothing changed, the next one counts the task that commits after it."""
    told = 0
    async for place, job, store in _troubled(profile, kind, share):
        options = {"store": FaultyStore(place.space.store())}
        with pytest.raises(CommitterError) as caught:
            await job.commit(tasks=2)
        if caught.value.outcome != "unchanged":
            continue
        told += 1
        await _run_last_task(job, options)
        await _finish(place, job, options)
        assert place.files() == BOTH, store.log()
    assert told or not share.is_whole


async def _clean_up_what_came(place: MemoryPlace, state: JobState) -> None:
    """Removes what came when the job was over, where a write makes directories; and what that is taken for."""
    for found in await committer.list_jobs(place.dest, storage_options=place.options):
        assert found.state == state
        await committer.cleanup(place.dest, job_id="j", force=state == "open", storage_options=place.options)
    assert place.temporary() == set()


async def _run_last_task(job: Job, options: dict[str, object]) -> None:
    async with committer.open_task(job.spec, task=1, storage_options=options) as task, task.open("a/part-1") as file:
        await file.write(b"1")


async def _finish(place: MemoryPlace, job: Job, options: dict[str, object]) -> None:
    """Another driver commits, once what was under way has come."""
    await _arrive(place)
    if "_SUCCESS" not in place.all_files():
        async with committer.attach_job(job.spec, storage_options=options) as again:
            await again.commit()


@profiles
async def test_drivers_that_freeze_and_undo_it_at_once(profile: str) -> None:
    place, job = await _begun(profile)
    for _round in range(3):
        async with place.attach_job("j") as other:
            results = await asyncio.gather(job.commit(tasks=2), other.commit(tasks=2), return_exceptions=True)
        assert all(isinstance(result, CommitterError) for result in results)
    await place.run_task(job, 1, {"a/part-1": b"1"})
    try:
        await job.commit(tasks=2)
    except CommitterError:
        await place.recover("j")
    assert place.files() == BOTH


# -- another driver undoes the freeze ----------------------------------------------------------------------------


async def _undo_freeze(place: MemoryPlace, job: Job) -> None:
    """What another driver does that is refused."""
    await unfreeze_manifests(await open_context(job.spec, FaultyStore(place.space.store()), owned=False))


@profiles
async def test_records_that_another_driver_brought_back_are_let_be(profile: str) -> None:
    """A newer record stood in this driver's way; before it looks at that, another one has brought all records back."""
    place, job = await _begun(profile)
    await place.run_task(job, 1, {"a/part-1": b"1"})
    in_the_way = False

    async def bring_back(call: Call) -> None:
        nonlocal in_the_way
        if in_the_way:
            place.store.before_call = None
            await _undo_freeze(place, job)
        elif call.operation == "rename_directory" and call.path.name == "manifests-frozen":
            in_the_way = True
            [(name, data)] = [
                item for item in place.all_files().items() if "/manifests-frozen/task_j_m_000000" in item[0]
            ]
            place.write(f"_temporary/j/00/manifests/{name.rpartition('/')[2]}", data)

    place.store.before_call = bring_back
    with pytest.raises(TaskMissingError) as caught:
        await job.commit(tasks=3)
    assert caught.value.outcome == "unchanged"
    assert place.store.before_call is None
    assert (await job.plan()).files == 2
    assert (await job.commit()).files_committed == 2
    assert place.files() == BOTH
    assert place.temporary() == set()


@profiles
@pytest.mark.parametrize("tasks", [0, 2])
async def test_two_drivers_bring_the_records_back_at_once(profile: str, tasks: int) -> None:
    """One does all of it before each call of the other, which a late task's directory is in the way of, too."""
    number = 1
    while await _bring_back_at_once(profile, tasks, number):
        number += 1
    assert number > 7


async def _bring_back_at_once(profile: str, tasks: int, number: int) -> bool:
    """Whether there was a call of that number."""
    place = MemoryPlace(profile)
    job = await place.open_job(job_id="j")
    for task in range(tasks):
        await place.run_task(job, task, {f"a/part-{task}": b"x"})
    context = await open_context(job.spec, place.store, owned=False)
    await freeze_manifests(context)
    late = f"_temporary/j/00/manifests/{context.layout.manifest(0).name}"
    frozen = {name: data for name, data in place.all_files().items() if "/manifests-frozen/" in name}
    place.write(late, next(iter(frozen.values()), b""))
    if not frozen:
        place.remove(late)
    number += place.store.count()

    async def undo(call: Call) -> None:
        if call.number == number:
            await _undo_freeze(place, job)

    place.store.before_call = undo
    await unfreeze_manifests(context)
    place.store.before_call = None
    came = place.store.count() >= number
    await place.run_task(job, tasks, {f"a/part-{tasks}": b"x"})
    assert (await job.commit(tasks=tasks + 1)).files_committed == tasks + 1, place.store.log()
    assert place.temporary() == set()
    return came


class _Overtaken:
    """A driver that deletes a late task's directory, once another has brought no records back under that very name.

    So it makes the directory again. That meets trouble.
    """

    def __init__(self, profile: str, kind: FaultKind, times: int | None) -> None:
        self.place = MemoryPlace(profile)
        self.steps: list[str] = []
        self.place.faults(
            Fault(kind=kind, operation="make_directory", path=self._is_made_again, times=times, delay_s=3600.0)
        )

    def _is_made_again(self, path: StorePath) -> bool:
        return path.name == "manifests" and "overtaken" in self.steps

    async def refuse(self) -> tuple[Job, BaseException]:
        """Has its commit refused, as no task committed; the job, and what was raised."""
        place, job = self.place, await self.place.open_job(job_id="j")

        async def overtake(call: Call) -> None:
            if call.operation == "rename_directory" and call.path.name == "manifests-frozen" and not self.steps:
                self.steps.append("late")
                late = "_temporary/j/00/manifests/late"
                place.write(late, b"")
                place.remove(late)
            elif call.operation == "delete_directory" and call.path.name == "manifests" and self.steps == ["late"]:
                self.steps.append("overtaken")
                await _undo_freeze(place, job)
                place.store.before_call = None

        place.store.before_call = overtake
        with pytest.raises((TaskMissingError, SimulatedCrash)) as caught:
            await job.commit(tasks=2)
        assert self.steps == ["late", "overtaken"]
        assert [call for call in place.store.calls if call.fault], place.store.log()
        return job, caught.value

    @property
    def lacks_directory(self) -> bool:
        return "_temporary/j/00/manifests" not in self.place.directories()


@profiles
@pytest.mark.parametrize("kind", ["unavailable", "unanswered", "lost", "late", "again"])
async def test_a_directory_that_is_made_again_is_there_whatever_the_answer(profile: str, kind: FaultKind) -> None:
    """Tasks commit on, and a later commit counts them. One that comes an hour later holds nothing."""
    with use_runtime(VirtualRuntime()):
        overtaken = _Overtaken(profile, kind, 1)
        place = overtaken.place
        job, refused = await overtaken.refuse()
        assert isinstance(refused, TaskMissingError)
        assert refused.outcome == "unchanged"
        assert not overtaken.lacks_directory
        for task in range(2):
            await place.run_task(job, task, {f"a/part-{task}": b"%d" % task})
        assert (await job.commit(tasks=2)).files_committed == 2
        await _arrive(place)
        assert place.files() == BOTH
        # An empty directory for records is all that a job of Hadoop's has when it begins.
        await _clean_up_what_came(place, "open")


@profiles
@pytest.mark.parametrize("kind", ["unavailable", "forbidden", "unanswered", "lost", "crash_before", "crash_after"])
async def test_a_directory_that_cannot_be_made_again(profile: str, kind: FaultKind) -> None:
    """The driver says that it does not know how the job stands. No task commits into nothing, and the job ends."""
    with use_runtime(VirtualRuntime()):
        overtaken = _Overtaken(profile, kind, None)
        place = overtaken.place
        job, refused = await overtaken.refuse()
        assert isinstance(refused, SimulatedCrash) or refused.outcome == "unknown"
        options: dict[str, object] = {"store": FaultyStore(place.space.store())}
        lacking = overtaken.lacks_directory
        assert lacking == (kind not in {"lost", "crash_after"})
        # Where a write makes directories, that of a task's record does.
        if lacking and profile != "adls":
            with pytest.raises(JobStateError, match="came too late"):
                await _run_last_task(job, options)
            with pytest.raises(JobNotFoundError) as caught:
                await committer.recover(place.dest, "j", storage_options=options)
            assert caught.value.outcome == "unchanged"
            assert "rollback=True" in caught.value.next_step
            await committer.recover(place.dest, "j", rollback=True, storage_options=options)
            assert place.files() == {}
        else:
            await _run_last_task(job, options)
            async with committer.attach_job(job.spec, storage_options=options) as again:
                assert (await again.commit(tasks=1)).files_committed == 1
            assert place.files() == {"a/part-1": b"1"}
        assert place.temporary() == set()


@kinds_of_place
@pytest.mark.parametrize("deleted", ["00", "00/manifests"])
async def test_records_that_another_program_deleted_are_not_taken_for_none(
    kind_of_place: str, tmp_path: Path, deleted: str
) -> None:
    """A cleanup of Hadoop's, or `rm -r`, stopped half way, and the file that keeps the name of the frozen records stands."""
    place = make_place(kind_of_place, tmp_path)
    job = await _open(place)
    with pytest.raises(TaskMissingError):
        await job.commit(tasks=2)
    place.remove(f"_temporary/j/{deleted}")
    with pytest.raises(JobNotFoundError) as caught:
        await job.commit()
    assert caught.value.outcome == "unchanged"
    assert "_SUCCESS" not in place.all_files()
    await job.abort()
    assert place.temporary() == set()


@profiles
async def test_a_late_record_that_another_driver_has_moved_is_let_be(profile: str) -> None:
    """That driver has not brought the records back yet: this one does."""
    place, job = await _begun(profile)
    await place.run_task(job, 1, {"a/part-1": b"1"})
    context = await open_context(job.spec, place.store, owned=False)
    await freeze_manifests(context)
    late = context.layout.manifest(0)
    [data] = [data for name, data in place.all_files().items() if name.endswith(f"manifests-frozen/{late.name}")]
    place.write(f"_temporary/j/00/manifests/{late.name}", data)
    other = place.space.store()

    async def move(call: Call) -> None:
        if call.operation == "rename_file" and call.path.name == late.name:
            place.store.before_call = None
            await other.rename_file(call.path, context.layout.manifests_frozen / late.name, replace=True)

    place.store.before_call = move
    await unfreeze_manifests(context)
    assert place.store.before_call is None
    assert (await job.commit(tasks=2)).files_committed == 2
    assert place.files() == BOTH
    assert place.temporary() == set()


@profiles
@pytest.mark.parametrize("kind", ["lost", "unanswered"])
async def test_records_come_back_where_that_request_has_no_answer(profile: str, kind: FaultKind) -> None:
    with use_runtime(VirtualRuntime()):
        place, job = await _begun(profile)
        place.faults(Fault(kind=kind, operation="rename_directory", path="/manifests-frozen"))
        with pytest.raises(TaskMissingError) as caught:
            await job.commit(tasks=2)
        assert caught.value.outcome == "unchanged"
        await place.run_task(job, 1, {"a/part-1": b"1"})
        assert (await job.commit(tasks=2)).files_committed == 2
    assert place.files() == BOTH
    assert place.temporary() == set()


@profiles
async def test_a_commit_whose_freeze_another_driver_undid_says_to_commit_again(profile: str) -> None:
    """And a commit that follows does what it was to do."""
    place, job = await _begun(profile)

    async def undo(call: Call) -> None:
        if call.operation == "list" and call.path.name == "manifests-frozen":
            place.store.before_call = None
            await _undo_freeze(place, job)

    place.store.before_call = undo
    with pytest.raises(StoreNotFoundError, match="another driver") as caught:
        await job.commit()
    assert caught.value.outcome == "unchanged"
    assert caught.value.next_step.startswith("commit again")
    await place.run_task(job, 1, {"a/part-1": b"1"})
    assert (await job.commit(tasks=2)).files_committed == 2
    assert place.files() == BOTH
    assert place.temporary() == set()


@profiles
async def test_records_are_kept_where_a_file_has_the_name_of_the_frozen_ones(profile: str) -> None:
    """Another driver was refused, and undid the freeze after this one had decided."""
    place = MemoryPlace(profile)
    job = await place.open_job(job_id="j", config=CommitterConfig(diagnostics_manifest_directory=f"{place.dest}/_kept"))
    await place.run_task(job, 0, {"a/part-0": b"0"})

    async def undo(call: Call) -> None:
        if "/_kept" in str(call.path):
            place.store.before_call = None
            await _undo_freeze(place, job)

    place.store.before_call = undo
    assert (await job.commit()).files_committed == 1
    assert [name.rpartition("/")[2] for name in place.files() if name.startswith("_kept/")] == [
        "task_j_m_000000-manifest.json"
    ]


# -- the file that keeps the name --------------------------------------------------------------------------------


def _keeps_name(path: StorePath) -> bool:
    return path.name == "manifests-frozen" or path.name.startswith("taken-")


def _apart(place: Place) -> list[str]:
    """What stands in the job's own directory under the name of a file that was made apart."""
    return [name for name in place.all_files() if name.startswith(("_temporary/j/taken-", "_temporary/j/."))]


@profiles
@pytest.mark.parametrize("kind", ["again", "late", "lost", "unanswered"])
@pytest.mark.parametrize("operation", ["put", "rename_file"])
async def test_a_request_to_keep_the_name_that_comes_again_has_no_effect(
    profile: str, kind: FaultKind, operation: str
) -> None:
    """It comes when the next commit has taken the file away, before that freezes the records."""
    with use_runtime(VirtualRuntime()):
        place, job = await _begun(profile)
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
                    await _arrive(place)

        place.store.before_call = arrive
        assert (await job.commit(tasks=2)).files_committed == 2
    assert freezes == 2, place.store.log()
    assert place.files() == BOTH
    assert place.temporary() == set()


@profiles
async def test_nothing_is_left_apart_where_another_driver_keeps_the_name(profile: str) -> None:
    place, job = await _begun(profile)

    async def keep(call: Call) -> None:
        if call.operation == "rename_file" and call.destination is not None:
            if call.destination.name == "manifests-frozen" and call.path.name.startswith("taken-"):
                place.store.before_call = None
                await _undo_freeze(place, job)

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
    place, job = await _begun(profile)
    place.faults(Fault(kind=kind, operation=operation, path=_keeps_name))
    with pytest.raises(SimulatedCrash):
        await job.commit(tasks=2)
    options: dict[str, object] = {"store": FaultyStore(place.space.store())}
    [found] = await committer.list_jobs(place.dest, storage_options=options)
    assert (found.job_id, found.state) == ("j", "open")
    if ends == "commit":
        await _run_last_task(job, options)
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
        place, job = await _begun(profile)
        place.faults(Fault(kind="again", operation="put", path=_keeps_name, delay_s=3600.0))
        with pytest.raises(TaskMissingError):
            await job.commit(tasks=2)
        await place.run_task(job, 1, {"a/part-1": b"1"})
        assert (await job.commit(tasks=2)).files_committed == 2
        await _arrive(place)
    assert (await committer.validate(place.dest, storage_options=place.options)).ok
    await _clean_up_what_came(place, "unknown")
    async with place.open_job(job_id="j") as again:
        await again.abort()
    assert place.temporary() == set()


@profiles
async def test_a_driver_that_is_refused_when_its_job_is_over_leaves_nothing(profile: str) -> None:
    """Another driver aborted the job, and removed it, before this one keeps the name."""
    place, job = await _begun(profile)

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
    assert place.temporary() == set()
