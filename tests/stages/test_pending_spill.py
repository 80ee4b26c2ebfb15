"""Uploads that pend beside a job's own, more than memory is to hold: which of them the lists of winners name."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from committer.flow.spill import SpillFile
from committer.paths import StorePath
from committer.stages.remove import abort_uploads
from committer.stages.remove.abort_uploads import outermost, with_listed
from committer.stores.uploads import PendingUpload
from tests.places import MemoryPlace, place_fixture
from tests.waiting_uploads import pending

place = place_fixture("s3", delivery="message")

ROOT = StorePath("memory", "bucket", "/out")


def upload(number: int) -> PendingUpload:
    return PendingUpload(ROOT / f"p={number % 100}/part-{number}", f"id-{number}", 1.0)


async def uploads_in(run: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
    """Every third; the list of the second run has the ids with other names."""
    for number in range(0, 300, 3):
        path = upload(number).path if run.name == "run-1" else upload(number + 1).path
        yield path, f"id-{number}"


@pytest.mark.parametrize("few", [0, 299, 300])
@pytest.mark.parametrize("runs", [[], ["run-1"], ["run-2", "run-1", "run-1"], ["run-2"]])
async def test_what_a_list_names_by_path_and_id_is_told_in_order(few: int, runs: list[str]) -> None:
    async with SpillFile(PendingUpload, block_bytes=2000) as spilled:
        for number in range(300):
            await spilled.append(upload(number))
        lists = [ROOT / name for name in runs]
        found = [one async for one in with_listed(spilled, lists, uploads_in, workers=2, few=few)]
    assert found == [(upload(number), "run-1" in runs and number % 3 == 0) for number in range(300)]


async def test_no_list_is_read_where_nothing_is_pending() -> None:
    def read(_run: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
        raise AssertionError

    async with SpillFile(PendingUpload) as spilled:
        assert [one async for one in with_listed(spilled, [ROOT / "run-1"], read, workers=1)] == []


async def test_only_uploads_of_a_job_end_a_few_at_a_time(place: MemoryPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of executors that were killed, known by their names, beside those of another program."""
    monkeypatch.setattr(abort_uploads, "_AT_ONCE", 3)
    job_id = "0b6d7c1e-5a4f-4c36-9a55-2b1d8f0c9e11"
    uploads = place.space.uploads
    job = await place.open_job(job_id=job_id)
    for number in range(10):
        for name in (f"part-{number}-{job_id}.csv", f"other-{number:02}.csv"):
            path = StorePath.of(place.dest) / name
            uploads.put_part(path, uploads.create(path, "stamp"), 1, b"x")
    report = await job.commit([])
    await job.close()
    assert pending(place) == [f"other-{number:02}.csv" for number in range(10)]
    assert [path.rpartition("/")[2] for path in report.uploads_left] == pending(place)


def test_a_place_below_another_one_is_not_listed_again() -> None:
    places = [
        StorePath.of(f"s3://lake{name}") for name in ("/data/table", "/data", "/data/table/x", "/datas", "/other/a")
    ]
    assert [place.path for place in outermost(places)] == ["/data", "/datas", "/other/a"]
