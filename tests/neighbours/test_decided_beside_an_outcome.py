"""A driver that stood still creates its decision when the job has ended, and a cleanup took the decision that counts.

Where late writes are taken the store cannot refuse it. The driver takes it back; one that dies first leaves it beside
the outcome, which tells how the job ended as long as it stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import committer
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.job_paths import has_in_job, in_job
from tests.neighbours.meeting import Connection, Party, Table

FILES = {"p=1/a": b"a", "p=2/b": b"b"}
LATE: dict[str, Callable[[committer.Job], Awaitable[object]]] = {
    "abort": lambda job: job.abort(),
    "commit of no task": lambda job: job.commit([]),
}


async def decides_late(
    table: Table,
    party: Party,
    late: Callable[[committer.Job], Awaitable[object]],
    waits: asyncio.Event,
    goes_on: asyncio.Event,
) -> None:
    """A second driver, which stands still before it decides, and dies when it has."""
    store = Connection(table.space)
    job = await committer.attach_job(party.driver.spec, storage_options={"store": store})

    async def before(call: Call) -> None:
        if (call.operation, call.path.name) == ("put", "decision"):
            waits.set()
            await goes_on.wait()

    store.before_call = before
    store.faults.append(Fault(kind="crash_after", operation="put", path=lambda path: path.name == "decision"))
    with pytest.raises(SimulatedCrash):
        await late(job)


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("profile", ["adls", "gcs", "s3"])
async def test_the_outcome_tells(profile: str, late: str) -> None:
    table = Table(profile)
    party = await table.job("job", FILES, delivery="message")
    waits, goes_on = asyncio.Event(), asyncio.Event()
    second = asyncio.create_task(decides_late(table, party, LATE[late], waits, goes_on))
    await waits.wait()

    async def dies_beside_the_outcome(call: Call) -> None:
        stands = {name.rpartition("/")[2] for name in table.all_files() if name.count("/") == 2}
        if "outcome" in stands and not {"setup", "decision"} & stands:
            goes_on.set()
            await second
            party.store.crashed = True

    party.store.before_call = dies_beside_the_outcome
    with pytest.raises(SimulatedCrash):
        await party.commit()
    assert has_in_job(table, "job", "decision")
    [info] = await committer.list_jobs(table.dest, storage_options=table.options)
    assert (info.state, info.files) == ("committed", len(FILES))
    report = await committer.recover(table.dest, "job", storage_options=table.options)
    assert (report.success, report.files_committed) == (True, len(FILES))
    assert table.files() == FILES
    assert table.temporary() == set()


@pytest.mark.parametrize("profile", ["adls", "gcs", "s3"])
async def test_success_tells_beside_a_setup_record_that_comes_late_as_well(profile: str) -> None:
    """Found by a search over pairs of late calls: nothing could end what looked like a job that died."""
    table = Table(profile)
    party = await table.job("job", FILES, delivery="message")
    setup = table.all_files()[in_job(table, "job", "setup")]
    waits, goes_on = asyncio.Event(), asyncio.Event()

    async def same(job: committer.Job) -> None:
        await job.commit(party.messages)

    second = asyncio.create_task(decides_late(table, party, same, waits, goes_on))
    await waits.wait()
    await party.commit()
    assert party.error is None
    goes_on.set()
    await second
    table.write(in_job(table, "job", "setup"), setup)
    report = await committer.recover(table.dest, "job", storage_options=table.options)
    assert (report.success, report.files_committed) == (True, len(FILES))
    assert table.files() == FILES
    assert table.temporary() == set()
