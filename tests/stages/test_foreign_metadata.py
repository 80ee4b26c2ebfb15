"""Metadata of other writers at a destination: replaced with the data that it describes, or the write is refused."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from committer import CommitterConfig
from committer.errors import CommitterError, TargetExistsError
from committer.events.names import COMMITTER_STALE_METADATA
from committer.paths import StorePath
from committer.stages.check.foreign_metadata import MARKS, look_at_root, refusal_of
from committer.stores.local import LocalStore
from committer.testing.faults import Call, Fault
from tests.committers.file_places import FileInMemory
from tests.committers.stocator_place import StocatorPlace
from tests.places import EVERY_COMMITTER, MemoryPlace, Place, place_fixture

place = place_fixture(*EVERY_COMMITTER)

SUMMARIES = {
    "_metadata": b"s", "_common_metadata": b"s", "_symlink_format_manifest/p=1/manifest": b"s",
    "_symlink_format_manifest/manifest": b"s",
}  # fmt: skip
MARKERS = {"_committed_7": b"m", "_committed_vacuum7": b"m", "_started_7": b"m"}
OWN = dict.fromkeys(
    ("_notes", "_started_at.txt", "_committed_by", "_checkpoints/0", ".hidden", "_metadata_of_mine", ".hidden.crc"),
    b"n",
)
DATA = {"p=1/old": b"old", "p=2/old": b"old", "root": b"old"}
WHOLE = CommitterConfig(conflict_mode="replace", superseded_scope="destination")
PARTITIONS = CommitterConfig(conflict_mode="replace", superseded_scope="directories")
NAMED = CommitterConfig(conflict_mode="replace", superseded_directories=("p=2",))
FAIL = CommitterConfig(conflict_mode="fail", superseded_scope="directories")


def fill(place: Place, *some: dict[str, bytes]) -> None:
    for names in some:
        for name, data in names.items():
            place.write(name, data)


async def test_an_overwrite_removes_what_described_the_old_data(place: Place) -> None:
    fill(place, SUMMARIES, MARKERS, OWN, DATA, {"_spark_metadata/0": b"log", "_spark_metadata/9.compact": b"log"})
    await place.run_job({"p=9/new": b"new"}, config=WHOLE)
    assert place.files() == {**OWN, "p=9/new": b"new"}
    assert place.temporary() == set()
    assert not {"_spark_metadata", "_symlink_format_manifest"} & place.directories()


@pytest.mark.parametrize(
    "config", [CommitterConfig(), PARTITIONS, NAMED, FAIL], ids=["append", "partitions", "named", "fail"]
)
async def test_other_jobs_remove_summaries_that_they_make_stale(
    place: Place, config: CommitterConfig, caplog: pytest.LogCaptureFixture
) -> None:
    fill(place, SUMMARIES, MARKERS, OWN, DATA)
    caplog.set_level(logging.INFO, logger="committer")
    report = await place.run_job({"p=3/new": b"new"}, config=config)
    left = {name: data for name, data in DATA.items() if config is not NAMED or name != "p=2/old"}
    assert place.files() == {**MARKERS, **OWN, **left, "p=3/new": b"new"}
    assert report.statistics.counters[COMMITTER_STALE_METADATA] == 3
    assert "_common_metadata, _metadata, _symlink_format_manifest" in caplog.text
    assert place.temporary() == set()


@pytest.mark.parametrize("files", [1, 6])
async def test_summaries_of_partitions_that_are_listed_go_too(place: Place, files: int) -> None:
    """A driver looks at the names of few files alone: two more looks a partition would double the calls of an append."""
    others, stale = {"p=2/_metadata": b"s", "p=1/_notes": b"n", "p=1/old": b"old"}, {"p=1/_metadata": b"s"}
    fill(place, stale, others)
    new = {f"p=1/new-{number}": b"new" for number in range(files)}
    await place.run_job(new)
    assert place.files() == {**others, **new, **(stale if files == 1 else {})}


async def test_summaries_of_partitions_that_are_replaced_go_too(place: Place) -> None:
    fill(place, {"p=1/_metadata": b"s", "p=1/old": b"old", "p=2/_metadata": b"s"})
    await place.run_job({"p=1/new": b"new"}, config=PARTITIONS)
    assert place.files() == {"p=1/new": b"new", "p=2/_metadata": b"s"}


async def test_a_job_without_files_leaves_summaries(place: Place) -> None:
    fill(place, SUMMARIES, DATA)
    report = await place.run_job({})
    assert place.files() == {**SUMMARIES, **DATA}
    assert COMMITTER_STALE_METADATA not in report.statistics.counters


@pytest.mark.parametrize("kind", ["gcs", "s3", "hdfs"])
async def test_checksums_go_with_the_files_that_they_are_of(kind: str) -> None:
    place = MemoryPlace(kind)
    gone = {".old.crc": b"c", "._metadata.crc": b"c", "_metadata": b"s", "old": b"o"}
    kept = {"._notes.crc": b"c", "_notes": b"n", ".absent.crc": b"c"}
    fill(place, gone, kept)
    await place.run_job({"p=1/new": b"new"}, config=WHOLE)
    assert place.files() == {**kept, "p=1/new": b"new"}
    await place.store.close()


async def test_a_checksum_in_another_page_than_its_file(flat: MemoryPlace) -> None:
    names = [f"old-{number}" for number in range(700)]
    fill(flat, dict.fromkeys(names, b"o"), {f".{name}.crc": b"c" for name in names}, {".x.crc": b"c"})
    await flat.run_job({"new": b"new"}, config=WHOLE)
    assert flat.files() == {".x.crc": b"c", "new": b"new"}


@pytest.mark.parametrize("rollback", [True, False])
@pytest.mark.parametrize("config", [CommitterConfig(), WHOLE], ids=["append", "overwrite"])
async def test_another_driver_removes_summaries_or_brings_them_back(
    place: Place, config: CommitterConfig, rollback: bool
) -> None:
    before = {**SUMMARIES, **DATA}
    fill(place, before)
    job = await place.open_job(job_id="job-1", config=config)
    await place.run_task(job, 0, {"p=3/new": b"new"})
    place.faults(Fault(kind="forbidden", operation="put", path="outcome"))
    with pytest.raises(CommitterError):
        await job.commit()
    await place.recover("job-1", rollback=rollback, force=True)
    after = {"p=3/new": b"new", **({} if config is WHOLE else DATA)}
    assert place.files() == (before if rollback else after)


async def test_appends_at_once_that_find_one_summary_all_commit(place: Place) -> None:
    fill(place, SUMMARIES, DATA)
    jobs = [await place.open_job(job_id=f"job-{number}") for number in range(3)]
    for number, job in enumerate(jobs):
        await place.run_task(job, 0, {f"p=1/new-{number}": b"new"})
    waiting, met = asyncio.Barrier(len(jobs)), set[str]()

    async def meet(call: Call) -> None:
        # All have looked when the first one decides.
        if call.operation == "put" and call.path.name == "decision" and str(call.path) not in met:
            met.add(str(call.path))
            await waiting.wait()

    place.store.before_call = meet
    reports = await asyncio.gather(*(job.commit() for job in jobs))
    place.store.before_call = None
    assert len(met) == len(jobs)
    assert [report.files_committed for report in reports] == [1, 1, 1]
    assert place.files() == {**DATA, **{f"p=1/new-{number}": b"new" for number in range(3)}}


async def test_a_rollback_after_another_append_removed_the_summary(place: Place) -> None:
    fill(place, SUMMARIES, DATA)
    job = await place.open_job(job_id="job-1")
    await place.run_task(job, 0, {"p=1/new-1": b"new"})

    async def other(call: Call) -> None:
        # The first job has looked, and has not moved anything aside.
        if call.operation == "put" and call.path.name == "decision":
            place.store.before_call = None
            await place.run_job({"p=1/new-2": b"new"}, job_id="job-2")

    place.store.before_call = other
    place.faults(Fault(kind="forbidden", operation="put", path=f"{job.spec.unique_id}/outcome"))
    with pytest.raises(CommitterError):
        await job.commit()
    await place.recover("job-1", rollback=True, force=True)
    assert place.files() == {**DATA, "p=1/new-2": b"new"}
    assert place.temporary() == set()


async def test_a_job_that_writes_a_summary_itself_keeps_its_own(place: Place) -> None:
    fill(place, {"_metadata": b"s", "_common_metadata": b"same", **DATA})
    config = CommitterConfig(existing_target="replace")
    await place.run_job({"_metadata": b"mine", "_common_metadata": b"same", "p=1/new": b"new"}, config=config)
    assert place.files() == {**DATA, "_metadata": b"mine", "_common_metadata": b"same", "p=1/new": b"new"}


@pytest.mark.parametrize("config", [CommitterConfig(), PARTITIONS, NAMED], ids=["append", "partitions", "named"])
async def test_a_sink_log_refuses_what_it_would_hide(place: Place, config: CommitterConfig) -> None:
    before = {**DATA, "_spark_metadata/0": b"log"}
    fill(place, before)
    job = await place.open_job(config=config)
    await place.run_task(job, 0, {"p=2/new": b"new"})
    with pytest.raises(TargetExistsError, match="_spark_metadata") as raised:
        await job.commit()
    assert "overwrite the whole destination" in raised.value.next_step
    assert "another directory" in raised.value.next_step
    assert raised.value.outcome == "unchanged"
    await job.abort()
    assert place.files() == before
    await place.run_job({"p=2/new": b"new"}, config=WHOLE)
    assert place.files() == {"p=2/new": b"new"}


TABLES = {
    "Delta Lake": "_delta_log/00000000000000000000.json", "Hudi": ".hoodie/hoodie.properties",
    "Iceberg": "metadata/v1.metadata.json", "Paimon": "schema/schema-0", "Lance": "_versions/1.manifest",
    "DuckLake": "ducklake-01977a2b-9d3c-7c1e-8f00-5a1b2c3d4e5f.parquet",
}  # fmt: skip


@pytest.mark.parametrize("config", [CommitterConfig(), WHOLE], ids=["append", "overwrite"])
@pytest.mark.parametrize("writer", TABLES)
async def test_a_table_with_a_log_refuses_every_job(memory: MemoryPlace, writer: str, config: CommitterConfig) -> None:
    before = {TABLES[writer]: b"log", **DATA}
    fill(memory, before)
    job = await memory.open_job(config=config)
    await memory.run_task(job, 0, {"p=2/new": b"new"})
    with pytest.raises(TargetExistsError, match=f"is a table of {writer}") as raised:
        await job.commit()
    assert writer in raised.value.next_step
    await job.abort()
    assert memory.files() == before


@pytest.mark.parametrize(
    "name",
    ["schema/schema-1.avsc", "metadata/notes", "_versions/0", "_delta_log", "p=1/_delta_log/0", "ducklake-0.parquet"],
)
async def test_names_that_only_look_like_a_log(memory: MemoryPlace, name: str) -> None:
    fill(memory, {name: b"x"})
    await memory.run_job({"p=2/new": b"new"})
    assert memory.files() == {name: b"x", "p=2/new": b"new"}


@pytest.mark.parametrize("made", [lambda: FileInMemory("file-v2"), StocatorPlace], ids=["file-v2", "stocator"])
async def test_committers_whose_tasks_publish(made) -> None:
    place = made()
    fill(place, SUMMARIES, DATA)
    await place.run_job({"p=3/new": b"new"})
    assert not place.files().keys() & SUMMARIES.keys()
    assert DATA.items() <= place.files().items()
    # One file in a partition is looked up by its name; more are listed.
    new = {"p=4/_metadata": b"new", **{f"p=5/{name}": b"new" for name in ("a", "b", "c", "d", "e", "_metadata")}}
    await place.run_job({**SUMMARIES, **new})
    assert {**SUMMARIES, **new}.items() <= place.files().items()
    await place.store.close()


@pytest.mark.parametrize("made", [lambda: FileInMemory("file-v2", "gcs"), StocatorPlace], ids=["file-v2", "stocator"])
async def test_a_file_that_is_gone_is_missed_beside_a_file_at_its_directorys_name(made) -> None:
    place = made()
    place.write("a", b"old")
    job = await place.open_job(config=CommitterConfig(existing_target="replace"))
    await place.run_task(job, 0, {"a/x": b"1", "b": b"2"})
    place.remove(next(name for name in place.all_files() if name.startswith("a/x")))
    with pytest.raises(CommitterError, match="is gone") as caught:
        await job.commit(tasks=1)
    assert caught.value.outcome == "unchanged"
    await job.abort()
    await place.store.close()


@pytest.mark.parametrize("profile", ["s3", "gcs", "azure-flat"])
async def test_a_file_below_the_name_of_a_file_is_replaced_like_others(profile: str) -> None:
    place = MemoryPlace(profile)
    fill(place, {"a": b"old", "a/x": b"old", "b": b"old"})
    await place.run_job({"a/x": b"new"}, config=CommitterConfig(existing_target="replace"))
    assert place.files() == {"a/x": b"new", "b": b"old"}
    await place.store.close()


async def test_known_names_are_found_among_more_than_are_listed(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"part-{number}").touch()
    (tmp_path / "_metadata").touch()
    (tmp_path / "_spark_metadata").mkdir()
    store = LocalStore()
    view = await look_at_root(store, StorePath.of(tmp_path))
    assert sorted(mark.name for mark, _status in view.marks) == ["_metadata", "_spark_metadata/"]
    assert view.visible
    assert refusal_of(view, whole=True) is None
    await store.close()


FATES = {
    "summary": ("removes it", "removes it"), "marker": ("removes it", "leaves it"),
    "sink log": ("removes it", "is refused"), "table": ("is refused", "is refused"),
}  # fmt: skip


def test_the_page_shows_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    section = page.partition("#### Other writers' metadata")[2]
    shown = [line for line in section.splitlines() if line.startswith("| `")][: len(MARKS) + 1]
    rows = []
    for mark in MARKS:
        proof = " or ".join(f"`{pattern}`" for pattern in mark.proof)
        name = f"`{mark.name}` with {proof}" if proof else f"`{mark.name}`"
        rows.append("| " + " | ".join((name, mark.writer, *FATES[mark.kind])) + " |")
    assert shown[: len(rows)] == rows
    assert f"{rows[-1]}\n\n" in section
