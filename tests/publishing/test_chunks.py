"""Chunks: bounded, picklable, without secrets, proved whole."""

from __future__ import annotations

import pickle

import msgspec
import pytest

from committer import JobSpec, publish_chunk
from committer.api.publishing import PublishAccount, PublishChunk
from committer.errors import CommitterError, ConfigurationError, RecordError
from committer.records.pending_uploads import UploadEntry
from committer.records.publish_chunk import PlannedFile
from committer.records.task_commit import digest_of
from committer.stages.publish.publish_elsewhere import cut, files_of_a_chunk
from tests.neighbours.meeting import Table
from tests.publishing.pools import TablePool


def planned(number: int, texts: int = 10) -> PlannedFile:
    return PlannedFile(f"attempt/{'s' * texts}{number}", f"{'d' * texts}{number}", 1, "1:2")


@pytest.mark.parametrize(
    ("files", "workers", "most"), [(0, 2, 1), (7, 2, 1), (100, 2, 13), (10_000_000, 64, 5_000), (100, 0, 25)]
)
def test_how_many_files_a_chunk_has(files: int, workers: int, most: int) -> None:
    assert files_of_a_chunk(files, workers) == most


def test_runs_hold_every_file_once_in_order() -> None:
    files = [planned(number) for number in range(103)]
    runs = list(cut(files, 10))
    assert [file for run in runs for file in run] == files
    assert [len(run) for run in runs] == [10] * 10 + [3]


def test_runs_are_bounded_in_bytes() -> None:
    files = [planned(number, texts=4_000) for number in range(1_000)]
    runs = list(cut(files, 5_000))
    assert len(runs) > 5
    for run in runs:
        assert len(msgspec.msgpack.encode(run)) <= 1 << 20


def test_a_file_of_very_many_parts_is_a_run_of_its_own() -> None:
    big = planned(0)
    big.upload = UploadEntry("u", tuple(f"etag-{part:059}" for part in range(10_000)), ("c" * 44,) * 10_000, "CRC")
    runs = list(cut([planned(1), big, planned(2)], 100))
    assert [len(run) for run in runs] == [1, 1, 1]


def chunk(**changes: object) -> PublishChunk:
    entries = msgspec.msgpack.encode([PlannedFile("s", "d", 3, None)])
    made = PublishChunk(
        number=0,
        spec=JobSpec(destination="memory://nowhere/table", job_id="job"),
        driver="driver",
        files=1,
        size=3,
        entries=entries,
        digest=digest_of(entries),
    )
    return msgspec.structs.replace(made, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"entries": b"\x00"},
        {"digest": "0" * 64},
        {"files": 2},
        {"size": 4},
        {"entries": b"\xc1", "digest": digest_of(b"\xc1")},
    ],
)
async def test_a_damaged_chunk_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(RecordError) as caught:
        await publish_chunk(chunk(**changes))
    assert caught.value.next_step


async def test_what_is_no_chunk_is_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        await publish_chunk(b"chunk")  # type: ignore[arg-type]
    assert caught.value.next_step


async def test_a_chunk_of_no_job_is_over() -> None:
    table = Table("local", {"a": b"a"})
    spec = JobSpec(destination=table.dest, job_id="never")
    account = await publish_chunk(chunk(spec=spec), table.options)
    assert account.problem == "over"
    assert table.all_files() == {"a": b"a"}


def test_an_account_is_of_its_chunk_alone() -> None:
    of = PublishAccount(number=0, driver="driver", digest=chunk().digest, files=1, size=3)
    assert of.is_of(chunk())
    for changes in ({"number": 1}, {"driver": "x"}, {"digest": "x"}, {"files": 0}, {"size": 2}, {"problem": "failed"}):
        assert not msgspec.structs.replace(of, **changes).is_of(chunk())
    long = PublishAccount.of_problem(chunk(), "failed", CommitterError("x" * 10_000))
    assert len(pickle.dumps(long)) < 2_000


async def test_the_messages_hold_no_secret_and_are_small() -> None:
    table = Table("adls")
    pool = TablePool(table)
    party = await table.job("job", {f"p={number % 7}/part-{number}": b"x" for number in range(200)})
    await party.driver.commit(publish_with=pool)
    assert sum(given.files for given in pool.chunks) == 200
    for given, account in zip(pool.chunks, pool.accounts, strict=True):
        sent = pickle.dumps(given)
        assert len(sent) < 50_000
        assert b"store" not in given.spec.encode().replace(b"store_", b"")
        assert len(pickle.dumps(account)) < 10_000
