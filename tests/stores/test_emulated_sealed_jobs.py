"""Whole directories in one rename on an emulated Azure Data Lake Storage: sealed, listed, renamed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import pytest

import committer
from committer import CommitterConfig
from committer.paths import StorePath
from committer.stores.adls import AdlsStore
from committer.testing.faults import Call, FaultyStore
from tests.stores.emulated_lake import AdlsLake, serve_lake

OLD = {"year=1999/old.csv": b"old"}
# Three directories are one task's alone; into the fourth two write, into the last there was something before.
FILES = {
    **{
        f"year={2000 + task}/month={number % 2}/part-{number}.csv": b"x" * number
        for task in range(3)
        for number in range(6)
    },
    **{f"year=2010/part-{task}.csv": b"%d" % task for task in range(3)},
    "year=1999/part-0.csv": b"0",
}
CONFIG = CommitterConfig(promote_directories=True)
PROMOTED = {"year=2000", "year=2001", "year=2002"}


@pytest.fixture
async def lake() -> AsyncIterator[AdlsLake]:
    async with serve_lake("adls") as lake:
        assert isinstance(lake, AdlsLake)
        yield lake


class Table:
    """A table with an old file, and a job whose three tasks committed."""

    def __init__(self, lake: AdlsLake, dest: StorePath) -> None:
        self.lake = lake
        self.dest = dest
        self.store = self.connect()
        self.directories: list[StorePath] = []
        self.messages: list[committer.TaskCommit] = []
        self.strays = 0

    def connect(self) -> FaultyStore:
        return FaultyStore(AdlsStore.open_for(self.dest, self.lake.options))

    async def prepare(self, delivery: str) -> committer.Job:
        """Writes; the driver about to commit."""
        async with committer.open_job(self.dest.uri, job_id="old", storage_options=self.lake.options) as job:
            async with job.task_attempt(0) as task:
                for name, data in OLD.items():
                    async with task.open(name) as file:
                        await file.write(data)
        job = await committer.open_job(
            self.dest.uri, job_id="J", delivery=delivery, config=CONFIG, storage_options=self.lake.options
        )
        for number in range(3):
            async with job.task_attempt(number) as task:
                for name, data in FILES.items():
                    own = name.startswith(f"year={2000 + number}/") or name == f"year=2010/part-{number}.csv"
                    if own or (number == 0 and name.startswith("year=1999")):
                        async with task.open(name) as file:
                            await file.write(data)
            self.directories.append(task.directory)
            assert task.task_commit is not None
            self.messages.append(task.task_commit)
        await job.close()
        return await committer.attach_job(job.spec, storage_options={"store": self.store})

    async def stray(self) -> None:
        """The programs of attempts that committed write on, by their paths."""
        self.strays += 1
        store = self.connect()
        for number, directory in enumerate(self.directories):
            await store.put(directory / f"year={2000 + number}/month=0/stray-{self.strays}", b"stray")
        await store.close()

    async def files(self) -> dict[str, bytes]:
        """What a reader sees."""
        found = await self.lake.files(self.dest)
        return {name: data for name, data in found.items() if not name.startswith("_")}

    async def neat(self) -> bool:
        """Whether nothing of the job is left beside."""
        return not any(name.startswith("_temporary") for name in await self.lake.files(self.dest))

    def renamed_whole(self) -> set[str]:
        """Directories of the table that came by one rename."""
        renames = [call for call in self.store.calls if call.operation == "rename_directory"]
        return {
            call.destination.relative_to(self.dest)
            for call in renames
            if call.destination and "_temporary" not in call.destination.path
        }


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_a_job(lake: AdlsLake, delivery: str) -> None:
    table = Table(lake, lake.root / "table")
    driver = await table.prepare(delivery)
    report = await driver.commit(table.messages if delivery == "message" else None, tasks=3)
    assert (report.success, report.files_committed) == (True, len(FILES))
    assert await table.files() == {**OLD, **FILES}
    assert await table.neat()
    assert table.renamed_whole() == PROMOTED
    seals = [
        call for call in table.store.calls if call.operation == "rename_directory" and call.path in table.directories
    ]
    assert len(seals) == 3
    # Not one of the files that came with a directory was renamed itself.
    files = [
        call.path.path for call in table.store.calls if call.operation == "rename_file" and "part-" in call.path.path
    ]
    assert len(files) == 4
    assert (await committer.validate(table.dest.uri, storage_options=lake.options)).ok
    await driver.close()
    await table.store.close()


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_strays_before_every_rename_and_listing(lake: AdlsLake, delivery: str) -> None:
    """A stray file written before the seal keeps a directory from being renamed as a whole; a later one goes elsewhere."""
    table = Table(lake, lake.root / "table")
    driver = await table.prepare(delivery)

    async def before(call: Call) -> None:
        if call.operation in {"rename_directory", "list"} and "_temporary" in call.path.path:
            await table.stray()

    table.store.before_call = before
    report = await driver.commit(table.messages if delivery == "message" else None, tasks=3)
    assert table.strays > 6
    assert report.files_committed == len(FILES)
    assert await table.files() == {**OLD, **FILES}
    await driver.close()
    await table.store.close()


async def test_strays_after_the_seal_do_not_keep_a_directory_from_being_renamed(lake: AdlsLake) -> None:
    table = Table(lake, lake.root / "table")
    driver = await table.prepare("message")
    sealed = 0

    async def before(call: Call) -> None:
        nonlocal sealed
        if call.operation == "rename_directory" and call.path in table.directories:
            sealed += 1
        elif sealed == 3 and table.strays < 3:
            await table.stray()

    table.store.before_call = before
    # One call at a time: the third seal is done when another call begins.
    await driver.commit(table.messages, tasks=3)
    assert table.strays == 3
    assert table.renamed_whole() == PROMOTED
    assert await table.files() == {**OLD, **FILES}
    await driver.close()
    await table.store.close()


@pytest.mark.parametrize(("delivery", "how"), [*product(("listing", "message"), ("reset", "reset-after", "gone"))])
async def test_renames_of_directories_whose_answers_are_lost(lake: AdlsLake, delivery: str, how: Any) -> None:
    """The first requests are lost before their effect, or each after it, or is told as one whose source is gone."""
    table = Table(lake, lake.root / "table")
    driver = await table.prepare(delivery)
    if how == "gone":
        lake.fail("error-after", **lake.gone)
    else:
        lake.fail(how, count=3 if how == "reset" else None)
    report = await driver.commit(table.messages if delivery == "message" else None, tasks=3)
    assert (report.success, report.files_committed) == (True, len(FILES))
    assert await table.files() == {**OLD, **FILES}
    assert await table.neat()
    sealed = [entry.source for entry in lake.conduct.log if entry.operation == "rename" and entry.status == 201]
    assert len(sealed) == len(set(sealed))
    await driver.close()
    await table.store.close()
