"""Whole jobs on the emulated bucket: each ends as it must, whatever happens to answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

import committer
import committer.sync
from committer.errors import CommitterError, JobUndecidedError
from committer.testing.emulators.gcs import Fault, GcsEmulator, serve
from tests.stores.gcs_bucket import ROOT, BucketChannel

DEST = ROOT / "table"
FILES = {f"year={2000 + task}/part-{number:05}.csv": b"x" * number for task in range(3) for number in range(8)}


@pytest.fixture
async def emulator() -> AsyncIterator[GcsEmulator]:
    async with serve() as emulator:
        emulator.make_bucket("data")
        yield emulator


@pytest.fixture
def options(emulator: GcsEmulator) -> dict[str, object]:
    return {"endpoint": emulator.url}


async def visible(emulator: GcsEmulator) -> dict[str, bytes]:
    found = await BucketChannel(emulator, DEST).files()
    return {name: data for name, data in found.items() if not name.startswith("_")}


async def write_tasks(job: committer.Job) -> None:
    for number in range(3):
        async with job.task_attempt(task=number, attempt=0) as task:
            for name, data in FILES.items():
                if name.startswith(f"year={2000 + number}/"):
                    async with task.open(name) as file:
                        await file.write(data)


def file_moves(emulator: GcsEmulator) -> Counter[str]:
    """How often each file's rename was done: sent, and not refused."""
    return Counter(
        entry.source
        for entry in emulator.conduct.log
        if entry.operation == "move" and "/tasks/" in entry.source and entry.status in (0, 200)
    )


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_a_job(emulator: GcsEmulator, options: dict[str, object], delivery: str) -> None:
    async with committer.open_job(DEST.uri, delivery=delivery, storage_options=options) as job:
        await write_tasks(job)
        assert await visible(emulator) == {}
        report = await job.commit(tasks=3)
    assert (report.success, report.files_committed, report.renames_recovered) == (True, len(FILES), 0)
    assert await visible(emulator) == FILES
    found = await BucketChannel(emulator, DEST).files()
    assert set(found) == {*FILES, "_SUCCESS"}
    assert (await committer.validate(DEST.uri, storage_options=options)).ok
    ids = [entry.client_request_id for entry in emulator.conduct.log if entry.operation in {"move", "insert", "delete"}]
    assert len(ids) == len(set(ids))
    assert "" not in ids


async def test_every_rename_loses_its_answer(emulator: GcsEmulator, options: dict[str, object]) -> None:
    emulator.conduct.faults.append(Fault("reset-after", operation="move"))
    async with committer.open_job(DEST.uri, storage_options=options) as job:
        await write_tasks(job)
        report = await job.commit(tasks=3)
    assert (report.success, report.files_committed, report.renames_recovered) == (True, len(FILES), len(FILES))
    assert await visible(emulator) == FILES
    done = file_moves(emulator)
    assert (len(done), set(done.values())) == (len(FILES), {1})


async def test_every_rename_is_refused_after_it_was_done(emulator: GcsEmulator, options: dict[str, object]) -> None:
    emulator.conduct.faults.append(
        Fault("error-after", operation="move", path_prefix="data/test/root/table/year=", status=404,
              code="notFound")
    )  # fmt: skip
    async with committer.open_job(DEST.uri, storage_options=options) as job:
        await write_tasks(job)
        report = await job.commit(tasks=3)
    assert (report.success, report.files_committed, report.renames_recovered) == (True, len(FILES), len(FILES))
    assert await visible(emulator) == FILES


@pytest.mark.parametrize("kind", ["reset", "reset-after"])
async def test_a_commit_that_stops_is_recovered(emulator: GcsEmulator, options: dict[str, object], kind: str) -> None:
    """Every rename of files fails from the fifth on; later another driver recovers the job."""
    failing = Fault(
        "error", operation="move", path_prefix="data/test/root/table/year=", skip=5, status=403,
        code="forbidden",
    )  # fmt: skip
    emulator.conduct.faults.append(failing)
    with pytest.raises(CommitterError):
        async with committer.open_job(DEST.uri, job_id="J", storage_options=options) as job:
            await write_tasks(job)
            await job.commit(tasks=3)
    assert 0 < len(await visible(emulator)) < len(FILES)
    emulator.conduct.faults[:] = [Fault(kind, operation="move", count=4)]  # type: ignore[arg-type]
    report = await committer.recover(DEST.uri, "J", storage_options=options)
    assert (report.success, report.files_committed) == (True, len(FILES))
    assert await visible(emulator) == FILES
    assert set(await BucketChannel(emulator, DEST).files()) == {*FILES, "_SUCCESS"}


async def test_a_commit_cancelled_anywhere_is_finished(emulator: GcsEmulator, options: dict[str, object]) -> None:
    """What a killed driver leaves, at six moments between the first call of a commit and its last."""
    for moment in range(0, 12, 2):
        name = f"J{moment}"
        dest = ROOT / name
        job = await committer.open_job(dest.uri, job_id=name, storage_options=options)
        await write_tasks(job)
        before = len(emulator.conduct.log)
        commit = asyncio.create_task(job.commit(tasks=3))
        while not commit.done() and len(emulator.conduct.log) < before + 6 * moment:
            await asyncio.sleep(0)
        commit.cancel()
        await asyncio.wait([commit])
        await job.close()
        report = await _finish(dest.uri, name, options)
        assert (report.success, report.files_committed) == (True, len(FILES)), moment
        found = await BucketChannel(emulator, dest).files()
        assert {one: data for one, data in found.items() if one != "_SUCCESS"} == FILES, moment


async def _finish(uri: str, job_id: str, options: dict[str, object]) -> committer.JobReport:
    try:
        return await committer.recover(uri, job_id, storage_options=options)
    except JobUndecidedError:
        async with committer.attach_job(uri, job_id=job_id, storage_options=options) as job:
            return await job.commit(tasks=3)


async def test_an_aborted_job_leaves_nothing(emulator: GcsEmulator, options: dict[str, object]) -> None:
    with pytest.raises(ZeroDivisionError):
        async with committer.open_job(DEST.uri, storage_options=options) as job:
            await write_tasks(job)
            raise ZeroDivisionError
    assert await BucketChannel(emulator, DEST).files() == {}


async def test_replacing(emulator: GcsEmulator, options: dict[str, object]) -> None:
    async with committer.open_job(DEST.uri, storage_options=options) as job:
        async with job.task_attempt(task=0, attempt=0) as task, task.open("year=2000/part-00000.csv") as file:
            await file.write(b"old")
    config = committer.CommitterConfig(existing_target="replace")
    async with committer.open_job(DEST.uri, config=config, storage_options=options) as job:
        await write_tasks(job)
        report = await job.commit(tasks=3)
    assert (report.files_committed, await visible(emulator)) == (len(FILES), FILES)


async def test_throttling_is_waited_out(emulator: GcsEmulator, options: dict[str, object]) -> None:
    emulator.conduct.faults.append(
        Fault("error", operation="move", path_prefix="data/test/root/table/year=", status=429, retry_after="0", count=6)
    )  # fmt: skip
    async with committer.open_job(DEST.uri, storage_options=options) as job:
        await write_tasks(job)
        report = await job.commit(tasks=3)
    assert await visible(emulator) == FILES
    counters = report.statistics.counters
    assert counters["store_io_throttled"] == 6


def test_the_blocking_names() -> None:
    async def serving(ready: asyncio.Event, stop: asyncio.Event, found: list[GcsEmulator]) -> None:
        async with serve() as emulator:
            emulator.make_bucket("data")
            found.append(emulator)
            ready.set()
            await stop.wait()

    async def main() -> None:
        ready, stop, found = asyncio.Event(), asyncio.Event(), list[GcsEmulator]()
        server = asyncio.create_task(serving(ready, stop, found))
        await ready.wait()
        options = {"endpoint": found[0].url}

        def work() -> None:
            with committer.sync.open_job(DEST.uri, storage_options=options) as job:
                with job.task_attempt(task=0, attempt=0) as task, task.open_blocking("a") as file:
                    file.write(b"1")

        await asyncio.to_thread(work)
        assert await visible(found[0]) == {"a": b"1"}
        stop.set()
        await server

    asyncio.run(main())
