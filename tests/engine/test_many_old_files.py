"""What a job takes away may be millions of old files: little is kept of each, and few directories are listed at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import committer
from committer import CommitterConfig
from committer.layout import JobLayout
from committer.paths import StorePath
from committer.records.job_state import Fact
from committer.stages.check.superseded import Superseded
from committer.stages.names import NameFolding
from committer.stores.base import FileStatus
from committer.stores.memory import MemoryStore
from tests.neighbours.meeting import Connection, Table

PARTITIONS = 200
REPLACE = CommitterConfig(conflict_mode="replace", superseded_scope="destination", io_concurrency=512)


class Listed(Connection):
    """Counts how many listings are under way."""

    now = most = 0

    async def list(self, path: StorePath) -> AsyncIterator[FileStatus]:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            async for child in super().list(path):
                await asyncio.sleep(0)
                yield child
        finally:
            self.now -= 1


async def test_few_directories_of_old_files_are_listed_at_a_time() -> None:
    old = {f"p={number}/old-{file}": b"old" for number in range(PARTITIONS) for file in range(2)}
    table = Table("hdfs", old)
    party = await table.job("job", {"p=0/new": b"new"}, REPLACE)
    store = Listed(table.space)
    driver = await committer.attach_job(party.driver.spec, storage_options={"store": store})
    await driver.commit()
    assert table.files() == {"p=0/new": b"new"}
    assert 1 < store.most <= 70


async def test_of_an_old_file_only_what_the_decision_says_is_kept() -> None:
    superseded = Superseded(
        layout=JobLayout(StorePath.of("memory://n/t"), "j"), folding=NameFolding(MemoryStore("n").capabilities)
    )
    path = StorePath.of("/data/t/p=1/old")
    old = FileStatus(path, False, 5, 12.0, "id")
    link = FileStatus(path, True, 0, identity="link", is_link=True)
    await superseded.add(["p=1/old", "p=1/link"], [old, link])
    assert superseded.facts.in_memory == [
        Fact("superseded", "p=1/old", "id", 5, False, 0),
        Fact("superseded", "p=1/link", "link", 0, False, 1),
    ]
    assert superseded.refused == {}
