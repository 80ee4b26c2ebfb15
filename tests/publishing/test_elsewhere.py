"""A commit whose files workers publish: the same result, whatever becomes of the workers."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

import msgspec
import pytest

import committer
from committer import CommitterConfig
from committer.api.publishing import PublishAccount, PublishChunk
from committer.errors import OutcomeUnknownError, TargetExistsError
from committer.records.success import decode_success
from committer.stages.load import load_records
from committer.testing.faults import Fault, SimulatedCrash
from tests.neighbours.meeting import Connection, Party, Table
from tests.processes.test_overtaken_drivers import (
    CONFIGS,
    FENCING,
    OLD,
    PROFILES,
    complete,
    is_complete,
    is_untouched,
    table_and_driver,
    written,
)
from tests.publishing.pools import TablePool

EVERYWHERE = (*PROFILES, "s3", "azure-flat")


async def commit(party: Party, pool: TablePool) -> Party:
    """Commits by the pool; keeps what comes of it."""
    try:
        party.report = await party.driver.commit(party.messages, publish_with=pool)
    except committer.CommitterError as error:
        party.error = error
    return party


@pytest.mark.parametrize("delivery", ["listing", "message"])
@pytest.mark.parametrize("mode", CONFIGS)
@pytest.mark.parametrize("profile", EVERYWHERE)
async def test_the_result_is_that_of_one_driver(profile: str, mode: str, delivery: str) -> None:
    table, party = await table_and_driver(profile, mode, delivery)
    pool = TablePool(table)
    await commit(party, pool)
    assert party.error is None, party.error
    assert is_complete(table, mode), table.temporary()
    assert party.report is not None
    assert party.report.files_committed == len(written(mode))
    assert len(party.report.filenames) == len(written(mode))
    assert pool.chunks
    assert all(account.problem == "" for account in pool.accounts), pool.accounts
    assert [chunk.number for chunk in pool.chunks] == list(range(len(pool.chunks)))


@pytest.mark.parametrize("committer_name", ["file-v1", "file-v2", "directory"])
async def test_every_committer_takes_a_pool(committer_name: str, tmp_path: object) -> None:
    table = Table("s3" if committer_name == "directory" else "local", OLD)
    async with committer.open_job(table.dest, committer=committer_name, storage_options=table.options) as job:
        async with job.task_attempt(0) as task:
            for name, data in written("append").items():
                async with task.open(name) as file:
                    await file.write(data)
        pool = TablePool(table)
        report = await job.commit(publish_with=pool)
    assert table.files() == complete("append")
    assert report.files_committed == len(written("append"))
    # Tasks of file-v2 published by themselves.
    assert bool(pool.chunks) == (committer_name != "file-v2")


async def dies(_chunk: PublishChunk) -> PublishAccount:
    raise OSError("the worker died")


async def is_stopped(_chunk: PublishChunk) -> PublishAccount:
    raise asyncio.CancelledError


async def says_nothing(_chunk: PublishChunk) -> PublishAccount:
    return None  # type: ignore[return-value]


async def lacks_the_store(chunk: PublishChunk) -> PublishAccount:
    return PublishAccount.of_problem(chunk, "over", OSError("there is no such disk here"))


async def tells_of_another(chunk: PublishChunk) -> PublishAccount:
    account = PublishAccount(
        number=chunk.number, driver=chunk.driver, digest=chunk.digest, files=chunk.files, size=chunk.size
    )
    return msgspec.structs.replace(account, digest="0" * 64)


@pytest.mark.parametrize("instead", [dies, is_stopped, says_nothing, lacks_the_store, tells_of_another])
@pytest.mark.parametrize("profile", ["local", "gcs", "s3"])
async def test_the_driver_publishes_what_no_worker_answers_for(
    profile: str, instead: Callable[[PublishChunk], Awaitable[PublishAccount]], caplog: pytest.LogCaptureFixture
) -> None:
    table, party = await table_and_driver(profile, "append")
    with caplog.at_level(logging.WARNING):
        await commit(party, TablePool(table, instead=instead))
    assert party.error is None, party.error
    assert is_complete(table, "append")
    assert "its driver does that" in caplog.text


@pytest.mark.parametrize("profile", EVERYWHERE)
async def test_a_worker_that_dies_after_it_published(profile: str) -> None:
    table, party = await table_and_driver(profile, "overwrite")
    pool = TablePool(table)

    async def answer_is_lost(chunk: PublishChunk) -> PublishAccount:
        await pool.work(chunk)
        raise ConnectionError("gone")

    pool.instead = answer_is_lost
    await commit(party, pool)
    assert party.error is None, party.error
    assert is_complete(table, "overwrite")


@pytest.mark.parametrize("profile", EVERYWHERE)
async def test_a_chunk_that_two_workers_carry_out_side_by_side(profile: str) -> None:
    table, party = await table_and_driver(profile, "replace")
    pool = TablePool(table)

    async def twice(chunk: PublishChunk) -> PublishAccount:
        return (await asyncio.gather(pool.work(chunk), pool.work(chunk)))[0]

    pool.instead = twice
    await commit(party, pool)
    assert party.error is None, party.error
    assert is_complete(table, "replace")
    assert party.report is not None
    assert party.report.files_committed == len(written("replace"))


@pytest.mark.parametrize("number", range(1, 8))
@pytest.mark.parametrize("profile", ["local", "s3"])
async def test_a_worker_dies_at_each_of_its_calls(profile: str, number: int) -> None:
    table, party = await table_and_driver(profile, "append")
    pool = TablePool(table)
    first = True

    async def killed(chunk: PublishChunk) -> PublishAccount:
        nonlocal first
        if not first:
            return await pool.work(chunk)
        first = False
        store = Connection(table.space)
        store.faults.append(Fault(kind="crash_after", call=number))
        try:
            return await committer.publish_chunk(chunk, {"store": store})
        except SimulatedCrash:
            raise OSError("killed") from None

    pool.instead = killed
    await commit(party, pool)
    assert party.error is None, party.error
    assert is_complete(table, "append")


def take_target(table: Table, pool: TablePool, name: str) -> None:
    """Another program writes a file where one goes, right before the first chunk."""

    async def take(chunk: PublishChunk) -> PublishAccount:
        table.write(name, b"foreign")
        pool.instead = None
        return await pool.work(chunk)

    pool.instead = take


@pytest.mark.parametrize("profile", [*FENCING, "s3"])
async def test_a_refusal_takes_the_job_back(profile: str) -> None:
    table, party = await table_and_driver(profile, "append")
    pool = TablePool(table)
    take_target(table, pool, "q=1/r=1/new")
    await commit(party, pool)
    assert isinstance(party.error, TargetExistsError), party.error
    assert party.error.outcome == "unchanged"
    assert "refused" in {account.problem for account in pool.accounts}
    assert table.files() == {**OLD, "q=1/r=1/new": b"foreign"}
    table.remove("q=1/r=1/new" if profile == "s3" else "q=1")
    assert is_untouched(table), (table.files(), table.temporary())


async def test_without_a_fence_a_refusal_is_not_taken_back_by_itself() -> None:
    """A worker may still be at work: of the driver's own calls it is known that they ended, of those it is not."""
    table, party = await table_and_driver("gcs", "append")
    pool = TablePool(table)
    take_target(table, pool, "q=1/r=1/new")
    await commit(party, pool)
    assert party.error is not None
    assert party.error.outcome == "partial", party.error
    assert "rollback=True" in str(party.error), party.error
    assert "force=True" in str(party.error), party.error
    await committer.recover(table.dest, "job", rollback=True, force=True, storage_options=table.options)
    assert table.files() == {**OLD, "q=1/r=1/new": b"foreign"}


async def test_after_a_refusal_no_chunk_is_given_out() -> None:
    table, party = await table_and_driver("local", "append")
    pool = TablePool(table, number=1)
    take_target(table, pool, "p=0/new-0")
    await commit(party, pool)
    assert isinstance(party.error, TargetExistsError)
    problems = [account.problem for account in pool.accounts]
    assert problems.count("refused") == 1
    assert problems[-1] == "refused"


async def test_what_cannot_be_told_stops_the_commit() -> None:
    table, party = await table_and_driver("local", "append")
    pool = TablePool(table)

    async def loses_a_file(chunk: PublishChunk) -> PublishAccount:
        source = next(name for name in table.temporary() if name.endswith("q=1/r=1/new"))
        table.remove(source)
        pool.instead = None
        return await pool.work(chunk)

    pool.instead = loses_a_file
    await commit(party, pool)
    assert isinstance(party.error, OutcomeUnknownError), party.error
    assert "unknown" in {account.problem for account in pool.accounts}
    assert (
        "_SUCCESS" not in table.all_files() or decode_success(table.all_files()["_SUCCESS"], source="").jobId != "job"
    )


async def test_what_failed_at_a_worker_and_at_the_driver_leaves_a_decided_job() -> None:
    table, party = await table_and_driver("adls", "append")
    party.store.faults.append(Fault(kind="forbidden", operation="rename_file", path="/table/q=1/r=1/new", times=None))
    await commit(party, TablePool(table, instead=dies))
    assert party.error is not None
    assert party.error.outcome == "partial"
    report = await committer.recover(table.dest, "job", storage_options=table.options)
    assert report.success
    assert is_complete(table, "append")


async def test_the_driver_is_cancelled_while_workers_publish() -> None:
    table, party = await table_and_driver("local", "append")
    pool = TablePool(table)
    waiting = asyncio.Event()

    async def hangs(_chunk: PublishChunk) -> PublishAccount:
        waiting.set()
        await asyncio.Event().wait()
        raise AssertionError

    pool.instead = hangs
    running = asyncio.create_task(party.driver.commit(publish_with=pool))
    await waiting.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await committer.recover(table.dest, "job", storage_options=table.options)
    assert is_complete(table, "append")


async def test_the_rate_is_shared_out_and_regained() -> None:
    table = Table("local")
    config = CommitterConfig(io_rate=1_000.0)
    party = await table.job("job", {f"part-{number:03}": b"x" for number in range(64)}, config)
    pool = TablePool(table, number=4)
    under_way: list[float] = []
    most = 0.0

    async def one_is_lost(chunk: PublishChunk) -> PublishAccount:
        nonlocal most
        assert chunk.rate is not None
        under_way.append(chunk.rate)
        most = max(most, sum(under_way))
        await asyncio.sleep(0)
        try:
            if len(pool.chunks) == 6:
                pool.number = 2
                raise OSError("the machine is gone")
            return await pool.work(chunk)
        finally:
            under_way.remove(chunk.rate)

    pool.instead = one_is_lost
    report = await party.driver.commit(publish_with=pool)
    assert report.files_committed == 64
    assert most <= 1_000.0 + 1e-6
    assert pool.chunks[0].rate == 250.0
    assert pool.chunks[-1].rate == 500.0


async def test_a_job_that_replaces_without_links_is_forward_only_in_every_chunk() -> None:
    """A file written to a target since the decision is replaced where the job as a whole cannot be rolled back."""
    table = Table("adls", {"old": b"old"})
    new = {"old": b"new", **{f"part-{number}": b"new" for number in range(8)}}
    party = await table.job("job", new, CommitterConfig(existing_target="replace"))
    pool = TablePool(table)

    async def take(chunk: PublishChunk) -> PublishAccount:
        assert chunk.forward_only
        if chunk.number == 0:
            for number in range(8):
                table.write(f"part-{number}", b"came since")
        return await pool.work(chunk)

    pool.instead = take
    await commit(party, pool)
    assert party.error is None, party.error
    assert table.files() == new
    assert all(account.problem == "" for account in pool.accounts), pool.accounts


async def test_more_files_than_are_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_records, "ENTRIES_IN_MEMORY", 10)
    table = Table("local")
    files = {f"p={number % 5}/part-{number:03}": b"x" for number in range(120)}
    party = await table.job("job", files)
    pool = TablePool(table)
    await commit(party, pool)
    assert party.error is None, party.error
    assert table.files() == files
    assert math.fsum(chunk.files for chunk in pool.chunks) == 120


async def test_no_call_more_for_a_driver_that_publishes_itself() -> None:
    calls = []
    for pool_of in (lambda _table: None, TablePool):
        table, party = await table_and_driver("local", "append")
        await party.driver.commit(publish_with=pool_of(table))
        calls.append(party.store.count())
    alone, with_pool = calls
    assert with_pool == alone - len(written("append"))


async def test_a_store_that_refuses_workers_only() -> None:
    table, party = await table_and_driver("s3", "append")
    pool = TablePool(table)

    async def refused(chunk: PublishChunk) -> PublishAccount:
        store = Connection(table.space)
        store.faults.append(Fault(kind="forbidden", times=None))
        return await committer.publish_chunk(chunk, {"store": store})

    pool.instead = refused
    await commit(party, pool)
    assert party.error is None, party.error
    assert is_complete(table, "append")
