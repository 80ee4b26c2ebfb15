"""The complete list of what a job committed: kept, read, compared."""

from __future__ import annotations

import json
import tracemalloc
import weakref
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

import committer
from committer import CommittedFile, CommitterConfig, JobReport
from committer.errors import CommitterError, ConfigurationError, JobNotFoundError, RecordError, StoreNotFoundError
from committer.options.config import FileListFormat
from committer.paths import StorePath
from committer.records import file_list as records
from committer.records.file_list import ListedFile
from committer.records.publish_chunk import PlannedFile
from committer.records.success import decode_success
from committer.stages.base import StageContext
from committer.stages.finish import file_list as stage
from committer.stages.load import load_records
from committer.stages.load.planned_files import PlannedFiles
from committer.stores.local import LocalStore
from committer.stores.memory import MemorySpace, MemoryStore
from committer.testing.faults import Call, Fault, FaultKind, SimulatedCrash
from tests.outside import config as outside_config
from tests.outside import uri as outside_uri
from tests.places import MemoryPlace, Place

FILES = {f"p={number % 3}/q=a%3Ab/part-{number:03}": b"x" * (number % 7) for number in range(150)}
_numbers = count()


class _Part(list[ListedFile]):
    """A part that can be seen to be freed."""


def listing(directory: object, **more: object) -> CommitterConfig:
    return CommitterConfig(file_list_directory=str(directory), **more)  # type: ignore[arg-type]


@pytest.fixture
def elsewhere() -> MemorySpace:
    """Another store."""
    return MemoryStore.space(f"lists-{next(_numbers)}")


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> int:
    """Parts of 40 files, and jobs whose files are read again from their records."""
    for module in (records, stage):
        monkeypatch.setattr(module, "ENTRIES_IN_A_PART", 40, raising=False)
    monkeypatch.setattr(load_records, "ENTRIES_IN_MEMORY", 30)
    return 40


async def read(report: JobReport, **arguments: object) -> dict[str, CommittedFile]:
    found = [file async for file in report.files(**arguments)]  # type: ignore[arg-type]
    assert len({file.path for file in found}) == len(found)
    return {file.path: file for file in found}


def expected(place: Place, files: dict[str, bytes] = FILES) -> dict[str, int]:
    destination = place.layout("any").destination
    return {(destination / name).uri: len(data) for name, data in files.items()}


def stem(place: Place) -> str:
    """What the files of the list of `job-1` begin with."""
    return place.layout("job-1").unique_name


def sizes(files: dict[str, CommittedFile]) -> dict[str, int]:
    return {path: file.size for path, file in files.items()}


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_the_list_names_every_file(place: Place, tmp_path: Path, form: str, delivery: str) -> None:
    lists = tmp_path / "lists"
    config = listing(lists, file_list_format=form)
    report = await place.run_job(FILES, {"flat": b"abc"}, job_id="job-1", delivery=delivery, config=config)  # type: ignore[arg-type]
    assert report.file_list == (lists / f"{stem(place)}.{form}").as_uri().replace("file://", "file:")
    found = await read(report)
    assert sizes(found) == expected(place, {**FILES, "flat": b"abc"})
    destination = place.layout("any").destination
    assert found[(destination / "p=1/q=a%3Ab/part-001").uri].partition == {"p": "1", "q": "a:b"}
    assert found[(destination / "flat").uri].partition == {}
    assert [path.name for path in lists.iterdir()] == [f"{stem(place)}.{form}"]


async def test_the_lines_are_plain_json(place: Place, tmp_path: Path) -> None:
    name = "k=__HIVE_DEFAULT_PARTITION__/a b%é"
    await place.run_job({name: b"abc"}, job_id="job-1", config=listing(tmp_path))
    lines = (tmp_path / f"{stem(place)}.jsonl").read_text().splitlines()
    uri = (place.layout("any").destination / name).uri
    assert [json.loads(line) for line in lines] == [{"path": uri, "size": 3, "partition": {"k": None}}]


async def test_parquet_is_read_by_others(place: Place, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    await place.run_job(FILES, job_id="job-1", config=listing(tmp_path, file_list_format="parquet"))
    table = pq.read_table(tmp_path / f"{stem(place)}.parquet")
    assert table.column_names == ["path", "size", "partition"]
    assert dict(zip(*map(list, (table["path"].to_pylist(), table["size"].to_pylist())), strict=True)) == expected(place)


async def test_many_files_make_parts(place: Place, tmp_path: Path, small_parts: int) -> None:
    half = len(FILES) // 2
    tasks = [dict(list(FILES.items())[:half]), dict(list(FILES.items())[half:])]
    report = await place.run_job(*tasks, job_id="job-1", config=listing(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("job-1")) == [
        f"{stem(place)}{part}.jsonl" for part in ("", "~00001", "~00002", "~00003")
    ]
    assert sizes(await read(report)) == expected(place)
    (tmp_path / f"{stem(place)}~00002.jsonl").unlink()
    with pytest.raises(RecordError, match="a part of a list"):
        await read(report)


async def test_the_last_part_is_never_full(place: Place, tmp_path: Path, small_parts: int) -> None:
    """The loss of a part behind a full one would go unnoticed."""
    report = await place.run_job(dict(list(FILES.items())[:80]), job_id="job-1", config=listing(tmp_path))
    assert (tmp_path / f"{stem(place)}~00002.jsonl").read_bytes() == b""
    assert len(await read(report)) == 80


async def test_a_job_without_files_has_an_empty_list(place: Place, tmp_path: Path) -> None:
    report = await place.run_job({}, job_id="job-1", config=listing(tmp_path))
    assert (tmp_path / f"{stem(place)}.jsonl").read_bytes() == b""
    assert await read(report) == {}


async def test_the_list_in_another_store(memory: MemoryPlace, elsewhere: MemorySpace) -> None:
    report = await memory.run_job(FILES, job_id="job-1", config=listing(f"memory://{elsewhere.name}/lists"))
    assert list(elsewhere.files()) == [f"/lists/{stem(memory)}.jsonl"]
    assert sizes(await read(report)) == expected(memory)


async def test_the_list_beside_the_output(place: Place) -> None:
    """Where it lies below the destination, `validate` finds it by itself, and takes it for no output."""
    config = listing(f"{place.dest}/_lists", summary_report_directory=f"{place.dest}/_reports")
    report = await place.run_job(FILES, job_id="job-1", config=config)
    assert f"_lists/{stem(place)}.jsonl" in place.files()
    assert sizes(await read(report, storage_options=place.options)) == expected(place)
    checked = await committer.validate(place.dest, storage_options=place.options)
    assert (checked.ok, checked.complete, checked.files, checked.file_list) == (True, True, 150, report.file_list)


async def test_files_outside_the_destination_are_listed(place: Place, tmp_path: Path) -> None:
    config = outside_config(place, file_list_directory=str(tmp_path))
    async with place.open_job(job_id="job-1", config=config) as job:
        async with job.task_attempt(task=0) as task:
            for file in (task.open("p=1/a"), task.open_absolute(outside_uri(place, "c=2/b"))):
                async with file:
                    await file.write(b"abc")
        report = await job.commit()
    assert sorted(tuple(file.partition.items()) for file in (await read(report)).values()) == [
        (("c", "2"),), (("p", "1"),),
    ]  # fmt: skip


async def test_a_report_without_a_list_says_so(place: Place) -> None:
    report = await place.run_job({"a": b"x"})
    assert report.file_list == ""
    with pytest.raises(ConfigurationError, match="no complete list") as caught:
        await read(report)
    assert "file_list_directory" in caught.value.next_step


async def test_parquet_needs_pyarrow(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ConfigurationError, match="needs pyarrow"):
        await place.open_job(config=listing(tmp_path, file_list_format="parquet"))
    assert place.temporary() == set()


async def test_jobs_of_one_id_at_two_destinations_share_a_directory(tmp_path: Path) -> None:
    """A nightly job has the same id for each table: each keeps its list, its records and its report."""
    places = {name: str(tmp_path / name) for name in ("orders", "items")}
    config = CommitterConfig(
        file_list_directory=str(tmp_path / "lists"),
        diagnostics_manifest_directory=str(tmp_path / "kept"),
        summary_report_directory=str(tmp_path / "reports"),
    )
    reports = {}
    for name, dest in places.items():
        async with committer.open_job(dest, job_id="nightly", config=config) as job:
            async with job.task_attempt(task=0) as task, task.open(f"p=1/{name}") as file:
                await file.write(b"x")
            reports[name] = await job.commit()
    for name, dest in places.items():
        assert [path.rpartition("/")[2] for path in await read(reports[name])] == [name]
        checked = await committer.validate(dest, config=config)
        assert (checked.ok, checked.complete, checked.remark) == (True, True, "")
    assert len(list((tmp_path / "kept").iterdir())) == 2
    # Hadoop's name has room for one report: it says nothing of the job at another destination.
    (tmp_path / "orders" / "_SUCCESS").unlink()
    with pytest.raises(JobNotFoundError):
        await committer.recover(places["orders"], "nightly", config=config)
    (tmp_path / "items" / "_SUCCESS").unlink()
    assert (await committer.recover(places["items"], "nightly", config=config)).success


class Many(PlannedFiles):
    """A number of files that nothing keeps."""

    def __init__(self, context: StageContext, files: int) -> None:
        super().__init__(context, [], None, {})
        self.files = files

    async def batches(self) -> AsyncIterator[list[PlannedFile]]:
        for start in range(0, self.files, 40):
            yield [PlannedFile(f"t/{n}", f"p=1/{n:0100}", 1, None) for n in range(start, start + 40)]


async def test_lists_of_any_length_take_the_memory_of_one_part(tmp_path: Path, small_parts: int) -> None:
    """Written part by part, and read so: 12,000 files take no more than 400 do."""
    job = await committer.open_job(tmp_path / "table", config=listing(tmp_path / "lists"))
    store, directory = LocalStore(threads=1), StorePath.of(tmp_path / "lists")
    peaks = []
    for files in (400, 400, 12_000):
        many = Many(job._context, files)
        tracemalloc.start()
        try:
            saving = stage.SaveFileList(job._context, store=store, directory=directory, expected=(files, files))
            first = await saving.run(many)
            assert sum([len(part) async for part in stage.read_parts(store, first, records.CommittedFile)]) == files
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    # All of their names together are more than three megabytes.
    assert peaks[2] < peaks[1] + 500_000
    await job.abort()
    await job.close()
    await store.close()


# --- Drivers that fail, and die ------------------------------------------------------------------------------------


async def test_a_list_that_is_not_kept_is_told(place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = await place.open_job(job_id="job-1", config=listing(tmp_path / "taken"))
    message = await place.run_task(job, 0, {"a": b"x"})
    # The directory was writable when the job was set up.
    (tmp_path / "taken").rmdir()
    (tmp_path / "taken").write_text("no directory")
    report = await job.commit([message] if job.spec.delivery == "message" else None, tasks=1)
    assert (report.success, report.file_list) == (True, "")
    assert "taken" in report.file_list_problem
    assert "could not keep the list of what job job-1 committed" in caplog.text
    assert place.files() == {"a": b"x"}
    with pytest.raises(ConfigurationError, match="taken"):
        await read(report)
    marker = decode_success(place.read("_SUCCESS"), source="")
    assert "taken" in marker.diagnostics["committer.file.list.problem"]
    checked = await committer.validate(place.dest, storage_options=place.options)
    assert "could not be kept" in checked.remark


PUTS = ["_lists/{}.jsonl", "_lists/{}~00001.jsonl", "_lists/{}~00003.jsonl", "_SUCCESS"]


@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
@pytest.mark.parametrize("stop", PUTS)
@pytest.mark.parametrize("again", [True, False], ids=["with the directory", "without it"])
async def test_a_recoverer_writes_the_whole_list(
    place: Place, small_parts: int, again: bool, stop: str, kind: FaultKind
) -> None:
    config = listing(f"{place.dest}/_lists")
    job = await place.open_job(job_id="job-1", config=config)
    message = await place.run_task(job, 0, FILES)
    for operation in ("put", "rename_file"):
        place.faults(
            Fault(kind=kind, operation=operation, path=lambda path: path.path.endswith(f"/{stop.format(stem(place))}"))
        )
    with pytest.raises(SimulatedCrash):
        await job.commit([message])
    alive = {"store": place.store.inner}
    for _time in range(2):
        report = await committer.recover(place.dest, "job-1", config=config if again else None, storage_options=alive)
        assert (report.success, report.files_committed) == (True, 150)
        if again:
            assert sizes(await read(report, storage_options=alive)) == expected(place)
            checked = await committer.validate(place.dest, storage_options=alive)
            assert (checked.ok, checked.complete, checked.files, checked.remark) == (True, True, 150, "")


async def test_a_setup_record_cannot_say_where_lists_go(place: Place, tmp_path: Path) -> None:
    """The recoverer did not name the directory, so nothing is written there (G10)."""
    job = await place.open_job(job_id="job-1", config=listing(tmp_path))
    message = await place.run_task(job, 0, {"a": b"x"})

    async def die(call: Call) -> None:
        if call.operation == place.publishes_by:
            raise SimulatedCrash(call)

    place.store.before_call = die
    with pytest.raises((SimulatedCrash, CommitterError)):
        await job.commit([message])
    place.store.before_call = None
    assert (await place.recover("job-1")).success
    assert list(tmp_path.glob("*job-1*")) == []


# --- validate ------------------------------------------------------------------------------------------------------

REPLACE = {"conflict_mode": "replace", "superseded_scope": "destination"}


async def overwritten(place: Place, **more: object) -> JobReport:
    place.write("old", b"old")
    return await place.run_job(FILES, job_id="job-1", config=CommitterConfig(**REPLACE, **more))  # type: ignore[arg-type]


async def test_after_an_overwrite_a_hundred_files_are_not_all(place: Place) -> None:
    await overwritten(place)
    checked = await committer.validate(place.dest, storage_options=place.options)
    assert (checked.ok, checked.complete, checked.files, checked.committed) == (True, False, 100, 150)


async def test_with_the_list_all_are_compared(place: Place, tmp_path: Path) -> None:
    config = CommitterConfig(file_list_directory=str(tmp_path))
    await overwritten(place, file_list_directory=str(tmp_path))
    marker = decode_success(place.read("_SUCCESS"), source="")
    names = sorted(set(expected(place)) - set(marker.filenames) - {f"{uri}" for uri in marker.filenames})
    checked = await committer.validate(place.dest, storage_options=place.options)
    assert (checked.complete, checked.file_list) == (False, "")
    assert "give file_list_directory" in checked.remark
    checked = await committer.validate(place.dest, storage_options=place.options, config=config)
    assert (checked.ok, checked.complete, checked.files, checked.remark) == (True, True, 150, "")
    unnamed = next(name for name in FILES if not any(str(uri).endswith(name[-8:]) for uri in marker.filenames))
    place.remove(unnamed)
    cut = next(name for name in FILES if name != unnamed and len(FILES[name]) > 3 and name in place.files())
    place.write(cut, b"x")
    checked = await committer.validate(place.dest, storage_options=place.options, config=config)
    assert names
    assert checked.missing == [(place.layout("any").destination / unnamed).uri]
    assert [f"{cut[-8:]}: has 1 bytes" in text for text in checked.wrong] == [True]


async def test_one_part_is_in_memory_at_a_time(place: Place, small_parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    await place.run_job(FILES, config=listing(f"{place.dest}/_lists"))
    in_memory: list[weakref.ref[_Part]] = []

    def decode(data: bytes, form: FileListFormat, kind: type[ListedFile], source: str) -> _Part:
        assert all(part() is None for part in in_memory)
        part = _Part(records.decode_part(data, form, kind, source))
        in_memory.append(weakref.ref(part))
        return part

    monkeypatch.setattr(stage, "decode_part", decode)
    report = await committer.validate(place.dest, storage_options=place.options)
    assert report.ok
    assert len(in_memory) == 2 * (len(FILES) // small_parts + 1)


async def test_extra_files_are_found_by_name(place: Place, small_parts: int) -> None:
    await place.run_job(FILES, job_id="job-1", config=listing(f"{place.dest}/_lists"))
    place.write("p=1/stranger", b"x")
    checked = await committer.validate(place.dest, storage_options=place.options)
    assert checked.extra == [(place.layout("any").destination / "p=1/stranger").uri]


@pytest.mark.parametrize("what", ["gone", "cut", "no list", "another job's"])
async def test_a_list_that_is_not_whole_is_not_gone_by(place: Place, what: str) -> None:
    await overwritten(place, file_list_directory=f"{place.dest}/_lists")
    name = f"_lists/{stem(place)}.jsonl"
    data = place.read(name)
    place.remove(name)
    if what != "gone":
        first = data.index(b"\n") + 1
        place.write(name, {"cut": data[first:], "no list": b"{}\n", "another job's": data[:first]}[what])
    checked = await committer.validate(place.dest, storage_options=place.options)
    assert (checked.ok, checked.complete, checked.files) == (True, False, 100)
    assert "was not compared" in checked.remark


async def test_what_a_hostile_marker_names_is_not_read(place: Place, tmp_path: Path) -> None:
    await overwritten(place, file_list_directory=f"{place.dest}/_lists")
    secret = tmp_path / f"{stem(place)}.jsonl"
    secret.write_text("secret")
    marker = place.read("_SUCCESS").decode()
    for uri in (secret.as_uri(), f"{place.layout('any').destination.uri}/../{stem(place)}.jsonl", "x", "file:/%"):
        listed = (place.layout("any").destination / f"_lists/{stem(place)}.jsonl").uri
        place.write("_SUCCESS", marker.replace(listed, uri).encode())
        checked = await committer.validate(place.dest, storage_options=place.options)
        assert (checked.file_list, checked.complete) == ("", False)
        assert "exists elsewhere" in checked.remark


def test_blocking(tmp_path: Path) -> None:
    from committer import sync

    with sync.open_job(tmp_path / "t", job_id="job-1", config=listing(tmp_path / "lists")) as job:
        with job.task_attempt(task=0) as task:
            for name, data in FILES.items():
                with task.open(name) as file:
                    file.write(data)
        report = job.commit()
    assert len(list(sync.committed_files(report))) == 150
    next((tmp_path / "lists").iterdir()).unlink()
    with pytest.raises(StoreNotFoundError):
        list(sync.committed_files(report))
