"""Keys that no path can hold: an empty segment, `.` or `..`. On moto, which keeps them as S3 does."""

from __future__ import annotations

import shlex

import pytest

import committer
from committer import CommitterConfig
from committer.errors import PreflightError
from committer.paths import StorePath
from committer.stores.s3 import S3Store
from tests.s3.bucket import BucketChannel, options_for
from tests.s3.servers import BUCKET, Server

PARTITIONS = CommitterConfig(conflict_mode="replace")
ODD = {"p=1//x": "p=1//", "p=1/./x": "p=1/./", "p=1/../y": "p=1/../", "p=1/.": "p=1/.", "p=1/a//b/c": "p=1/a//"}


@pytest.fixture
def server(moto_server: Server) -> Server:
    return moto_server


async def run(server: Server, dest: StorePath, config: CommitterConfig | None = None) -> None:
    async with committer.open_job(dest.uri, config=config, storage_options=options_for(server)) as job:
        async with job.task_attempt(task=0) as task, task.open("p=1/new") as file:
            await file.write(b"new")
        await job.commit(tasks=1)


@pytest.mark.parametrize("name", ODD)
async def test_an_overwrite_that_cannot_take_them_away_is_refused(server: Server, root: StorePath, name: str) -> None:
    channel = BucketChannel(server.client, root)
    await channel.write("p=1/old", b"old")
    await channel.write(name, b"old rows")
    with pytest.raises(PreflightError) as caught:
        await run(server, root, PARTITIONS)
    assert caught.value.outcome == "unchanged"
    assert f"{root.uri}/{ODD[name]}" in caught.value.message
    command = shlex.split(caught.value.next_step.partition(": ")[2].partition(";")[0])
    options = ["--endpoint-url", server.url, *["--recursive"] * ODD[name].endswith("/")]
    assert command == ["aws", "s3", "rm", *options, f"s3://{BUCKET}{root.path}/{ODD[name]}"]
    assert await channel.files() == {"p=1/old": b"old", name: b"old rows"}
    server.client.delete_object(Bucket=BUCKET, Key=f"{root.path[1:]}/{name}")
    await run(server, root, PARTITIONS)
    assert {name for name in await channel.files() if not name.startswith("_")} == {"p=1/new"}


@pytest.mark.parametrize("name", [name for name in ODD if not name.endswith(".")])
async def test_validate_reports_them(server: Server, root: StorePath, name: str) -> None:
    await run(server, root)
    await BucketChannel(server.client, root).write(name, b"more rows")
    report = await committer.validate(root.uri, storage_options=options_for(server))
    assert (report.ok, report.extra) == (False, [f"{root.uri}/{ODD[name]}"])


async def test_the_bucket_itself_can_hold_them(server: Server) -> None:
    top = StorePath("s3", BUCKET, "/")
    server.client.put_object(Bucket=BUCKET, Key="/x", Body=b"1")
    store = S3Store.open_for(top, options_for(server))
    try:
        assert [status.is_special async for status in store.list(top) if status.path.path == "//"] == [True]
    finally:
        server.client.delete_object(Bucket=BUCKET, Key="/x")
        await store.close()
