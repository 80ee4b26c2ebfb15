"""What preflight refuses, before anything is decided: output that contradicts itself or that the store cannot hold."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, JobNotFoundError, PreflightError, RecordError, TargetExistsError
from committer.records.manifest import decode_task_manifest, encode_task_manifest
from committer.stages.load import load_records
from committer.stores.local import LocalStore
from committer.testing.faults import Call, FaultyStore
from tests.places import MemoryPlace, Place

LONG = "n" * 200


async def refused(place: Place, *tasks: dict[str, bytes], config: CommitterConfig | None = None) -> PreflightError:
    """Runs a job that must be refused; checks that it changed nothing, and that `plan` said so before."""
    before = place.files()
    job = await place.open_job(config=config)
    for number, files in enumerate(tasks):
        await place.run_task(job, number, files)
    plan = await job.plan()
    assert plan.conflicts
    with pytest.raises(PreflightError) as caught:
        await job.commit()
    error = caught.value
    assert error.outcome == "unchanged"
    assert list(error.conflicts) == plan.conflicts
    assert error.conflicts[0] in str(error)
    assert error.next_step
    assert place.files() == before
    assert await place.states() == {job.job_id: "open"}
    await job.abort()
    assert place.files() == before
    assert place.temporary() == set()
    return error


async def test_two_tasks_with_one_destination(place: Place) -> None:
    error = await refused(place, {"a/part-0": b"0"}, {"b": b""}, {"a/part-0": b"2"})
    assert len(error.conflicts) == 1
    assert "a/part-0 is written by" in error.conflicts[0]
    assert "m_000000" in error.conflicts[0]
    assert "m_000002" in error.conflicts[0]


@pytest.mark.parametrize("deep", ["a/b", "a/b/c/d"])
async def test_file_that_is_an_ancestor_of_another(place: Place, deep: str) -> None:
    error = await refused(place, {"a": b"file"}, {deep: b"x"})
    assert "a is a file of" in error.conflicts[0]
    assert "directory" in error.conflicts[0]


async def test_each_conflict_is_named_up_to_a_hundred(place: Place) -> None:
    files = {f"part-{number:03}": b"" for number in range(150)}
    error = await refused(place, files, files)
    assert len(error.conflicts) == 100
    assert "(and at least 99 more)" in str(error)


async def test_the_others_are_counted(place: Place) -> None:
    files = {f"part-{number}": b"" for number in range(3)}
    assert "(and 2 more)" in str(await refused(place, files, files))


@pytest.mark.parametrize(
    ("flags", "first", "second"),
    [
        ({"case_folding": True}, "Part-0", "part-0"),
        ({"case_folding": True}, "a/B/c", "a/b/c"),
        ({"case_folding": True}, "A/x", "a/y"),
        ({"case_folding": True}, "A", "a/y"),
        ({"case_folding": True}, "stra\u00dfe", "STRASSE"),
        ({"unicode_folding": True}, "caf\u00e9", "cafe\u0301"),
        ({"unicode_folding": True}, "caf\u00e9/x", "cafe\u0301/y"),
        ({"unicode_folding": True, "case_folding": True}, "CAF\u00c9", "cafe\u0301"),
    ],
)
@pytest.mark.parametrize("profile", ["local", "gcs"])
async def test_names_the_store_takes_for_one(profile: str, flags: dict[str, bool], first: str, second: str) -> None:
    await refused(MemoryPlace(profile, **flags), {first: b"1"}, {second: b"2"})
    if (first, second) != ("A", "a/y"):
        # A store that does not fold takes both.
        place = MemoryPlace(profile)
        await place.run_job({first: b"1"}, {second: b"2"})
        assert place.files() == {first: b"1", second: b"2"}


@pytest.mark.parametrize("flag", ["case_folding", "unicode_folding"])
async def test_target_of_another_spelling(flag: str) -> None:
    old, new = ("a/Part-0", "A/part-0") if flag == "case_folding" else ("caf\u00e9", "cafe\u0301")
    place = MemoryPlace("local", **{flag: True})
    place.write(old, b"old")
    await refused(place, {new: b"new"})


async def test_directory_of_another_spelling_is_used_as_it_is() -> None:
    place = MemoryPlace("local", case_folding=True)
    place.write("Year=1/old", b"old")
    report = await place.run_job({"year=1/new": b"new"})
    assert report.directories_created == 0
    assert sorted(place.files().values()) == [b"new", b"old"]
    assert place.directories() == {"Year=1"}


async def rewrite_manifests(place: Place, change) -> None:
    """Changes records on the store, as another writer's might be."""
    for name, data in place.all_files().items():
        if name.endswith("-manifest.json"):
            manifest = decode_task_manifest(data, source=name)
            place.write(name, encode_task_manifest(change(manifest)))


@pytest.mark.parametrize(
    ("profile", "name", "says"),
    [
        ("local", "x" * 256, "longer than 255 bytes"),
        ("local", "d/" + "é" * 128, "longer than 255 bytes"),
        ("local", "/".join([LONG] * 21) + "/x", "longer than 4095 bytes"),
        ("adls", "/".join([LONG] * 6) + "/x", "longer than 1024 bytes"),
        ("adls", "d./x", "ends in a period"),
        ("adls", "d/x.", "ends in a period"),
    ],
)
async def test_names_the_store_cannot_hold_in_a_record_of_another_engine(profile: str, name: str, says: str) -> None:
    place = MemoryPlace(profile)
    job = await place.open_job()
    await place.run_task(job, 0, {"part-0": b"x"})
    destination = place.layout(job.job_id).destination

    def rename(manifest):
        return msgspec.structs.replace(
            manifest, files=[msgspec.structs.replace(entry, d=(destination / name).uri) for entry in manifest.files]
        )

    await rewrite_manifests(place, rename)
    with pytest.raises(PreflightError, match=says):
        await job.commit()
    assert place.files() == {}
    await job.abort()


async def test_job_directory_that_vanished(place: Place) -> None:
    job = await place.open_job(job_id="job-1")
    await place.run_task(job, 0, {"part-0": b"x"})
    place.remove("_temporary")
    with pytest.raises(JobNotFoundError) as caught:
        await job.commit()
    assert caught.value.outcome == "unchanged"
    assert place.all_files() == {}


async def test_source_that_vanished_is_found_before_the_decision_when_there_is_no_identity() -> None:
    """Java's records on a local disk carry none, so sources are listed."""
    place = MemoryPlace("local")
    job = await place.open_job()
    await place.run_task(job, 0, {"part-0": b"x", "part-1": b"yy"})

    def forget(manifest):
        return msgspec.structs.replace(
            manifest, files=[msgspec.structs.replace(entry, e=None) for entry in manifest.files]
        )

    await rewrite_manifests(place, forget)
    [source] = [name for name in place.all_files() if name.endswith("/part-1")]
    data = place.read(source)
    place.remove(source)
    with pytest.raises(PreflightError, match="part-1 is gone"):
        await job.commit()
    place.write(source, b"longer")
    with pytest.raises(PreflightError, match="part-1 has 6 bytes, its record says 2"):
        await job.commit()
    place.write(source, data)
    await job.commit()
    assert place.files() == {"part-0": b"x", "part-1": b"yy"}


@pytest.mark.parametrize("rows", [0, 3])
async def test_conflicts_are_found_among_more_names_than_memory_holds(
    memory: MemoryPlace, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(load_records, "ENTRIES_IN_MEMORY", 4)
    job = await memory.open_job()
    await memory.run_task(job, 0, {f"a/part-{number}": b"x" for number in range(10)})
    await memory.run_task(job, 1, {f"a/part-{number}": b"x" for number in range(10 - rows, 20)})
    if rows:
        with pytest.raises(PreflightError) as caught:
            await job.commit()
        assert len(caught.value.conflicts) == rows
        await job.abort()
        assert memory.files() == {}
    else:
        report = await job.commit()
        assert report.files_committed == 20
        assert len(memory.files()) == 20


async def test_record_that_names_one_source_twice(place: Place) -> None:
    job = await place.open_job()
    await place.run_task(job, 0, {"part-0": b"x", "part-1": b"x"})

    def twice(manifest):
        first = manifest.files[0]
        return msgspec.structs.replace(manifest, files=[first, msgspec.structs.replace(manifest.files[1], s=first.s)])

    await rewrite_manifests(place, twice)
    with pytest.raises(RecordError):
        await job.commit()
    assert place.files() == {}
    await job.abort()


async def test_two_records_for_one_source(place: Place) -> None:
    """Only a forged record does so. It is refused before anything is decided."""
    job = await place.open_job(job_id="job-1")
    await place.run_task(job, 0, {"part-0": b"x"})
    await place.run_task(job, 1, {"part-1": b"x"})
    first: list = []

    def same(manifest):
        [entry] = manifest.files
        first.append(entry)
        return msgspec.structs.replace(manifest, files=[msgspec.structs.replace(entry, s=first[0].s, e=first[0].e)])

    await rewrite_manifests(place, same)
    with pytest.raises(CommitterError) as caught:
        await job.commit()
    assert caught.value.outcome == "unchanged"
    assert place.files() == {}
    await place.recover("job-1", rollback=True, force=True)
    assert place.all_files() == {}


@pytest.mark.allow_blocking("changes the disk itself")
async def test_a_file_that_replaces_a_directory_while_it_is_looked_at(tmp_path: Path) -> None:
    destination, listings = tmp_path / "o", 0
    (destination / "p=1").mkdir(parents=True)
    (destination / "p=1" / "old").touch()
    store = FaultyStore(LocalStore())

    async def before_call(call: Call) -> None:
        nonlocal listings
        if call.operation == "list" and call.path.name == "p=1":
            listings += 1
            if listings == 2:
                shutil.rmtree(destination / "p=1")
                (destination / "p=1").touch()

    config = CommitterConfig(conflict_mode="fail", superseded_scope="directories")
    job = await committer.open_job(destination, config=config, storage_options={"store": store})
    async with job.task_attempt(task=0) as task, task.open("p=1/new") as file:
        await file.write(b"new")
    store.before_call = before_call
    with pytest.raises(TargetExistsError) as caught:
        await job.commit(tasks=1)
    assert (listings, caught.value.outcome) == (2, "unchanged")
    await job.abort()
