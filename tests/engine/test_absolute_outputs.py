"""Files that go to absolute paths outside the destination, below roots that the caller gave: published with the rest."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

import committer
import committer.sync
from committer import CommitterConfig, Job, JobSpec
from committer.errors import (
    CommitterError,
    ConfigurationError,
    InvalidPathError,
    JobUndecidedError,
    PreflightError,
    RecordError,
    StoreCrossDeviceError,
    TargetExistsError,
    TaskError,
    UnsupportedError,
)
from committer.paths import StorePath
from committer.records.job_state import Decision, Fact, PlanFile, decode_record, encode_facts, encode_record
from committer.records.manifest import TaskManifest, decode_task_manifest, encode_task_manifest
from committer.records.task_commit import digest_of
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.engine.places import DiskPlace, MemoryPlace, Place

ROOT = "warehouse"


def uri(place: Place, name: str = "") -> str:
    """A place below the root outside, as a user names it."""
    root = StorePath.of(place.dest).parent / ROOT
    return str(root / name if name else root)


def config(place: Place, **choices: object) -> CommitterConfig:
    return CommitterConfig(absolute_roots=(uri(place),), **choices)  # type: ignore[arg-type]


def outside(place: Place, *, directories: bool = False) -> dict[str, bytes]:
    """Every file below the root, by relative name; directories too, with a slash at the end, when asked for."""
    found: dict[str, bytes] = {}
    if isinstance(place, DiskPlace):
        root = place.root.parent / ROOT
        for directory, below, names in os.walk(root):
            for name in names:
                path = Path(directory, name)
                found[path.relative_to(root).as_posix()] = path.read_bytes()
            if directories:
                found |= {f"{Path(directory, name).relative_to(root).as_posix()}/": b"" for name in below}
        return found
    assert isinstance(place, MemoryPlace)
    prefix = f"/{ROOT}/"
    for name, data in place.space.files().items():
        if name.startswith(prefix):
            found[name.removeprefix(prefix)] = data
    if directories:
        found |= {f"{name.removeprefix(prefix)}/": b"" for name in place.space.directories() if name.startswith(prefix)}
    return found


def put(place: Place, name: str, data: bytes) -> None:
    """Puts a file below the root, with its directories."""
    if isinstance(place, DiskPlace):
        path = place.root.parent / ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    else:
        assert isinstance(place, MemoryPlace)
        place.space.write(f"/{ROOT}/{name}", data)


async def run_task(
    place: Place,
    job: Job | JobSpec,
    task: int,
    elsewhere: Mapping[str, bytes],
    files: Mapping[str, bytes] | None = None,
    attempt: int = 0,
) -> committer.TaskCommit:
    spec = job.spec if isinstance(job, Job) else job
    async with place.open_task(spec, task, attempt) as writer:
        for name, data in (files or {}).items():
            async with writer.open(name) as file:
                await file.write(data)
        for name, data in elsewhere.items():
            async with writer.open_absolute(uri(place, name)) as file:
                await file.write(data)
    return writer.task_commit


NEW = {"part-0": b"zero", "p=1/part-0": b"one", "p=2/q=1/part-0": b"two"}
HERE = {"p=1/part-0": b"here"}


# -- the way that succeeds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_published_with_the_rest(place: Place, delivery: str) -> None:
    async with place.open_job(config=config(place, validate_output=True), delivery=delivery) as job:
        first = await run_task(place, job, 0, NEW, HERE)
        second = await run_task(place, job, 1, {"p=1/part-1": b"three"})
        assert outside(place) == {}
        plan = await job.plan([first, second])
        assert plan.files == 5
        assert plan.conflicts == []
        report = await job.commit([first, second] if delivery == "message" else None, tasks=2)
    assert (report.files_committed, report.bytes_committed) == (5, 19)
    assert (
        uri(place, "p=1/part-0") in report.filenames or StorePath.of(uri(place, "p=1/part-0")).uri in report.filenames
    )
    assert outside(place) == {**NEW, "p=1/part-1": b"three"}
    assert place.files() == HERE
    assert place.temporary() == set()


async def test_only_outside(place: Place) -> None:
    async with place.open_job(config=config(place)) as job:
        await run_task(place, job, 0, NEW)
    assert outside(place) == NEW
    assert set(place.all_files()) == {"_SUCCESS"}


async def test_aborted_task_and_job_leave_nothing(place: Place) -> None:
    with pytest.raises(RuntimeError):
        async with place.open_job(config=config(place)) as job:
            await run_task(place, job, 0, NEW)
            raise RuntimeError
    assert outside(place) == {}
    assert place.all_files() == {}


async def test_every_way_to_name_a_place(place: Place) -> None:
    path = StorePath.of(uri(place, "a/b"))
    async with place.open_job(config=config(place)) as job, job.task_attempt(0) as task:
        for number, name in enumerate((str(path), path.path, path, Path(path.path))):
            spelled = name / str(number) if not isinstance(name, str) else f"{name}/{number}"
            async with task.open_absolute(spelled) as file:
                await file.write(b"x")
            assert file.name == f"{path.path}/{number}"
    assert sorted(outside(place)) == ["a/b/0", "a/b/1", "a/b/2", "a/b/3"]


async def test_roots_may_be_paths_and_one_below_another_adds_nothing(memory: MemoryPlace) -> None:
    given = CommitterConfig(absolute_roots=(f"/{ROOT}/deep", f"/{ROOT}", f"/{ROOT}/"))
    async with memory.open_job(config=given) as job:
        assert job.spec.layout.roots == {f"/{ROOT}"}
        await run_task(memory, job, 0, {"deep/x": b"x", "y": b"y"})
    assert outside(memory) == {"deep/x": b"x", "y": b"y"}


async def test_beside_files_written_by_path(tmp_path: Path) -> None:
    """The scan of the attempt's directory takes what is staged for elsewhere for nothing of its own."""
    place = DiskPlace(tmp_path)
    async with place.open_job(config=config(place)) as job, job.task_attempt(0) as task:
        await asyncio.to_thread(Path(task.work_path("a/by-path")).write_bytes, b"p")
        async with task.open_absolute(uri(place, "x")) as file:
            await file.write(b"x")
        given_up = task.open_absolute(uri(place, "y"))
        await given_up.write(b"y")
        await given_up.abort()
        await asyncio.to_thread(_write_blocking, task.open_absolute_blocking(uri(place, "z")), b"z")
    assert place.files() == {"a/by-path": b"p"}
    assert outside(place) == {"x": b"x", "z": b"z"}
    await place.store.close()


def _write_blocking(file: object, data: bytes) -> None:
    with file as opened:  # type: ignore[attr-defined]
        opened.write(data)


def test_blocking_twin(tmp_path: Path) -> None:
    given = CommitterConfig(absolute_roots=(str(tmp_path / "custom"),))
    with (
        committer.sync.open_job(str(tmp_path / "table"), config=given) as job,
        job.task_attempt(0) as task,
    ):
        with task.open_absolute(tmp_path / "custom" / "a") as file:
            file.write(b"a")
        with task.open_absolute_blocking(f"file://{tmp_path}/custom/b") as file:
            file.write(b"b")
        with pytest.raises(InvalidPathError):
            task.open_absolute(tmp_path / "other")
    assert {path.name for path in (tmp_path / "custom").iterdir()} == {"a", "b"}


async def test_unique_names(memory: MemoryPlace) -> None:
    async with memory.open_job(job_id="j-1", config=config(memory, unique_names=True)) as job:
        await run_task(memory, job, 0, {"p=1/part-0.csv": b"x"})
    assert list(outside(memory)) == ["p=1/part-0-j-1.csv"]


async def test_record_for_a_java_driver(memory: MemoryPlace) -> None:
    """Hadoop's entries hold whole URIs, and its driver wants each directory with what stands there."""
    put(memory, "p=1/old", b"old")
    job = await memory.open_job(config=config(memory, hadoop_driver=True))
    await run_task(memory, job, 0, {"p=1/new": b"n", "p=2/q=1/new": b"n"})
    [name] = [name for name in memory.all_files() if name.endswith("-manifest.json")]
    manifest = decode_task_manifest(memory.read(name), source=name)
    assert sorted(entry.d for entry in manifest.files) == [uri(memory, "p=1/new"), uri(memory, "p=2/q=1/new")]
    assert {entry.d: entry.t for entry in manifest.directories} == {
        uri(memory, "p=1"): 3,
        uri(memory, "p=2"): 1,
        uri(memory, "p=2/q=1"): 1,
    }
    await job.commit()
    assert sorted(outside(memory)) == ["p=1/new", "p=1/old", "p=2/q=1/new"]


async def test_job_that_hadoop_set_up(memory: MemoryPlace) -> None:
    """Its roots were neither made nor tried by a job setup; they come into being with the files."""
    memory.write("_temporary/job_1_1/00/manifests/x", b"")
    memory.remove("_temporary/job_1_1/00/manifests/x")
    spec = JobSpec.for_hadoop(memory.dest, "job_1_1", config=config(memory))
    await run_task(memory, spec, 0, NEW, HERE)
    async with committer.attach_job(spec, storage_options=memory.options) as job:
        await job.commit()
    assert (outside(memory), memory.files()) == (NEW, HERE)


async def test_every_lost_answer_is_resolved_by_looking(place: Place) -> None:
    async with place.open_job(config=config(place)) as job:
        await run_task(place, job, 0, NEW, HERE)
        place.faults(Fault(kind="lost", operation="rename_file", path="/tasks/", times=None))
        report = await job.commit()
    assert report.renames_recovered == 4
    assert (outside(place), place.files()) == (NEW, HERE)


async def test_validate_looks_outside_only_where_it_may(place: Place) -> None:
    async with place.open_job(config=config(place)) as job:
        await run_task(place, job, 0, NEW, HERE)
    report = await committer.validate(place.dest, storage_options=place.options)
    assert not report.ok
    assert len(report.wrong) == len(NEW)
    assert all("give absolute_roots" in text for text in report.wrong)
    report = await committer.validate(place.dest, storage_options=place.options, config=config(place))
    assert report.ok, report
    assert report.files == 4


async def test_totals_of_the_destination_are_not_compared_with_what_went_elsewhere(memory: MemoryPlace) -> None:
    """`_SUCCESS` names a hundred files and counts all; the destination alone cannot add up to that."""
    async with memory.open_job(config=config(memory)) as job:
        await run_task(memory, job, 0, {f"part-{number}": b"x" for number in range(120)}, HERE)
    report = await committer.validate(memory.dest, storage_options=memory.options, config=config(memory))
    assert report.ok, report
    assert not report.complete


async def test_promoted_directories_beside_files_elsewhere(memory: MemoryPlace) -> None:
    here = {f"p=1/part-{number}": b"x" for number in range(8)}
    there = {f"p=1/part-{number}": b"y" for number in range(8)}
    async with memory.open_job(config=config(memory, promote_directories=True)) as job:
        await run_task(memory, job, 0, there, here)
    assert (outside(memory), memory.files()) == (there, here)
    renamed = [call for call in memory.store.calls if call.operation == "rename_directory" and "/tasks/" in str(call)]
    assert [str(call.destination) for call in renamed] == [f"{memory.dest}/p=1"]


async def test_directory_outside_that_is_a_link_stays_one(tmp_path: Path) -> None:
    """Replacing the whole destination takes its links away; what lies outside it is no part of that."""
    place = DiskPlace(tmp_path)
    put(place, "kept/old", b"old")
    await asyncio.to_thread(os.symlink, tmp_path / ROOT / "kept", tmp_path / ROOT / "p=1")
    choices = config(place, conflict_mode="replace", superseded_scope="destination")
    async with place.open_job(config=choices) as job:
        await run_task(place, job, 0, {"p=1/new": b"new"})
    assert outside(place) == {"kept/new": b"new"}
    assert (tmp_path / ROOT / "p=1").is_symlink()
    await place.store.close()


# -- names and roots that are refused -----------------------------------------------------------------------------


def refused_names(place: Place) -> Iterator[tuple[str, str]]:
    path = StorePath.of(uri(place)).path
    yield "warehouse/x", "must be absolute"
    yield "x", "must be absolute"
    yield "", "must be absolute"
    yield f"{path}-sibling/x", "below none of the roots"
    yield "/elsewhere/x", "below none of the roots"
    yield f"{path}/../elsewhere/x", "below none of the roots"
    yield f"{path}/../{StorePath.of(place.dest).name}/x", "below none of the roots"
    yield path, "below none of the roots"
    yield f"{path}/", "ends in a slash"
    yield f"{path}/a/", "ends in a slash"
    yield f"{path}/_SUCCESS", "_SUCCESS, which commits own"
    yield f"{path}/t/_temporary/j/decision", "_temporary, which commits own"
    yield f"{path}/_temporary2/x", "which commits own"
    yield f"{path}/t/__magic_job-1/x", "which commits own"
    yield f"https://example.com{path}/x", "not in the store of the destination"
    yield f"{StorePath.of(place.dest).scheme}://elsewhere{path}/x", "not in the store of the destination"
    yield f"//host{path}/x", "two slashes"
    yield f"{path}/a\0b", "NUL"


async def test_names_that_are_refused(place: Place) -> None:
    job = await place.open_job(config=config(place))
    async with job.task_attempt(0) as task:
        for name, message in refused_names(place):
            with pytest.raises(InvalidPathError, match=message) as caught:
                task.open_absolute(name)
            assert caught.value.operation == "open_absolute"
            assert caught.value.next_step, name
        with pytest.raises(InvalidPathError, match="is absolute"):
            task.open(uri(place, "x").partition(":")[2].lstrip("/").join(("/", "")))
    await job.commit()
    assert outside(place) == {}


async def test_no_root_was_given(place: Place) -> None:
    async with place.open_job() as job, job.task_attempt(0) as task:
        with pytest.raises(InvalidPathError, match="below none of the roots") as caught:
            task.open_absolute(uri(place, "x"))
        assert "absolute_roots" in caught.value.next_step
    assert outside(place) == {}


async def test_name_that_the_store_cannot_hold(memory: MemoryPlace) -> None:
    async with memory.open_job(config=config(memory)) as job, job.task_attempt(0) as task:
        with pytest.raises(InvalidPathError, match="longer than 255 bytes"):
            task.open_absolute(uri(memory, "p" * 256))


@pytest.mark.parametrize(
    ("root", "message"),
    [
        ("/table", "holds the destination"),
        ("/table/below", "lies in the destination"),
        ("/", "whole store"),
        ("/other/_temporary/job", "commits own"),
        ("/other/__magic_job-1", "commits own"),
        ("warehouse", "must be absolute"),
        ("https://example.com/warehouse", "not in the store"),
        ("memory://elsewhere/warehouse", "not in the store"),
    ],
)
async def test_roots_that_are_refused(memory: MemoryPlace, root: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        await memory.open_job(config=CommitterConfig(absolute_roots=(root,)))
    assert memory.space.files() == {}


async def test_root_that_holds_the_destination(memory: MemoryPlace) -> None:
    memory.dest = f"{memory.dest}/deep"
    with pytest.raises(ConfigurationError, match="holds the destination"):
        await memory.open_job(config=CommitterConfig(absolute_roots=("/table",)))


async def test_root_that_the_store_takes_for_the_destination() -> None:
    place = MemoryPlace("local", case_folding=True)
    with pytest.raises(ConfigurationError, match="lies in the destination"):
        await place.open_job(config=CommitterConfig(absolute_roots=("/TABLE/below",)))


async def test_root_that_is_a_file(memory: MemoryPlace) -> None:
    memory.space.write(f"/{ROOT}", b"a file")
    with pytest.raises(committer.errors.StoreNotADirectoryError, match="a file stands where a directory must be"):
        await memory.open_job(config=config(memory))
    assert memory.space.files() == {f"/{ROOT}": b"a file"}


# -- another volume -----------------------------------------------------------------------------------------------


@pytest.fixture
def other_volume(tmp_path: Path) -> Iterator[Path]:
    """A directory on another volume than the test's own."""
    other = Path("/dev/shm")
    if not other.is_dir() or os.stat(other).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("this machine has one volume only")
    path = other / f"absolute-{os.getpid()}-{tmp_path.name}"
    yield path
    shutil.rmtree(path, ignore_errors=True)


async def test_root_on_another_volume_is_refused_at_setup(tmp_path: Path, other_volume: Path) -> None:
    place = DiskPlace(tmp_path)
    given = CommitterConfig(absolute_roots=(str(tmp_path / ROOT), str(other_volume)))
    with pytest.raises(UnsupportedError, match="another volume") as caught:
        await place.open_job(job_id="j-1", config=given)
    assert str(other_volume) in str(caught.value)
    assert place.all_files() == {}
    assert list(other_volume.iterdir()) == []
    assert outside(place) == {}
    async with place.open_job(job_id="j-1", config=config(place)) as job:
        await run_task(place, job, 0, NEW)
    await place.store.close()


async def test_rename_that_leaves_its_volume_takes_the_job_back(place: Place) -> None:
    """Setup cannot find every border: a directory below the root may be another volume's."""
    put(place, "p=2/q=1/old", b"old")
    before = outside(place, directories=True)
    job = await place.open_job(config=config(place, io_concurrency=1))
    await run_task(place, job, 0, NEW, HERE)

    async def refuse(call: Call) -> None:
        if call.operation == "rename_file" and str(call.destination).endswith(f"{ROOT}/p=2/q=1/part-0"):
            raise StoreCrossDeviceError("a rename would leave its volume", operation="rename_file", path=call.path)

    place.store.before_call = refuse
    with pytest.raises(StoreCrossDeviceError) as caught:
        await job.commit()
    assert caught.value.outcome == "unchanged"
    place.store.before_call = None
    assert outside(place, directories=True) == before
    assert place.files() == {}


# -- preflight ----------------------------------------------------------------------------------------------------


async def test_two_tasks_with_one_destination(place: Place) -> None:
    job = await place.open_job(config=config(place))
    await run_task(place, job, 0, {"p=1/part": b"0"})
    await run_task(place, job, 1, {"p=1/part": b"1"})
    with pytest.raises(PreflightError, match=r"p=1/part is written by task_.* and task_"):
        await job.commit()
    await job.abort()
    assert outside(place) == {}


async def test_file_that_is_anothers_directory(place: Place) -> None:
    job = await place.open_job(config=config(place))
    await run_task(place, job, 0, {"a": b"0"})
    await run_task(place, job, 1, {"a/b": b"1"})
    with pytest.raises(PreflightError, match="and a directory that other files need"):
        await job.commit()
    await job.abort()
    assert outside(place) == {}


async def test_names_the_store_takes_for_one() -> None:
    place = MemoryPlace("local", case_folding=True)
    job = await place.open_job(config=config(place))
    await run_task(place, job, 0, {"a/part": b"0"})
    await run_task(place, job, 1, {"A/PART": b"1"})
    with pytest.raises(PreflightError, match="for one"):
        await job.commit()
    await job.abort()


async def test_one_task_opens_a_path_once(memory: MemoryPlace) -> None:
    async with memory.open_job(config=config(memory)) as job, job.task_attempt(0) as task:
        async with task.open_absolute(uri(memory, "a/b")) as file:
            await file.write(b"x")
        with pytest.raises(TaskError, match="opened before"):
            task.open_absolute(f"/{ROOT}/c/../a/b")
        with pytest.raises(TaskError, match="a file and a directory at once"):
            task.open_absolute(f"/{ROOT}/a")
        with pytest.raises(TaskError, match="a file and a directory at once"):
            task.open_absolute(f"/{ROOT}/a/b/c")
        # The same words below the destination are another place.
        async with task.open(f"{ROOT}/a/b") as file:
            await file.write(b"y")
    assert outside(memory) == {"a/b": b"x"}
    assert memory.files() == {f"{ROOT}/a/b": b"y"}


async def test_existing_target_is_refused(place: Place) -> None:
    put(place, "p=1/part-0", b"old")
    job = await place.open_job(config=config(place))
    await run_task(place, job, 0, NEW)
    with pytest.raises(TargetExistsError, match="p=1/part-0, where a file goes"):
        await job.commit()
    await job.abort()
    assert outside(place) == {"p=1/part-0": b"old"}


async def test_existing_target_is_replaced_when_told(place: Place) -> None:
    put(place, "p=1/part-0", b"old")
    put(place, "p=1/other", b"stays")
    async with place.open_job(config=config(place, existing_target="replace")) as job:
        await run_task(place, job, 0, NEW)
    assert outside(place) == {**NEW, "p=1/other": b"stays"}


async def test_file_that_stands_where_a_directory_goes(memory: MemoryPlace) -> None:
    put(memory, "p=1", b"a file")
    job = await memory.open_job(config=config(memory))
    await run_task(memory, job, 0, NEW)
    with pytest.raises(TargetExistsError, match="p=1, where a directory goes"):
        await job.commit()
    await job.abort()
    async with memory.open_job(config=config(memory, existing_target="replace")) as job:
        await run_task(memory, job, 0, NEW)
    assert outside(memory) == NEW


async def test_root_that_became_a_file_since(memory: MemoryPlace) -> None:
    job = await memory.open_job(config=config(memory))
    await run_task(memory, job, 0, NEW)
    memory.space.tree.delete_directory(memory.space.path(ROOT), recursive=True)
    memory.space.write(f"/{ROOT}", b"a file")
    with pytest.raises(TargetExistsError, match=f"/{ROOT}, where a directory goes"):
        await job.commit()
    await job.abort()
    assert memory.space.files() == {f"/{ROOT}": b"a file"}


async def test_root_that_vanished_since_is_made_again_and_taken_back(memory: MemoryPlace) -> None:
    job = await memory.open_job(job_id="j-1", config=config(memory))
    await run_task(memory, job, 0, NEW)
    memory.space.tree.delete_directory(memory.space.path(ROOT), recursive=True)
    memory.faults(Fault(kind="forbidden", operation="rename_file", path="p=2/q=1/part-0"))
    with pytest.raises(CommitterError):
        await job.commit()
    assert outside(memory)
    await memory.recover("j-1", rollback=True, config=config(memory))
    assert f"/{ROOT}" not in memory.space.directories()


async def test_conflict_mode_fail(place: Place) -> None:
    put(place, "p=1/old", b"old")
    job = await place.open_job(config=config(place, conflict_mode="fail"))
    await run_task(place, job, 0, {"p=1/new": b"new", "p=2/new": b"new"})
    with pytest.raises(TargetExistsError, match="p=1 already holds files"):
        await job.commit()
    await job.abort()
    assert outside(place) == {"p=1/old": b"old"}


# -- superseding --------------------------------------------------------------------------------------------------


async def test_replacing_takes_the_subtree_of_a_directory_written_and_no_sibling(place: Place) -> None:
    for name in ("p=1/old", "p=1/below/old", "p=1/_metadata/m", "p=9/old", "old", "_SUCCESS"):
        put(place, name, b"old")
    put(place, "p=1/_temporary/other-job/setup", b"somebody else's")
    place.write("p=1/old", b"old")
    place.write("p=9/old", b"old")
    async with place.open_job(config=config(place, conflict_mode="replace")) as job:
        await run_task(place, job, 0, {"p=1/new": b"new"}, {"p=1/new": b"new"})
    assert outside(place) == {
        "p=1/new": b"new",
        "p=1/_temporary/other-job/setup": b"somebody else's",
        "p=9/old": b"old",
        "old": b"old",
        "_SUCCESS": b"old",
    }
    assert place.files() == {"p=1/new": b"new", "p=9/old": b"old"}


async def test_replacing_the_whole_destination_takes_no_more_outside(place: Place) -> None:
    for name in ("p=1/old", "p=9/old", "old"):
        put(place, name, b"old")
    place.write("p=9/old", b"old")
    choices = config(place, conflict_mode="replace", superseded_scope="destination")
    async with place.open_job(config=choices) as job:
        await run_task(place, job, 0, {"p=1/new": b"new"}, {"p=1/new": b"new"})
    assert outside(place) == {"p=1/new": b"new", "p=9/old": b"old", "old": b"old"}
    assert place.files() == {"p=1/new": b"new"}


async def test_replacing_in_the_root_itself_leaves_what_is_no_data(place: Place) -> None:
    """A custom partition location is written to directly; markers and jobs that run into it stay."""
    for name in ("old", "below/old", "_SUCCESS", "_temporary/j/setup", ".hidden", "_delta_log/0"):
        put(place, name, b"old")
    async with place.open_job(config=config(place, conflict_mode="replace")) as job:
        await run_task(place, job, 0, {"new": b"new"})
    kept = ("_SUCCESS", "_temporary/j/setup", ".hidden", "_delta_log/0")
    assert outside(place) == {"new": b"new", **dict.fromkeys(kept, b"old")}


async def test_root_that_only_may_be_written_to_loses_nothing(place: Place) -> None:
    put(place, "p=1/old", b"old")
    async with place.open_job(config=config(place, conflict_mode="replace")) as job:
        await run_task(place, job, 0, {}, {"p=1/new": b"new"})
    assert outside(place) == {"p=1/old": b"old"}


# -- rollback and recover -----------------------------------------------------------------------------------------


async def decided(place: Place, **choices: object) -> Job:
    """A job whose commit stopped half way."""
    job = await place.open_job(job_id="j-1", config=config(place, io_concurrency=1, **choices))
    await run_task(place, job, 0, NEW, HERE)
    place.faults(Fault(kind="forbidden", operation="rename_file", path=f"{ROOT}/p=2/q=1/part-0"))
    with pytest.raises(CommitterError) as caught:
        await job.commit()
    assert caught.value.outcome == "partial"
    assert outside(place)
    return job


@pytest.mark.parametrize("mode", ["append", "replace"])
async def test_rollback_is_exact(place: Place, mode: str) -> None:
    for name in ("p=1/old", "p=9/old"):
        put(place, name, b"old")
    place.write("p=1/old", b"old")
    before, here = outside(place, directories=True), place.all_files()
    await decided(place, conflict_mode=mode)
    report = await place.recover("j-1", rollback=True, force=True, config=config(place))
    assert not report.success
    assert outside(place, directories=True) == before
    assert place.all_files() == here


async def test_rollback_puts_replaced_files_back(memory: MemoryPlace) -> None:
    put(memory, "p=1/part-0", b"old")
    put(memory, "p=2", b"in the way")
    before = outside(memory, directories=True)
    await decided(memory, existing_target="replace")
    assert outside(memory)["p=1/part-0"] == b"one"
    await memory.recover("j-1", rollback=True, config=config(memory))
    assert outside(memory, directories=True) == before


@pytest.mark.parametrize("rollback", [False, True])
@pytest.mark.parametrize("given", [None, CommitterConfig()], ids=["none", "without"])
async def test_decided_job_is_refused_without_its_roots(
    place: Place, given: CommitterConfig | None, rollback: bool
) -> None:
    await decided(place)
    before = place.all_files(), outside(place, directories=True)
    with pytest.raises(ConfigurationError, match="outside its destination") as caught:
        await place.recover("j-1", rollback=rollback, force=True, config=given)
    assert caught.value.outcome == "unchanged"
    assert f"absolute_roots=({uri(place)!r},)" in caught.value.next_step
    assert (place.all_files(), outside(place, directories=True)) == before
    async with place.attach_job("j-1") as job:
        with pytest.raises(ConfigurationError, match="outside its destination"):
            await job.commit()
    assert (place.all_files(), outside(place, directories=True)) == before
    await place.recover("j-1", rollback=rollback, force=True, config=config(place))
    assert outside(place) == ({} if rollback else NEW)


async def test_the_next_step_of_a_failed_commit_names_the_roots(memory: MemoryPlace) -> None:
    job = await memory.open_job(job_id="j-1", config=config(memory))
    await run_task(memory, job, 0, NEW)
    memory.faults(Fault(kind="forbidden", operation="rename_file", path="part-0", times=None))
    with pytest.raises(CommitterError) as caught:
        await job.commit()
    assert f"config=CommitterConfig(absolute_roots=({uri(memory)!r},))" in caught.value.next_step


async def test_a_root_above_the_one_of_the_job_will_do(memory: MemoryPlace) -> None:
    job = await memory.open_job(job_id="j-1", config=CommitterConfig(absolute_roots=(f"/{ROOT}/a/b",)))
    await run_task(memory, job, 0, {"a/b/x": b"x"})
    memory.faults(Fault(kind="forbidden", operation="rename_file", path="a/b/x"))
    with pytest.raises(CommitterError):
        await job.commit()
    with pytest.raises(ConfigurationError, match="outside its destination"):
        await memory.recover("j-1", config=CommitterConfig(absolute_roots=(f"/{ROOT}/a/c",)))
    await memory.recover("j-1", config=config(memory))
    assert outside(memory) == {"a/b/x": b"x"}


async def test_roots_that_nothing_was_written_to_need_not_be_given_again(memory: MemoryPlace) -> None:
    job = await memory.open_job(job_id="j-1", config=config(memory))
    await run_task(memory, job, 0, {}, HERE)
    memory.faults(Fault(kind="forbidden", operation="rename_file", path="part-0"))
    with pytest.raises(CommitterError):
        await job.commit()
    assert (await memory.recover("j-1")).success
    assert memory.files() == HERE


async def test_undecided_job_is_refused_without_its_roots(place: Place) -> None:
    job = await place.open_job(job_id="j-1", config=config(place))
    await run_task(place, job, 0, NEW, HERE)
    place.faults(
        Fault(kind="crash_before", operation="put", path="/plan-"), Fault(kind="crash_before", path="/decision")
    )
    with pytest.raises(SimulatedCrash):
        await job.commit()
    fresh = place.store.inner
    options = {"store": fresh}
    with pytest.raises(RecordError) as caught:
        await committer.recover(place.dest, "j-1", storage_options=options)
    assert "absolute_roots" in caught.value.next_step
    assert outside(place) == {}
    assert place.files() == {}
    try:
        report = await committer.recover(place.dest, "j-1", storage_options=options, config=config(place))
    except JobUndecidedError:
        pytest.fail("the refusal took the intent of the dead driver away")
    assert report.success
    assert (outside(place), place.files()) == (NEW, HERE)


async def test_spec_carries_the_roots(memory: MemoryPlace) -> None:
    """Whoever was handed the spec was handed the roots, as with the places of reports."""
    job = await memory.open_job(config=config(memory))
    spec = JobSpec.decode(job.spec.encode())
    await run_task(memory, spec, 0, NEW)
    async with committer.attach_job(spec, storage_options=memory.options) as other:
        await run_task(memory, other, 1, {"more": b"m"})
        await other.commit(tasks=2)
    assert outside(memory) == {**NEW, "more": b"m"}


async def test_job_joined_without_roots_writes_nothing_outside(memory: MemoryPlace) -> None:
    await memory.open_job(job_id="j-1", config=config(memory))
    async with memory.attach_job("j-1") as job, job.task_attempt(0) as task:
        with pytest.raises(InvalidPathError, match="below none of the roots"):
            task.open_absolute(uri(memory, "x"))
    async with memory.attach_job("j-1", config=config(memory)) as job:
        async with job.task_attempt(0, 1) as task, task.open_absolute(uri(memory, "x")) as file:
            await file.write(b"x")
        await job.commit()
    assert outside(memory) == {"x": b"x"}


async def test_recover_task(memory: MemoryPlace) -> None:
    job = await memory.open_job(delivery="message", config=config(memory))
    message = await run_task(memory, job, 0, NEW)
    assert await job.recover_task(0, 0) == message
    await job.commit([message])


# -- records are not trusted --------------------------------------------------------------------------------------


async def with_destination(place: Place, target: str, **choices: object) -> Job:
    """A job whose record an enemy changed."""
    job = await place.open_job(job_id="j-1", config=config(place, **choices))
    await run_task(place, job, 0, {"x": b"x"})
    [name] = [name for name in place.all_files() if name.endswith("-manifest.json")]
    manifest: TaskManifest = decode_task_manifest(place.read(name), source=name)
    [entry] = manifest.files
    changed = msgspec.structs.replace(manifest, files=[msgspec.structs.replace(entry, d=target)])
    place.write(name, encode_task_manifest(changed))
    return job


@pytest.mark.parametrize(
    "below",
    [
        "",
        "/",
        "/../elsewhere/x",
        "/%2e%2e/x",
        "-sibling/x",
        "/_SUCCESS",
        "/t/_SUCCESS",
        "/_temporary/j/decision",
        "/t/_temporary/j/decision",
        "/t/__magic_job-1/x",
        "/%5Ftemporary/x",
        "//_temporary/x",
        "/a%00b",
    ],
)
async def test_record_that_names_a_place_the_roots_do_not_hold(place: Place, below: str) -> None:
    root = StorePath.of(uri(place)).uri
    job = await with_destination(place, f"{root}{below}", existing_target="replace")
    put(place, "t/_temporary/j/decision", b"not mine")
    before = place.all_files(), outside(place)
    with pytest.raises(RecordError) as caught:
        await job.commit()
    assert caught.value.field.startswith("files[0].d")
    assert (place.all_files(), outside(place)) == before
    await job.abort()


@pytest.mark.parametrize("kind", ["target", "blocking", "superseded", "directory"])
@pytest.mark.parametrize("rollback", [False, True])
async def test_facts_that_name_places_the_roots_do_not_hold(place: Place, kind: str, rollback: bool) -> None:
    root = StorePath.of(uri(place)).path
    await decided(place, existing_target="replace")
    names = [
        "/etc/passwd",
        f"{root}-sibling/x",
        f"{root}/../x",
        f"{root}/t/_temporary/j/x",
        f"{root}/",
        f"{root}//x",
        StorePath.of(place.dest).path + "/x",
        "/",
        os.path.dirname(root),
    ]
    if kind in ("target", "superseded"):
        names.append(root)
    record = "_temporary/j-1/decision"
    decision = decode_record(place.read(record), Decision, source=record)
    for name in names:
        data = encode_facts([Fact(kind=kind, path=name, identity="x", aside=0)])  # type: ignore[arg-type]
        place.write("_temporary/j-1/plan-00009-evil", data)
        plan = [PlanFile(name="plan-00009-evil", digest=digest_of(data), lines=1)]
        place.write(record, encode_record(msgspec.structs.replace(decision, plan=plan)))
        before = place.all_files(), outside(place)
        with pytest.raises(RecordError):
            await place.recover("j-1", rollback=rollback, force=True, config=config(place))
        assert (place.all_files(), outside(place)) == before


async def test_decision_and_setup_cannot_say_where_else_to_write(place: Place) -> None:
    """Both hold the roots of their job; neither gives them to whoever reads it."""
    await decided(place)
    record = "_temporary/j-1/decision"
    decision = decode_record(place.read(record), Decision, source=record)
    hidden = msgspec.structs.replace(decision.config, absolute_roots=())
    place.write(record, encode_record(msgspec.structs.replace(decision, config=hidden)))
    before = outside(place)
    with pytest.raises(RecordError):
        await place.recover("j-1")
    assert outside(place) == before
    for odd in ("https://example.com/x", "relative", "", "//x", "file://user:secret@host/x"):
        strange = msgspec.structs.replace(decision.config)
        msgspec.structs.force_setattr(strange, "absolute_roots", (odd,))
        place.write(record, encode_record(msgspec.structs.replace(decision, config=strange)))
        with pytest.raises((ConfigurationError, RecordError)):
            await place.recover("j-1", config=config(place))
    assert outside(place) == before


# -- neighbours ---------------------------------------------------------------------------------------------------


async def test_two_jobs_with_one_root(place: Place) -> None:
    """Jobs of two destinations meet outside: nobody's file is overwritten, and who comes second is taken back whole."""
    first = await place.open_job(config=config(place, io_concurrency=1))
    await run_task(place, first, 0, NEW)
    other = committer.open_job(f"{place.dest}-2", config=config(place), storage_options=place.options)
    second = await other
    await run_task(place, second, 0, {"p=1/part-0": b"mine", "p=1/more": b"more"})
    third = await place.open_job(config=config(place))
    await run_task(place, third, 0, {"p=1/third": b"3"})
    met = False

    async def meet(call: Call) -> None:
        nonlocal met
        if not met and call.operation == "rename_file" and "/tasks/" in str(call.path):
            met = True
            await second.commit()

    place.store.before_call = meet
    with pytest.raises(TargetExistsError) as caught:
        await first.commit()
    assert met
    assert caught.value.outcome == "unchanged"
    await third.commit()
    assert outside(place) == {"p=1/part-0": b"mine", "p=1/more": b"more", "p=1/third": b"3"}
