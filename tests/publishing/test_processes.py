"""Processes of an executor that publish: killed, replaced, and what the example does."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import committer
from committer import sync
from committer.api.publishing import PublishAccount, PublishChunk
from committer.errors import ConfigurationError
from committer.sync import ExecutorPool
from tests.processes.harness import visible
from tests.publishing import workers

ROOT = Path(__file__).parents[2]
FILES = {f"p={number % 5}/part-{number:03}": b"x" * number for number in range(60)}


def make_executor() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


def opened(destination: Path) -> sync.Job:
    # A directory that the driver renames as a whole leaves workers nothing to do.
    job = sync.open_job(destination, config={"promote_directories": False})
    with job.task_attempt(0) as task:
        for name, data in FILES.items():
            with task.open(name) as file:
                file.write(data)
    return job


def check_complete(destination: Path) -> None:
    assert visible(destination) == FILES
    assert not (destination / "_temporary").exists()
    assert sync.validate(destination).ok


class DyingPool(ExecutorPool):
    """The first process that gets a chunk is killed in the middle of it."""

    def __init__(self, make: Callable[[], Executor], mark: Path) -> None:
        self.made = 0

        def counted() -> Executor:
            self.made += 1
            return make()

        super().__init__(counted, 2)
        self.mark = mark

    def submit(self, executor: Executor, chunk: PublishChunk) -> Future[PublishAccount]:
        return executor.submit(workers.die_once, chunk, str(self.mark), 3)


def test_a_killed_process_changes_nothing(tmp_path: Path) -> None:
    destination = tmp_path / "out"
    with opened(destination) as job, DyingPool(make_executor, tmp_path / "killed") as pool:
        report = job.commit(tasks=1, publish_with=pool)
    assert pool.mark.exists()
    assert pool.made == 2
    assert report.files_committed == len(FILES)
    # The three files that it had renamed, at most: the other process may have met the chunk when it broke.
    assert report.renames_recovered >= 3
    check_complete(destination)


def test_an_executor_that_cannot_be_made_again(tmp_path: Path) -> None:
    destination = tmp_path / "out"
    makers = [make_executor]

    def make_one() -> Executor:
        return makers.pop()()

    with opened(destination) as job, DyingPool(make_one, tmp_path / "killed") as pool:
        report = job.commit(tasks=1, publish_with=pool)
    assert report.files_committed == len(FILES)
    check_complete(destination)


async def test_threads_in_a_running_loop(tmp_path: Path) -> None:
    async with committer.open_job(tmp_path / "out") as job:
        async with job.task_attempt(0) as task:
            for name, data in FILES.items():
                async with task.open(name) as file:
                    await file.write(data)
        pool = ExecutorPool(lambda: ThreadPoolExecutor(3), 3)
        await job.commit(tasks=1, publish_with=pool)
        await asyncio.to_thread(pool.close)
    assert visible(tmp_path / "out") == FILES


def test_a_chunk_published_by_another_interpreter_after_the_end(tmp_path: Path) -> None:
    """A chunk that a pool kept, and carries out when the job is over and its destination written again."""
    destination, kept = tmp_path / "out", []

    class Keeping(ExecutorPool):
        async def publish(self, chunk: PublishChunk) -> PublishAccount:
            kept.append(chunk)
            return await super().publish(chunk)

    with opened(destination) as job, Keeping(make_executor, 2) as pool:
        job.commit(tasks=1, publish_with=pool)
    before = {name: os.stat(destination / name).st_ino for name in FILES}
    with make_executor() as executor:
        accounts = list(executor.map(workers.publish, kept))
    assert {account.problem for account in accounts} == {"over"}
    assert {name: os.stat(destination / name).st_ino for name in FILES} == before
    check_complete(destination)


@pytest.mark.parametrize("workers", [0, "4", True, None])
def test_wrong_numbers_of_workers(workers: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"workers must be .*, not {workers!r}"):
        ExecutorPool(partial(ProcessPoolExecutor, 1), workers)


def test_an_executor_in_place_of_what_makes_one() -> None:
    """A commit would publish all by itself, and only its log would say why."""
    made: Any = ThreadPoolExecutor(1)
    with pytest.raises(ConfigurationError, match="it is no ThreadPoolExecutor") as caught:
        ExecutorPool(made, 1)
    assert "lambda: ProcessPoolExecutor(4)" in caught.value.next_step
    made.shutdown()


def test_the_example(tmp_path: Path) -> None:
    script = ROOT / "examples" / "publish_in_processes.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "table")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    assert done.stdout == "400 files, published by 2 processes\n"
    assert len(list((tmp_path / "table").rglob("part-*"))) == 400
