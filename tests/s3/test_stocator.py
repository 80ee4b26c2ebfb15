"""Jobs of `stocator` on a server that speaks S3, looked at by the vendor's client, and read by pyarrow."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import committer
from committer.paths import StorePath
from tests.s3.jobs import Jobs
from tests.s3.proxy import Proxy
from tests.s3.servers import BUCKET, KEY, KEY_ID, Server
from tests.s3.test_jobs import TRAPS

ATTEMPT = re.compile(r"-attempt_[^/]*?_m_\d+_\d+-[0-9a-f]+")


@pytest.fixture
def jobs(server: Server, root: StorePath, tmp_path: Path) -> Jobs:
    return Jobs("stocator", server, root, tmp_path)


async def _read(jobs: Jobs) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """What counts, by the names that tasks gave, and everything else that is there."""
    found = await jobs.channel.files()
    winners = await committer.list_winners(jobs.root, storage_options=jobs.options)
    named = {StorePath.from_uri(file.path).relative_to(jobs.root) for file in winners.files}
    del found["_SUCCESS"]
    counts = {ATTEMPT.sub("", name): found.pop(name) for name in named}
    assert len(counts) == len(named)
    return counts, found


async def test_names_that_are_traps(jobs: Jobs) -> None:
    files = {name: name.encode() for name in TRAPS}
    files["day=1/empty"] = b""
    report = await jobs.commit(files)
    assert (report.committer, report.files_committed) == ("stocator", len(TRAPS))
    assert await _read(jobs) == (files, {})
    assert await jobs.channel.uploads() == []
    assert (await committer.validate(jobs.root, storage_options=jobs.options)).ok


async def test_a_long_file_and_one_whose_attempt_failed(jobs: Jobs) -> None:
    """The store's writer sends a long file by the part. What it sent of a file that is given up is ended."""
    data = random.Random(1).randbytes((12 << 20) + 3)
    async with jobs.open() as job:
        for attempt in range(2):
            task = await committer.open_task(job.spec, task=0, attempt=attempt, storage_options=jobs.options)
            async with task.open("whole") as file:
                await file.write(data)
            if attempt:
                await task.commit()
                continue
            part = task.open("part")
            await part.__aenter__()
            await part.write(data)
            await task.abort()
        await job.commit(tasks=1)
    assert await _read(jobs) == ({"whole": data}, {})
    assert await jobs.channel.uploads() == []


async def test_a_file_costs_four_requests_and_a_job_commit_none_for_it(jobs: Jobs, proxy: Proxy) -> None:
    async def requests(files: int) -> tuple[int, int]:
        there = {**jobs.options, "endpoint_url": proxy.url}
        root = jobs.root / f"n={files}"
        job = await committer.open_job(root, committer="stocator", storage_options=there)
        before = len(proxy.seen)
        async with job.task_attempt(0) as task:
            for number in range(files):
                async with task.open(f"part-{number}") as file:
                    await file.write(b"x")
        writing = len(proxy.seen) - before
        await job.commit(tasks=1)
        await job.close()
        return writing, len(proxy.seen) - before - writing

    few, many = await requests(5), await requests(25)
    assert (many[0] - few[0]) / 20 == 4
    assert many[1] == few[1]


@pytest.mark.skipif(sys.platform == "win32", reason="its S3 client is not built there")
async def test_pyarrow_reads_the_winners(jobs: Jobs) -> None:
    tables = [pa.table({"n": list(range(start, start + 3))}) for start in (0, 3)]
    async with jobs.open() as job:
        for number, table in enumerate(tables):
            async with committer.open_task(job.spec, task=number, storage_options=jobs.options) as task:
                sink = pa.BufferOutputStream()
                pq.write_table(table, sink)
                async with task.open(f"day={number}/part-0.parquet") as file:
                    await file.write(sink.getvalue().to_pybytes())
        await job.commit(tasks=2)
    stray = pa.BufferOutputStream()
    pq.write_table(tables[0], stray)
    await jobs.channel.write("day=0/part-0-attempt_J_m_000000_9-0123456789ab.parquet", stray.getvalue().to_pybytes())
    winners = await committer.list_winners(jobs.root, storage_options=jobs.options)
    assert all(path.startswith(f"{BUCKET}/") for path in winners.paths)
    endpoint = jobs.server.url.removeprefix("http://")
    there = pafs.S3FileSystem(
        access_key=KEY_ID, secret_key=KEY, endpoint_override=endpoint, scheme="http", region="us-east-1"
    )
    read = ds.dataset(winners.paths, filesystem=there, partitioning="hive").to_table()
    assert sorted(read.column("n").to_pylist()) == list(range(6))
    assert sorted(set(read.column("day").to_pylist())) == [0, 1]
    assert ds.dataset(f"{BUCKET}{jobs.root.path}", filesystem=there).count_rows() == 9
