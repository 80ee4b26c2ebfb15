"""Job commits, from `commit` to the report, on every store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import committer
from benchmarks.commit_worker import JOB, Shape, prepare
from benchmarks.slow_store import SlowStore
from benchmarks.suite import DELIVERIES, SLOW, STORES, Delivery, Meter, Sized, Stores, ceiling, destination, written_job
from committer.flow.misuse import Opening

FILES = 10


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("store", STORES)
def test_publish(
    benchmark: BenchmarkFixture, tmp_path: Path, sized: Sized, stores: Stores, store: str, delivery: Delivery
) -> None:
    tasks = sized(20 if store in SLOW else 200, 4)
    with stores.open(store, tmp_path) as (place, runner):
        meter = Meter(place.store)

        def set_up() -> tuple[tuple[committer.Job], dict[str, object]]:
            shape = {"tasks": tasks, "files": FILES, "directories": 20}
            return (runner.run(written_job(destination(place), meter.store, delivery=delivery, **shape)),), {}

        def commit(job: committer.Job) -> committer.JobReport:
            with meter.measured():
                return runner.run(job.commit(tasks=tasks))

        report = benchmark.pedantic(commit, setup=set_up, rounds=sized(5, 1))
        told = meter.told(
            files=tasks * FILES, ceiling=runner.run(ceiling(place, sized(500 if store in SLOW else 5_000, 50)))
        )
    benchmark.extra_info.update(told)
    assert report.files_committed == tasks * FILES
    # G9 in figures: each file was published by a call of its own.
    published = told["calls"]["complete_upload" if place.store.capabilities.multipart else "rename_file"]
    assert published >= tasks * FILES


def test_publish_on_a_store_that_does_nothing(benchmark: BenchmarkFixture, tmp_path: Path, sized: Sized) -> None:
    tasks, files = sized(100, 3), sized(1000, 10)
    meter = Meter(SlowStore(0.0, no_op=True))
    with asyncio.Runner() as runner:

        def set_up() -> tuple[tuple[committer.Job], dict[str, object]]:
            folder = str(tmp_path / str(len(list(tmp_path.iterdir()))))
            runner.run(prepare(Shape(destination=folder, tasks=tasks, files=files, directories=50, no_op=True)))
            attached = committer.attach_job(folder, job_id=JOB, storage_options={"store": meter.store})
            return (runner.run(_opened(attached)),), {}

        def commit(job: committer.Job) -> committer.JobReport:
            with meter.measured():
                return runner.run(job.commit(tasks=tasks))

        report = benchmark.pedantic(commit, setup=set_up, rounds=sized(5, 1))
    benchmark.extra_info.update(meter.told(files=tasks * files))
    assert report.files_committed == tasks * files


async def _opened(opening: Opening[committer.Job]) -> committer.Job:
    return await opening
