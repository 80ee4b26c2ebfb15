"""Encoding and decoding of what is persisted or sent: task manifests, `_SUCCESS`, task commit messages."""

from __future__ import annotations

import hashlib

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.suite import Sized
from committer.paths import StorePath
from committer.records.manifest import (
    DirectoryEntry,
    FileEntry,
    TaskManifest,
    decode_task_manifest,
    encode_task_manifest,
    relative_names,
)
from committer.records.success import SuccessData, decode_success, encode_success
from committer.records.task_commit import TaskCommit

DESTINATION = StorePath.of("/data/table")
TASKS = DESTINATION / "_temporary/job/00/tasks"
ENTRIES = [10, 1_000, 100_000]


def manifest(entries: int) -> TaskManifest:
    return TaskManifest(
        jobId="job",
        taskID="task_job_m_000000",
        taskAttemptID="attempt_job_m_000000_0",
        files=[
            FileEntry(
                s=(TASKS / f"attempt/d={n % 10}/part-{n:05d}").uri,
                d=(DESTINATION / f"d={n % 10}/part-{n:05d}").uri,
                z=n,
                e=f"{n}:1",
            )
            for n in range(entries)
        ],
        directories=[DirectoryEntry(d=(DESTINATION / f"d={n}").uri, t=0, l=1) for n in range(10)],
    )


@pytest.mark.parametrize("entries", ENTRIES)
def test_encode_a_manifest(benchmark: BenchmarkFixture, sized: Sized, entries: int) -> None:
    made = manifest(sized(entries, min(entries, 100)))
    data = benchmark(encode_task_manifest, made)
    benchmark.extra_info.update(entries=len(made.files), bytes=len(data))
    assert decode_task_manifest(data, source="benchmark").files == made.files


@pytest.mark.parametrize("entries", ENTRIES)
def test_decode_a_manifest(benchmark: BenchmarkFixture, sized: Sized, entries: int) -> None:
    """As a job commit reads one: checked, and its names proved to be below the destination."""
    count = sized(entries, min(entries, 100))
    data = encode_task_manifest(manifest(count))

    def load() -> int:
        loaded = decode_task_manifest(data, source="benchmark")
        read = relative_names(loaded, destination=DESTINATION, source_root=TASKS, source="benchmark")
        return len(read.destinations)

    assert benchmark(load) == count
    benchmark.extra_info.update(entries=count, bytes=len(data))


def test_success(benchmark: BenchmarkFixture) -> None:
    success = SuccessData(jobId="job", filenames=[(DESTINATION / f"d={n}/part-0").uri for n in range(100)])

    def there_and_back() -> SuccessData:
        return decode_success(encode_success(success), source="benchmark")

    assert benchmark(there_and_back).filenames == success.filenames


def test_task_commit_message(benchmark: BenchmarkFixture) -> None:
    record = encode_task_manifest(manifest(10))
    message = TaskCommit(
        job_id="job",
        task=0,
        attempt=0,
        nonce="0" * 12,
        record=(TASKS / "record").uri,
        digest=hashlib.sha256(record).hexdigest(),
        length=len(record),
        files=10,
        size=45,
        inline=record.decode(),
    )
    assert message.inline is not None
    assert benchmark(lambda: TaskCommit.decode(message.encode())) == message
