"""What comes before the decision, at scale: loading, looking at the destination, finding names that occur twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import committer
from benchmarks.commit_worker import JOB, Shape, prepare
from benchmarks.slow_store import SlowStore
from benchmarks.suite import Sized
from committer.flow.texts import Repeats


@pytest.mark.parametrize("directories", [100, 10_000])
def test_plan(benchmark: BenchmarkFixture, tmp_path: Path, sized: Sized, directories: int) -> None:
    """`job.plan` does all of it and changes nothing; from 50,000 files on records are read a second time."""
    tasks, files, partitions = sized(200, 3), sized(1_000, 20), sized(directories, directories // 50)
    shape = Shape(destination=str(tmp_path / "job"), tasks=tasks, files=files, directories=partitions, no_op=True)
    with asyncio.Runner() as runner:
        runner.run(prepare(shape))

        async def plan() -> committer.CommitPlan:
            options = {"store": SlowStore(0.0, no_op=True)}
            async with committer.attach_job(shape.destination, job_id=JOB, storage_options=options) as job:
                return await job.plan()

        plan_of_it = benchmark.pedantic(lambda: runner.run(plan()), rounds=sized(5, 1))
    benchmark.extra_info["files"] = tasks * files
    assert plan_of_it.files == tasks * files
    assert len(plan_of_it.directories) == min(partitions, tasks * files)
    assert plan_of_it.conflicts == []


def test_names_that_occur_twice(benchmark: BenchmarkFixture, sized: Sized) -> None:
    blocks, names = sized(100, 2), 10_000
    texts = [[f"d={n % 100}/part-{block:05d}-{n:05d}" for n in range(names)] for block in range(blocks)]
    texts[-1][-1] = texts[0][0]

    async def find() -> set[int]:
        async with Repeats(block=sized(1 << 16, 1 << 10)) as repeats:
            for block in texts:
                await repeats.add(block)
            assert repeats._files
            return await repeats.find()

    with asyncio.Runner() as runner:
        assert benchmark.pedantic(lambda: runner.run(find()), rounds=sized(3, 1)) == {hash(texts[0][0])}
    benchmark.extra_info["names"] = blocks * names
