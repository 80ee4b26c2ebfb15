"""A driver of `file-v1` dies in the middle of a job commit on a disk, and an operator finishes it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import committer
from committer.errors import JobStateError, JobUndecidedError
from tests.job_paths import has_in_job, has_intent, in_job
from tests.processes.harness import TIMEOUT_S, driver, expected, finish, published, visible

# Ten tasks: a moment between the first directory that is taken and the last can be met.
FILES = 1000

pytestmark = pytest.mark.xdist_group("processes")

Reached = Callable[[Path], bool]


def taken(destination: Path) -> int:
    """How many tasks' directories a driver took."""
    return sum(1 for _task in in_job(destination, "J").glob("work/tasks/*"))


def intends(destination: Path) -> bool:
    return has_intent(destination, "J")


def took_one(destination: Path) -> bool:
    return taken(destination) >= 1


def took_half(destination: Path) -> bool:
    return taken(destination) >= FILES // 200


def decided(destination: Path) -> bool:
    return has_in_job(destination, "J", "decision")


def published_some(destination: Path) -> bool:
    return published(destination) >= 10


def published_most(destination: Path) -> bool:
    return published(destination) >= FILES - 100


def ended(destination: Path) -> bool:
    return has_in_job(destination, "J", "outcome") or (destination / "_SUCCESS").exists()


MOMENTS = [intends, took_one, took_half, decided, published_some, published_most, ended]


def kill_once(destination: Path, reached: Reached) -> None:
    with driver(destination, "J", FILES, "--file-v1") as process:
        give_up = time.monotonic() + TIMEOUT_S
        while not reached(destination):
            assert time.monotonic() < give_up, "the driver does not get on"
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT_S)


@pytest.mark.parametrize("reached", MOMENTS)
def test_killed_and_recovered(tmp_path: Path, reached: Reached) -> None:
    destination = tmp_path / "table"
    kill_once(destination, reached)
    report = finish(destination, "J", FILES)
    assert (report.success, report.files_committed) == (True, FILES)
    assert visible(destination) == expected(FILES)
    assert b'"jobId" : "J"' in (destination / "_SUCCESS").read_bytes()
    assert not (destination / "_temporary").exists()


@pytest.mark.parametrize("reached", MOMENTS)
def test_killed_and_taken_back(tmp_path: Path, reached: Reached) -> None:
    """Or aborted, where it was not decided. One that committed says so, and is finished."""
    destination = tmp_path / "table"
    kill_once(destination, reached)

    async def take_back() -> bool:
        try:
            return (await committer.recover(destination, "J", rollback=True)).success
        except JobUndecidedError:
            async with committer.attach_job(destination, job_id="J") as job:
                await job.abort()
            return False
        except JobStateError as error:
            assert error.outcome == "committed"
            return (await committer.recover(destination, "J")).success

    committed = asyncio.run(take_back())
    assert visible(destination) == (expected(FILES) if committed else {})
    assert (destination / "_SUCCESS").exists() == committed
    assert not (destination / "_temporary").exists()
