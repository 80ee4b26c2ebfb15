"""Names that Java's local file system gives its checksums: refused where they would be taken for one, free elsewhere."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from committer.errors import InvalidPathError, PreflightError
from committer.records.manifest import decode_task_manifest, encode_task_manifest
from committer.stores.local import LocalStore
from committer.testing.faults import FaultyStore
from tests.engine.places import DiskPlace, MemoryPlace

NAMES = [".data.csv.crc", "a=1/.data.csv.crc", ".crc", "..crc"]
REASON = "Java's local file system keeps the checksums of other files under names like"


@pytest.fixture
def disk(tmp_path: Path) -> DiskPlace:
    return DiskPlace(tmp_path)


@pytest.mark.parametrize("name", NAMES)
async def test_refused_when_opened(disk: DiskPlace, name: str) -> None:
    async with disk.open_job() as job, job.task_attempt(task=0) as task:
        for use in (task.open, task.open_blocking, task.work_path):
            with pytest.raises(InvalidPathError, match=REASON):
                use(name)
        async with task.open("data.csv") as file:
            await file.write(b"x")
    assert disk.files() == {"data.csv": b"x"}


@pytest.mark.parametrize("name", NAMES)
async def test_refused_when_found_without_its_file(disk: DiskPlace, name: str) -> None:
    async with disk.open_job() as job:
        with pytest.raises(InvalidPathError, match=REASON):
            async with job.task_attempt(task=0) as task:
                path = Path(task.work_path(), name)
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(b"data of its own")
        await disk.run_task(job, 0, {"data.csv": b"x"}, attempt=1)
    assert disk.files() == {"data.csv": b"x"}


async def test_refused_when_a_record_has_it(disk: DiskPlace) -> None:
    job = await disk.open_job(job_id="job-1")
    await disk.run_task(job, 0, {"data.csv": b"x", "other.csv": b"x"})
    [name] = [name for name in disk.all_files() if name.endswith("-manifest.json")]
    manifest = decode_task_manifest(disk.read(name), source=name)
    first = msgspec.structs.replace(manifest.files[0], d=manifest.files[0].d.replace("data.csv", ".other.csv.crc"))
    changed = msgspec.structs.replace(manifest, files=[first, *manifest.files[1:]])
    disk.write(name, encode_task_manifest(changed))
    with pytest.raises(PreflightError, match=REASON):
        await job.commit()
    await job.abort()
    assert disk.files() == {}


async def test_a_disk_that_folds_case_takes_other_spellings_for_one(disk: DiskPlace) -> None:
    async with disk.open_job() as job, job.task_attempt(task=0) as task, task.open(".Data.CRC") as file:
        await file.write(b"x")
    assert disk.files() == {".Data.CRC": b"x"}
    disk.remove(".Data.CRC")
    disk.store = FaultyStore(LocalStore(threads=1, case_folding=True))
    async with disk.open_job() as job, job.task_attempt(task=0) as task:
        with pytest.raises(InvalidPathError, match=REASON):
            task.open(".Data.CRC")


async def test_names_that_only_look_alike_are_free(disk: DiskPlace) -> None:
    files = {
        "data.crc": b"1",
        ".data.crc.csv": b"2",
        ".d.crc/part-0": b"3",
        "_x.crc": b"4",
        ".data": b"5",
        "data": b"6",
    }
    await disk.run_job(files)
    assert disk.files() == files


@pytest.mark.parametrize("profile", ["hdfs", "adls", "gcs"])
async def test_other_stores_keep_them(profile: str) -> None:
    place = MemoryPlace(profile)
    await place.run_job({"data.csv": b"1", ".data.csv.crc": b"2"})
    assert place.files() == {"data.csv": b"1", ".data.csv.crc": b"2"}
