"""What the blocking names cost over the asynchronous ones: a hop to the portal's thread and back, a call."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

import committer
from benchmarks.suite import Sized
from committer import sync

_number = itertools.count()


def _blocking(root: Path, files: int) -> committer.JobReport:
    with sync.open_job(root / f"blocking-{next(_number)}") as job:
        with job.task_attempt(0) as task:
            for number in range(files):
                with task.open(f"part-{number}") as file:
                    file.write(b"x")
        return job.commit()


async def _asynchronous(root: Path, files: int) -> committer.JobReport:
    async with committer.open_job(root / f"asynchronous-{next(_number)}") as job:
        async with job.task_attempt(0) as task:
            for number in range(files):
                async with task.open(f"part-{number}") as file:
                    await file.write(b"x")
        return await job.commit()


def test_a_job_with_blocking_calls(benchmark: BenchmarkFixture, tmp_path: Path, sized: Sized) -> None:
    files = sized(100, 3)
    report = benchmark.pedantic(lambda: _blocking(tmp_path, files), rounds=sized(10, 1))
    benchmark.extra_info["blocking_calls"] = 3 * files + 5
    assert report.files_committed == files


def test_the_same_job_with_coroutines(benchmark: BenchmarkFixture, tmp_path: Path, sized: Sized) -> None:
    files = sized(100, 3)
    with asyncio.Runner() as runner:
        report = benchmark.pedantic(lambda: runner.run(_asynchronous(tmp_path, files)), rounds=sized(10, 1))
    assert report.files_committed == files


def test_one_blocking_call(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    assert benchmark(sync.list_jobs, tmp_path) == []
