"""`file-v1` when a process dies, an answer is lost, or another process works beside it, at each of its store calls.

A task has two attempts, of other files. Whatever happens, a job is committed with all of one attempt's files, or of
none; and a task commit that returned is part of the job.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import pytest

import committer
from committer.errors import CommitterError, JobNotFoundError, JobStateError, JobUndecidedError, TaskMissingError
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
from tests.committers.file_places import FileInMemory, committed_by_hadoop
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
async def test_a_refused_commit_beside_a_job_commit(profile: str, work: Work, other: Work, share: Share) -> None:
    async for pair in _beside(profile, work, other, share.of(range(await calls_of(profile, work)))):
        assert await _ended(pair.place, pair.job) == {**OTHER, **FIRST}, pair


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
async def test_a_refused_commit_that_is_cut_short_loses_nothing(profile: str, kind: str, share: Share) -> None:
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


async def test_what_a_refused_commit_took_counts() -> None:
    """A task that commits again, or is aborted, is told so. Another commit goes on with it."""
    place, job = await job_of_two("local")
    await commit_refused(job, process(place))
    with pytest.raises(JobStateError, match="came too late"):
        await run_second(place, job, process(place))
    with pytest.raises(JobStateError, match="that counts"):
        await job.abort_task(1, 0)
    await commit_there(job, process(place))
    assert (place.files(), place.temporary()) == ({**OTHER, **FIRST}, set())
