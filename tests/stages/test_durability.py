"""`durability="fsync"`: what survives a power loss is forced to the disk in the order that recovery relies on."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import committer
from committer import CommitterConfig, StorePath
from committer.stores.base import FileStatus, FileWriter
from committer.stores.local import LocalStore


class RecordingDisk(LocalStore):
    """Notes what is forced to the disk, in order, relative to the destination."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = StorePath.of(root)
        self.forced: list[str] = []

    def note(self, what: str, path: StorePath) -> None:
        name = path.relative_to(self.root) if path.is_under(self.root) else "."
        self.forced.append(f"{what} {name}")

    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        temporary: StorePath | None = None,
        durable: bool = False,
    ) -> FileStatus:
        status = await super().put(path, data, exclusive=exclusive, temporary=temporary, durable=durable)
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
            async with task.open("a=1/b=2/part-0") as file:
                await file.write(b"x")
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
    decision, outcome = first(forced, "record", "J/decision"), first(forced, "record", "J/outcome")
    assert record < decision < outcome < first(forced, "record _SUCCESS")
    touched = {line.removeprefix("directory ") for line in forced[decision:outcome] if line.startswith("directory")}
    assert {".", "a=1", "a=1/b=2"} <= touched


async def test_nothing_is_forced_unless_asked_for(tmp_path: Path) -> None:
    assert await run_job(tmp_path / "t", "none") == []
