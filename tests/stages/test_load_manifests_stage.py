"""Twin of Hadoop's TestLoadManifestsStage: many records saved and loaded, counts and sizes kept, directories coalesced.

Hadoop's suite has 2,000 attempts of 100 files. The quick form here has 60 of 20, the slow one Hadoop's number.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from collections import Counter
from itertools import combinations, product

import pytest

from committer import CommitterConfig
from committer.errors import CommitterError
from committer.events import names
from committer.stages.decide import decide
from committer.stages.load import load_records
from committer.testing.faults import Call, Fault
from tests.places import MemoryPlace

PARTITIONS = 20


async def save(place: MemoryPlace, attempts: int, files: int):
    job = await place.open_job(job_id="job-1", delivery="listing")
    for task in range(attempts):
        await place.run_task(
            job, task, {f"p={number % PARTITIONS}/part-{task}-{number}": b"x" * (number % 3) for number in range(files)}
        )
    return job


@pytest.mark.parametrize("kept", [1 << 30, 500], ids=["in memory", "read twice"])
@pytest.mark.parametrize("profile", ["local", "gcs", "s3"])
async def test_many_records(monkeypatch: pytest.MonkeyPatch, profile: str, kept: int) -> None:
    attempts, files = 60, 20
    place = MemoryPlace(profile)
    job = await save(place, attempts, files)
    monkeypatch.setattr(load_records, "ENTRIES_IN_MEMORY", kept)
    plan = await job.plan()
    size = attempts * sum(number % 3 for number in range(files))
    assert (plan.tasks, plan.files, plan.bytes) == (attempts, attempts * files, size)
    assert plan.directories == sorted(f"p={number}" for number in range(PARTITIONS))
    report = await job.commit(tasks=attempts)
    assert (report.files_committed, report.bytes_committed, report.directories_created) == (
        attempts * files, size, PARTITIONS,
    )  # fmt: skip
    counters = report.statistics.counters
    assert counters[names.COMMITTER_TASKS_COMPLETED] == attempts
    assert counters[names.COMMITTER_TASK_FILE_COUNT] == attempts * files
    assert report.statistics.meanstatistics[names.COMMITTER_TASK_MANIFEST_FILE_SIZE].samples == attempts
    assert len(place.files()) == attempts * files
    assert place.temporary() == set()


@pytest.mark.parametrize(("kept", "reads"), [(1 << 30, 1), (60, 2)])
async def test_uploads_are_kept_by_their_parts(kept: int, reads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """HADOOP-16570: the records of 20 files with 60 parts each are read twice where 60 entries may be kept, none on disk."""
    monkeypatch.setattr(load_records, "ENTRIES_IN_MEMORY", kept)
    monkeypatch.setattr(load_records, "BYTES_ON_DISK", 0)
    place, tasks, data = MemoryPlace("s3", delivery="message"), range(4), bytes(60)
    job = await place.open_job(job_id="job-1", config=CommitterConfig(multipart_size=1))
    names = [[f"part-{task}-{number}" for number in range(5)] for task in tasks]
    messages = [await place.run_task(job, task, dict.fromkeys(names[task], data)) for task in tasks]
    place.store.calls.clear()
    await job.commit(messages)
    read = Counter(str(call.path) for call in place.store.calls if call.operation == "read")
    assert [read[message.record] for message in messages] == [reads] * len(tasks)
    assert place.files() == {name: data for each in names for name in each}


async def test_few_records_are_held_at_once(memory: MemoryPlace) -> None:
    """Loading is bounded by the workers, whatever the number of records."""
    job = await save(memory, 60, 2)
    running = most = 0

    async def before(call) -> None:
        nonlocal running, most
        if call.operation == "read" and "manifest.json" in str(call.path):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    memory.store.before_call = before
    async with memory.attach_job("job-1", config=CommitterConfig()) as other:
        await other.plan()
    memory.store.before_call = None
    assert 1 < most <= CommitterConfig().io_concurrency
    await job.abort()


@pytest.mark.slow
async def test_as_many_as_hadoops_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_records, "ENTRIES_IN_MEMORY", 10_000)
    place = MemoryPlace("hdfs")
    job = await save(place, 2000, 100)
    tracemalloc.start()
    plan = await job.plan()
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (plan.tasks, plan.files) == (2000, 200_000)
    assert peak < 150 << 20
    report = await job.commit(tasks=2000)
    assert report.files_committed == 200_000


def test_attempts_of_sources_are_all_found() -> None:
    """Found by the first and the last name alone wherever that is proof; names around the slash are where it is not."""
    names_of_files = ["".join(letters) for length in (1, 2, 3) for letters in product("a!/0", repeat=length)]
    for sources in combinations(names_of_files, 3):
        assert load_records._attempts_of(list(sources)) == {source.partition("/")[0] for source in sources}
    assert load_records._attempts_of([]) == set()


@pytest.mark.parametrize("kept", [1 << 30, 3], ids=["in memory", "read twice"])
async def test_facts_of_a_decision_are_in_the_order_of_its_records_whichever_was_read_first(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who finishes the job reads the records in that order, and side files beside them."""
    monkeypatch.setattr(load_records, "ENTRIES_IN_MEMORY", kept)
    monkeypatch.setattr(decide, "FACTS_IN_DECISION", 0)
    place, names_of_files = MemoryPlace("hdfs", delivery="listing"), [f"p/part-{number}" for number in range(8)]
    await place.run_job(dict.fromkeys(names_of_files, b"old"), job_id="before")
    config = CommitterConfig(existing_target="replace", io_concurrency=8)
    job = await place.open_job(job_id="job-1", config=config)
    for task, name in enumerate(names_of_files):
        await place.run_task(job, task, {name: b"new"})
    waiting = 0

    async def before(call: Call) -> None:
        # The first ones to be read are the last ones to come.
        nonlocal waiting
        if call.operation == "read" and "manifest.json" in str(call.path):
            waiting += 1
            for _turn in range(100 - 10 * waiting):
                await asyncio.sleep(0)

    place.store.before_call = before
    place.faults(Fault(kind="forbidden", operation="rename_file", path="part-3"))
    with pytest.raises(CommitterError):
        await job.commit(tasks=len(names_of_files))
    place.store.before_call = None
    assert (await place.recover("job-1")).success
    assert place.files() == dict.fromkeys(names_of_files, b"new")
