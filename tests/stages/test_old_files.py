"""Old files that a job replaces: millions of them, names that are not UTF-8, and files that the task linked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, TargetExistsError
from committer.layout import JobLayout
from committer.options.config import SupersededScope
from committer.paths import StorePath
from committer.records.job_state import Fact
from committer.stages.check.superseded import Superseded
from committer.stages.names import NameFolding
from committer.stores.base import FileStatus
from committer.stores.local import LocalStore
from committer.stores.memory import MemoryStore
from committer.testing.faults import Fault, FaultyStore
from tests.few_facts import list_in_side_files
from tests.neighbours.meeting import Connection, Table
from tests.places import DiskPlace, Place, make_place

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


# -- old files whose names are not UTF-8, which a local disk may hold: no record can name them, however many ther -------


ODD = b"\xff-old"
BESIDE = {"a/new": b"new"}


def _write(tmp_path: Path, directory: bytes, names: list[bytes]) -> None:
    place = os.fsencode(tmp_path / "table") + b"/" + directory
    os.makedirs(place, exist_ok=True)
    for name in names:
        with open(place + b"/" + name, "wb") as file:
            file.write(b"old")


@pytest.fixture(params=["few", "many"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    if request.param == "many":
        # As where more than 50,000 old files go to the driver's disk.
        list_in_side_files(monkeypatch)
    return make_place("disk", tmp_path)


@pytest.mark.allow_blocking("it writes names that are no text")
@pytest.mark.parametrize("scope", ["directories", "partitions", "destination"])
@pytest.mark.parametrize("where", [b"a", b"a/\xfe"], ids=["the name of a file", "that of its directory, too"])
@pytest.mark.parametrize("odd", [1, 150])
async def test_a_job_that_replaces_them_is_refused(
    place: Place, tmp_path: Path, scope: SupersededScope, where: bytes, odd: int
) -> None:
    """Before anything changes, with an error that names the first; once they are gone the job can be committed."""
    names = [b"%s-%03d" % (ODD, number) for number in range(odd)]
    _write(tmp_path, b"a", [b"old-%d" % number for number in range(7)])
    _write(tmp_path, where, names)
    before = place.files()
    config = CommitterConfig(conflict_mode="replace", superseded_scope=scope)
    job = await place.open_job(job_id="j", config=config)
    await place.run_task(job, 0, BESIDE)
    with pytest.raises(TargetExistsError, match="its name is not UTF-8") as caught:
        await job.commit(tasks=1)
    assert caught.value.outcome == "unchanged"
    assert place.files() == before
    for name in names:
        os.unlink(os.fsencode(tmp_path / "table") + b"/" + where + b"/" + name)
    assert (await job.commit(tasks=1)).success
    assert place.files() == BESIDE
    assert place.temporary() == set()
    await job.close()
    await place.store.close()


@pytest.mark.allow_blocking("it writes names that are no text")
async def test_a_job_that_replaces_another_directory_leaves_them(place: Place, tmp_path: Path) -> None:
    _write(tmp_path, b"a", [b"old-%d" % number for number in range(7)])
    _write(tmp_path, b"b", [ODD])
    kept = {name: data for name, data in place.files().items() if name.startswith("b/")}
    await place.run_job(BESIDE, config=CommitterConfig(conflict_mode="replace"))
    assert place.files() == {**BESIDE, **kept}
    await place.store.close()


# -- a task that hard-links old files into its output, as `cp -al` and `rsync --link-dest` do with what did not c -------


CONFIGS = {
    "targets": CommitterConfig(existing_target="replace"),
    "directories": CommitterConfig(conflict_mode="replace"),
    "both": CommitterConfig(conflict_mode="replace", existing_target="replace"),
}


# By links, rolling back cannot fence and so sweeps the destination afterwards.
@pytest.mark.parametrize("no_replace", ["auto", "link"])
@pytest.mark.parametrize("which", CONFIGS)
@pytest.mark.parametrize("stop", ["a=1/q", "a=1/same", "/outcome"])
@pytest.mark.parametrize("rollback", [False, True])
async def test_a_file_that_did_not_change_is_never_lost(
    tmp_path: Path, no_replace: Literal["auto", "link"], which: str, stop: str, rollback: bool
) -> None:
    disk = DiskPlace(tmp_path)
    disk.store = FaultyStore(LocalStore(threads=1, no_replace=no_replace))
    old = {"a=1/same": b"unchanged", "a=1/q": b"old", "a=1/renamed": b"moved"}
    for name, data in old.items():
        disk.write(name, data)
    job = await disk.open_job(job_id="job-1", config=CONFIGS[which])
    async with await disk.open_task(job.spec, 0) as task:
        os.link(disk.root / "a=1/same", task.work_path("a=1/same"))
        os.link(disk.root / "a=1/renamed", task.work_path("a=1/new-name"))
        Path(task.work_path("a=1/q")).write_bytes(b"new")
    operation = {"a=1/q": "rename_file", "a=1/same": "delete_file", "/outcome": "put"}[stop]
    disk.faults(Fault(kind="forbidden", operation=operation, path=stop))
    with pytest.raises(CommitterError):
        await job.commit()
    await job.close()
    await disk.recover("job-1", rollback=rollback, force=True)
    new = {"a=1/same": b"unchanged", "a=1/q": b"new", "a=1/new-name": b"moved"}
    if which == "targets":
        new["a=1/renamed"] = b"moved"
    assert disk.files() == (old if rollback else new)
    assert disk.temporary() == set()
