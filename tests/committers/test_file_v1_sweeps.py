"""`file-v1` when a process dies, an answer is lost, or another process works beside it, at each of its store calls.

A task has two attempts, of other files. Whatever happens, a job is committed with all of one attempt's files, or of
none; and a task commit that returned is part of the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import pytest

import committer
from committer.errors import (
    CommitterError,
    JobNotFoundError,
    JobStateError,
    JobUndecidedError,
    StoreNotFoundError,
    TaskMissingError,
)
from committer.paths import StorePath
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.committers.file_jobs import (
    FIRST,
    OTHER,
    SECOND,
    Work,
    before,
    calls_of,
    commit_refused,
    commit_there,
    job_of_two,
    process,
    run_second,
)
from tests.committers.file_places import FileInMemory, committed_by_hadoop, layout_of
from tests.sweeps import Share

PROFILES = pytest.mark.parametrize("profile", ["local", "adls"])


async def _committing(place: FileInMemory, job: committer.Job, store: FaultyStore) -> object:
    return await commit_there(job, store)


async def _ended(place: FileInMemory, job: committer.Job) -> dict[str, bytes]:
    """What the destination holds once the job is brought to its end."""
    if place.temporary() and "j" in await place.states():
        try:
            await place.recover("j")
        except (JobUndecidedError, TaskMissingError):
            await commit_there(job, process(place))
    return place.files()


def _check(files: dict[str, bytes], *, allowed: list[dict[str, bytes]]) -> None:
    assert files in [{**OTHER, **one} for one in allowed], files


@PROFILES
@pytest.mark.parametrize("rollback", [False, True])
async def test_driver_that_dies_before_any_call_is_followed_by_another(
    profile: str, rollback: bool, share: Share
) -> None:
    ended = set()
    for last in share.of(range(await calls_of(profile, _committing))):
        place, job = await job_of_two(profile)
        driver = process(place)
        driver.faults = [Fault(kind="crash_before", call=last + 1)]
        with pytest.raises(SimulatedCrash):
            await commit_there(job, driver)
        try:
            committed = (await place.recover("j", rollback=rollback)).success if place.temporary() else True
        except JobUndecidedError:
            # Nothing says that a driver began: Hadoop's could go on.
            assert sum(name.startswith("_temporary/0/task_j_m_") for name in place.all_files()) == 3
            await job.abort()
            committed = False
        except JobStateError as error:
            assert rollback
            assert error.outcome == "committed"
            committed = (await place.recover("j")).success
        assert place.files() == ({**OTHER, **FIRST} if committed else {}), last
        # One that died when the job was over leaves empty directories, which are every job's.
        assert place.temporary() <= {"_temporary", "_temporary/0", "_temporary/0/_temporary"}, last
        ended.add(committed)
    assert ended == {True, False} or not share.is_whole


@PROFILES
@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
async def test_task_that_dies_commits_all_or_nothing(profile: str, commits: bool, kind: str, share: Share) -> None:
    seen = set()
    for last in share.of(range(await calls_of(profile, run_second, commits=commits))):
        place, job = await job_of_two(profile, commits=commits)
        task = process(place)
        task.faults = [Fault(kind=kind, call=last + 1)]  # type: ignore[arg-type]
        with pytest.raises(SimulatedCrash):
            await run_second(place, job, task)
        await job.commit()
        _check(place.files(), allowed=[FIRST if commits else {}, SECOND])
        assert place.temporary() == set(), last
        seen.add("c=1/second" in place.files())
    assert seen == {False, True} or not share.is_whole


@PROFILES
@pytest.mark.parametrize("kind", ["lost", "unanswered"])
async def test_task_that_loses_an_answer_tells_the_truth(profile: str, kind: str, share: Share) -> None:
    for last in share.of(range(await calls_of(profile, run_second))):
        place, job = await job_of_two(profile)
        task = process(place)
        task.faults = [Fault(kind=kind, call=last + 1)]  # type: ignore[arg-type]
        try:
            await run_second(place, job, task)
        except CommitterError as error:
            allowed = [FIRST, SECOND] if error.outcome == "unknown" else [FIRST]
        else:
            allowed = [SECOND]
        await job.commit()
        _check(place.files(), allowed=allowed)
        assert place.temporary() == set(), last


@PROFILES
@pytest.mark.parametrize("kind", ["lost", "unanswered"])
async def test_driver_that_loses_an_answer_ends_the_same(profile: str, kind: str, share: Share) -> None:
    for last in share.of(range(await calls_of(profile, _committing))):
        place, job = await job_of_two(profile)
        driver = process(place)
        driver.faults = [Fault(kind=kind, call=last + 1)]  # type: ignore[arg-type]
        try:
            await commit_there(job, driver)
        except CommitterError:
            await _ended(place, job)
        _check(place.files(), allowed=[FIRST])
        assert place.temporary() == set(), last


class Pair(NamedTuple):
    """A job that two processes worked on at once, and what each of them raised."""

    last: int
    place: FileInMemory
    job: committer.Job
    error: CommitterError | None
    others: CommitterError | None


async def _try(work: Work, place: FileInMemory, job: committer.Job, store: FaultyStore) -> CommitterError | None:
    try:
        await work(place, job, store)
    except CommitterError as error:
        return error
    return None


async def _beside(profile: str, work: Work, other: Work, calls: Sequence[int]) -> AsyncIterator[Pair]:
    """Before each of these calls of a piece of work another process does its own, from the beginning to the end."""
    for last in calls:
        place, job = await job_of_two(profile)
        told: list[CommitterError | None] = []

        async def run(
            place: FileInMemory = place, job: committer.Job = job, told: list[CommitterError | None] = told
        ) -> None:
            told.append(await _try(other, place, job, process(place)))

        store = process(place)
        store.before_call = before(last, run)
        error = await _try(work, place, job, store)
        [others] = told
        yield Pair(last, place, job, error, others)


async def _abort(place: FileInMemory, job: committer.Job, store: FaultyStore) -> None:
    async with committer.attach_job(job.spec, storage_options={"store": store}) as attached:
        await attached.abort_task(1, 0)


async def _refused(place: FileInMemory, job: committer.Job, store: FaultyStore) -> None:
    await commit_refused(job, store)


def _won(late: CommitterError | None) -> list[dict[str, bytes]]:
    """Returns the outputs that the second task may have committed after this end of its second attempt."""
    if late is None:
        return [SECOND]
    return [FIRST, SECOND] if late.outcome == "unknown" else [FIRST]


@PROFILES
async def test_a_late_attempt_beside_a_job_commit(profile: str, share: Share) -> None:
    late = []
    async for pair in _beside(profile, _committing, run_second, share.of(range(await calls_of(profile, _committing)))):
        assert pair.error is None
        _check(pair.place.files(), allowed=_won(pair.others))
        late.append(pair.others is not None)
    assert (False in late and sum(late) > 5) or not share.is_whole


@PROFILES
async def test_a_job_commit_beside_a_late_attempt(profile: str, share: Share) -> None:
    ends = set()
    async for pair in _beside(profile, run_second, _committing, share.of(range(await calls_of(profile, run_second)))):
        assert pair.others is None
        _check(pair.place.files(), allowed=_won(pair.error))
        ends.add(frozenset(pair.place.files()))
        await _no_later_job_takes(pair.place)
    assert len(ends) == 2 or not share.is_whole


@PROFILES
async def test_an_abort_beside_a_job_commit(profile: str, share: Share) -> None:
    """An abort that returns took the attempt's files away, or came when the job was over."""
    seen = set()
    async for pair in _beside(profile, _committing, _abort, share.of(range(await calls_of(profile, _committing)))):
        if pair.error is not None:
            await _ended(pair.place, pair.job)
        files, aborted = pair.place.files(), pair.others is None
        _check(files, allowed=[{}, FIRST] if aborted else [FIRST])
        assert not aborted or files == OTHER or pair.last > 10
        seen.add((aborted, "a=1/first" in files))
    assert {(True, False), (False, True)} <= seen or not share.is_whole


@PROFILES
async def test_a_job_commit_beside_an_abort(profile: str, share: Share) -> None:
    seen = set()
    async for pair in _beside(profile, _abort, _committing, share.of(range(await calls_of(profile, _abort)))):
        assert pair.others is None
        _check(pair.place.files(), allowed=[FIRST, {}])
        seen.add(frozenset(pair.place.files()))
    assert len(seen) == 2 or not share.is_whole


@PROFILES
@pytest.mark.parametrize(("work", "other"), [(_refused, _committing), (_committing, _refused)])
async def test_giving_back_beside_a_job_commit(profile: str, work: Work, other: Work, share: Share) -> None:
    async for pair in _beside(profile, work, other, share.of(range(await calls_of(profile, work)))):
        assert await _ended(pair.place, pair.job) == {**OTHER, **FIRST}, pair


@PROFILES
async def test_giving_back_beside_another_job_that_ends(profile: str, share: Share) -> None:
    """It removes what both share, where nothing is in it. All is given back all the same."""
    for last in share.of(range(await calls_of(profile, _refused) - 1)):
        place, job = await job_of_two(profile)
        other = await place.open_job(job_id="other-job")

        async def end(place: FileInMemory = place, other: committer.Job = other) -> None:
            await commit_there(other, process(place))

        driver = process(place)
        driver.before_call = before(last, end)
        await commit_refused(job, driver)
        assert (await job.plan()).files == len(FIRST) + len(OTHER), last
        standing = {name.split("/")[2] for name in place.all_files() if name.startswith("_temporary/0/task_")}
        assert standing == {"task_j_m_000000", "task_j_m_000001"}, last


async def _no_later_job_takes(place: FileInMemory) -> None:
    """No later job commits the leftovers of a task that committed too late."""
    before = place.files()
    async with place.open_job(job_id="next") as job:
        await place.run_task(job, 0, {"next": b"3"})
    assert place.files() == {**before, "next": b"3"}
    try:
        async with place.open_job(job_id="j"):
            pass
    except CommitterError as error:
        # Where a write makes directories again, it left a record in the job's too, which `list_jobs` shows.
        assert "left their output" in str(error) or (await place.states())["j"] == "open"
    assert place.files() == {**before, "next": b"3"}


@PROFILES
async def test_two_drivers_at_once(profile: str, share: Share) -> None:
    for last in share.of(range(await calls_of(profile, _committing))):
        place, job = await job_of_two(profile)

        async def commit(place: FileInMemory = place, job: committer.Job = job) -> None:
            # The first driver may have removed the job by then.
            with suppress(JobNotFoundError):
                await commit_there(job, process(place))

        driver = process(place)
        async with committer.attach_job(job.spec, storage_options={"store": driver}) as attached:
            driver.before_call = before(last, commit)
            assert (await attached.commit()).success
        _check(place.files(), allowed=[FIRST])
        assert place.temporary() == set(), last


@PROFILES
@pytest.mark.parametrize("kind", ["crash_before", "crash_after", "lost", "late"])
async def test_giving_back_that_is_cut_short_loses_nothing(profile: str, kind: str, share: Share) -> None:
    for last in share.of(range(await calls_of(profile, _refused))):
        place, job = await job_of_two(profile)
        driver = process(place)
        driver.faults = [Fault(kind=kind, call=last + 1, delay_s=0.0)]  # type: ignore[arg-type]
        with suppress(SimulatedCrash, CommitterError):
            await commit_refused(job, driver)
        assert await _ended(place, job) == {**OTHER, **FIRST}, last


async def test_tasks_that_never_stop_committing_are_refused() -> None:
    """Hadoop's look for no driver of this engine."""
    place, job = await job_of_two("local")
    task = 1

    async def again(call: Call) -> None:
        nonlocal task
        if call.operation == "rename_directory" and task < 60:
            task += 1
            committed_by_hadoop(place, task, {f"part-{task}": b"x"}, stem="j")

    driver = process(place)
    driver.before_call = again
    with pytest.raises(JobStateError, match="committed again at each of"):
        await commit_there(job, driver)
    assert place.files() == {}
    await job.commit()
    assert len(place.files()) == 2 + len(FIRST) - 1 + task - 1


async def test_tasks_that_cannot_be_given_back_are_not_committed_again_unseen() -> None:
    """Jobs that end keep removing what jobs share. A task that commits again is told that its job goes by the first."""
    place, job = await job_of_two("local")

    async def end(call: Call) -> None:
        if call.operation == "rename_directory" and call.path.parent.name == "returning":
            for name in ("_temporary/0/_temporary", "_temporary/0"):
                with suppress(StoreNotFoundError):
                    place.space.tree.delete_directory(StorePath.of(f"{place.dest}/{name}"), recursive=False)

    driver = process(place)
    driver.before_call = end
    async with committer.attach_job(job.spec, storage_options={"store": driver}) as attached:
        with pytest.raises(TaskMissingError, match="could not be put back") as refused:
            await attached.commit(tasks=5)
    assert refused.value.outcome == "unknown"
    with pytest.raises(JobStateError, match="came too late"):
        await run_second(place, job, process(place))
    await commit_there(job, process(place))
    assert (place.files(), place.temporary()) == ({**OTHER, **FIRST}, set())


# -- a driver of `file-v1` that gives back what it took, while other drivers of the job take it -------------------------


Stop = Callable[[Call], bool]

EVERY_PROFILE = pytest.mark.parametrize("profile", ["local", "hdfs", "adls"])


class Halting:
    """A process that stops before the calls that are picked, one after the other, and goes on when it is let."""

    def __init__(self, place: FileInMemory) -> None:
        self.store = process(place)
        self.store.before_call = self._before
        self._stop: Stop | None = None
        self._stopped, self._go = asyncio.Event(), asyncio.Event()
        self._running: asyncio.Task[object] | None = None

    async def _before(self, call: Call) -> None:
        if self._stop is not None and self._stop(call):
            self._stop = None
            self._stopped.set()
            await self._go.wait()

    async def run_to(self, stop: Stop, work: Awaitable[object] | None = None) -> None:
        """Begins the work, or goes on with it, up to the call that is picked."""
        self._stop, self._stopped = stop, asyncio.Event()
        if work is None:
            self._go.set()
        else:
            self._running = asyncio.ensure_future(work)
        self._go = asyncio.Event()
        await self._stopped.wait()

    async def finish(self) -> None:
        assert self._running is not None
        self._go.set()
        with suppress(CommitterError):
            await self._running


def _nth(number: int, operation: str, name: str) -> Stop:
    left = number

    def stop(call: Call) -> bool:
        nonlocal left
        left -= call.operation == operation and call.path.name == name
        return left == 0

    return stop


def _once_taken() -> Stop:
    """The look at what was taken that comes after two listings of it, which a driver rests on."""
    listed = 0

    def stop(call: Call) -> bool:
        nonlocal listed
        looks = call.operation == "list" and "tasks" in (call.path.name, call.path.parent.name)
        listed += looks
        return looks and listed > 2

    return stop


def _any(call: Call) -> bool:
    return True


@EVERY_PROFILE
async def test_driver_commits_no_part_of_what_another_one_gives_back(profile: str) -> None:
    """One driver returns directories that a second one has moved before; a third one finds none there."""
    place, job = await job_of_two(profile)
    refused, second, third = Halting(place), Halting(place), Halting(place)
    await refused.run_to(_nth(1, "rename_directory", "tasks"), commit_refused(job, refused.store))
    await second.run_to(_once_taken(), commit_there(job, second.store))
    await third.run_to(_nth(1, "list", "tasks"), commit_there(job, third.store))
    await refused.run_to(_any)
    await third.run_to(_nth(1, "rename_directory", "returning"))
    await second.finish()
    await third.finish()
    await refused.finish()
    if place.temporary():
        await place.recover("j")
    assert place.files() == {**OTHER, **FIRST}


def _gives_back(call: Call) -> bool:
    return call.operation == "rename_directory" and call.path.parent.name == "returning"


def _has_deleted_what_is_outside(call: Call) -> bool:
    return call.operation == "rename_directory" and call.destination is not None and ".removed" in call.destination.name


@EVERY_PROFILE
@pytest.mark.parametrize("how", ["abort", "cleanup"])
async def test_what_is_given_back_while_the_job_is_removed_goes_with_it(profile: str, how: str) -> None:
    """The removal looked at the directories that jobs share before. A driver of Hadoop's would publish what lies there."""
    place, job = await job_of_two(profile)
    refused, removing = Halting(place), Halting(place)

    async def remove() -> None:
        options = {"store": removing.store}
        if how == "cleanup":
            await committer.cleanup(place.dest, job_id="j", storage_options=options)
            return
        async with committer.attach_job(job.spec, storage_options=options) as attached:
            await attached.abort()

    await refused.run_to(_gives_back, commit_refused(job, refused.store))
    await removing.run_to(_has_deleted_what_is_outside, remove())
    await refused.finish()
    await removing.finish()
    assert place.temporary() <= {"_temporary"}
    assert place.files() == {}


def _writes(name: str) -> Stop:
    def stop(call: Call) -> bool:
        target = call.destination or call.path
        return call.operation in ("put", "rename_file") and target.name == name

    return stop


def _publishes(call: Call) -> bool:
    return (
        call.operation == "rename_file" and call.destination is not None and call.destination.name in {**FIRST, **OTHER}
    )


@EVERY_PROFILE
@pytest.mark.parametrize("counts_by", ["its intent", "the decision"])
async def test_driver_looks_for_others_before_it_gives_each_back(profile: str, counts_by: str) -> None:
    """Another one rests on what this one moved away in one rename: the same rename the other way, and nothing else."""
    place, job = await job_of_two(profile)
    refused, other = Halting(place), Halting(place)
    await refused.run_to(_nth(1, "rename_directory", "tasks"), commit_refused(job, refused.store))
    gives_back = refused.store.count() - 1
    await other.run_to(_writes("decision") if counts_by == "its intent" else _publishes, commit_there(job, other.store))
    await refused.finish()
    calls = refused.store.calls[gives_back:]
    moves = [call for call in calls if call.operation == "rename_directory" and call.destination is not None]
    named = [(call.path.name, call.destination.name) for call in moves if call.destination is not None]
    assert named[:2] == [("tasks", "returning"), ("returning", "tasks")]
    assert "returning" not in {call.path.parent.name for call in moves}
    away, back = moves[0].number, moves[1].number
    assert any(
        call.operation == "list" and call.path.name == job.spec.unique_id and away < call.number < back
        for call in calls
    )
    await other.finish()
    if place.temporary():
        await place.recover("j")
    assert place.files() == {**OTHER, **FIRST}


async def _abort_beside_a_commit(profile: str, of_abort: int, of_commit: int) -> bool:
    """Begins a commit after so many calls of an abort, which goes on after so many of the commit; False at the end."""
    place = FileInMemory("file-v1", profile)
    job = await place.open_job(job_id="j")
    await place.run_task(job, 1, FIRST)
    aborting, committing = process(place), process(place)
    stands, may_go_on = asyncio.Event(), asyncio.Event()
    commits: list[asyncio.Task[committer.JobReport]] = []

    async def stand() -> None:
        stands.set()
        await may_go_on.wait()

    async def begin_the_commit() -> None:
        commits.append(asyncio.create_task(commit_there(job, committing)))
        commits[0].add_done_callback(lambda _: stands.set())
        await stands.wait()

    aborting.before_call = before(of_abort, begin_the_commit)
    committing.before_call = before(of_commit, stand)
    aborted = True
    try:
        async with committer.attach_job(job.spec, storage_options={"store": aborting}) as attached:
            await attached.abort_task(1, 0)
    except CommitterError:
        aborted = False
    may_go_on.set()
    if not commits:
        return False
    with suppress(CommitterError):
        assert (await commits[0]).success
        assert place.files() == ({} if aborted else FIRST), (of_abort, of_commit)
    return True


@PROFILES
async def test_a_task_is_published_where_its_abort_beside_the_commit_is_refused(profile: str) -> None:
    """Found by hand: the abort put the task's directory back between two looks of the commit, which found no task."""
    for of_commit in (*range(5, 30, 2), 200):
        # A whole commit: from the moment on when the abort has read the record of what it aborts.
        of_abort = 6 if of_commit == 200 else 0
        while await _abort_beside_a_commit(profile, of_abort, of_commit):
            of_abort += 1
        assert of_abort > 3


@PROFILES
@pytest.mark.parametrize("place_of", ["tasks", "returning"])
async def test_a_directory_that_a_refused_driver_holds_counts(profile: str, place_of: str) -> None:
    """A driver left it taken, or died in its return: no task commits again beside it, and no abort passes it over."""
    place, job = await job_of_two(profile)
    layout, store = layout_of(place, "j"), process(place)
    held = getattr(layout, place_of)
    await store.make_directory(held, parents=True)
    await store.rename_directory(layout.manifests / layout.task_id(1), held / layout.task_id(1))
    with pytest.raises(JobStateError, match="took what"):
        await run_second(place, job, store)
    async with committer.attach_job(job.spec, storage_options={"store": store}) as attached:
        with pytest.raises(JobStateError, match="took what this attempt"):
            await attached.abort_task(1, 0)
    assert (await commit_there(job, store)).success
    assert place.files() == OTHER | FIRST
