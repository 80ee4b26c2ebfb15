"""Small files of a task, written in groups: bytes, memory, errors, and what is given up."""

from __future__ import annotations

import contextlib
import gc
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from committer import Job, TaskAttempt, open_job
from committer.errors import JobNotFoundError, TaskError
from committer.spark.batch_writer import SmallFiles


class Written:
    """A job with one task attempt, both on a loop in a thread of its own."""

    def __init__(self, portal: BlockingPortal, job: Job, attempt: TaskAttempt, root: Path) -> None:
        self.portal = portal
        self.job = job
        self.attempt = attempt
        self.root = root

    def files(self, **limits: int) -> SmallFiles:
        return SmallFiles(self.portal, self.attempt, **limits)

    def there(self) -> dict[str, int]:
        """Names and sizes of what lies in the attempt's directory."""
        base = Path(self.attempt.work_path())
        return {str(path.relative_to(base)): path.stat().st_size for path in base.rglob("*") if path.is_file()}

    def committed(self) -> dict[str, bytes]:
        self.portal.call(self.attempt.commit)
        self.portal.call(self.job.commit)
        found = [path for path in self.root.rglob("*") if path.is_file() and path.name != "_SUCCESS"]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in found}


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    root = tmp_path / "out"
    with start_blocking_portal() as portal:
        job = portal.call(_opened, open_job, root)
        attempt = portal.call(_opened, job.task_attempt, 0, 0)
        try:
            yield Written(portal, job, attempt, root)
        finally:
            with contextlib.suppress(JobNotFoundError):
                portal.call(attempt.abort)
            with contextlib.suppress(JobNotFoundError):
                portal.call(job.abort)
            portal.call(job.close)


async def _opened(open_it: Callable[..., Any], *arguments: object) -> Any:
    return await open_it(*arguments)


def put(files: SmallFiles, name: str, *parts: bytes) -> None:
    file = files.open(name)
    for part in parts:
        file.write(part)
    assert file.tell() == sum(map(len, parts))
    file.close()
    file.close()


def test_every_file_arrives_whole_whatever_its_size(written: Written) -> None:
    with written.files(small_bytes=10, group_files=3, group_bytes=25) as files:
        for number in range(10):
            put(files, f"a={number % 4}/{number}", b"x" * number, b"y" * number)
        put(files, "empty")
        put(files, "large", b"12345", b"67890", b"!", b"?" * 3_000_000)
    expected = {f"a={number % 4}/{number}": b"x" * number + b"y" * number for number in range(10)}
    expected |= {"empty": b"", "large": b"1234567890!" + b"?" * 3_000_000}
    assert written.committed() == expected


def test_files_go_over_in_groups_bounded_by_number_and_bytes(written: Written) -> None:
    with written.files(small_bytes=10, group_files=3, group_bytes=16) as files:
        put(files, "1", b"")
        put(files, "2", b"")
        assert not written.there()
        put(files, "3", b"")
        files._wait()
        assert set(written.there()) == {"1", "2", "3"}
        put(files, "4", b"x" * 8)
        put(files, "5", b"x" * 8)
        files._wait()
        assert set(written.there()) == {"1", "2", "3", "4", "5"}
        put(files, "6", b"")
        assert "6" not in written.there()
    assert set(written.committed()) == {"1", "2", "3", "4", "5", "6"}


def test_a_small_file_that_failed_or_was_forgotten_is_no_part_of_the_attempt(written: Written) -> None:
    with written.files(small_bytes=10) as files:
        file = files.open("failed")
        file.write(b"x")
        file.__exit__(ValueError, ValueError(), None)
        assert file.closed
        files.open("forgotten").write(b"x")
        gc.collect()
        put(files, "kept", b"x")
    assert written.committed() == {"kept": b"x"}


def test_leaving_with_an_error_writes_nothing_more(written: Written) -> None:
    with pytest.raises(ValueError, match="no more rows"), written.files(group_files=2) as files:
        for name in "123":
            put(files, name, b"x")
        raise ValueError("no more rows")
    # The first group was on its way, and ended; its files are the attempt's to remove.
    assert set(written.there()) <= {"1", "2"}
    written.portal.call(written.attempt.abort)


def test_a_job_that_vanished_is_told_as_for_one_file(written: Written) -> None:
    shutil.rmtree(written.root)
    with pytest.raises(JobNotFoundError, match="the destination does not exist"), written.files() as files:
        for number in range(10):
            put(files, f"a={number}/1", b"x")


def test_a_failed_group_is_told_by_the_next_file_and_keeps_the_attempt_from_being_whole(written: Written) -> None:
    # An earlier file has the name: the store refuses the second.
    with pytest.raises(TaskError, match="opened before") as raised, written.files(group_files=1) as files:
        put(files, "same", b"1")
        put(files, "same", b"2")
        put(files, "other", b"3")
        pytest.fail("the third file had to tell of the second")
    assert raised.value.path == "same"
