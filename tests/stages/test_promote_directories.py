"""Promotion: a directory that one attempt alone wrote is published by one rename, and nothing else comes with it."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.records.publish_chunk import PlannedFile
from committer.stages.load.promotions import Promotion, find_promotions, note_owners
from committer.stores.memory import MemoryStore
from committer.testing.faults import Fault, FaultyStore
from tests.places import write_file

PROMOTING = CommitterConfig(promote_directories=True)


def planned(*entries: str) -> list[PlannedFile]:
    """Files as `attempt:name`."""
    return [PlannedFile(f"{attempt}/{name}", name, 1, "i") for attempt, name in (entry.split(":") for entry in entries)]


async def promotions(files: list[PlannedFile], directories: list[str], absent: set[str]) -> list[Promotion]:
    """As of one record an attempt."""
    owners: dict[str, str] = {}
    written: Counter[str] = Counter()
    for attempt in {file.source.partition("/")[0] for file in files}:
        own = [file for file in files if file.source.startswith(f"{attempt}/")]
        counts = Counter(file.destination.rpartition("/")[0] for file in own)
        note_owners(owners, [file.source for file in own], [file.destination for file in own], counts)
        written += counts
    return await find_promotions(owners, written, directories, absent)


async def chosen(files: list[PlannedFile], directories: list[str], absent: set[str]) -> dict[str, int]:
    found = await promotions(files, directories, absent)
    # What the choice goes by, and what is told of each one that was chosen.
    assert all(promotion.saves > 0 for promotion in found)
    return {promotion.directory: promotion.count for promotion in found}


async def test_topmost_absent_directory_of_one_attempt_is_chosen() -> None:
    files = planned(*[f"a:y=1/m={m}/f{n}" for m in range(2) for n in range(3)])
    assert await chosen(files, ["y=1", "y=1/m=0", "y=1/m=1"], {"y=1", "y=1/m=0", "y=1/m=1"}) == {"y=1": 6}
    assert await chosen(files, ["y=1", "y=1/m=0", "y=1/m=1"], {"y=1/m=0"}) == {"y=1/m=0": 3}
    # To make a directory and rename one file costs what a listing and a rename of the directory do.
    assert await chosen(planned("a:y=1/f"), ["y=1"], {"y=1"}) == {}
    assert await chosen(planned("a:y=1/f", "a:y=1/g"), ["y=1"], {"y=1"}) == {"y=1": 2}


async def test_directory_of_two_attempts_is_not_chosen_but_its_children_may_be() -> None:
    files = planned(*[f"a:y=1/m=0/f{n}" for n in range(4)], *[f"b:y=1/m=1/f{n}" for n in range(4)])
    directories = ["y=1", "y=1/m=0", "y=1/m=1"]
    assert await chosen(files, directories, set(directories)) == {"y=1/m=0": 4, "y=1/m=1": 4}


async def test_directory_that_a_rename_would_not_make_keeps_its_parents_from_being_chosen() -> None:
    files = planned(*[f"a:y=1/f{n}" for n in range(5)])
    assert await chosen(files, ["y=1", "y=1/empty"], {"y=1", "y=1/empty"}) == {}


async def commit_promoting(dest: object, store: object, *, name: str = "p=1/part") -> committer.JobReport:
    options = {"store": store}
    async with committer.open_job(dest, config=PROMOTING, storage_options=options) as job:
        async with job.task_attempt(0) as task:
            for number in range(6):
                await write_file(task, f"{name}-{number}", b"%d" % number)
        return await job.commit(tasks=1)


async def test_lost_answer_to_a_promotion_is_resolved_file_by_file() -> None:
    space = MemoryStore.space("promotion-lost", profile="hdfs")
    space.clear()
    store = FaultyStore(space.store(), [Fault(kind="lost", operation="rename_directory", path="/p=1")])
    report = await commit_promoting("memory://promotion-lost/t", store)
    assert report.files_committed == 6
    assert report.renames_recovered == 6
    published = {name for name in space.files() if "/p=1/" in name}
    assert len(published) == 6


async def test_directory_that_saves_nothing_does_not_keep_those_below_it_from_being_chosen() -> None:
    assert await chosen(planned("a:y=1/m=1/f", "a:y=1/m=1/g"), ["y=1", "y=1/m=1"], {"y=1", "y=1/m=1"}) == {"y=1/m=1": 2}
    # From one file a directory on, where several go by one rename.
    files = planned(*[f"a:y=1/m={m}/f" for m in range(3)])
    directories = ["y=1", *[f"y=1/m={m}" for m in range(3)]]
    assert await chosen(files, directories, set(directories)) == {"y=1": 3}


async def test_file_under_another_name_keeps_its_directory_from_being_chosen() -> None:
    files = planned(*[f"a:y={y}/f{n}" for y in (1, 2) for n in range(3)])
    files[0].source = "a/elsewhere"
    assert await chosen(files, ["y=1", "y=2"], {"y=1", "y=2"}) == {"y=2": 3}


async def test_the_choice_among_many_directories_lets_others_run() -> None:
    """It makes no call, and a driver has heartbeats to send and answers to take."""
    directories = [f"a={number // 100}/b={number % 100}" for number in range(40_000)]
    owners = {directory: f"attempt_{number // 100}" for number, directory in enumerate(directories)}
    turns, ended = 0, False

    async def take_turns() -> None:
        nonlocal turns
        while not ended:
            await asyncio.sleep(0)
            turns += 1

    others = asyncio.create_task(take_turns())
    found = await find_promotions(owners, dict.fromkeys(directories, 2), directories, set(directories))
    ended = True
    await others
    assert len(found) == len(directories)
    # Owners, directories, and twice what they amount to, a thousand at a time.
    assert turns >= 4 * len(directories) // 1000


@pytest.mark.parametrize("stray", ["link", "link to a directory", "pipe", "checksum of nothing", "directory"])
async def test_what_a_listing_does_not_show_keeps_a_directory_from_being_promoted(tmp_path: Path, stray: str) -> None:
    async with committer.open_job(tmp_path / "t", config=PROMOTING) as job:
        async with job.task_attempt(0) as task:
            for number in range(6):
                await write_file(task, f"p=1/q=1/part-{number}", b"x")
            directory = Path(task.directory.path, "p=1/q=1")
            # Java's checksum of a committed file is dropped where the file is renamed alone.
            (directory / ".part-0.crc").write_bytes(b"crc\0")
            if stray == "pipe":
                os.mkfifo(directory / "stray")
            elif stray == "directory":
                (directory / "stray").mkdir()
            elif stray == "checksum of nothing":
                (directory / ".stray.crc").write_bytes(b"crc\0")
            else:
                (directory / "stray").symlink_to("/nowhere" if stray == "link" else "..")
        report = await job.commit()
    assert report.files_committed == 6
    assert sorted(os.listdir(tmp_path / "t/p=1/q=1")) == [f"part-{number}" for number in range(6)]


async def test_checksums_come_along_with_the_files_they_belong_to(tmp_path: Path) -> None:
    async with committer.open_job(tmp_path / "t", config=PROMOTING) as job:
        async with job.task_attempt(0) as task:
            for number in range(4):
                await write_file(task, f"p=1/part-{number}", b"x")
            Path(task.directory.path, "p=1", ".part-0.crc").write_bytes(b"crc\0")
        await job.commit()
    assert sorted(os.listdir(tmp_path / "t/p=1")) == [".part-0.crc", *(f"part-{number}" for number in range(4))]
