"""Whole jobs on emulated services: each ends as it must, whatever happens to answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

import committer
import committer.sync
from committer.errors import CommitterError, JobUndecidedError
from committer.flow.runtime import SystemRuntime, use_runtime
from tests.stores.emulated_lake import LAKES, EmulatedLake, serve_lake

FILES = {f"year={2000 + task}/part-{number:05}.csv": b"x" * number for task in range(3) for number in range(8)}


@pytest.fixture(params=LAKES)
async def lake(request: pytest.FixtureRequest) -> AsyncIterator[EmulatedLake]:
    async with serve_lake(request.param) as lake:
        yield lake


@pytest.fixture
def dest(lake: EmulatedLake) -> str:
    return (lake.root / "table").uri


async def visible(lake: EmulatedLake) -> dict[str, bytes]:
    found = await lake.files(lake.root / "table")
    return {name: data for name, data in found.items() if not name.startswith("_")}


async def write_tasks(job: committer.Job) -> None:
    for number in range(3):
        async with job.task_attempt(task=number, attempt=0) as task:
            for name, data in FILES.items():
                if name.startswith(f"year={2000 + number}/"):
                    async with task.open(name) as file:
                        await file.write(data)


class Ahead(SystemRuntime):
    """A machine whose clock is thirty days ahead."""

    def now(self) -> datetime:
        return super().now() + timedelta(days=30, hours=1)


async def test_a_cleanup_by_age_goes_by_the_clock_of_the_store(
    lake: EmulatedLake, dest: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = await committer.open_job(dest, job_id="alive", storage_options=lake.options)
    await job.close()
    with use_runtime(Ahead()):
        report = await committer.cleanup(dest, older_than=timedelta(days=7), storage_options=lake.options)
        assert (report.removed, report.kept) == ([], {"alive": "it is younger"})
        assert report.clock_ahead_s == pytest.approx(30 * 86400 + 3600, abs=60)
        assert "clock is 30 d " in caplog.text
        report = await committer.cleanup(dest, older_than=0, storage_options=lake.options)
        assert report.removed == ["alive"]
    caplog.clear()
    report = await committer.cleanup(dest, older_than=timedelta(days=7), storage_options=lake.options)
    assert (report.clock_ahead_s, caplog.text) == (None, "")


def file_renames(lake: EmulatedLake) -> Counter[str]:
    """How often each file's rename was done: sent, and not refused."""
    return Counter(
        entry.source
        for entry in lake.conduct.log
        if entry.operation == lake.rename and "/tasks/" in entry.source and entry.status in lake.renamed
    )


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_a_job(lake: EmulatedLake, dest: str, delivery: str) -> None:
    async with committer.open_job(dest, delivery=delivery, storage_options=lake.options) as job:
        await write_tasks(job)
        assert await visible(lake) == {}
        report = await job.commit(tasks=3)
    assert (report.success, report.files_committed, report.renames_recovered) == (True, len(FILES), 0)
    assert await visible(lake) == FILES
    found = await lake.files(lake.root / "table")
    assert set(found) == {*FILES, "_SUCCESS"}
    assert (await committer.validate(dest, storage_options=lake.options)).ok
    lake.check_requests(report.job_id, len(FILES))


async def test_every_rename_loses_its_answer(lake: EmulatedLake, dest: str) -> None:
    lake.fail("reset-after")
    async with committer.open_job(dest, storage_options=lake.options) as job:
        await write_tasks(job)
        report = await job.commit(tasks=3)
    assert (report.success, report.files_committed, report.renames_recovered) == (True, len(FILES), len(FILES))
    assert await visible(lake) == FILES
    done = file_renames(lake)
    assert (len(done), set(done.values())) == (len(FILES), {1})


async def test_every_rename_is_refused_after_it_was_done(lake: EmulatedLake, dest: str) -> None:
    lake.fail("error-after", files_only=True, **lake.gone)
    async with committer.open_job(dest, storage_options=lake.options) as job:
        await write_tasks(job)
        report = await job.commit(tasks=3)
    assert (report.success, report.files_committed, report.renames_recovered) == (True, len(FILES), len(FILES))
    assert await visible(lake) == FILES


@pytest.mark.parametrize("kind", ["reset", "reset-after"])
async def test_a_commit_that_stops_is_recovered(lake: EmulatedLake, dest: str, kind: str) -> None:
    """Every rename of files fails from the fifth on; later another driver recovers the job."""
    lake.fail("error", files_only=True, skip=5, **lake.forbidden)
    with pytest.raises(CommitterError):
        async with committer.open_job(dest, job_id="J", storage_options=lake.options) as job:
            await write_tasks(job)
            await job.commit(tasks=3)
    assert 0 < len(await visible(lake)) < len(FILES)
    lake.conduct.faults.clear()
    lake.fail(kind, count=4)
    report = await committer.recover(dest, "J", storage_options=lake.options)
    assert (report.success, report.files_committed) == (True, len(FILES))
    assert await visible(lake) == FILES
    assert set(await lake.files(lake.root / "table")) == {*FILES, "_SUCCESS"}


async def test_a_commit_cancelled_anywhere_is_finished(lake: EmulatedLake) -> None:
    """What a killed driver leaves, at six moments between the first call of a commit and its last."""
    for moment in range(0, 12, 2):
        name = f"J{moment}"
        dest = lake.root / name
        job = await committer.open_job(dest.uri, job_id=name, storage_options=lake.options)
        await write_tasks(job)
        before = len(lake.conduct.log)
        commit = asyncio.create_task(job.commit(tasks=3))
        while not commit.done() and len(lake.conduct.log) < before + 6 * moment:
            await asyncio.sleep(0)
        commit.cancel()
        await asyncio.wait([commit])
        await job.close()
        report = await _finish(dest.uri, name, lake.options)
        assert (report.success, report.files_committed) == (True, len(FILES)), moment
        found = await lake.files(dest)
        assert {one: data for one, data in found.items() if one != "_SUCCESS"} == FILES, moment


async def _finish(uri: str, job_id: str, options: dict[str, object]) -> committer.JobReport:
    try:
        return await committer.recover(uri, job_id, storage_options=options)
    except JobUndecidedError:
        async with committer.attach_job(uri, job_id=job_id, storage_options=options) as job:
            return await job.commit(tasks=3)


async def test_an_aborted_job_leaves_nothing(lake: EmulatedLake, dest: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with committer.open_job(dest, storage_options=lake.options) as job:
            await write_tasks(job)
            raise ZeroDivisionError
    assert await lake.files(lake.root / "table") == {}


async def test_replacing(lake: EmulatedLake, dest: str) -> None:
    async with committer.open_job(dest, storage_options=lake.options) as job:
        async with job.task_attempt(task=0, attempt=0) as task, task.open("year=2000/part-00000.csv") as file:
            await file.write(b"old")
    config = committer.CommitterConfig(existing_target="replace")
    async with committer.open_job(dest, config=config, storage_options=lake.options) as job:
        await write_tasks(job)
        report = await job.commit(tasks=3)
    assert (report.files_committed, await visible(lake)) == (len(FILES), FILES)


async def test_throttling_is_waited_out(lake: EmulatedLake, dest: str) -> None:
    lake.fail("error", files_only=True, count=6, **lake.throttled)
    async with committer.open_job(dest, storage_options=lake.options) as job:
        await write_tasks(job)
        report = await job.commit(tasks=3)
    assert await visible(lake) == FILES
    counters = report.statistics.counters
    assert counters["store_io_throttled"] == 6


async def test_the_blocking_names(lake: EmulatedLake, dest: str) -> None:
    def work() -> None:
        with committer.sync.open_job(dest, storage_options=lake.options) as job:
            with job.task_attempt(task=0, attempt=0) as task, task.open_blocking("a") as file:
                file.write(b"1")

    await asyncio.to_thread(work)
    assert await visible(lake) == {"a": b"1"}
