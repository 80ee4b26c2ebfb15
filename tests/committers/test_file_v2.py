"""The committer `file-v2`: what its tasks move to the destination, and what its job commit makes of that.

Its output is visible when a task commits. The tests of what it does not give stay: a page says that it does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.errors import (
    CommitterError,
    JobNotFoundError,
    JobStateError,
    JobUndecidedError,
    PreflightError,
    TargetExistsError,
    UnsupportedError,
)
from committer.events import names
from committer.flow.runtime import use_runtime
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from committer.testing.virtual_time import VirtualRuntime
from tests.committers.file_places import HADOOP_JOB, FileInMemory, committed_by_hadoop, file_place
from tests.job_paths import entries_at
from tests.places import Place, write_file

REPLACE = CommitterConfig(existing_target="replace")
FILES = {"a=1/part-0": b"one", "part-1": b"two"}


@pytest.fixture(params=["disk", "local", "adls", "gcs"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = file_place(request.param, "file-v2", tmp_path)
    yield made
    await made.store.close()


async def _run_broken(place: Place, job: committer.Job, files: dict[str, bytes], *, renames: int) -> None:
    """A second attempt of task 0 that dies after so many renames of its commit."""
    dying = FaultyStore(place.store.inner)
    seen = 0

    async def before(call: Call) -> None:
        nonlocal seen
        seen += call.operation == "rename_file"
        if seen > renames:
            raise SimulatedCrash

    dying.before_call = before
    with pytest.raises(SimulatedCrash):
        async with committer.open_task(job.spec, task=0, attempt=1, storage_options={"store": dying}) as task:
            for name, data in files.items():
                await write_file(task, name, data)


# -- a job that nothing disturbs --------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_job_commit_says_what_counts_and_moves_nothing(place: Place, delivery: str) -> None:
    job = await place.open_job(job_id="j", delivery=delivery)
    messages = [await place.run_task(job, 0, FILES), await place.run_task(job, 1, {"part-2": b"three"})]
    before = place.store.count("rename_file")
    plan = await job.plan(messages, tasks=2)
    assert (plan.files, plan.conflicts) == (3, [])
    assert delivery == "message" or plan.stray == []
    report = await job.commit(messages if delivery == "message" else None, tasks=2)
    assert place.store.count("rename_file") - before <= 5
    assert (report.files_committed, report.bytes_committed, report.committer) == (3, 11, "file-v2")
    assert (place.files(), place.temporary()) == ({**FILES, "part-2": b"three"}, set())
    assert (await committer.validate(place.dest, storage_options=place.options)).ok


async def test_task_attempts_write_where_hadoops_do(place: Place) -> None:
    job = await place.open_job(job_id="j")
    task = await place.open_task(job.spec, 3, 1)
    await write_file(task, "part-0", b"one")
    assert f"_temporary/0/_temporary/attempt_j_m_000003_1-{task.nonce}/part-0" in place.all_files()
    await task.commit()
    assert place.files() == {"part-0": b"one"}
    await job.commit()
    assert place.temporary() == set()


async def test_a_job_of_a_driver_that_died_is_finished(place: Place) -> None:
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    await job.close()
    with pytest.raises(JobUndecidedError):
        await place.recover("j")
    async with place.attach_job("j") as attached:
        await attached.commit(tasks=1)
    assert (place.files(), place.temporary()) == (FILES, set())


@pytest.mark.parametrize("profile", ["local", "gcs"])
async def test_driver_that_dies_before_any_call_is_followed_by_another(profile: str) -> None:
    number = 0
    while True:
        number += 1
        place = FileInMemory("file-v2", profile)
        job = await place.open_job(job_id="j")
        await place.run_task(job, 0, FILES)
        driver = FaultyStore(place.space.store(), [Fault(kind="crash_before", call=number)])
        try:
            async with committer.attach_job(job.spec, storage_options={"store": driver}) as attached:
                await attached.commit()
        except SimulatedCrash:
            pass
        else:
            break
        if "j" in await place.states():
            try:
                assert (await place.recover("j")).success
            except JobUndecidedError:
                await job.commit()
        assert place.files() == FILES
        left = set(place.all_files()) - {*FILES, "_SUCCESS"}
        # An entry of a job that is gone blocks no job.
        assert left == set(entries_at(place))
    assert number > 20


# -- what exists at the destination -----------------------------------------------------------------------------


async def test_what_stands_there_is_refused_when_a_task_commits(place: Place) -> None:
    place.write("part-1", b"old")
    job = await place.open_job(job_id="j")
    with pytest.raises(TargetExistsError, match="exists at part-1"):
        await place.run_task(job, 0, {"part-1": b"new"})
    assert place.files() == {"part-1": b"old"}
    await job.abort()
    assert place.temporary() == set()


async def test_with_replace_files_and_directories_give_way_as_in_hadoop(place: Place) -> None:
    directories = place.store.capabilities.directories
    place.write("part-1", b"old, and longer")
    if directories:
        place.write("a=1", b"a file where a directory goes")
        place.write("part-2/inner", b"a directory where a file goes")
    async with place.open_job(job_id="j", config=REPLACE) as job:
        await place.run_task(job, 0, {**FILES, "part-2": b"three"})
    assert place.files() == {**FILES, "part-2": b"three"}


async def test_a_directory_that_a_job_runs_into_does_not_give_way(place: Place) -> None:
    if not place.store.capabilities.directories:
        return
    inner = await committer.open_job(f"{place.dest}/part-1", storage_options=place.options)
    job = await place.open_job(job_id="j", config=REPLACE)
    with pytest.raises(TargetExistsError, match="a job runs into"):
        await place.run_task(job, 0, {"part-1": b"x"})
    await inner.abort()
    await job.abort()


async def test_a_later_attempt_replaces_what_an_earlier_one_left(place: Place) -> None:
    """Without `existing_target="replace"`, too: it is the job's own. What only the earlier one wrote stays (G2)."""
    job = await place.open_job(job_id="j")
    await _run_broken(place, job, {"part-1": b"first", "part-2": b"first", "only-first": b"x"}, renames=2)
    assert place.files()
    await place.run_task(job, 0, {"part-1": b"second", "part-2": b"second"}, 2)
    report = await job.commit(tasks=1)
    assert report.files_committed == 2
    found = place.files()
    assert (found.pop("part-1"), found.pop("part-2")) == (b"second", b"second")
    assert found in ({}, {"only-first": b"x"})


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_an_abort_by_ids_forgets_nothing_that_is_visible(place: Place, delivery: str) -> None:
    """Files that the attempt left may be replaced by the next one, as if it had not been aborted."""
    job = await place.open_job(job_id="j", delivery=delivery)
    await _run_broken(place, job, {"part-1": b"first", "part-2": b"first"}, renames=1)
    await job.abort_task(0, 1)
    message = await place.run_task(job, 0, {"part-1": b"second", "part-2": b"second"}, 2)
    await job.commit([message], tasks=1)
    assert place.files() == {"part-1": b"second", "part-2": b"second"}


async def test_a_file_of_another_task_is_not_replaced(place: Place) -> None:
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, {"part-1": b"one"})
    with pytest.raises(TargetExistsError, match="part-1"):
        await place.run_task(job, 1, {"part-1": b"two"})
    await job.commit(tasks=1)
    assert place.files() == {"part-1": b"one"}


async def test_a_record_that_cannot_be_saved_leaves_visible_files(place: Place) -> None:
    job = await place.open_job(job_id="j")
    place.faults(Fault(kind="forbidden", operation="put", path="/manifests/", times=None))
    with pytest.raises(CommitterError, match="2 of 2 files of the task are visible") as refused:
        await place.run_task(job, 0, FILES)
    assert (refused.value.outcome, place.files()) == ("partial", FILES)


async def test_a_task_that_comes_while_a_driver_commits_moves_nothing(place: Place) -> None:
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    late = await place.open_task(job.spec, 1)
    await write_file(late, "late", b"x")
    dying = FaultyStore(place.store.inner, [Fault(kind="crash_before", path="/decision")])
    with pytest.raises(SimulatedCrash):
        async with committer.attach_job(job.spec, storage_options={"store": dying}) as attached:
            await attached.commit()
    with pytest.raises(JobStateError, match="is being committed") as refused:
        await late.commit()
    assert (refused.value.outcome, place.files()) == ("unchanged", FILES)
    assert (await place.recover("j")).files_committed == 2


async def test_what_another_took_away_since_is_not_called_committed(place: Place) -> None:
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    place.remove("part-1")
    with pytest.raises(PreflightError, match="part-1 is gone"):
        await job.commit()
    place.write("part-1", b"another job's")
    with pytest.raises(PreflightError, match="part-1 is not what its task committed"):
        await job.commit()
    assert "_SUCCESS" not in place.all_files()


@pytest.mark.parametrize("kind", ["lost", "unanswered", "crash_before", "crash_after"])
@pytest.mark.parametrize("profile", ["local", "gcs"])
async def test_a_fault_at_any_call_of_a_task_is_told_truly(profile: str, kind: str) -> None:
    """A commit that returned is part of the job; one that did not may have left files, and the next one counts."""
    number = 0
    while True:
        number += 1
        place = FileInMemory("file-v2", profile)
        job = await place.open_job(job_id="j")
        faulty = FaultyStore(place.space.store(), [Fault(kind=kind, call=number)])  # type: ignore[arg-type]
        committed = True
        try:
            async with committer.open_task(job.spec, task=0, storage_options={"store": faulty}) as task:
                for name, data in FILES.items():
                    await write_file(task, name, data)
        except (CommitterError, SimulatedCrash):
            committed = False
            await place.run_task(job, 0, FILES, 1)
        report = await job.commit(tasks=1)
        assert (report.files_committed, place.files(), place.temporary()) == (2, FILES, set()), (number, committed)
        if number > faulty.count():
            break
    assert number > 10


# -- what it does not give --------------------------------------------------------------------------------------


async def test_output_is_visible_before_the_job_commits_and_stays_when_it_is_aborted(place: Place) -> None:
    """G4 and G6."""
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    assert place.files() == FILES
    await job.abort()
    assert (place.files(), place.temporary()) == (FILES, set())


async def test_two_attempts_are_mixed(place: Place) -> None:
    """G2: both committed, and each wrote files of other names."""
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, {"first": b"1"})
    await place.run_task(job, 0, {"second": b"2"}, 1)
    report = await job.commit(tasks=1)
    assert report.files_committed == 1
    assert place.files() == {"first": b"1", "second": b"2"}
    found = await committer.validate(place.dest, storage_options=place.options)
    assert found.missing == []


async def test_a_decided_job_is_not_taken_back(place: Place) -> None:
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    place.faults(Fault(kind="forbidden", path="/outcome", times=None))
    with pytest.raises(CommitterError) as stopped:
        await job.commit()
    assert "rolls the job back" not in stopped.value.next_step
    place.store.faults.clear()
    with pytest.raises(JobStateError, match="can only go forward"):
        await place.recover("j", rollback=True, force=True)
    assert (await place.recover("j")).success
    assert place.files() == FILES


async def test_what_it_cannot_honour_is_refused(place: Place) -> None:
    for config in (
        CommitterConfig(conflict_mode="replace"),
        CommitterConfig(conflict_mode="fail"),
        CommitterConfig(absolute_roots=(f"{place.dest}-beside",)),
    ):
        with pytest.raises(UnsupportedError):
            await place.open_job(config=config)
    assert place.temporary() == set()


@pytest.mark.parametrize("cleans", [False, True])
async def test_a_task_attempts_directory_goes_when_it_commits_or_with_the_job(tmp_path: Path, cleans: bool) -> None:
    config = CommitterConfig.from_hadoop({"mapreduce.fileoutputcommitter.task.cleanup.enabled": str(cleans)})
    place = file_place("disk", "file-v2", tmp_path)
    job = await place.open_job(job_id="j", config=config)
    await place.run_task(job, 0, FILES)
    left = {name for name in place.temporary() if "/attempt_j_m_000000_0-" in name and "manifest" not in name}
    assert any(name.endswith("/a=1") for name in left) is not cleans
    if cleans:
        assert {name for name in left if name.startswith("_temporary/0/")} == set()
        place.faults(Fault(kind="forbidden", operation="delete_directory"))
        await place.run_task(job, 1, {"part-9": b"x"})
    await job.commit()
    assert place.temporary() == set()


# -- with Hadoop ------------------------------------------------------------------------------------------------


async def test_tasks_join_a_job_of_hadoops_and_its_driver_commits_it(place: Place) -> None:
    spec = JobSpec.for_hadoop(place.dest, HADOOP_JOB, committer="file-v2")
    if place.store.capabilities.directories:
        with pytest.raises(JobNotFoundError):
            await place.open_task(spec, 0)
    committed_by_hadoop(place, 9, {"by-hadoop": b"x"})
    message = await place.run_task(spec, 0, FILES)
    assert (message.files, message.size) == (2, 6)
    assert place.files() == FILES
    with pytest.raises(UnsupportedError, match="nothing says which files"):
        await committer.attach_job(spec, storage_options=place.options)


async def test_operators_see_what_it_is(place: Place) -> None:
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    [info] = await committer.list_jobs(place.dest, storage_options=place.options)
    assert (info.job_id, info.state, info.committer) == ("j", "open", "file-v2")
    await job.close()
    await committer.cleanup(place.dest, job_id="j", storage_options=place.options)
    assert (place.files(), place.temporary()) == (FILES, set())


# -- `file-v2` with `commit_attempts`: a job commit that is tried again, as Hadoop's algorithm 2 does -------------------


@pytest.mark.parametrize(("committer_name", "tries"), [("file-v2", 3), ("manifest", 1)])
async def test_a_job_commit_is_tried_as_often_as_said(committer_name: str, tries: int) -> None:
    """Of Hadoop's committers `file-v2` alone does that, too. What a try wrote is what the next one goes on with."""
    config = CommitterConfig.from_hadoop({"mapreduce.fileoutputcommitter.failures.attempts": "3"})
    place = FileInMemory(committer_name, "local")
    for failures in (tries - 1, tries):
        job = await place.open_job(job_id=f"j{failures}", config=config)
        await place.run_task(job, 0, {f"part-{failures}": b"x"})
        place.faults(Fault(kind="forbidden", operation="put", path="/outcome", times=failures))
        if failures < tries:
            assert (await job.commit(tasks=1)).files_committed == 1
            continue
        with pytest.raises(CommitterError):
            await job.commit(tasks=1)
        assert (await place.recover(job.job_id)).success


async def test_a_refusal_is_no_reason_to_try_again() -> None:
    calls = []
    for attempts in (1, 5):
        place = FileInMemory("file-v2", "local")
        job = await place.open_job(job_id="j", config=CommitterConfig(commit_attempts=attempts))
        await place.run_task(job, 0, {"part-0": b"x", "part-1": b"x"})
        place.remove("part-1")
        with pytest.raises(PreflightError):
            await job.commit()
        calls.append(place.store.count())
    assert calls[0] == calls[1]


async def test_the_report_counts_what_the_last_try_did() -> None:
    """Not what failed tries did before; the setup of the job counts in each."""
    counters = []
    for failures in (0, 1):
        place = FileInMemory("file-v2", "local")
        # Of the machine's time, how many digits it has would count: records hold it.
        with use_runtime(VirtualRuntime()):
            job = await place.open_job(job_id="j", config=CommitterConfig(io_concurrency=1, commit_attempts=2))
            for task in range(3):
                await place.run_task(job, task, {f"part-{task}": b"x"})
            if failures:
                place.faults(Fault(kind="forbidden", operation="status", path="/part-2"))
            counters.append((await job.commit()).statistics.counters)
    # A try's own calls differ by what the one before left: only what is counted of the job is compared.
    of_job = [{name: n for name, n in each.items() if not name.startswith(("op_", "store_"))} for each in counters]
    assert of_job[1] == of_job[0]
    assert counters[1][names.OP_LOAD_MANIFEST] == 3
    assert counters[1][names.JOB_STAGE_SETUP] == 1
