"""Arguments of the wrong type: a sentence that says what is wanted, and nothing done."""

from __future__ import annotations

import array
import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import committer
from committer import sync
from committer.errors import CommitterError, ConfigurationError, InvalidPathError, StoreNotADirectoryError
from tests.engine.places import DiskPlace, MemoryPlace, Place

NUMBERS = array.array("i", range(400_000))  # longer than what a writer gathers, in bytes and not in items


@pytest.mark.parametrize("make_place", [DiskPlace, lambda _: MemoryPlace("local")], ids=["disk", "memory"])
@pytest.mark.parametrize("data", [NUMBERS, memoryview(NUMBERS)], ids=["array", "view"])
@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
async def test_an_array_of_numbers_is_written_byte_for_byte(
    tmp_path: Path, make_place: Callable[[Path], Place], data: Any, blocking: bool
) -> None:
    place = make_place(tmp_path)
    async with committer.open_job(place.dest, storage_options=place.options) as job:
        async with job.task_attempt(task=0) as task:
            if blocking:
                async with task.open_blocking("part-0") as raw:
                    for _ in range(3):
                        assert await asyncio.to_thread(raw.write, data) == 1_600_000
            else:
                async with task.open("part-0") as file:
                    for _ in range(3):
                        assert await file.write(data) == 1_600_000
        report = await job.commit()
    assert report.bytes_committed == 4_800_000
    assert place.read("part-0") == NUMBERS.tobytes() * 3


@pytest.mark.parametrize("data", ["a,b\n", None, 5, [b"x"]], ids=repr)
def test_what_is_no_bytes_is_refused_with_a_sentence(tmp_path: Path, data: Any) -> None:
    async def with_await() -> None:
        async with committer.open_job(tmp_path / "a") as job, job.task_attempt(task=0) as task:
            async with task.open("part-0") as file:
                await file.write(data)

    def in_a_thread() -> None:
        with sync.open_job(tmp_path / "b") as job, job.task_attempt(task=0) as task:
            with task.open_blocking("part-0") as file:
                file.write(data)

    for write in (lambda: asyncio.run(with_await()), in_a_thread):
        with pytest.raises(TypeError, match=f"takes bytes, not a {type(data).__name__}") as raised:
            write()
        assert ("encode" in str(raised.value)) == isinstance(data, str)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", [5, None, b"x", Path("x")], ids=repr)
async def test_a_file_name_is_a_str(tmp_path: Path, name: Any) -> None:
    async with committer.open_job(tmp_path) as job, job.task_attempt(task=0) as task:
        for method in (task.open, task.open_blocking):
            with pytest.raises(InvalidPathError, match=f"is a str, not a {type(name).__name__}") as raised:
                method(name)
            assert "relative to the destination" in raised.value.next_step


@pytest.mark.parametrize(
    ("name", "fault"),
    [("", "is empty"), ("/a", "is absolute"), ("a/", "ends with a slash"), ("../a", r"\.\."), ("a//b", "empty one")],
)
async def test_a_refused_file_name_is_told_what_is_wrong_with_it(tmp_path: Path, name: str, fault: str) -> None:
    async with committer.open_job(tmp_path) as job, job.task_attempt(task=0) as task:
        with pytest.raises(InvalidPathError, match=fault) as raised:
            task.open(name)
        assert raised.value.next_step


def _refusals(here: Path) -> dict[str, Callable[[], Any]]:
    wrong: Any = 5
    return {
        "destination": lambda: sync.open_job(wrong),
        "destination None": lambda: sync.list_jobs(None),  # type: ignore[arg-type]
        "scheme alone": lambda: sync.open_job("s3://"),
        "host": lambda: sync.list_jobs("file://localhost/data"),
        "job id": lambda: sync.open_job(here, job_id=wrong),
        "job id of recover": lambda: sync.recover(here, None),  # type: ignore[arg-type]
        "storage options": lambda: sync.open_job(here, storage_options="env:KEY"),  # type: ignore[arg-type]
        "storage options' keys": lambda: sync.open_job(here, storage_options={1: 2}),  # type: ignore[dict-item]
        "progress": lambda: sync.open_job(here, progress="yes"),  # type: ignore[arg-type]
        "listeners": lambda: sync.open_job(here, listeners=print),  # type: ignore[arg-type]
        "a listener": lambda: sync.open_job(here, listeners=[wrong]),
        "age": lambda: sync.cleanup(here, older_than="7d"),  # type: ignore[arg-type]
        "spec": lambda: sync.open_task(str(here), task=0),  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("which", sorted(_refusals(Path())))
def test_a_wrong_argument_is_refused_before_anything_is_made(tmp_path: Path, which: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        _refusals(tmp_path)[which]()
    assert raised.value.outcome == "unchanged"
    assert raised.value.next_step or which.startswith("job id")
    assert not list(tmp_path.iterdir())


def test_one_message_in_place_of_a_list_is_refused(tmp_path: Path) -> None:
    with sync.open_job(tmp_path, delivery="message") as job:
        with job.task_attempt(task=0) as task, task.open_blocking("part-0") as file:
            file.write(b"x")
        with pytest.raises(CommitterError, match="one task commit message") as raised:
            job.commit(task_commits=task.task_commit)  # type: ignore[arg-type]
        assert "[message" in raised.value.next_step
        assert job.commit(task_commits=[task.task_commit]).files_committed == 1


def test_a_file_is_no_destination(tmp_path: Path) -> None:
    file = tmp_path / "part-0.csv"
    file.write_bytes(b"x")
    for call in (sync.list_jobs, lambda path: sync.cleanup(path, older_than=0)):
        with pytest.raises(StoreNotADirectoryError, match="a file stands there") as raised:
            call(file)
        assert raised.value.next_step == "correct the path"
    assert file.read_bytes() == b"x"


async def test_what_a_notebook_shows_of_files_and_of_what_was_not_awaited(tmp_path: Path) -> None:
    opening = committer.open_job(tmp_path)
    assert repr(opening) == "<open_job(...): not opened yet: await it, or enter it with `async with`>"
    async with opening as job, job.task_attempt(task=0) as task:
        async with task.open("a") as file:
            await file.write(b"12")
            assert repr(file) == "<TaskFile 'a': being written, bytes written: 2>"
        assert repr(file) == "<TaskFile 'a': closed, bytes written: 2>"
        async with task.open_blocking("b") as raw:
            raw.write(b"1")
            assert repr(raw) == "<BlockingTaskFile 'b': being written, bytes written: 1>"


@pytest.mark.parametrize(
    "call", [committer.open_job, committer.list_jobs, committer.validate], ids=lambda f: f.__name__
)
async def test_a_file_path_with_two_slashes_says_that_three_begin_it(
    tmp_path: Path, call: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidPathError, match=r"names a machine, data,") as caught:
        await call("file://data/flights")
    assert caught.value.next_step.endswith(" file:///data/flights")
    assert caplog.records == []
