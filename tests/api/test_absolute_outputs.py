"""Files that go to absolute paths outside the destination, below roots that the caller gave: published with the rest."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import committer
import committer.sync
from committer import CommitterConfig, Job, JobSpec
from committer.errors import CommitterError, ConfigurationError, InvalidPathError, TargetExistsError
from committer.paths import StorePath
from committer.records.manifest import decode_task_manifest
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.outside import HERE, NEW, ROOT, config, outside, put, run_task, uri
from tests.places import DiskPlace, MemoryPlace, Place

# -- the way that succeeds --------------------------------------------------------------------------------------------


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
    with committer.sync.open_job(str(tmp_path / "table"), config=given) as job, job.task_attempt(0) as task:
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
    """Hadoop's entries hold whole URIs, and its driver wants each directory with what exists there."""
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
    renamed = [
        call for call in memory.store.calls if call.operation == "rename_directory" and "/tasks-sealed/" in str(call)
    ]
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


# -- superseding ------------------------------------------------------------------------------------------------------


async def test_replacing_takes_the_subtree_of_a_directory_written_and_no_sibling(place: Place) -> None:
    for name in ("p=1/old", "p=1/below/old", "p=1/_metadata/m", "p=9/old", "old", "_SUCCESS"):
        put(place, name, b"old")
    put(place, "p=1/_temporary/other-job/setup", b"another job's")
    place.write("p=1/old", b"old")
    place.write("p=9/old", b"old")
    async with place.open_job(config=config(place, conflict_mode="replace")) as job:
        await run_task(place, job, 0, {"p=1/new": b"new"}, {"p=1/new": b"new"})
    assert outside(place) == {
        "p=1/new": b"new",
        "p=1/_temporary/other-job/setup": b"another job's",
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


# -- neighbours -------------------------------------------------------------------------------------------------------


async def test_two_jobs_with_one_root(place: Place) -> None:
    """Jobs of two destinations meet outside: neither overwrites a file of the other, and the second one is rolled back whole."""
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


# -- directories outside the destination, below roots that the caller gave, that a job supersedes by name ---------------


OLD_BELOW = {"p=9/old": b"old", "p=9/q=1/old": b"old", "p=8/old": b"old"}


async def opened(place: Place, **choices: object) -> Job:
    """A job that supersedes `p=9` below the root outside, or more."""
    for name, data in OLD_BELOW.items():
        put(place, name, data)
    place.write("p=3/old", b"old")
    where = StorePath.of(uri(place, "p=9")).path
    given = {"conflict_mode": "replace", "superseded_directories": (where,), **choices}
    return await place.open_job(job_id="j-1", config=config(place, **given))


@pytest.mark.parametrize("scope", [None, "destination"])
async def test_superseded_when_all_new_files_are_there(place: Place, scope: str | None) -> None:
    async with await opened(place, superseded_scope=scope) as job:
        await run_task(place, job, 0, {"p=9/new": b"new"}, HERE)
        assert outside(place) == OLD_BELOW
        await job.commit(tasks=1)
    assert outside(place) == {"p=8/old": b"old", "p=9/new": b"new"}
    assert place.files() == ({**HERE} if scope else {**HERE, "p=3/old": b"old"})


async def test_superseded_without_new_files(place: Place) -> None:
    job = await opened(place)
    await run_task(place, job, 0, {}, HERE)
    before = outside(place, directories=True)
    await job.plan()
    assert outside(place, directories=True) == before
    await job.commit(tasks=1)
    await job.close()
    assert outside(place) == {"p=8/old": b"old"}


@pytest.mark.parametrize("scope", [None, "destination"])
async def test_taken_back_half_way(memory: MemoryPlace, scope: str | None) -> None:
    job = await opened(memory, superseded_scope=scope)
    await run_task(memory, job, 0, {}, HERE)
    before = outside(memory, directories=True)
    memory.faults(Fault(kind="crash_before", path="/outcome"))
    with pytest.raises(SimulatedCrash):
        await job.commit(tasks=1)
    options = {"store": memory.store.inner}
    assert outside(memory) == {"p=8/old": b"old"}
    with pytest.raises(ConfigurationError, match="must say that it may write below"):
        await committer.recover(memory.dest, "j-1", storage_options=options)
    await committer.recover(
        memory.dest, "j-1", rollback=True, force=True, config=config(memory), storage_options=options
    )
    assert outside(memory, directories=True) == before
    assert memory.files() == {"p=3/old": b"old"}


async def test_a_directory_below_no_root_is_refused(place: Place) -> None:
    where = f"{StorePath.of(uri(place)).path}-another/p=9"
    with pytest.raises(ConfigurationError, match="below none of absolute_roots"):
        await opened(place, superseded_directories=(where,))
    assert outside(place) == OLD_BELOW
    assert place.temporary() == set()


async def test_a_link_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "roots"
    (root / "real").mkdir(parents=True)
    (root / "real" / "old").write_bytes(b"old")
    (root / "p=9").symlink_to("real")
    given = {"conflict_mode": "replace", "superseded_directories": [str(root / "p=9")], "absolute_roots": [str(root)]}
    with pytest.raises(CommitterError, match="is a link, and is to be superseded"):
        async with committer.open_job(tmp_path / "t", config=given) as job:
            await job.commit(tasks=0)
    assert (root / "real" / "old").read_bytes() == b"old"
