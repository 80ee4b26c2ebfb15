"""Jobs of `stocator` on Azurite, looked at by the vendor's client."""

from __future__ import annotations

import re

import pytest

import committer
from committer.paths import StorePath
from tests.azure_blob.azurite import Azurite
from tests.azure_blob.container import ContainerChannel, write_task
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
        message = await write_task(job, files)
        report = await job.commit([message] if delivery == "message" else None, tasks=1)
        await loser.abort()
    assert (report.committer, report.files_committed) == ("stocator", len(files))
    winners = await committer.list_winners(root, storage_options=options)
    found = await channel.files()
    del found["_SUCCESS"]
    assert {StorePath.from_uri(file.path).relative_to(root) for file in winners.files} == found.keys()
    assert {ATTEMPT.sub("", name): data for name, data in found.items()} == files
