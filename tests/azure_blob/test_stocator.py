"""Jobs of `stocator` on Azurite, looked at by the vendor's client."""

from __future__ import annotations

import re

import pytest

import committer
from committer.paths import StorePath
from tests.azure_blob.azurite import Azurite
from tests.azure_blob.container import ContainerChannel
from tests.azure_blob.test_block_list import TRAPS

ATTEMPT = re.compile(r"-attempt_[^/]*?_m_\d+_\d+-[0-9a-f]+")


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_winners_are_named_and_losers_go(
    server: Azurite, root: StorePath, channel: ContainerChannel, delivery: str
) -> None:
    options, files = server.options(), {name: name.encode() for name in TRAPS} | {"day=1/empty": b""}
    async with committer.open_job(
        root,
        committer="stocator",
        delivery=delivery,
        storage_options=options,  # type: ignore[arg-type]
    ) as job:
        # It is never committed nor aborted.
        loser = await committer.open_task(job.spec, task=0, attempt=7, storage_options=options)
        async with loser.open("loser") as file:
            await file.write(b"lost")
        async with job.task_attempt(0) as task:
            for name, data in files.items():
                async with task.open(name) as file:
                    await file.write(data)
        report = await job.commit([task.task_commit] if delivery == "message" else None, tasks=1)
        await loser.abort()
    assert (report.committer, report.files_committed) == ("stocator", len(files))
    winners = await committer.list_winners(root, storage_options=options)
    found = await channel.files()
    del found["_SUCCESS"]
    assert {StorePath.from_uri(file.path).relative_to(root) for file in winners.files} == found.keys()
    assert {ATTEMPT.sub("", name): data for name, data in found.items()} == files


async def test_an_aborted_job_leaves_nothing(server: Azurite, root: StorePath, channel: ContainerChannel) -> None:
    await channel.write("old", b"old")
    job = await committer.open_job(root, committer="stocator", storage_options=server.options())
    async with job.task_attempt(0) as task, task.open("part-0") as file:
        await file.write(b"x")
    assert len(await channel.files()) > 2
    await job.abort()
    await job.close()
    assert await channel.files() == {"old": b"old"}
