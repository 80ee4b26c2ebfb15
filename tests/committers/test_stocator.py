"""The committer `stocator`: what its tasks write, what its job commit says of that, what is deleted and what is not.

Its output is visible when a task closes a file. The tests of what it does not give stay: a page says that it does not.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.committers.stocator import DirectForms
from committer.errors import (
    CommitterError,
    JobDecidedError,
    JobNotFoundError,
    JobRolledBackError,
    PreflightError,
    StoreOutcomeUnknownError,
    TaskError,
    UnsupportedError,
)
from committer.paths import StorePath
from committer.records.job_state import Decision, encode_record
from committer.records.pending_uploads import ListedUpload, UploadList, encode_upload_list
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.committers.stocator_place import ATTEMPT, PROFILES, StocatorPlace
from tests.job_paths import in_job
from tests.places import MemoryPlace, write_file

FILES = {"a=1/part-0.csv": b"one", "part-1.tar.gz": b"two"}


@pytest.fixture(params=PROFILES)
def place(request: pytest.FixtureRequest) -> StocatorPlace:
    return StocatorPlace(request.param)


async def _killed(
    place: StocatorPlace, spec: JobSpec, task: int, attempt: int, files: dict[str, bytes], *, root: str = ""
) -> None:
    """A task attempt whose process dies when it wrote its files, below a root outside or not, before it commits."""
    dying = FaultyStore(place.store.inner)
    with pytest.raises(SimulatedCrash):
        async with committer.open_task(spec, task=task, attempt=attempt, storage_options={"store": dying}) as writer:
            for name, data in files.items():
                async with writer.open_absolute(f"{root}/{name}") if root else writer.open(name) as file:
                    await file.write(data)
            dying.crashed = True
            raise SimulatedCrash


# -- a job that nothing disturbs --------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_success_lists_the_winners_and_nothing_is_moved(place: StocatorPlace, delivery: str) -> None:
    job = await place.open_job(job_id="j", delivery=delivery)
    many = {f"b=2/part-{number}": b"%d" % number for number in range(150)}
    messages = [await place.run_task(job, 0, FILES), await place.run_task(job, 1, many)]
    written = place.objects()
    report = await job.commit(messages if delivery == "message" else None, tasks=2)
    assert (report.files_committed, report.committer, len(report.filenames)) == (152, "stocator", 152)
    assert place.objects() == written
    assert place.files() == {**FILES, **many}
    assert (place.losers(), place.temporary()) == (set(), set())
    assert (await committer.validate(place.dest, storage_options=place.options)).ok


async def test_names_hold_the_attempt_as_stocators_do(place: StocatorPlace) -> None:
    """``part-00000-<uuid>-attempt_<id>.csv``: the attempt's id before the first period; then this run's nonce."""
    job = await place.open_job(job_id="job_202611230000_0001")
    async with job.task_attempt(task=3, attempt=1) as task, task.open("a=1/part-0.snappy.parquet") as file:
        await file.write(b"x")
    expected = f"a=1/part-0-attempt_202611230000_0001_m_000003_1-{task.nonce}.snappy.parquet"
    assert set(place.objects()) == {expected}
    await job.commit()
    assert place.files() == {"a=1/part-0.snappy.parquet": b"x"}


@pytest.mark.parametrize("profile", PROFILES)
async def test_a_job_commit_makes_no_call_for_a_file(profile: str) -> None:
    """A task lists a file and looks at the job, then opens, writes and closes it; a job commit lists directories."""

    async def calls(files: int) -> tuple[int, int]:
        mine = StocatorPlace(profile, delivery="message")
        job = await mine.open_job()
        message = await mine.run_task(job, 0, {f"part-{number}": b"x" for number in range(files)})
        writing = mine.store.count()
        await job.commit([message], tasks=1)
        return writing, mine.store.count() - writing

    (few, few_committing), (many, many_committing) = await calls(10), await calls(50)
    assert many - few == 40 * 5
    assert many_committing == few_committing


async def test_two_tasks_that_give_one_name_keep_their_files_apart(place: StocatorPlace) -> None:
    async with place.open_job(job_id="j") as job:
        for task in range(2):
            await place.run_task(job, task, {"part-0": b"%d" % task})
        assert (await job.commit(tasks=2)).files_committed == 2
    assert sorted(place.objects().values()) == [b"0", b"1"]
    assert place.losers() == set()


async def test_a_file_outside_the_destination_goes_there(place: StocatorPlace) -> None:
    root = f"{place.dest.rpartition('/')[0]}/elsewhere"
    config = CommitterConfig(absolute_roots=(root,))
    job = await place.open_job(job_id="j", config=config)
    async with job.task_attempt(task=0) as task, task.open_absolute(f"{root}/part-0") as file:
        await file.write(b"out")
    await _killed(place, job.spec, 0, 1, {"part-0": b"loser"}, root=root)
    report = await job.commit()
    [uri] = report.filenames
    inside = {name for name in place.space.files() if name.startswith("/elsewhere/")}
    assert {StorePath.from_uri(uri).path} == inside


# -- what it does not give: who lists sees more -----------------------------------------------------------------


async def test_a_reader_who_lists_sees_files_before_the_job_commits_and_those_of_losers(place: StocatorPlace) -> None:
    """This must stay: the guarantee table says that it is so."""
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    await _killed(place, job.spec, 0, 1, FILES)
    assert sorted(ATTEMPT.sub("", name) for name in place.objects()) == sorted([*FILES, *FILES])
    assert place.files() == {}
    await job.commit(tasks=1)
    assert place.files() == FILES


async def test_a_second_job_leaves_the_files_of_the_first_and_its_success_names_its_own(place: StocatorPlace) -> None:
    for number in range(2):
        await place.run_job({f"part-{number}": b"x"}, job_id=f"j{number}")
    assert len(place.objects()) == 2
    assert place.files() == {"part-1": b"x"}


async def test_a_zombie_leaves_a_file_that_no_reader_of_success_reads(place: StocatorPlace) -> None:
    job = await place.open_job(job_id="j")
    zombie = await place.open_task(job.spec, 0, 1)
    file = zombie.open("part-0")
    await file.__aenter__()
    await file.write(b"late")
    await place.run_task(job, 0, {"part-0": b"won"})
    await job.commit(tasks=1)
    await file.__aexit__(None, None, None)
    assert place.files() == {"part-0": b"won"}
    assert len(place.losers()) == 1
    with pytest.raises((JobNotFoundError, JobDecidedError)):
        await zombie.commit()
    await zombie.abort()
    assert place.losers() == set()


async def test_a_replacing_job_takes_files_of_a_running_job_for_old_ones_and_that_is_refused() -> None:
    """G11 does not hold beside jobs that replace: but nothing is committed that is not there."""
    place = StocatorPlace("s3")
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    async with committer.open_job(
        place.dest,
        job_id="replacing",
        config=CommitterConfig(conflict_mode="replace", superseded_scope="destination"),
        storage_options=place.options,
    ) as other:
        await place.run_task(other, 0, {"new": b"new"})
        await other.commit(tasks=1)
    assert place.objects() == {"new": b"new"}
    with pytest.raises(PreflightError, match="is gone"):
        await job.commit(tasks=1)
    await place.run_task(job, 0, FILES, attempt=1)
    await job.commit(tasks=1)
    assert place.files() == {**FILES, "new": b"new"}


async def test_while_a_job_commits_there_is_no_success_for_some_calls(place: StocatorPlace) -> None:
    """G13 does not hold: a reader tries again."""
    await place.run_job({"part-0": b"old"}, job_id="earlier")
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    seen: list[bool] = []

    async def look(_call: Call) -> None:
        seen.append("_SUCCESS" in place.all_files())

    place.store.before_call = look
    await job.commit(tasks=1)
    assert (seen[0], seen[-1], False in seen) == (True, True, True)


# -- losers are deleted, and nothing else -----------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_a_commit_deletes_the_objects_of_every_attempt_that_lost(place: StocatorPlace, delivery: str) -> None:
    place.write("part-9", b"another program's")
    place.write("part-9-attempt_j_m_000000_0-0123456789ab", b"another program's, of a like name")
    job = await place.open_job(job_id="j", delivery=delivery)
    other = await place.open_job(job_id="other")
    await place.run_task(other, 0, {"theirs": b"another job's"})
    await _killed(place, job.spec, 0, 0, {"killed": b"1"})
    messages = [await place.run_task(job, 0, FILES, attempt=1)]
    await _killed(place, job.spec, 0, 1, {"another run of the winner's id": b"2", **FILES})
    await _killed(place, job.spec, 1, 0, {"a task that": b"never committed"})
    if delivery == "message":
        await place.run_task(job, 0, {"committed, and not chosen": b"3"}, attempt=2)
    await job.commit(messages if delivery == "message" else None, tasks=1)
    assert place.files() == {**FILES, "part-9": b"another program's"}
    left = {name for name in place.losers() if not name.startswith("theirs")}
    assert left == {"part-9-attempt_j_m_000000_0-0123456789ab"}
    await other.commit(tasks=1)
    assert "theirs" in place.files()


async def test_an_abort_deletes_the_objects_of_its_own_job_only(place: StocatorPlace) -> None:
    place.write("part-9", b"old")
    await place.run_job({"part-0": b"an earlier job's"}, job_id="earlier")
    job, other = await place.open_job(job_id="j"), await place.open_job(job_id="j2")
    await place.run_task(other, 0, {"part-1": b"another job's"})
    await place.run_task(job, 0, FILES)
    await _killed(place, job.spec, 1, 0, FILES)
    await job.abort()
    assert sorted(place.objects().values()) == [b"an earlier job's", b"another job's", b"old"]
    await other.commit(tasks=1)
    assert place.files() == {"part-1": b"another job's", "part-9": b"old"}
    assert place.temporary() == set()


async def test_an_attempt_is_aborted_by_its_ids(place: StocatorPlace) -> None:
    job = await place.open_job(job_id="j")
    await _killed(place, job.spec, 0, 0, FILES)
    await place.run_task(job, 0, FILES, attempt=1)
    await job.abort_task(0, 0)
    assert len(place.objects()) == len(FILES)
    await job.commit(tasks=1)
    assert (place.files(), place.losers()) == (FILES, set())


async def test_a_file_whose_put_failed_does_not_come_with_those_of_the_next_attempt(place: StocatorPlace) -> None:
    """The answer to its put was lost: it exists, although its writer said that it failed."""
    job = await place.open_job(job_id="j")
    with pytest.raises(TaskError, match="not written"):
        async with place.open_task(job.spec, 0) as task:
            place.faults(Fault(kind="lost", operation="close_writer"))
            with pytest.raises(StoreOutcomeUnknownError):
                await write_file(task, "given-up", b"x")
            assert len(place.objects()) == 1
    async with place.open_task(job.spec, 0, attempt=1) as task, task.open("part-0") as file:
        await file.write(b"x")
    await job.commit(tasks=1)
    assert place.files() == {"part-0": b"x"}
    assert len(place.objects()) == 1


async def test_an_upload_that_a_killed_writer_of_a_long_file_left_is_ended() -> None:
    """A store's own writer sends long files by the part."""
    place = StocatorPlace("s3")
    job = await place.open_job(job_id="j")
    await _killed(place, job.spec, 0, 0, {"part-0": b"x"})
    [name] = place.objects()
    for path in (place.space.path(f"table/{name}"), place.space.path("table/part-0")):
        upload = place.space.uploads.create(path, "writer")
        place.space.uploads.put_part(path, upload, 1, b"left")
    await place.run_task(job, 0, FILES, attempt=1)
    await job.commit(tasks=1)
    assert [upload.path.path for upload in place.space.uploads] == ["/table/part-0"]


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_a_late_list_of_an_earlier_job_of_the_id_costs_no_committed_file(place: StocatorPlace, end: str) -> None:
    """The store takes late writes: the list of a winner arrives in the directory of the next job of its id."""
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, {"part-0": b"won"})
    [listed] = [name for name in place.all_files() if "/uploads/" in name]
    late = place.read(listed)
    await job.commit(tasks=1)
    again = await place.open_job(job_id="j")
    place.write(listed, late)
    if end == "commit":
        await place.run_task(again, 1, {"part-1": b"next"})
        await again.commit(tasks=1)
    else:
        await again.abort()
    assert b"won" in place.objects().values()
    place.write(listed, late)
    await committer.cleanup(place.dest, older_than=0, force=True, storage_options=place.options)
    assert b"won" in place.objects().values()


@pytest.mark.parametrize("how", ["abort", "recover", "cleanup"])
async def test_a_late_decision_against_a_committed_job_costs_no_committed_file(place: StocatorPlace, how: str) -> None:
    """With the list of a winner, which comes late, too: the job's own driver goes on with what it finds there."""
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, {"part-0": b"won"})
    [listed] = [name for name in place.all_files() if "/uploads/" in name]
    late = place.read(listed)
    await job.commit(tasks=1)
    against = Decision(job_id="j", decision="abort", driver="d", created="2026-01-01T00:00:00+00:00")
    place.write(listed, late)
    place.write(in_job(place, "j", "decision"), encode_record(against))
    with suppress(CommitterError):
        if how == "abort":
            async with committer.attach_job(job.spec, storage_options=place.options) as attached:
                await attached.abort()
        elif how == "recover":
            await place.recover("j", rollback=True, force=True)
        else:
            await committer.cleanup(place.dest, job_id="j", force=True, storage_options=place.options)
    assert list(place.objects().values()) == [b"won"]


async def test_a_list_names_nothing_but_objects_of_its_run(place: StocatorPlace) -> None:
    """G10: whatever stands in the job's directory, no other file is deleted."""
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    [won] = [name for name in place.objects() if "part-1" in name]
    outside = "part-0-attempt_j_m_000009_0-aaaaaaaaaaaa"
    place.write("old", b"old")
    place.space.write(f"/other/{outside}", b"outside")
    names = ["old", won, f"../other/{outside}", "_SUCCESS", f"/other/{outside}"]
    record = UploadList(job_id="j", task_attempt="x", uploads=tuple(ListedUpload(name, "object") for name in names))
    place.write(in_job(place, "j", "00/uploads/attempt_j_m_000009_0-aaaaaaaaaaaa/00001"), encode_upload_list(record))
    place.write(in_job(place, "j", "00/uploads/attempt_j_m_000008_0-aaaaaaaaaaaa/00001"), b"no list")
    await job.commit(tasks=1)
    assert place.files() == {**FILES, "old": b"old"}
    assert place.space.files()[f"/other/{outside}"] == b"outside"


# -- what goes wrong before and after the decision --------------------------------------------------------------


async def test_a_file_that_is_gone_is_refused_before_the_decision(place: StocatorPlace) -> None:
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    [name] = [name for name in place.objects() if "part-1" in name]
    place.remove(name)
    with pytest.raises(PreflightError, match="part-1"):
        await job.commit(tasks=1)
    assert await place.states() == {"j": "open"}
    await place.run_task(job, 0, FILES, attempt=1)
    await job.commit(tasks=1)
    assert (place.files(), place.losers()) == (FILES, set())


async def test_a_decided_job_is_taken_back(place: StocatorPlace) -> None:
    await place.run_job({"part-0": b"old"}, job_id="earlier")
    before = place.all_files()
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    await _killed(place, job.spec, 0, 1, FILES)
    place.faults(Fault(kind="crash_before", operation="put", path="/outcome"))
    with pytest.raises(SimulatedCrash):
        await job.commit(tasks=1)
    place.store.crashed = False
    await place.recover("j", rollback=True, force=True)
    after = place.all_files()
    assert {name: data for name, data in after.items() if name != "_SUCCESS"} == {
        name: data for name, data in before.items() if name != "_SUCCESS"
    }
    assert place.files() == {"part-0": b"old"}
    with pytest.raises((JobRolledBackError, JobNotFoundError)):
        await job.commit(tasks=1)


async def test_success_that_was_not_written_names_every_winner_when_it_is(place: StocatorPlace) -> None:
    job = await place.open_job(job_id="j")
    many = {f"part-{number}": b"x" for number in range(120)}
    await place.run_task(job, 0, many)
    place.faults(Fault(kind="crash_before", path="_SUCCESS", operation="put"))
    with pytest.raises(SimulatedCrash):
        await job.commit(tasks=1)
    place.store.crashed = False
    assert (await place.recover("j")).success
    assert place.files() == many


# -- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (CommitterConfig(conflict_mode="replace"), "conflict_mode='replace'"),
        (CommitterConfig(conflict_mode="fail"), "conflict_mode='fail'"),
        (CommitterConfig(mark_successful_jobs=False), "without _SUCCESS"),
        (CommitterConfig(cleanup_skipped=True), "without a cleanup"),
    ],
)
async def test_choices_that_would_mean_something_else_are_refused(config: CommitterConfig, told: str) -> None:
    place = StocatorPlace()
    with pytest.raises(UnsupportedError, match=told):
        await place.open_job(config=config)
    assert place.all_files() == {}


@pytest.mark.parametrize("profile", ["local", "hdfs", "adls"])
async def test_stores_with_real_directories_are_refused(profile: str) -> None:
    place = MemoryPlace(profile)
    with pytest.raises(UnsupportedError, match="delete a file on the condition"):
        await place.open_job(committer="stocator")
    assert place.all_files() == {}


async def test_jobs_of_hadoops_cannot_be_joined(place: StocatorPlace) -> None:
    spec = JobSpec.for_hadoop(place.dest, "job_202611230000_0001", committer="stocator")
    with pytest.raises(UnsupportedError, match="no record names"):
        await committer.attach_job(spec, storage_options=place.options)
    with pytest.raises(UnsupportedError, match="no record names"):
        await place.open_task(spec, 0)


async def test_no_program_writes_by_a_path(place: StocatorPlace) -> None:
    job = await place.open_job(job_id="j")
    task = await place.open_task(job.spec, 0)
    with pytest.raises(UnsupportedError):
        task.work_path("part-0")
    await task.abort()
    await job.abort()


async def test_more_files_than_success_names_are_refused(place: StocatorPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DirectForms, "filenames_limit", 1)
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    with pytest.raises(UnsupportedError, match="at most 1"):
        await job.commit(tasks=1)
    assert await place.states() == {"j": "open"}
    await job.abort()
    assert place.objects() == {}


async def test_a_task_that_comes_when_the_job_is_decided_writes_nothing(place: StocatorPlace) -> None:
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    late = await place.open_task(job.spec, 0, 1)

    async def at_the_outcome(call: Call) -> None:
        if call.operation == "put" and call.path.name == "outcome":
            place.store.before_call = None
            with pytest.raises(CommitterError):
                await write_file(late, "part-0", b"late")

    place.store.before_call = at_the_outcome
    await job.commit(tasks=1)
    assert (place.files(), place.losers()) == (FILES, set())
