"""Limits of records: a reader stops at the longest record of a kind, however long the file is."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import committer
from committer.errors import CommitterError, RecordError
from committer.options.config import CommitterConfig
from committer.records.job_state import Decision, DecisionHead, Intent, JobOutcome, JobSetup, limit_of
from committer.records.limits import LIMITS
from committer.stages.state import own_records
from committer.stores.local import LocalStore
from tests.job_paths import in_job

KINDS = {"setup": JobSetup, "intent": Intent, "decision": Decision, "outcome": JobOutcome}


def peak_of(call: Callable[[], object]) -> int:
    """The memory in bytes that a call takes at once."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def sparse(path: Path, size: int) -> None:
    """A file of so many zeros, which take no room on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.truncate(size)


def test_every_own_record_has_a_limit() -> None:
    for kind in (*KINDS.values(), DecisionHead):
        assert limit_of(kind) == LIMITS[str(kind.__struct_config__.tag)]


@pytest.mark.parametrize("name", ["setup", "outcome"])
def test_jobs_with_huge_records_are_listed_in_little_memory(tmp_path: Path, name: str) -> None:
    for number in range(8):
        sparse(tmp_path / f"_temporary/job-{number}/{name}", 1 << 30)

    def look() -> None:
        found = asyncio.run(committer.list_jobs(str(tmp_path)))
        assert [info.state for info in found] == ["unknown"] * 8
        assert all("longer than the" in info.problem and "cleanup" in info.problem for info in found)

    look()
    assert peak_of(look) < 4 << 20


def test_long_records_are_read_one_after_the_other(tmp_path: Path) -> None:
    """Records within their limit are read one at a time, so that one of them is in memory."""
    for number in range(8):
        sparse(tmp_path / f"_temporary/job-{number}/setup", 15 << 20)

    def look() -> None:
        found = asyncio.run(committer.list_jobs(str(tmp_path)))
        assert [info.state for info in found] == ["unknown"] * 8

    look()
    # One, and those whose errors the garbage collector has not freed yet; all of them take 120 MiB.
    assert peak_of(look) < 80 << 20


async def test_a_long_record_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_records, "_SMALL_BYTES", 100)
    async with committer.open_job(str(tmp_path), job_id="job") as job:
        async with job.task_attempt(task=0) as task, task.open("file") as file:
            await file.write(b"data")
        layout = job.spec.layout
        assert len(in_job(tmp_path, "job", "setup").read_bytes()) > 100
        assert (await own_records.read_setup(LocalStore(), layout)).spec == job.spec
        assert (await job.commit()).files_committed == 1


@pytest.mark.parametrize("name", ["setup", "decision", "outcome", "_SUCCESS", "manifest"])
async def test_a_pipe_in_the_place_of_a_record_holds_no_call(tmp_path: Path, name: str) -> None:
    job = await committer.open_job(str(tmp_path), job_id="job", config=CommitterConfig(conflict_mode="replace"))
    async with job.task_attempt(task=0) as task, task.open("file") as file:
        await file.write(b"data")
    place = tmp_path / "_SUCCESS" if name == "_SUCCESS" else in_job(tmp_path, "job", name)
    if name == "manifest":
        [place] = in_job(tmp_path, "job").glob("*/manifests/*")
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    # Held open by a process that never writes.
    held = os.open(place, os.O_RDWR)
    try:
        async with asyncio.timeout(20):
            with pytest.raises(CommitterError):
                if name == "_SUCCESS":
                    await committer.validate(str(tmp_path))
                elif name == "setup":
                    await committer.attach_job(str(tmp_path), job_id="job")
                else:
                    await job.commit()
            await committer.list_jobs(str(tmp_path))
            await job.close()
    finally:
        os.close(held)
    assert not (tmp_path / "file").exists()


async def test_no_job_is_set_up_whose_setup_record_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = CommitterConfig(conflict_mode="replace", superseded_directories=tuple(f"day={n}" for n in range(1000)))
    monkeypatch.setitem(LIMITS, "committer.setup", 10_000)  # type: ignore[arg-type]
    with pytest.raises(RecordError, match="setup record would have") as caught:
        await committer.open_job(str(tmp_path / "table"), job_id="job", config=config)
    assert "name fewer directories" in caught.value.next_step
    assert caught.value.outcome == "unchanged"
    assert not (tmp_path / "table/_temporary").exists()
    job = await committer.open_job(
        str(tmp_path / "table"), job_id="job", config=msgspec.structs.replace(config, superseded_directories=("day=1",))
    )
    await job.abort()
