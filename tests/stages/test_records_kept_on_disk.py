"""Jobs of more files than memory keeps: what was proved of their records stays on the driver's disk, as far as it can."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from committer import CommitterConfig
from committer.errors import CommitterError
from committer.flow import spill
from committer.stages.load import load_records, planned_files
from committer.testing.faults import Call
from tests.places import MemoryPlace

TASKS, FILES = 12, 4
NEW = {f"p={number}/part-{task}-{number}": b"new" for task in range(TASKS) for number in range(FILES)}


def large(monkeypatch: pytest.MonkeyPatch, *, in_memory: int = 10, on_disk: int = 1 << 30) -> None:
    monkeypatch.setattr(load_records, "ENTRIES_IN_MEMORY", in_memory)
    monkeypatch.setattr(load_records, "BYTES_ON_DISK", on_disk)
    monkeypatch.setattr(planned_files, "BYTES_IN_A_RUN", 6000)
    # Every item goes to the disk at once.
    monkeypatch.setattr(spill, "_BLOCK_BYTES", 1)
    # A side file each.
    monkeypatch.setattr(load_records, "BYTES_OF_COPIES", 1)


async def prepared(
    profile: str, config: CommitterConfig | None = None, old: dict[str, bytes] | None = None
) -> tuple[MemoryPlace, Any]:
    place = MemoryPlace(profile)
    if old:
        await place.run_job(old, job_id="before")
    job = await place.open_job(job_id="job-1", delivery="listing", config=config or CommitterConfig())
    for task in range(TASKS):
        written = {name: data for name, data in NEW.items() if name.rpartition("/")[2].startswith(f"part-{task}-")}
        await place.run_task(job, task, written)
    place.store.calls.clear()
    return place, job


def reads(place: MemoryPlace) -> list[int]:
    """How often each record was read."""
    records = "manifest.json", ".pendingset"
    found = Counter(str(c.path) for c in place.store.calls if c.operation == "read" and c.path.name.endswith(records))
    return sorted(found.values())


def again(place: MemoryPlace) -> list[int]:
    """How often each copy was read."""
    copies = [call.path.name for call in place.store.calls if call.operation == "read"]
    return sorted(Counter(name for name in copies if name.startswith("plan-")).values())


@pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs"])
@pytest.mark.parametrize("in_memory", [0, 10])
async def test_each_record_is_read_once(monkeypatch: pytest.MonkeyPatch, profile: str, in_memory: int) -> None:
    large(monkeypatch, in_memory=in_memory)
    place, job = await prepared(profile)
    await job.commit(tasks=TASKS)
    assert reads(place) == [1] * TASKS
    assert place.files() == NEW
    assert place.temporary() == set()


async def test_uploads_too(monkeypatch: pytest.MonkeyPatch) -> None:
    large(monkeypatch)
    place, job = await prepared("s3")
    await job.commit(tasks=TASKS)
    copies = Counter(str(call.path) for call in place.store.calls if call.operation == "read")
    assert not [path for path, count in copies.items() if count > 1 and "plan-" in path]
    assert place.files() == NEW


async def test_an_overwrite_reads_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    large(monkeypatch)
    place, job = await prepared("hdfs", CommitterConfig(existing_target="replace"), dict.fromkeys(NEW, b"old"))
    await job.commit(tasks=TASKS)
    # No other pass reads.
    assert reads(place) == [1] * TASKS
    assert place.files() == NEW


@pytest.mark.parametrize("on_disk", [0, 600])
async def test_what_the_disk_has_no_room_for_is_read_again(monkeypatch: pytest.MonkeyPatch, on_disk: int) -> None:
    large(monkeypatch, on_disk=on_disk)
    place, job = await prepared("hdfs", CommitterConfig(io_concurrency=1))
    await job.commit(tasks=TASKS)
    counts = again(place)
    assert set(counts) == {1}
    assert len(counts) == TASKS if not on_disk else 0 < len(counts) < TASKS
    assert place.files() == NEW


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
async def test_a_full_disk_costs_reads(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    large(monkeypatch)

    def full(**_arguments: Any) -> Any:
        return open("/dev/full", "r+b", buffering=0)

    place, job = await prepared("hdfs")
    monkeypatch.setattr(spill, "tempfile", SimpleNamespace(TemporaryFile=full, gettempdir=tempfile.gettempdir))
    await job.commit(tasks=TASKS)
    assert reads(place) == [1] * TASKS
    assert again(place) == [1] * TASKS
    assert place.files() == NEW
    assert caplog.text.count("No space left on device") == 1


async def test_what_is_kept_of_another_record_is_not_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision names records by digest; whatever the disk gives back under a number has to be that record's."""
    large(monkeypatch)
    monkeypatch.setattr(planned_files, "BYTES_IN_A_RUN", 1 << 20)
    take = spill.SpillReader.take

    async def mixed_up(self: Any, numbers: range) -> dict[int, Any]:
        found = await take(self, numbers)
        return dict(zip(found, [*list(found.values())[1:], *list(found.values())[:1]], strict=True))

    monkeypatch.setattr(spill.SpillReader, "take", mixed_up)
    place, job = await prepared("hdfs")
    await job.commit(tasks=TASKS)
    assert reads(place) == [1] * TASKS
    assert again(place) == [1] * TASKS
    assert place.files() == NEW


async def test_a_record_that_is_replaced_after_the_decision_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver publishes the files that it checked, though the record on the store says something else by then."""
    large(monkeypatch)
    place, job = await prepared("hdfs")
    spoiled: list[str] = []

    async def spoil(call: Call) -> None:
        if call.operation == "rename_file" and call.path.name.startswith("part-") and not spoiled:
            for path in {c.path for c in place.store.calls if c.operation == "read" and c.path.name.endswith("t.json")}:
                spoiled.append(str(path))
                await place.store.inner.put(path, b"{}")

    place.store.before_call = spoil
    await job.commit(tasks=TASKS)
    assert len(spoiled) == TASKS
    assert place.files() == NEW


async def test_nothing_is_left_on_the_disk_of_a_driver_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    large(monkeypatch)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    place, job = await prepared("hdfs")

    async def refuse(call: Call) -> None:
        if call.operation == "rename_file" and call.path.name == "part-5-2":
            raise CommitterError("refused")

    place.store.before_call = refuse
    with pytest.raises(CommitterError):
        await job.commit(tasks=TASKS)
    place.store.before_call = None
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) == before
    assert (await place.recover("job-1")).success
    assert place.files() == NEW


async def test_an_error_while_files_go_to_the_disk_ends_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that wait for that go on: what they wait for is awaited with them."""
    large(monkeypatch)

    async def fail(self: Any, number: int, item: Any, *, weight: int) -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        raise RuntimeError("can't start new thread")

    place, job = await prepared("hdfs")
    monkeypatch.setattr(spill.NumberedSpill, "add", fail)
    async with asyncio.timeout(30):
        with pytest.raises(Exception, match="can't start new thread"):
            await job.commit(tasks=TASKS)
    assert place.files() == {}
