"""`list_winners`: what a reader reads who goes by `_SUCCESS`, and the errors where that tells nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import committer
from committer import CommitterConfig, sync
from committer.errors import CommitterError, DestinationNotFoundError, JobNotFoundError, RecordError, ValidationError
from committer.records.success import decode_success, encode_success
from tests.committers.stocator_place import StocatorPlace
from tests.places import MemoryPlace

FILES = {"a=1/part 0.csv": b"one", "a=__HIVE_DEFAULT_PARTITION__/part-1": b"", "part-2": b"three"}


@pytest.fixture
async def place() -> StocatorPlace:
    made = StocatorPlace()
    await made.run_job(FILES, {f"b/part-{number}": b"x" for number in range(120)}, job_id="j")
    return made


async def test_every_winner_is_listed_and_no_loser(place: StocatorPlace) -> None:
    job = await place.open_job(job_id="next")
    await place.run_task(job, 0, {"part-0": b"not decided"})
    winners = await committer.list_winners(place.dest, storage_options=place.options)
    assert (winners.job_id, winners.committer, len(winners.files)) == ("j", "stocator", 123)
    assert {uri.removeprefix(f"{place.dest}/") for uri in winners.uris} == place.named()
    assert [file.partition for file in winners.files][:2] == [{"a": "1"}, {"a": None}]
    assert sum(file.size for file in winners.files) == 128
    assert winners.paths[0].startswith(f"{place.space.name}/table/a=1/part 0-attempt_")
    await job.abort()


async def test_it_looks_at_each_file_unless_told_not_to(place: StocatorPlace) -> None:
    before = place.store.count()
    await committer.list_winners(place.dest, check=False, storage_options=place.options)
    assert place.store.count() - before == 1
    await committer.list_winners(place.dest, storage_options=place.options)
    assert place.store.count() - before == 2 + 123


async def test_a_file_that_is_missing_or_another_is_an_error(place: StocatorPlace) -> None:
    first, second, *_rest = sorted(place.named())
    place.remove(first)
    with pytest.raises(ValidationError, match="is missing") as caught:
        await committer.list_winners(place.dest, storage_options=place.options)
    assert first in caught.value.message
    assert caught.value.next_step
    place.write(second, b"another, and longer")
    with pytest.raises(ValidationError, match="and 1 more"):
        await committer.list_winners(place.dest, storage_options=place.options)
    assert len((await committer.list_winners(place.dest, check=False, storage_options=place.options)).files) == 123


async def test_without_success_no_file_counts() -> None:
    place = StocatorPlace()
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    with pytest.raises(JobNotFoundError, match="there is no _SUCCESS"):
        await committer.list_winners(place.dest, storage_options=place.options)
    await job.abort()
    with pytest.raises(DestinationNotFoundError):
        await committer.list_winners("/nowhere/at/all")


@pytest.mark.parametrize("data", [b"", b"{}", b"part-0\npart-1\n", b'{"name":"another/1"}'])
async def test_a_success_of_another_form_is_an_error(place: StocatorPlace, data: bytes) -> None:
    """IBM's Stocator and Hadoop's file output committers leave an empty one: it tells nothing."""
    place.write("_SUCCESS", data)
    with pytest.raises(RecordError) as caught:
        await committer.list_winners(place.dest, storage_options=place.options)
    assert "committer='stocator'" in caught.value.next_step


async def _altered(place: StocatorPlace, **changes: object) -> CommitterError:
    marker = decode_success(place.read("_SUCCESS"), source="_SUCCESS")
    for name, value in changes.items():
        setattr(marker, name, value)
    place.write("_SUCCESS", encode_success(marker))
    with pytest.raises(RecordError) as caught:
        await committer.list_winners(place.dest, storage_options=place.options)
    return caught.value


async def test_a_success_that_names_some_files_only_is_an_error(place: StocatorPlace) -> None:
    marker = decode_success(place.read("_SUCCESS"), source="_SUCCESS")
    error = await _altered(place, filenames=marker.filenames[1:], lengths=(marker.lengths or [])[1:])
    assert "names 122 of 123 files" in error.message


@pytest.mark.parametrize("name", ["/other/secret", "/table/../other/secret", "/tables/part-0", "/table"])
async def test_a_success_that_names_a_place_outside_is_an_error(place: StocatorPlace, name: str) -> None:
    """G10: a reader must not be led elsewhere by what exists there."""
    marker = decode_success(place.read("_SUCCESS"), source="_SUCCESS")
    uri = f"memory://{place.space.name}{name}"
    error = await _altered(place, filenames=[uri, *marker.filenames[1:]])
    assert "outside" in error.message


async def test_a_success_of_a_job_that_failed_is_an_error(place: StocatorPlace) -> None:
    assert "did not commit" in (await _altered(place, success=False)).message


@pytest.mark.parametrize("profile", ["local", "s3"])
async def test_it_reads_what_other_committers_wrote(profile: str) -> None:
    """Up to a hundred files by `_SUCCESS` itself, more by the complete list that it names."""
    place = MemoryPlace(profile)
    await place.run_job({"part-0": b"x"})
    assert (await committer.list_winners(place.dest, storage_options=place.options)).uris == [f"{place.dest}/part-0"]
    many = {f"many/part-{number}": b"x" for number in range(150)}
    await place.run_job(many)
    with pytest.raises(RecordError, match="names 100 of 150 files"):
        await committer.list_winners(place.dest, storage_options=place.options)
    for where in (f"{place.dest}/_lists", f"memory://{place.space.name}/lists"):
        config = CommitterConfig(file_list_directory=where, existing_target="replace")
        await place.run_job(many, config=config)
        winners = await committer.list_winners(place.dest, storage_options=place.options, config=config)
        assert sorted(winners.uris) == sorted(f"{place.dest}/{name}" for name in many)
    with pytest.raises(RecordError, match="give file_list_directory"):
        await committer.list_winners(place.dest, storage_options=place.options)


async def test_pyarrow_reads_them(tmp_path: Path) -> None:
    """On a local disk, where the same is read of any committer."""
    table = pa.table({"n": [1, 2, 3]})
    async with committer.open_job(tmp_path / "table") as job:
        async with job.task_attempt(task=0) as task, task.open_blocking("day=1/part-0.parquet") as file:
            await asyncio.to_thread(pq.write_table, table, file)
    stray = tmp_path / "table" / "day=1" / "part-0-stray.parquet"
    pq.write_table(table, stray)
    winners = await committer.list_winners(tmp_path / "table")
    read = ds.dataset(winners.paths, filesystem=pafs.LocalFileSystem(), partitioning="hive").to_table()
    assert read.column("n").to_pylist() == [1, 2, 3]
    assert ds.dataset(tmp_path / "table").count_rows() == 6


def test_it_blocks_where_that_is_asked_for(tmp_path: Path) -> None:
    with sync.open_job(tmp_path / "table") as job, job.task_attempt(task=0) as task, task.open("part-0") as file:
        file.write(b"x")
    winners = sync.list_winners(tmp_path / "table")
    assert winners.paths == [f"{tmp_path}/table/part-0"]
