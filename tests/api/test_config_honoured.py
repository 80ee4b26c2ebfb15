"""Choices that show only in how calls are made: concurrency, rate, queue, what a Java driver is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import committer
from committer import CommitterConfig
from committer.committers.trusted_config import OF_CALLER, trusted_config
from committer.errors import StoreError
from committer.flow.pacing import claim_limits
from committer.flow.runtime import use_runtime
from committer.paths import StorePath
from committer.records.manifest import (
    DIRECTORY_IS_DIRECTORY,
    DIRECTORY_IS_FILE,
    DIRECTORY_NOT_FOUND,
    DIRECTORY_UNKNOWN,
    TaskManifest,
    decode_task_manifest,
)
from committer.stages.load import load_records
from committer.stores.local import LocalStore
from committer.testing.faults import Call, Fault, SimulatedCrash
from committer.testing.virtual_time import VirtualRuntime
from tests.options.test_config import HONOURED
from tests.places import MemoryPlace, write_file

FILES = {f"p={number % 6}/part-{number}": b"x" for number in range(60)}


async def most_at_once(place: MemoryPlace, config: CommitterConfig, fits) -> int:
    """Commits a job of 12 tasks; the most calls that fit were under way at one moment."""
    job = await place.open_job(config=config)
    for task in range(12):
        await place.run_task(job, task, {f"{name}-{task}": data for name, data in list(FILES.items())[:10]})
    running = most = 0

    async def before(call: Call) -> None:
        nonlocal running, most
        if fits(call):
            running += 1
            most = max(most, running)
            for _turn in range(20):
                await asyncio.sleep(0)
            running -= 1

    place.store.before_call = before
    await job.commit()
    place.store.before_call = None
    return most


@pytest.mark.parametrize("io_concurrency", [1, 3, 16])
async def test_io_concurrency_bounds_calls_in_flight(memory: MemoryPlace, io_concurrency: int) -> None:
    most = await most_at_once(memory, CommitterConfig(io_concurrency=io_concurrency), lambda _call: True)
    assert most == io_concurrency


@pytest.mark.parametrize("capacity", [1, 5])
async def test_manifest_queue_capacity_bounds_records_ahead(
    memory: MemoryPlace, monkeypatch: pytest.MonkeyPatch, capacity: int
) -> None:
    """A job of more entries than memory and disk hold reads its records again, that many at a time."""
    monkeypatch.setattr(load_records, "ENTRIES_IN_MEMORY", 10)
    monkeypatch.setattr(load_records, "BYTES_ON_DISK", 0)
    monkeypatch.setattr(load_records, "BYTES_OF_COPIES", 1)

    def again(call: Call) -> bool:
        return call.operation == "read" and call.path.name.startswith("plan-")

    most = await most_at_once(memory, CommitterConfig(manifest_queue_capacity=capacity), again)
    assert most == capacity
    assert len(memory.files()) == 120


async def test_io_rate_is_not_exceeded() -> None:
    place = MemoryPlace("local")
    runtime = VirtualRuntime()
    with use_runtime(runtime):
        async with place.open_job(config=CommitterConfig(io_rate=50.0)) as job:
            async with job.task_attempt(0) as task:
                for name, data in FILES.items():
                    await write_file(task, name, data)
            calls, began = place.store.count(), runtime.monotonic()
            await job.commit()
            took = runtime.monotonic() - began
            made = place.store.count() - calls
    assert made > 60
    assert took >= (made - 50) / 50.0 - 0.1


@pytest.mark.parametrize(
    ("field", "kind"), [("io_read_weight", "read"), ("io_write_weight", "write"), ("io_delete_weight", "delete")]
)
async def test_weights_say_what_calls_cost_of_the_rate(field: str, kind: str) -> None:
    """Only calls of one kind cost anything: a commit takes as long as they need."""
    weights = {"io_read_weight": 0.0, "io_write_weight": 0.0, "io_delete_weight": 0.0, field: 2.0}
    place = MemoryPlace("local")
    runtime = VirtualRuntime()
    with use_runtime(runtime):
        config = CommitterConfig(io_rate=10.0, **weights)
        async with place.open_job(config=config) as job:
            await place.run_task(job, 0, FILES)
            await job.commit()
            pacer = claim_limits(place.store.endpoint, concurrency=1).pacer
    paid = pacer.granted[kind]  # type: ignore[index]
    assert paid > 0
    assert runtime.monotonic() == pytest.approx((2.0 * paid - 10.0) / 10.0 if paid > 5 else 0.0, abs=0.3)


async def test_a_rate_can_be_lowered_in_a_living_process() -> None:
    """Hadoop's documents advise it where an account is overloaded: reduce fs.azure.io.rate.limit."""
    place = MemoryPlace("local")
    runtime = VirtualRuntime()
    with use_runtime(runtime):
        key = "mapreduce.manifest.committer.io.rate"
        await place.run_job(FILES, config=CommitterConfig.from_hadoop({key: "10000"}))
        assert runtime.monotonic() < 1
        before = dict(claim_limits(place.store.endpoint, concurrency=1).pacer.granted)
        config = CommitterConfig.from_hadoop({key: "5", "committer.conflict_mode": "replace"})
        await place.run_job(FILES, config=config)
        slow = runtime.monotonic()
        pacer = claim_limits(place.store.endpoint, concurrency=1).pacer
        calls = sum(pacer.granted.values()) - sum(before.values())
        assert slow == pytest.approx((calls - 5) / 5, abs=0.5)
        assert pacer.rate is None  # both jobs are closed, and ask for nothing more


@pytest.mark.parametrize("how", ["attach", "recover"])
async def test_a_process_that_goes_on_with_a_job_may_give_its_own_rate(how: str) -> None:
    place = MemoryPlace("local")
    runtime = VirtualRuntime()
    with use_runtime(runtime):
        job = await place.open_job(job_id="j", config=CommitterConfig(io_rate=0))
        await place.run_task(job, 0, FILES)
        if how == "recover":
            place.faults(Fault(kind="crash_before", operation="put", path="outcome"))
            with pytest.raises(SimulatedCrash):
                await job.commit()
        await job.close()
        began, options = runtime.monotonic(), {"store": place.space.store()}
        config = CommitterConfig(io_rate=5)
        if how == "recover":
            await committer.recover(place.dest, "j", config=config, storage_options=options)
        else:
            async with committer.attach_job(place.dest, job_id="j", config=config, storage_options=options) as again:
                await again.commit()
        assert runtime.monotonic() - began > 2


async def test_without_a_rate_nothing_waits(memory: MemoryPlace) -> None:
    runtime = VirtualRuntime()
    with use_runtime(runtime):
        await memory.run_job(FILES, config=CommitterConfig(io_rate=0))
        assert runtime.monotonic() == 0


async def record_of(place: MemoryPlace, config: CommitterConfig) -> tuple[TaskManifest, list[str]]:
    place.write("here/old", b"old")
    place.write("file", b"a file")
    job = await place.open_job(config=config)
    task = await place.open_task(job.spec, 0)
    for name in ("here/new", "here/below/new", "gone/below/new", "file/new"):
        await write_file(task, name, b"x")
    place.store.calls.clear()
    await task.commit()
    probed = [
        call.path.path for call in place.store.calls if call.operation == "status" and "/tasks/" not in call.path.path
    ]
    [name] = [name for name in place.all_files() if name.endswith("-manifest.json")]
    return decode_task_manifest(place.read(name), source=name), probed


def statuses(manifest: TaskManifest) -> dict[str, int]:
    return {entry.d.partition("/table/")[2]: entry.t for entry in manifest.directories}


async def test_hadoop_driver_is_told_what_stands_where_directories_go(memory: MemoryPlace) -> None:
    manifest, probed = await record_of(memory, CommitterConfig(hadoop_driver=True))
    assert statuses(manifest) == {
        "file": DIRECTORY_IS_FILE,
        "gone": DIRECTORY_NOT_FOUND,
        "here": DIRECTORY_IS_DIRECTORY,
        "gone/below": DIRECTORY_NOT_FOUND,
        "here/below": DIRECTORY_NOT_FOUND,
    }
    # Below what is no directory nothing is asked.
    assert sorted(probed) == ["/table/file", "/table/gone", "/table/here", "/table/here/below"]
    assert [entry.l for entry in manifest.directories] == [1, 1, 1, 2, 2]


async def test_python_driver_is_told_nothing_and_nothing_is_asked(memory: MemoryPlace) -> None:
    manifest, probed = await record_of(memory, CommitterConfig())
    assert set(statuses(manifest).values()) == {DIRECTORY_UNKNOWN}
    assert probed == []


async def test_choices_travel_with_the_job(memory: MemoryPlace) -> None:
    """A process that attaches, writes or recovers makes the choices the job was set up with."""
    config = CommitterConfig(unique_names=True, existing_target="replace", record_save_attempts=2)
    job = await memory.open_job(job_id="job-1", config=config)
    async with memory.attach_job("job-1", config=CommitterConfig()) as other:
        assert other.spec.config == config
        await memory.run_task(other.spec, 0, {"part-0": b"x"})
        await other.commit()
    assert memory.files() == {"part-0-job-1": b"x"}
    await job.close()


# -- files that a store renames many at a time: never more in flight than the job allows --------------------------------


MANY = 300


class Counting(LocalStore):
    """Counts the files that are being renamed, and the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = self.calls = 0

    async def rename_files(self, renames: Sequence[tuple[StorePath, StorePath]], **rest: Any) -> dict[int, StoreError]:
        self.calls += 1
        self.now += len(renames)
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        try:
            return await super().rename_files(renames, **rest)
        finally:
            self.now -= len(renames)


@pytest.mark.parametrize(("io_concurrency", "most"), [(1, 1), (3, 3), (8, 8), (200, 200), (512, MANY)])
async def test_no_more_files_are_renamed_at_a_time_than_allowed(tmp_path: Path, io_concurrency: int, most: int) -> None:
    store = Counting()
    config = CommitterConfig(io_concurrency=io_concurrency)
    async with committer.open_job(
        str(tmp_path / "out"), job_id="job-1", config=config, storage_options={"store": store}
    ) as job:
        async with job.task_attempt(task=0) as task:
            for number in range(MANY):
                Path(task.work_path(f"part-{number}")).write_bytes(b"")
        report = await job.commit()
    assert report.files_committed == MANY
    assert store.most == most
    assert store.calls < MANY or io_concurrency < 4
    await store.close()


GIVEN = {field: value for _key, _text, field, value in HONOURED if value != getattr(CommitterConfig(), field)}


@pytest.mark.parametrize("field", sorted(GIVEN))
def test_a_later_call_changes_only_the_fields_of_the_caller(field: str) -> None:
    stored = CommitterConfig(pending_set_directory="/pending")
    given = CommitterConfig(**{field: GIVEN[field]})
    changed = getattr(trusted_config(stored, given), field) == GIVEN[field]
    assert changed == (field in OF_CALLER)


def test_every_field_of_the_caller_is_tried() -> None:
    assert set(GIVEN) >= OF_CALLER
