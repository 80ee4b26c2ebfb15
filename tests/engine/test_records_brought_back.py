"""A refused driver brings the records of a job by listing back, beside another one that does the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import committer
from committer import CommitterConfig, Job
from committer.committers.context import open_context
from committer.errors import (
    JobNotFoundError,
    JobStateError,
    JobUndecidedError,
    StoreNotFoundError,
    TaskMissingError,
)
from committer.flow.runtime import use_runtime
from committer.paths import StorePath
from committer.stages.intent import CommitIntent, DeclareIntent
from committer.stages.listed_records import FrozenAgainError, freeze_manifests, unfreeze_manifests
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore, SimulatedCrash
from committer.testing.virtual_time import VirtualRuntime
from tests.engine.frozen import (
    BOTH,
    clean_up_what_came,
    half_begun,
    kinds_of_place,
    open_half,
    profiles,
    run_last_task,
    undo_freeze,
    what_is_late_arrives,
)
from tests.engine.places import MemoryPlace, make_place
from tests.job_paths import in_job


@profiles
async def test_records_that_another_driver_brought_back_are_let_be(profile: str) -> None:
    """A newer record stood in this driver's way; before it looks at that, another one has brought all records back."""
    place, job = await half_begun(profile)
    await place.run_task(job, 1, {"a/part-1": b"1"})
    in_the_way = False

    async def bring_back(call: Call) -> None:
        nonlocal in_the_way
        if in_the_way:
            place.store.before_call = None
            await undo_freeze(place, job)
        elif call.operation == "rename_directory" and call.path.name == "manifests-frozen":
            in_the_way = True
            [(name, data)] = [
                item for item in place.all_files().items() if "/manifests-frozen/task_j_m_000000" in item[0]
            ]
            place.write(in_job(place, "j", f"00/manifests/{name.rpartition('/')[2]}"), data)

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
    late = in_job(place, "j", f"00/manifests/{context.layout.manifest(0).name}")
    frozen = {name: data for name, data in place.all_files().items() if "/manifests-frozen/" in name}
    place.write(late, next(iter(frozen.values()), b""))
    if not frozen:
        place.remove(late)
    number += place.store.count()

    async def undo(call: Call) -> None:
        if call.number == number:
            await undo_freeze(place, job)

    place.store.before_call = undo
    await unfreeze_manifests(context)
    place.store.before_call = None
    came = place.store.count() >= number
    await place.run_task(job, tasks, {f"a/part-{tasks}": b"x"})
    assert (await job.commit(tasks=tasks + 1)).files_committed == tasks + 1, place.store.log()
    assert place.temporary() == set()
    return came


_of_both = pytest.mark.parametrize("operation", ["make_directory"])


class _Overtaken:
    """A driver that deletes a late task's directory, once another has brought no records back under that very name.

    So it makes the directory again, apart, and renames it. One of the two meets trouble.
    """

    def __init__(self, profile: str, operation: str, kind: FaultKind, times: int | None) -> None:
        self.place = MemoryPlace(profile)
        self.steps: list[str] = []
        self.place.faults(Fault(kind=kind, operation=operation, path=self._is_made_again, times=times, delay_s=3600.0))

    def _is_made_again(self, path: StorePath) -> bool:
        return path.name == "manifests" and "overtaken" in self.steps

    async def refuse(self) -> tuple[Job, BaseException]:
        """Has its commit refused, as no task committed; the job, and what was raised."""
        place, job = self.place, await self.place.open_job(job_id="j")

        async def overtake(call: Call) -> None:
            if call.operation == "rename_directory" and call.path.name == "manifests-frozen" and not self.steps:
                self.steps.append("late")
                late = in_job(place, "j", "00/manifests/late")
                place.write(late, b"")
                place.remove(late)
            elif call.operation == "delete_directory" and call.path.name == "manifests" and self.steps == ["late"]:
                self.steps.append("overtaken")
                await undo_freeze(place, job)
                place.store.before_call = None

        place.store.before_call = overtake
        with pytest.raises((TaskMissingError, SimulatedCrash)) as caught:
            await job.commit(tasks=2)
        assert self.steps == ["late", "overtaken"]
        assert [call for call in place.store.calls if call.fault], place.store.log()
        return job, caught.value

    @property
    def lacks_directory(self) -> bool:
        return in_job(self.place.directories(), "j", "00/manifests") not in self.place.directories()


@profiles
@_of_both
@pytest.mark.parametrize("kind", ["unavailable", "unanswered", "lost", "late", "again"])
async def test_a_directory_that_is_made_again_is_there_whatever_the_answer(
    profile: str, operation: str, kind: FaultKind
) -> None:
    """Tasks commit on, and a later commit counts them. One that comes an hour later is no job, and keeps no id."""
    with use_runtime(VirtualRuntime()):
        overtaken = _Overtaken(profile, operation, kind, 1)
        place = overtaken.place
        job, refused = await overtaken.refuse()
        assert isinstance(refused, TaskMissingError)
        assert refused.outcome == "unchanged"
        assert not overtaken.lacks_directory
        for task in range(2):
            await place.run_task(job, task, {f"a/part-{task}": b"%d" % task})
        assert (await job.commit(tasks=2)).files_committed == 2
        await what_is_late_arrives(place)
        assert place.files() == BOTH
        await clean_up_what_came(place)


@profiles
@_of_both
@pytest.mark.parametrize("kind", ["unavailable", "forbidden", "unanswered", "lost", "crash_before", "crash_after"])
async def test_a_directory_that_cannot_be_made_again(profile: str, operation: str, kind: FaultKind) -> None:
    """The driver says that it does not know how the job stands. No task commits into nothing, and the job ends."""
    with use_runtime(VirtualRuntime()):
        overtaken = _Overtaken(profile, operation, kind, None)
        place = overtaken.place
        job, refused = await overtaken.refuse()
        assert isinstance(refused, SimulatedCrash) or refused.outcome == "unknown"
        options: dict[str, object] = {"store": FaultyStore(place.space.store())}
        lacking = overtaken.lacks_directory
        assert lacking == (kind not in {"lost", "crash_after"})
        # Where a write makes directories, that of a task's record does.
        if lacking and profile != "adls":
            with pytest.raises(JobStateError, match="came too late"):
                await run_last_task(job, options)
            with pytest.raises(JobNotFoundError) as caught:
                await committer.recover(place.dest, "j", storage_options=options)
            assert caught.value.outcome == "unchanged"
            assert "rollback=True" in caught.value.next_step
            await committer.recover(place.dest, "j", rollback=True, storage_options=options)
            assert place.files() == {}
        else:
            await run_last_task(job, options)
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
    job = await open_half(place)
    with pytest.raises(TaskMissingError):
        await job.commit(tasks=2)
    place.remove(in_job(place, "j", deleted))
    with pytest.raises(JobNotFoundError) as caught:
        await job.commit()
    assert caught.value.outcome == "unchanged"
    assert "_SUCCESS" not in place.all_files()
    await job.abort()
    assert place.temporary() == set()


@profiles
async def test_a_late_record_that_another_driver_has_moved_is_let_be(profile: str) -> None:
    """That driver has not brought the records back yet: this one does."""
    place, job = await half_begun(profile)
    await place.run_task(job, 1, {"a/part-1": b"1"})
    context = await open_context(job.spec, place.store, owned=False)
    await freeze_manifests(context)
    late = context.layout.manifest(0)
    [data] = [data for name, data in place.all_files().items() if name.endswith(f"manifests-frozen/{late.name}")]
    place.write(in_job(place, "j", f"00/manifests/{late.name}"), data)
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
        place, job = await half_begun(profile)
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
    place, job = await half_begun(profile)

    async def undo(call: Call) -> None:
        if call.operation == "list" and call.path.name == "manifests-frozen":
            place.store.before_call = None
            await undo_freeze(place, job)

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
            await undo_freeze(place, job)

    place.store.before_call = undo
    assert (await job.commit()).files_committed == 1
    assert [name.rpartition("/")[2] for name in place.files() if name.startswith("_kept/")] == [
        "task_j_m_000000-manifest.json"
    ]


class _FreezesAgain:
    """Another driver freezes the records whenever this one brought them back."""

    def __init__(self, place: MemoryPlace, job: Job) -> None:
        self.place, self.layout, self.other, self.rounds = place, job.spec.layout, place.space.store(), 0
        place.store.before_call = self._before

    async def _before(self, call: Call) -> None:
        where = call.destination
        if call.operation == "rename_file" and where is not None and where.name == "manifests-frozen":
            self.rounds += 1
            await self.other.rename_directory(self.layout.manifests, self.layout.manifests_frozen)
        if call.operation == "delete_file" and "/intent-" in str(call.path):
            for name in [name for name in self.place.all_files() if "/intent-" in name]:
                if not str(call.path).endswith(name):
                    self.place.remove(name)


@profiles
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "another driver's intent stood"])
async def test_records_that_another_driver_freezes_again_and_again(profile: str, *, beside: bool) -> None:
    """No task can commit: a refusal that said nothing of that would have the caller run tasks in vain."""
    place, job = await half_begun(profile)
    if beside:
        context = await open_context(job.spec, place.store, owned=False)
        await DeclareIntent(context).run(CommitIntent(None, 2))
    again = _FreezesAgain(place, job)
    with pytest.raises(TaskMissingError, match="could not be brought back") as caught:
        await job.commit(tasks=2)
    place.store.before_call = None
    assert again.rounds == 5
    assert caught.value.outcome == "unchanged"
    assert caught.value.next_step.startswith("find out which other driver commits job j, and have it stop, then make")
    assert isinstance(caught.value.causes[-1], FrozenAgainError)
    with pytest.raises(JobUndecidedError):
        await committer.recover(place.dest, "j", storage_options={"store": FaultyStore(place.space.store())})
    with pytest.raises(TaskMissingError) as caught:
        await job.commit(tasks=2)
    assert "frozen" not in caught.value.message
    await place.run_task(job, 1, {"a/part-1": b"1"})
    assert (await job.commit(tasks=2)).files_committed == 2
    assert place.files() == BOTH
    assert place.temporary() == set()
