"""A worker that stands still before each of its store calls, while others end the job, remove it, set its id up anew."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count

import msgspec
import pytest

import committer
from committer.errors import CommitterError
from committer.stages.publish import publish_elsewhere as chunks
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
from tests.publishing.pools import DriverDies, Worker

What = Callable[[Table, Worker], Awaitable[None]]

# Promoted directories are renamed by the driver.
MODES = ("append", "overwrite", "replace")
# A late completion finds its upload gone.
OUT_OF_REACH = (*FENCING, "s3", "azure-flat")
QUICK = {"local", "s3", "azure-flat"}
EVERYWHERE = [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in (*PROFILES, "s3", "azure-flat")
]
FENCED = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in OUT_OF_REACH]


@pytest.fixture(autouse=True)
def _one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_CHUNKS_A_WORKER", 1)


async def decided(profile: str, mode: str, delivery: str = "listing") -> tuple[Table, Worker]:
    """A job whose driver died when it gave out its only chunk, and the worker that has it."""
    table, party = await table_and_driver(profile, mode, delivery)
    pool = DriverDies()
    with pytest.raises(SimulatedCrash):
        await party.driver.commit(party.messages, publish_with=pool)
    assert pool.chunk.files == len(written(mode))
    return table, Worker(pool.chunk, Connection(table.space))


Check = Callable[[Table, Worker, int], Awaitable[None]]


async def at_every_call(profile: str, mode: str, what: What, check: Check, *faults: Fault) -> set[str]:
    """Runs the worker once for each of its calls, with `what` before that; returns what its accounts said."""
    said = set()
    for number in count(1):
        table, worker = await decided(profile, mode)
        worker.store.faults += [msgspec.structs.replace(fault) for fault in faults]

        async def happen(table: Table = table, worker: Worker = worker) -> None:
            await what(table, worker)

        await worker.run(number, happen)
        assert worker.account is not None
        said.add(worker.account.problem)
        await check(table, worker, number)
        if number > worker.store.count():
            break
    return said


async def recover(table: Table, _worker: Worker) -> None:
    report = await committer.recover(table.dest, "job", storage_options=table.options)
    assert report.success


async def roll_back(table: Table, _worker: Worker) -> None:
    await committer.recover(table.dest, "job", rollback=True, force=True, storage_options=table.options)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("profile", EVERYWHERE)
async def test_recovered_while_a_worker_stands_still(profile: str, mode: str) -> None:
    async def check(table: Table, worker: Worker, number: int) -> None:
        assert is_complete(table, mode), (number, worker.account, table.temporary())

    said = await at_every_call(profile, mode, recover, check)
    # Before its look; while it publishes, and its source is gone by then; after all.
    assert "over" in said
    assert "" in said


@pytest.mark.parametrize("mode", ["append", "replace"])
@pytest.mark.parametrize("profile", FENCED)
async def test_rolled_back_while_a_worker_stands_still(profile: str, mode: str) -> None:
    async def check(table: Table, worker: Worker, number: int) -> None:
        assert is_untouched(table), (number, worker.account, table.files(), table.temporary())

    said = await at_every_call(profile, mode, roll_back, check)
    assert {"over", "unknown"} <= said


@pytest.mark.parametrize("profile", [name for name in FENCED if name.values[0] in FENCING])
async def test_rolled_back_while_a_worker_whose_rename_failed_stands_still(profile: str) -> None:
    """It makes the directory of its target again, and there is nothing to rename into it any more."""

    async def check(table: Table, worker: Worker, number: int) -> None:
        assert is_untouched(table), (number, worker.account, table.files(), table.temporary())

    await at_every_call(profile, "append", roll_back, check, Fault(kind="unanswered", operation="rename_file"))


@pytest.mark.parametrize("profile", EVERYWHERE)
async def test_a_later_job_replaced_its_files_while_a_worker_stood_still(profile: str) -> None:
    later = dict.fromkeys(written("append"), b"later")

    async def what(table: Table, worker: Worker) -> None:
        await recover(table, worker)
        party = await table.job("later", later, committer.CommitterConfig(conflict_mode="replace"))
        await party.commit()
        assert party.error is None, party.error

    async def check(table: Table, worker: Worker, number: int) -> None:
        assert {name: table.files()[name] for name in later} == later, (number, worker.account)
        assert table.files().keys() == complete("append").keys() - {"p=1/old", "p=1/same"}, number
        assert table.temporary() == set(), number

    await at_every_call(profile, "append", what, check)


@pytest.mark.parametrize("profile", FENCED)
async def test_the_id_was_set_up_anew_while_a_worker_stood_still(profile: str) -> None:
    new = {"p=0/other": b"anew", "p=0/new-0": b"anew"}

    async def what(table: Table, worker: Worker) -> None:
        await roll_back(table, worker)
        party = await table.job("job", new)
        await party.commit()
        assert party.error is None, party.error

    async def check(table: Table, worker: Worker, number: int) -> None:
        assert table.files() == {**OLD, **new}, (number, worker.account)
        assert table.temporary() == set(), number

    await at_every_call(profile, "append", what, check)


@pytest.mark.parametrize("profile", FENCED)
async def test_the_id_was_set_up_anew_and_is_open_while_a_worker_goes_on(profile: str) -> None:
    new, parties = {"p=0/new-0": b"anew"}, list[Party]()

    async def what(table: Table, worker: Worker) -> None:
        await roll_back(table, worker)
        parties.append(await table.job("job", new))

    async def check(table: Table, worker: Worker, number: int) -> None:
        assert table.files() == OLD, (number, worker.account)
        await parties[-1].commit()
        assert table.files() == {**OLD, **new}, number

    await at_every_call(profile, "append", what, check)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("profile", EVERYWHERE)
async def test_two_workers_with_one_chunk(profile: str, mode: str) -> None:
    async def what(table: Table, worker: Worker) -> None:
        other = Worker(worker.chunk, Connection(table.space))
        await other.run()
        assert other.account is not None
        assert other.account.is_of(worker.chunk), other.account

    async def check(table: Table, worker: Worker, number: int) -> None:
        assert worker.account is not None
        assert worker.account.is_of(worker.chunk), (number, worker.account)
        await recover(table, worker)
        assert is_complete(table, mode), number

    await at_every_call(profile, mode, what, check)


async def test_a_chunk_of_an_aborted_try_finds_another_decision() -> None:
    table, worker = await decided("local", "append")
    await roll_back(table, worker)
    party = await table.job("job", {"p=2/another": b"another"}, CONFIGS["append"])
    with pytest.raises(SimulatedCrash):
        await party.driver.commit(publish_with=DriverDies())
    await worker.run()
    assert worker.account is not None
    assert worker.account.problem == "over"
    assert table.files() == OLD


async def test_no_driver_hears_of_what_a_late_worker_met() -> None:
    """A late worker returns an account, and raises no exception that a pool would repeat for ever."""
    table, worker = await decided("adls", "append")
    await roll_back(table, worker)
    with pytest.raises(CommitterError):
        await committer.attach_job(table.dest, job_id="job", storage_options=table.options)
    await worker.run()
    assert worker.account is not None
    assert (worker.account.problem, worker.account.files) == ("over", 0)
