"""`durability="fsync"`: what survives a power loss is forced to the disk in the order that recovery relies on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

import committer
from committer import CommitterConfig, JobSpec, StorePath
from committer.stores.base import FileStatus, FileWriter
from committer.stores.local import LocalStore
from committer.testing.faults import FaultyStore
from tests.job_paths import in_job
from tests.places import write_file


class RecordingDisk(LocalStore):
    """Notes what is forced to the disk, in order, relative to the destination."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = StorePath.of(root)
        self.forced: list[str] = []

    def note(self, what: str, path: StorePath) -> None:
        name = path.relative_to(self.root) if path.is_under(self.root) else "."
        self.forced.append(f"{what} {name}")

    async def put(self, path: StorePath, data: bytes, *, durable: bool = False, **rest: Any) -> FileStatus:
        status = await super().put(path, data, durable=durable, **rest)
        if durable:
            self.note("record", path)
        return status

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        if durable:
            self.note("data", path)
        return await super().open_writer(path, durable=durable)

    async def sync(self, path: StorePath, *, kind: Literal["file", "directory"]) -> None:
        await super().sync(path, kind=kind)
        self.note(kind, path)


def first(forced: list[str], *parts: str) -> int:
    return next(index for index, line in enumerate(forced) if all(part in line for part in parts))


def last(forced: list[str], *parts: str) -> int:
    return max(index for index, line in enumerate(forced) if all(part in line for part in parts))


async def run_job(destination: Path, durability: Literal["none", "fsync"]) -> list[str]:
    disk = RecordingDisk(destination)
    options = {"store": disk}
    config = CommitterConfig(durability=durability)
    async with committer.open_job(destination, job_id="J", config=config, storage_options=options) as job:
        async with job.task_attempt(0) as task:
            await write_file(task, "a=1/b=2/part-0", b"x")
            foreign = Path(task.work_path("a=1/foreign"))
            foreign.write_bytes(b"y")
        await job.commit(tasks=1)
    return disk.forced


async def test_order_is_data_record_decision_directories_outcome_success(tmp_path: Path) -> None:
    forced = await run_job(tmp_path / "t", "fsync")
    record = first(forced, "record", "manifest.json")
    assert last(forced, "data", "part-0") < record
    assert first(forced, "file", "foreign") < record
    # Every directory up to the attempt's own holds a name that must survive with the record.
    for directory in ("a=1/b=2", "a=1"):
        assert any(line.startswith("directory _temporary") and line.endswith(directory) for line in forced[:record])
    decision, outcome = first(forced, "record", "/decision"), first(forced, "record", "/outcome")
    assert record < decision < outcome < first(forced, "record", "/_SUCCESS-") < last(forced, "directory .")
    touched = {line.removeprefix("directory ") for line in forced[decision:outcome] if line.startswith("directory")}
    assert {".", "a=1", "a=1/b=2"} <= touched


async def test_every_name_above_is_forced_at_setup(tmp_path: Path) -> None:
    """Up to the first directory that stood before; what a task promises rests on all of them."""
    destination = tmp_path / "new" / "t"
    disk = RecordingDisk(tmp_path)
    options = {"store": disk}
    config = CommitterConfig(durability="fsync")
    job = await committer.open_job(destination, job_id="J", config=config, storage_options=options)
    made = {"directory .", "directory new", "directory new/t"}
    directory = in_job(destination, "J")
    own = {f"directory {path.relative_to(tmp_path)}" for path in (directory.parent, directory, directory / "00")}
    assert made | own <= set(disk.forced)
    disk.forced.clear()
    await committer.open_job(destination, job_id="K", config=config, storage_options=options)
    assert not {"directory .", "directory new"} & set(disk.forced)
    await job.abort()


async def test_attempt_of_a_job_that_hadoop_set_up_forces_the_names_above(tmp_path: Path) -> None:
    spec = JobSpec.for_hadoop(tmp_path / "t", "job_1_0001", config=CommitterConfig(durability="fsync"))
    (tmp_path / "t/_temporary/job_1_0001/00/manifests").mkdir(parents=True)
    disk = RecordingDisk(tmp_path)
    async with committer.open_task(spec, task=0, attempt=0, storage_options={"store": disk}) as task:
        await write_file(task, "part-0", b"x")
    record = first(disk.forced, "record", "manifest.json")
    temporary = "directory t/_temporary"
    chain = ["directory .", "directory t", temporary, f"{temporary}/job_1_0001", f"{temporary}/job_1_0001/00"]
    assert {*chain, f"{temporary}/job_1_0001/00/tasks"} <= set(disk.forced[:record])


async def test_where_old_files_went_is_forced_before_where_they_were(tmp_path: Path) -> None:
    destination = tmp_path / "t"
    (destination / "a=9").mkdir(parents=True)
    (destination / "a=9" / "old").write_bytes(b"old")
    disk = RecordingDisk(destination)
    config = CommitterConfig(durability="fsync", conflict_mode="replace", superseded_scope="destination")
    async with committer.open_job(destination, job_id="J", config=config, storage_options={"store": disk}) as job:
        async with job.task_attempt(0) as task, task.open("a=1/part-0") as file:
            await file.write(b"x")
        await job.commit(tasks=1)
    went, were = last(disk.forced, "directory", "/superseded"), first(disk.forced, "directory a=9")
    assert went < were < first(disk.forced, "record", "/outcome")


async def test_nothing_is_forced_unless_asked_for(tmp_path: Path) -> None:
    assert await run_job(tmp_path / "t", "none") == []


async def test_durability_that_was_not_asked_for_costs_no_call(tmp_path: Path) -> None:
    """Nor does any other call depend on it, but the looks for what stood before the setup."""
    made: dict[str, Counter[str]] = {}
    for durability in ("none", "fsync"):
        store = FaultyStore(LocalStore(threads=1))
        config = CommitterConfig(durability=durability)
        options = {"store": store}
        async with committer.open_job(tmp_path / durability, job_id="J", config=config, storage_options=options) as job:
            async with job.task_attempt(0) as task, task.open("a=1/part-0") as file:
                await file.write(b"x")
            await job.commit(tasks=1)
        await store.inner.close()
        made[durability] = store.counts()
    assert made["none"]["sync"] == 0
    # `_temporary`, the destination, the directory of the test.
    assert made["fsync"] - made["none"] == Counter(sync=made["fsync"]["sync"], status=3)
    assert made["none"] <= made["fsync"]
