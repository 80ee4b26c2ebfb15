"""What an earlier try of a batch may leave, and how the next one ends it; without Spark."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyspark")

import committer
from committer import CommitterConfig, JobSpec, TaskCommit
from committer.errors import JobDecidedError, JobNotFoundError, RecordError, TaskMissingError, UnsupportedError
from committer.spark.micro_batches import batch_job_id, end_earlier_try, enter_batch, forget_batch, options_of_batches
from committer.spark.options import WriteOptions
from committer.spark.spark_task import WriterCommitMessage
from committer.spark.stream_writer import BatchMessage, CommitterStreamWriter
from committer.stores.local import LocalStore
from committer.testing.faults import Fault, FaultyStore, SimulatedCrash
from tests.job_paths import KEPT, in_job

JOB = batch_job_id("q", 7)
CONFIG = CommitterConfig(outcome_kept=True)


def options(table: Path) -> WriteOptions:
    return WriteOptions(path=str(table), config=CONFIG)


@pytest.mark.parametrize(("given", "waits_s"), [(None, 300), (0.0, 0), (2.5, 2.5)])
def test_a_batch_waits_for_jobs_that_are_in_its_way(tmp_path: Path, given: float | None, waits_s: float) -> None:
    asked = WriteOptions(path=str(tmp_path), config=CommitterConfig(busy_timeout=given))
    assert options_of_batches(asked).config == CommitterConfig(outcome_kept=True, busy_timeout=waits_s)


async def task(spec: JobSpec, number: int, name: str) -> TaskCommit:
    async with committer.open_task(spec, task=number) as handle:
        async with handle.open(f"part-{name}") as file:
            await file.write(name.encode())
    return handle.task_commit


async def commit(table: Path, *messages: TaskCommit) -> None:
    async with committer.attach_job(table, job_id=JOB) as job:
        await job.commit(messages, tasks=len(messages))


def names(table: Path) -> set[str]:
    return {path.name for path in table.iterdir() if path.is_file() and path.name != "_SUCCESS"}


async def state(table: Path) -> str | None:
    return {job.job_id: job.state for job in await committer.list_jobs(table)}.get(JOB)


async def enter(table: Path) -> JobSpec:
    spec = await enter_batch(options(table), JOB)
    assert spec is not None
    return spec


def test_ids_are_those_of_query_batch_and_sink() -> None:
    ids = [batch_job_id(*key) for key in (("q", 7), ("q", 8), ("r", 7), ("q", 7, "s"), ("q7", 7), ("q", 77))]
    assert len(set(ids)) == len(ids)
    # On the disks of streams that run: it must never change.
    assert batch_job_id("0b7f8c1e-2a3d-4e5f-8a9b-0c1d2e3f4a5b", 12) == "e4b1e519-75be-58a6-8b76-6d6d138f2e18"


@pytest.mark.parametrize("name", ["_spark_metadata", "_delta_log"])
async def test_a_log_of_another_writer_refuses_a_batch_before_it_is_set_up(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "0").write_bytes(b"v1")
    with pytest.raises(UnsupportedError, match=name):
        await enter_batch(options(tmp_path), JOB)
    assert [path.name for path in tmp_path.iterdir()] == [name]


async def test_tasks_set_one_job_up_side_by_side(tmp_path: Path) -> None:
    specs = await asyncio.gather(*(enter_batch(options(tmp_path), JOB) for _task in range(8)))
    assert {spec.job_id for spec in specs if spec is not None} == {JOB}
    assert None not in specs
    messages = [await task(spec, number, str(number)) for number, spec in enumerate(specs) if spec is not None]
    await commit(tmp_path, *messages)
    assert len(names(tmp_path)) == 8
    assert await enter_batch(options(tmp_path), JOB) is None


async def test_attempts_of_an_earlier_try_do_not_win(tmp_path: Path) -> None:
    """Its driver died before the commit; one of its tasks still runs, and ends after the new try's."""
    old = await enter(tmp_path)
    await task(old, 0, "old")
    async with committer.open_task(old, task=1, attempt=1) as zombie:
        async with zombie.open("part-zombie") as file:
            await file.write(b"zombie")
        new = await enter(tmp_path)
        messages = [await task(new, number, f"new-{number}") for number in range(2)]
    await commit(tmp_path, *messages)
    assert names(tmp_path) == {"part-new-0", "part-new-1"}
    assert {path.name for path in in_job(tmp_path, JOB).iterdir()} == KEPT


async def test_a_task_of_an_earlier_try_finds_its_job_over(tmp_path: Path) -> None:
    old = await enter(tmp_path)
    with pytest.raises((JobNotFoundError, JobDecidedError)):
        async with committer.open_task(old, task=0) as zombie:
            async with zombie.open("part-zombie") as file:
                await file.write(b"zombie")
            await commit(tmp_path, await task(await enter(tmp_path), 0, "new"))
    assert names(tmp_path) == {"part-new"}
    assert await end_earlier_try(options(tmp_path), JOB) == "committed"


@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
async def test_a_commit_killed_at_any_call_is_committed_once_or_not_at_all(tmp_path: Path, kind: str) -> None:
    ends: set[str] = set()
    for number in range(1, 200):
        table = tmp_path / f"{kind}-{number}"
        message = await task(await enter(table), 0, "old")
        dies = FaultyStore(LocalStore(threads=1))
        try:
            async with committer.attach_job(table, job_id=JOB, storage_options={"store": dies}) as job:
                dies.calls.clear()
                dies.faults.append(Fault(kind=kind, call=number))  # type: ignore[arg-type]
                await job.commit([message], tasks=1)
        except SimulatedCrash:
            await dies.inner.close()
        else:
            await dies.inner.close()
            break
        spec = await enter_batch(options(table), JOB)
        if spec is not None:
            await commit(table, await task(spec, 0, "new"))
        ends.add("repeated" if spec is not None else "finished")
        assert names(table) == ({"part-new"} if spec is not None else {"part-old"}), number
        assert await enter_batch(options(table), JOB) is None
        assert await state(table) == "committed"
    assert 10 < number < 199
    assert ends == {"repeated", "finished"}


@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
async def test_a_setup_or_an_abort_killed_at_any_call_is_begun_again(tmp_path: Path, kind: str) -> None:
    for what in ("setup", "abort"):
        for number in range(1, 200):
            table = tmp_path / f"{what}-{number}"
            dies = FaultyStore(LocalStore(threads=1), [Fault(kind=kind, call=number)])  # type: ignore[arg-type]
            try:
                if what == "setup":
                    job = await committer.open_job(
                        table, job_id=JOB, delivery="message", config=CONFIG, storage_options={"store": dies}
                    )
                    await job.close()
                else:
                    await task(await enter(table), 0, "old")
                    async with committer.attach_job(table, job_id=JOB, storage_options={"store": dies}) as job:
                        await job.abort()
                await dies.inner.close()
                break
            except SimulatedCrash:
                await dies.inner.close()
            await commit(table, await task(await enter(table), 0, "new"))
            assert names(table) == {"part-new"}, (what, number)
        assert 5 < number < 199


async def test_what_was_about_to_be_decided_and_is_refused_does_not_block_the_batch(tmp_path: Path) -> None:
    """Its driver died between intent and decision, and another program put a file in its way since."""
    message = await task(await enter(tmp_path), 0, "old")
    dies = FaultyStore(LocalStore(threads=1), [Fault(kind="crash_before", operation="put", path="decision")])
    dies.faults.append(Fault(kind="crash_before", operation="rename_file", path="decision"))
    with pytest.raises(SimulatedCrash):
        async with committer.attach_job(tmp_path, job_id=JOB, storage_options={"store": dies}) as job:
            await job.commit([message], tasks=1)
    await dies.inner.close()
    (tmp_path / "part-old").write_text("another job's")
    assert await end_earlier_try(options(tmp_path), JOB) == "nothing"
    await commit(tmp_path, await task(await enter(tmp_path), 0, "new"))
    assert names(tmp_path) == {"part-old", "part-new"}


async def test_a_batch_is_not_written_again_when_all_that_tells_of_it_is_damaged(tmp_path: Path) -> None:
    await commit(tmp_path, await task(await enter(tmp_path), 0, "new"))
    await forget_batch(options(tmp_path), "q", 7)
    (tmp_path / "_SUCCESS").write_text('{"name" : "org')
    with pytest.raises(RecordError, match="is not known"):
        await end_earlier_try(options(tmp_path), JOB)


async def test_forgetting_a_batch(tmp_path: Path) -> None:
    await commit(tmp_path, await task(await enter(tmp_path), 0, "new"))
    await forget_batch(options(tmp_path), "q", 6)
    await forget_batch(options(tmp_path), "q", -1)
    assert await state(tmp_path) == "committed"
    await forget_batch(options(tmp_path), "q", 7)
    assert await state(tmp_path) is None
    assert names(tmp_path) == {"part-new"}


# -- commit and abort, as Spark calls them -------------------------------------------------------------------------


def message(commit: TaskCommit | None) -> BatchMessage:
    return BatchMessage(commit.encode() if commit is not None else b"", "q")


def writer(table: Path) -> CommitterStreamWriter:
    return CommitterStreamWriter(options(table), None)  # type: ignore[arg-type]


def test_commit_abort_and_commit_again(tmp_path: Path) -> None:
    async def two() -> list[TaskCommit]:
        spec = await enter(tmp_path)
        return [await task(spec, number, str(number)) for number in range(2)]

    first, second = asyncio.run(two())
    with pytest.raises(TaskMissingError, match="partition 1 of 2 has no"):
        writer(tmp_path).commit([message(first), None], 7)
    writer(tmp_path).abort([message(first), None], 7)
    assert not (tmp_path / "_temporary").exists()
    messages = [message(one) for one in asyncio.run(two())]
    for _again in range(2):
        writer(tmp_path).commit([*messages], 7)
        writer(tmp_path).abort([*messages], 7)
        writer(tmp_path).commit([message(None), message(None)], 7)
        assert names(tmp_path) == {"part-0", "part-1"}
    assert second.task == 1


def test_abort_where_no_task_succeeded_leaves_the_job_to_the_next_try(tmp_path: Path) -> None:
    asyncio.run(enter(tmp_path))
    writer(tmp_path).abort([None, None], 7)
    assert asyncio.run(state(tmp_path)) == "open"


def test_tasks_that_saw_a_commit_that_is_gone_fail_the_batch(tmp_path: Path) -> None:
    with pytest.raises(JobNotFoundError):
        writer(tmp_path).commit([message(None)], 7)


def test_messages_of_another_batch_or_query_are_refused(tmp_path: Path) -> None:
    spec = asyncio.run(enter(tmp_path))
    right, other = asyncio.run(task(spec, 0, "right")), batch_job_id("q", 6)
    foreign = msgspec.structs.replace(right, job_id=other)
    with pytest.raises(RecordError):
        writer(tmp_path).commit([message(foreign)], 7)
    with pytest.raises(RecordError, match="not a task commit message"):
        writer(tmp_path).commit([message(right), WriterCommitMessage()], 7)
    assert names(tmp_path) == set()
