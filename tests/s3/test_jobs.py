"""What holds for jobs of every committer that publishes uploads, on a server that speaks S3."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import committer
from committer.errors import StoreNotADirectoryError, TargetExistsError
from committer.paths import StorePath
from tests.s3.jobs import Jobs
from tests.s3.servers import Server

KINDS = ["magic", "directory"]
TRAPS = ["a b=1/p q.csv", "100%/p.csv", "a+b/c+d", "é/ü-Ω.csv", "t=12:30:00/p", "x=%20/%2F", "'q'&<>/p", "day=1/empty"]


@pytest.fixture(params=KINDS)
def jobs(request: pytest.FixtureRequest, server: Server, root: StorePath, tmp_path: Path) -> Jobs:
    return Jobs(request.param, server, root, tmp_path)


async def test_names_that_are_traps(jobs: Jobs) -> None:
    files = {name: name.encode() for name in TRAPS}
    files["day=1/empty"] = b""
    report = await jobs.commit(files, by_path=not jobs.sends_at_once)
    assert (report.committer, report.files_committed) == (jobs.kind, len(TRAPS))
    found = await jobs.channel.files()
    marker = json.loads(found.pop("_SUCCESS"))
    assert (marker["committer"], len(marker["filenames"])) == (jobs.kind, len(TRAPS))
    assert found == files
    assert (await jobs.channel.uploads(), jobs.kept()) == ([], [])
    assert (await committer.validate(jobs.root, storage_options=jobs.options)).ok


async def test_a_file_of_several_parts(jobs: Jobs) -> None:
    data = random.Random(1).randbytes((12 << 20) + 3)
    async with jobs.open(multipart_size=1 << 20, multipart_in_flight=2) as job, job.task_attempt(0) as task:
        async with task.open("big") as file:
            for start in range(0, len(data), 700_001):
                await file.write(data[start : start + 700_001])
    assert (await jobs.channel.files())["big"] == data
    # S3 takes no part under 5 MiB but the last.
    assert (await jobs.channel.head("big"))["ETag"].strip('"').endswith("-3")


async def test_nothing_is_seen_before_the_commit_and_losers_are_ended(jobs: Jobs) -> None:
    async with jobs.open(delivery="message") as job:
        messages = []
        for attempt in range(2):
            async with committer.open_task(job.spec, task=0, attempt=attempt, storage_options=jobs.options) as task:
                async with task.open("x") as file:
                    await file.write(b"attempt %d" % attempt)
                sent = attempt + jobs.sends_at_once
                assert [name for name, _id in await jobs.channel.uploads()] == ["x"] * sent
            messages.append(task.task_commit)
        assert {name for name in await jobs.channel.files() if not name.startswith("_temporary")} == set()
        assert [name for name, _id in await jobs.channel.uploads()] == ["x", "x"]
        await job.commit([messages[1]], tasks=1)
    found = await jobs.channel.files()
    del found["_SUCCESS"]
    assert found == {"x": b"attempt 1"}
    assert (await jobs.channel.uploads(), jobs.kept()) == ([], [])


async def test_a_destination_that_is_an_object_is_refused(jobs: Jobs) -> None:
    """S3A refuses it, too: who looks at the name finds the object, and none of the job's files."""
    await jobs.channel.write("table", b"a file")
    with pytest.raises(StoreNotADirectoryError, match=r"a file exists at .*/table, where a directory must be"):
        await committer.open_job(jobs.root / "table", committer=jobs.kind, storage_options=jobs.options)
    assert await jobs.channel.files() == {"table": b"a file"}


async def test_markers_of_directories_are_no_data(jobs: Jobs) -> None:
    for name in ("p=1/", "p=1_$folder$", "a/b/", "a/b_$folder$", "a/q=1_$folder$"):
        await jobs.channel.write(name, b"")
    await jobs.commit({"a/new": b"1"}, conflict_mode="fail", superseded_scope="destination")
    await jobs.commit({"p=1/new": b"1"}, conflict_mode="fail", superseded_scope="partitions")
    with pytest.raises(TargetExistsError, match=r"already holds data"):
        await jobs.commit({"p=1/more": b"1"}, conflict_mode="fail", superseded_scope="destination")
    with pytest.raises(TargetExistsError, match="a already holds files"):
        await jobs.commit({"a/more": b"1"}, conflict_mode="fail", superseded_scope="partitions")


async def test_an_overwrite_replaces_an_object_of_the_destinations_name(jobs: Jobs) -> None:
    await jobs.channel.write("table", b"old")
    config = jobs.config(conflict_mode="replace", superseded_scope="destination")
    where = {"committer": jobs.kind, "config": config, "storage_options": jobs.options}
    async with committer.open_job(jobs.root / "table", **where) as job, job.task_attempt(0) as task:
        async with task.open("part-0") as file:
            await file.write(b"new")
    files = await jobs.channel.files()
    assert files.pop("table/_SUCCESS")
    assert files == {"table/part-0": b"new"}
