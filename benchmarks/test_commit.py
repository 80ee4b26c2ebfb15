"""How long commits, workers and records take. Run with --benchmark-enable; without it each runs once, as a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import committer
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.records.manifest import (
    DirectoryEntry,
    FileEntry,
    TaskManifest,
    decode_task_manifest,
    encode_task_manifest,
    relative_entries,
)

TASKS, FILES, DIRECTORIES = 50, 20, 25


@asynccontextmanager
async def written_job(destination: Path, delivery: str) -> AsyncIterator[committer.Job]:
    job = await committer.open_job(destination, delivery=delivery)
    try:
        for number in range(TASKS):
            async with job.task_attempt(number) as task:
                for file in range(FILES):
                    name = f"d={(number * FILES + file) % DIRECTORIES}/part-{number}-{file}"
                    async with task.open(name) as handle:
                        await handle.write(b"x")
        yield job
    finally:
        await job.close()


@pytest.mark.parametrize("delivery", ["listing", "message"])
def test_job_commit_on_a_local_disk(benchmark: BenchmarkFixture, tmp_path: Path, delivery: str) -> None:
    rounds = iter(range(10_000))
    with asyncio.Runner() as runner:

        def set_up() -> tuple[tuple[committer.Job], dict[str, object]]:
            job = runner.run(make(tmp_path / str(next(rounds)), delivery))
            return (job,), {}

        def commit(job: committer.Job) -> committer.JobReport:
            return runner.run(job.commit(tasks=TASKS))

        report = benchmark.pedantic(commit, setup=set_up, rounds=5)
    assert report.files_committed == TASKS * FILES


async def make(destination: Path, delivery: str) -> committer.Job:
    async with written_job(destination, delivery) as job:
        return job


def test_workers_over_one_iterator(benchmark: BenchmarkFixture) -> None:
    async def nothing(_item: int) -> None:
        return

    def run() -> int:
        return asyncio.run(run_workers(range(100_000), nothing, workers=256))

    assert benchmark(run) == 100_000


def test_manifest_of_ten_thousand_files(benchmark: BenchmarkFixture) -> None:
    destination = StorePath.of("/data/table")
    tasks = destination / "_temporary/job/00/tasks"
    manifest = TaskManifest(
        jobId="job",
        taskID="task_job_m_000000",
        taskAttemptID="attempt_job_m_000000_0",
        files=[
            FileEntry(
                s=(tasks / f"attempt/d={n % 10}/part-{n:05d}").uri,
                d=(destination / f"d={n % 10}/part-{n:05d}").uri,
                z=n,
                e=f"{n}:1",
            )
            for n in range(10_000)
        ],
        directories=[DirectoryEntry(d=(destination / f"d={n}").uri, t=0, l=1) for n in range(10)],
    )
    data = encode_task_manifest(manifest)

    def load() -> int:
        loaded = decode_task_manifest(data, source="benchmark")
        files, _directories = relative_entries(loaded, destination=destination, source_root=tasks, source="benchmark")
        return len(files)

    assert benchmark(load) == 10_000
