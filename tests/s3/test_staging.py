"""Jobs of the staging committers on a server that speaks S3, looked at by the vendor's client."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import committer
from committer import CommitterConfig
from committer.paths import StorePath
from tests.processes.harness import TIMEOUT_S, environment
from tests.s3 import staging_driver
from tests.s3.bucket import BucketChannel, options_for
from tests.s3.servers import Server
from tests.s3.test_magic import TRAPS

FILES = staging_driver.FILES


@pytest.fixture
def channel(server: Server, root: StorePath) -> BucketChannel:
    return BucketChannel(server.client, root)


@pytest.fixture
def options(server: Server) -> dict[str, object]:
    return options_for(server)


def kept(disk: Path) -> list[str]:
    """The files that lie on this machine's disk."""
    return sorted(path.name for path in disk.rglob("*") if path.is_file())


async def commit(
    root: StorePath, options: dict[str, object], files: dict[str, bytes], disk: Path, **choices: Any
) -> committer.JobReport:
    """Commits a job of one task, half of whose files are written by their paths."""
    config = CommitterConfig(staging_directories=(str(disk),), **choices)
    async with committer.open_job(root, committer="directory", config=config, storage_options=options) as job:
        async with job.task_attempt(0) as task:
            for number, (name, data) in enumerate(files.items()):
                if number % 2:
                    await asyncio.to_thread(Path(task.work_path(name)).write_bytes, data)
                    continue
                async with task.open(name) as file:
                    await file.write(data)
        return await job.commit(tasks=1)


async def test_a_job_with_names_that_are_traps(
    root: StorePath, channel: BucketChannel, options: dict[str, object], tmp_path: Path
) -> None:
    files = {name: name.encode() for name in TRAPS}
    files["day=1/empty"] = b""
    report = await commit(root, options, files, tmp_path)
    assert (report.committer, report.files_committed) == ("directory", len(TRAPS))
    found = await channel.files()
    marker = json.loads(found.pop("_SUCCESS"))
    assert (marker["committer"], len(marker["filenames"])) == ("directory", len(TRAPS))
    assert found == files
    assert (await channel.uploads(), kept(tmp_path)) == ([], [])
    assert (await committer.validate(root, storage_options=options)).ok


@pytest.mark.parametrize("by_path", [False, True])
async def test_a_file_of_several_parts(
    by_path: bool, root: StorePath, channel: BucketChannel, options: dict[str, object], tmp_path: Path
) -> None:
    data = random.Random(1).randbytes((12 << 20) + 3)
    files = {"small": b"x", "big": data} if by_path else {"big": data, "small": b"x"}
    await commit(root, options, files, tmp_path, multipart_size=1 << 20, multipart_in_flight=2)
    found = await channel.files()
    del found["_SUCCESS"]
    assert found == files
    # S3 takes no part under 5 MiB but the last.
    assert (await channel.head("big"))["ETag"].strip('"').endswith("-3")


async def test_many_long_files_are_sent_in_the_memory_of_one(
    root: StorePath, channel: BucketChannel, options: dict[str, object], tmp_path: Path
) -> None:
    config = CommitterConfig(staging_directories=(str(tmp_path),), multipart_size=5 << 20, multipart_in_flight=2)
    block = bytes(1 << 20)
    async with committer.open_job(root, committer="directory", config=config, storage_options=options) as job:
        task = await committer.open_task(job.spec, task=0, storage_options=options)
        for number in range(8):
            async with task.open(f"f-{number}") as file:
                for _ in range(16):
                    await file.write(block)
        tracemalloc.start()
        try:
            await task.commit()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 8 * (5 << 20)
        await job.commit(tasks=1)
    assert len(await channel.files()) == 9


async def test_nothing_is_sent_before_a_task_commits_and_losers_are_ended(
    root: StorePath, channel: BucketChannel, options: dict[str, object], tmp_path: Path
) -> None:
    config = CommitterConfig(staging_directories=(str(tmp_path),))
    async with committer.open_job(
        root, committer="directory", delivery="message", config=config, storage_options=options
    ) as job:
        messages = []
        for attempt in range(2):
            async with committer.open_task(job.spec, task=0, attempt=attempt, storage_options=options) as task:
                async with task.open("x") as file:
                    await file.write(b"attempt %d" % attempt)
                assert [name for name, _id in await channel.uploads()] == ["x"] * attempt
            messages.append(task.task_commit)
        assert {name for name in await channel.files() if not name.startswith("_temporary")} == set()
        await job.commit([messages[1]], tasks=1)
    found = await channel.files()
    del found["_SUCCESS"]
    assert found == {"x": b"attempt 1"}
    assert await channel.uploads() == []


@pytest.mark.parametrize("mode", ["append", "replace"])
async def test_conflict_modes(
    mode: str, root: StorePath, channel: BucketChannel, options: dict[str, object], tmp_path: Path
) -> None:
    old = {"a=1/old": b"1", "a=2/old": b"2", "top": b"3"}
    for name, data in old.items():
        await channel.write(name, data)
    await commit(root, options, {"a=1/new": b"new"}, tmp_path, conflict_mode=mode)
    found = await channel.files()
    del found["_SUCCESS"]
    assert found == {"a=1/new": b"new", **(old if mode == "append" else {})}


# -- processes that die ----------------------------------------------------------------------------------------------


async def killed(root: StorePath, server: Server, disk: Path, call: int) -> bool:
    """Whether the process of a job and its tasks died before that store call of its."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(staging_driver.__file__)),
        root.uri,
        server.url,
        str(disk),
        str(call),
        env=environment(),
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(TIMEOUT_S):
        _out, said = await process.communicate()
    assert process.returncode in (0, -9), said.decode()
    return process.returncode == -9


@pytest.mark.parametrize("moment", [pytest.param(moment, marks=pytest.mark.one_in(3)) for moment in range(20)])
async def test_killed_then_ended_by_another_process(
    moment: int, root: StorePath, server: Server, channel: BucketChannel, options: dict[str, object], tmp_path: Path
) -> None:
    """Where its tasks had committed the job is finished, else it is removed; no part and no local file is left."""
    await channel.write("old", b"old")
    call = random.Random(moment).randrange(8, 120)
    if not await killed(root, server, tmp_path, call):
        assert kept(tmp_path) == []
    config = CommitterConfig(staging_directories=(str(tmp_path),))
    found = await committer.list_jobs(root, storage_options=options)
    committed = not found
    for job in found:
        if job.state in ("committing", "committed"):
            report = await committer.recover(root, job.job_id, config=config, storage_options=options)
            committed = report.success
        else:
            await committer.cleanup(root, job_id=job.job_id, config=config, storage_options=options)
    left = await channel.files()
    new = {staging_driver.name(number): staging_driver.content(number) for number in range(FILES)}
    assert left.pop("_SUCCESS", None) is not None or not committed
    assert left == {"old": b"old", **(new if committed else {})}
    # What was begun and not listed yet has no part, and costs nothing.
    assert [await channel.parts(*upload) for upload in await channel.uploads() if await channel.parts(*upload)] == []
    assert kept(tmp_path) == []
