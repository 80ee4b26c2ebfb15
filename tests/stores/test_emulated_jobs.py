"""Whole jobs on emulated services: each ends as it must, whatever happens to answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime, timedelta

import pytest

import committer
import committer.sync
from committer.errors import CommitterError, UnsupportedError
from committer.flow.runtime import Runtime, use_runtime
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


async def write_tasks(job: committer.Job, files: dict[str, bytes] = FILES, *, attempt: int = 0) -> None:
    """A task for each year of the files."""
    for number in range(len({name.partition("/")[0] for name in files})):
        async with job.task_attempt(task=number, attempt=attempt) as task:
            for name, data in files.items():
                if name.startswith(f"year={2000 + number}/"):
                    async with task.open(name) as file:
                        await file.write(data)


class Ahead(Runtime):
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


@pytest.mark.parametrize("kind", ["reset-after", "error-after"])
async def test_every_rename_loses_its_answer_or_is_refused_after_it_was_done(
    lake: EmulatedLake, dest: str, kind: str
) -> None:
    lake.fail(kind, files_only=kind == "error-after", **(lake.gone if kind == "error-after" else {}))
    async with committer.open_job(dest, storage_options=lake.options) as job:
        await write_tasks(job)
        report = await job.commit(tasks=3)
    assert (report.success, report.files_committed, report.renames_recovered) == (True, len(FILES), len(FILES))
    assert await visible(lake) == FILES
    if kind == "reset-after":
        done = file_renames(lake)
        assert (len(done), set(done.values())) == (len(FILES), {1})


async def test_throttling_is_waited_out(lake: EmulatedLake, dest: str) -> None:
    lake.fail("error", files_only=True, count=6, **lake.throttled)
    async with committer.open_job(dest, storage_options=lake.options) as job:
        await write_tasks(job)
        report = await job.commit(tasks=3)
    assert await visible(lake) == FILES
    counters = report.statistics.counters
    assert counters["store_io_throttled"] == 6


# --- `file-v1` and `file-v2` -------------------------------------------------------------------------------------

EARLIER = {f"year={2000 + task}/part-{number}.csv": b"1" * number for task in range(2) for number in range(4)}
LATER = {name: data + b"2" for name, data in EARLIER.items()}


async def _open(lake: EmulatedLake, dest: str, name: str) -> committer.Job | None:
    """A job; None where the store cannot serve the committer, which it says."""
    try:
        return await committer.open_job(dest, committer=name, job_id="j", storage_options=lake.options)
    except UnsupportedError as error:
        assert (name, "rename a directory atomically" in str(error)) == ("file-v1", True)
        return None


@pytest.mark.parametrize("name", ["file-v1", "file-v2"])
@pytest.mark.parametrize("answers", ["come", "are lost"])
async def test_a_job_whose_tasks_commit_twice(lake: EmulatedLake, dest: str, name: str, answers: str) -> None:
    job = await _open(lake, dest, name)
    if job is None:
        return
    if answers == "are lost":
        lake.fail("reset-after")
    await write_tasks(job, EARLIER)
    await write_tasks(job, LATER, attempt=1)
    assert (await job.plan(tasks=2)).conflicts == []
    report = await job.commit(tasks=2)
    await job.close()
    assert report.files_committed == len(LATER)
    found = await lake.files(lake.root / "table")
    assert {path: data for path, data in found.items() if path != "_SUCCESS"} == LATER
    assert (await committer.validate(dest, storage_options=lake.options)).ok


async def test_renames_that_are_said_not_to_have_been_done(lake: EmulatedLake, dest: str) -> None:
    """A front end sends a rename twice, and hands on the second answer: a task that fails is run again."""
    job = await _open(lake, dest, "file-v1")
    if job is None:
        return
    lake.fail("error-after", count=2, **lake.gone)
    for attempt in range(3):
        with suppress(CommitterError):
            await write_tasks(job, LATER, attempt=attempt)
            break
    report = await job.commit(tasks=2)
    await job.close()
    found = await lake.files(lake.root / "table")
    assert report.files_committed == len(LATER)
    assert {path: data for path, data in found.items() if path != "_SUCCESS"} == LATER
