"""Jobs whose files are made of blocks: what shares a name, what comes late, what is dropped."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

import committer
from committer import CommitterConfig
from committer.errors import (
    OutcomeUnknownError,
    PreflightError,
    RecordError,
    TargetExistsError,
    TaskError,
    UnsupportedError,
)
from committer.paths import StorePath
from committer.records.task_commit import digest_of
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.places import MemoryPlace

ONE = CommitterConfig(io_concurrency=1)


def named_b(path: StorePath) -> bool:
    return path.name == "b"


async def dies_with_a_late_list(place: MemoryPlace, job: committer.Job, message: committer.TaskCommit) -> None:
    """The driver dies once it sent the list of `b`, which arrives half a second later; that of `a` arrived."""
    place.faults(Fault(kind="late", operation="put_block_list", path=named_b, delay_s=0.5))

    async def die(call: Call) -> None:
        place.store.crashed = bool(place.store.under_way)

    place.store.before_call = die
    with pytest.raises(SimulatedCrash):
        await job.commit([message], tasks=1)


@pytest.fixture
def place() -> MemoryPlace:
    return MemoryPlace("azure-flat", delivery="message")


async def test_attempts_of_a_task_share_a_name_and_no_block(place: MemoryPlace) -> None:
    """In any order: the list of the winner names its own blocks, and drops the other's."""
    for winner in range(2):
        async with place.open_job(config=CommitterConfig(multipart_size=3)) as job:
            messages = [
                await place.run_task(job, 0, {f"x{winner}": b"%d" % attempt * 7}, attempt=attempt)
                for attempt in range(2)
            ]
            await job.commit([messages[winner]], tasks=1)
        assert place.files()[f"x{winner}"] == b"%d" % winner * 7
        assert place.space.blocks.listed(place.space.path(f"table/x{winner}")) == []


async def test_an_empty_file_and_a_long_one(place: MemoryPlace) -> None:
    async with place.open_job(config=CommitterConfig(multipart_size=4)) as job:
        message = await place.run_task(job, 0, {"empty": b"", "long": b"0123456789"})
        report = await job.commit([message], tasks=1)
    assert (report.committer, report.files_committed, report.bytes_committed) == ("block-list", 2, 10)
    assert place.files() == {"empty": b"", "long": b"0123456789"}


async def test_blocks_of_another_program_are_told_while_a_task_writes(place: MemoryPlace) -> None:
    place.space.blocks.put(place.space.path("table/x"), "short", b"another program's")
    async with place.open_job() as job:
        with pytest.raises(TaskError, match="another length") as caught:
            await place.run_task(job, 0, {"x": b"1"})
        assert "unique_names" in caught.value.next_step
        await job.abort()


async def test_a_job_commit_makes_one_call_a_file() -> None:
    async def calls(files: int) -> tuple[int, int]:
        place = MemoryPlace("azure-flat", delivery="message")
        async with place.open_job() as job:
            message = await place.run_task(job, 0, {f"{files}-{number}": b"x" for number in range(files)})
            before, lists = len(place.store.calls), place.store.count("put_block_list")
            await job.commit([message], tasks=1)
        return len(place.store.calls) - before, place.store.count("put_block_list") - lists

    (few, few_lists), (many, many_lists) = await calls(10), await calls(50)
    assert (many - few, few_lists, many_lists) == (40, 10, 50)


# -- what others do to the name -------------------------------------------------------------------------------------


async def test_another_jobs_file_is_a_definite_refusal_although_the_blocks_are_gone(place: MemoryPlace) -> None:
    """Both write one name. Who comes first drops the other's blocks; that one is told of the file, not of blocks."""
    job = await place.open_job(job_id="late", config=ONE)
    message = await place.run_task(job, 0, dict.fromkeys("abc", b"late"))

    async def other_first(call: Call) -> None:
        if call.operation == "put_block_list" and call.path.name == "b":
            place.store.before_call = None
            await place.run_job({"b": b"early"}, job_id="early", delivery="message")

    place.store.before_call = other_first
    with pytest.raises(TargetExistsError) as caught:
        await job.commit([message], tasks=1)
    await job.close()
    assert caught.value.outcome == "unchanged"
    assert place.files() == {"b": b"early"}


async def test_blocks_gone_with_what_would_be_replaced_are_missed_before_the_decision(place: MemoryPlace) -> None:
    """Such a job could only go forward, and could not."""
    place.write("a", b"old")
    async with place.open_job(config=CommitterConfig(existing_target="replace")) as job:
        message = await place.run_task(job, 0, {"a": b"new", "b": b"new"})
        await place.run_job({"b": b"early"}, job_id="early", delivery="message")
        with pytest.raises(PreflightError, match="blocks of b are gone"):
            await job.commit([message], tasks=1)
        await job.abort()
    assert place.files() == {"a": b"old", "b": b"early"}


async def test_a_file_that_is_gone_with_its_blocks_is_not_known(place: MemoryPlace) -> None:
    """It may have been published, and deleted since: nothing is deleted, and the user says how it goes on."""
    job = await place.open_job(job_id="j", config=ONE)
    message = await place.run_task(job, 0, dict.fromkeys("abc", b"new"))

    async def drop(call: Call) -> None:
        if call.operation == "put_block_list" and call.path.name == "b":
            place.write("b", b"another")
            place.remove("b")

    place.store.before_call = drop
    with pytest.raises(OutcomeUnknownError, match="its blocks are gone"):
        await job.commit([message], tasks=1)
    await job.close()
    place.store.before_call = None
    assert place.files() == {"a": b"new"}
    with pytest.raises(OutcomeUnknownError):
        await place.recover("j")
    assert not (await place.recover("j", rollback=True)).success
    assert place.files() == {}


async def test_blocks_a_week_old_are_missed_before_a_decision(
    place: MemoryPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.open_job() as job:
        message = await place.run_task(job, 0, {"x": b"1"})
        for waiting in place.space.blocks._waiting.values():
            waiting.last_put -= timedelta(days=8).total_seconds()
        for path, file in list(place.space.tree):
            if file is not None and path.name == "blocks":
                monkeypatch.setattr(file, "modified", (file.modified or 0) - timedelta(days=8).total_seconds())
        with pytest.raises(PreflightError, match="a week old"):
            await job.commit([message], tasks=1)
        await job.abort()
    assert place.files() == {}


# -- what comes late ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rollback", [True, False])
async def test_a_list_that_arrives_after_the_end_of_its_job_makes_no_file(place: MemoryPlace, rollback: bool) -> None:
    """Its driver died with the request under way. The rollback, or the recovery, used the blocks up."""
    job = await place.open_job(job_id="j", config=ONE)
    message = await place.run_task(job, 0, dict.fromkeys("abc", b"new"))
    await dies_with_a_late_list(place, job, message)
    assert set(place.files()) == {"a"}
    late = place.store.under_way
    place.store = FaultyStore(place.space.store())
    assert (await place.recover("j", rollback=rollback)).success is not rollback
    if not rollback:
        place.remove("b")
    await asyncio.gather(*late)
    assert set(place.files()) == (set() if rollback else {"a", "c"})


# -- operators ------------------------------------------------------------------------------------------------------


async def test_an_operator_is_told_that_blocks_are_no_uploads(place: MemoryPlace) -> None:
    with pytest.raises(UnsupportedError, match="no call drops them") as caught:
        await committer.list_uploads(place.dest, storage_options=place.options)
    assert "a week" in caught.value.next_step


async def test_a_job_whose_tasks_began_to_write_is_as_young_as_that(place: MemoryPlace) -> None:
    """It leaves nothing else in its directory until a task commits."""
    job = await place.open_job(job_id="j")
    for path, file in list(place.space.tree):
        if file is not None and "/j/" in path.path:
            file.modified = (file.modified or 0) - timedelta(days=3).total_seconds()
    async with place.open_task(job.spec, 0) as task, task.open("x") as file:
        await file.write(b"x")
        kept = await committer.cleanup(place.dest, older_than=timedelta(days=1), storage_options=place.options)
        assert kept.removed == []
    await job.abort()


async def test_a_job_of_hadoops_cannot_be_joined(place: MemoryPlace) -> None:
    spec = committer.JobSpec.for_hadoop(place.dest, "job_202611210000_0001")
    with pytest.raises((UnsupportedError, committer.errors.JobNotFoundError)):
        async with committer.attach_job(spec, storage_options=place.options) as job:
            await job.commit()


async def test_an_upload_without_parts_is_no_record_where_there_are_uploads() -> None:
    """Only an empty file of blocks names none."""
    place = MemoryPlace("s3", delivery="message")
    async with place.open_job() as job:
        message = await place.run_task(job, 0, {"x": b"1"})
        [name] = [name for name in place.all_files() if name.endswith("-manifest.json")]
        assert message.inline
        record = msgspec.json.decode(message.inline)
        record["files"][0]["u"]["etags"] = []
        forged = msgspec.json.encode(record)

        place.write(name, forged)
        wrong = msgspec.structs.replace(message, inline=forged.decode(), digest=digest_of(forged), length=len(forged))
        with pytest.raises(RecordError, match="without parts"):
            await job.commit([wrong], tasks=1)
        await job.abort()
