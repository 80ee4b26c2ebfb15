"""docs/readers.md: what pyarrow and patterns of files see while a job runs, and the time of a published file."""

from __future__ import annotations

import time
from glob import glob
from pathlib import Path

import pytest

import committer

pa = pytest.importorskip("pyarrow")
ds = pytest.importorskip("pyarrow.dataset")
pq = pytest.importorskip("pyarrow.parquet")


async def write(job: committer.Job, task: int, value: int) -> None:
    async with job.task_attempt(task=task) as attempt:
        pq.write_table(pa.table({"v": [value]}), attempt.work_path(f"day={task}/part.parquet"))


@pytest.mark.allow_blocking("reads as a user does")
async def test_what_a_reader_sees_of_a_job_that_runs(tmp_path: Path) -> None:
    async with committer.open_job(tmp_path) as job:
        await write(job, 1, 1)
    published = (tmp_path / "day=1/part.parquet").stat().st_mtime
    async with committer.open_job(tmp_path) as job:
        await write(job, 2, 99)

        def seen(**how: object) -> list[int]:
            return sorted(ds.dataset(tmp_path, format="parquet", **how).to_table()["v"].to_pylist())

        assert (seen(), seen(ignore_prefixes=[".", "_"])) == ([1], [1])
        assert seen(ignore_prefixes=["."], exclude_invalid_files=True) == [1, 99]
        assert len(glob(f"{tmp_path}/**/*.parquet", recursive=True)) == 2
        for pattern in ("*=*/*.parquet", "*=*/**/*.parquet"):
            assert len(glob(f"{tmp_path}/{pattern}", recursive=True)) == 1
        time.sleep(0.05)
        before_the_commit = time.time()
    assert published <= (tmp_path / "day=2/part.parquet").stat().st_mtime < before_the_commit
