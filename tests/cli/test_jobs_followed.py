"""What `committer jobs` advises, followed to the letter: it ends the job, and never commits what may be alive as it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import committer
from committer import CommitterConfig
from committer.paths import StorePath
from committer.stores.base import FileStatus
from committer.stores.memory.store import MemoryStore
from committer.testing.faults import Fault, SimulatedCrash
from tests.cli.conftest import JAVA_JOB, Lake, Run, die_in_commit, rows, typed
from tests.job_paths import has_in_job, in_job
from tests.places import MemoryPlace, Place, make_place

# -- jobs of Hadoop's ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "files"), [(0, 14), (1, 0)], ids=["commit", "abort"])
def test_a_job_of_hadoops_may_be_alive(run: Run, lake: Lake, number: int, files: int) -> None:
    lake.java()
    row = rows(run, lake.path)[JAVA_JOB]
    assert row["next_step"] == ""
    shown = row["if_dead"]
    assert [words.split()[1:2] for words in shown] == [["commit"], ["abort"]]
    assert "perhaps alive" in run("jobs", lake.path).out
    assert run(*typed(shown[0], 6), "--yes").code == 1, "a task is missing"
    assert run(*typed(shown[number], 5), "--yes").code == 0
    assert len(lake.files()) == files
    assert rows(run, lake.path) == {}


def test_of_a_job_of_hadoops_that_no_task_committed_there_is_nothing_to_commit(run: Run, lake: Lake) -> None:
    (lake.temporary / JAVA_JOB / "00" / "manifests").mkdir(parents=True)
    [shown] = rows(run, lake.path)[JAVA_JOB]["if_dead"]
    assert shown == f"committer abort {lake.path} {JAVA_JOB}"
    assert run(*typed(shown), "--yes").code == 0
    assert rows(run, lake.path) == {}


def test_a_job_of_an_older_hadoop_is_removed(run: Run, lake: Lake) -> None:
    lake.java("manifest_job_202401010000_0002", attempt="0")
    [shown] = rows(run, lake.path)["manifest_job_202401010000_0002"]["if_dead"]
    assert run(*typed(shown), "--yes").code == 0
    assert "manifest_job_202401010000_0002" not in rows(run, lake.path)


@pytest.mark.parametrize("profile", ["adls", "gcs"])
@pytest.mark.parametrize("number", [0, 1], ids=["commit", "other"])
def test_a_job_of_hadoops_where_late_tasks_leave_the_same(run: Run, profile: str, number: int) -> None:
    place = MemoryPlace(profile)
    manifest = b'{"type":"org.apache.hadoop.mapreduce.lib.output.committer.manifest.files.TaskManifest/1","version":1,'
    place.write(
        "_temporary/job_1_0001/00/manifests/task_1_0001_m_000000-manifest.json",
        manifest + b'"jobId":"job_1_0001","jobAttemptNumber":0,"taskID":"task_1_0001_m_000000",'
        b'"taskAttemptID":"attempt_1_0001_m_000000_0","taskAttemptDir":"","files":[],"directories":[],"extraData":{}}',
    )
    place.write("_temporary/job_1_0001/00/tasks/attempt_1_0001_m_000000_0/part-0", b"x")
    shown = rows(run, place.dest)["job_1_0001"]["if_dead"]
    done = run(*typed(shown[number], 1), "--yes")
    assert (done.code, done.err) == (0, done.err)
    assert rows(run, place.dest) == {}


@pytest.mark.parametrize("record", ["task_1_0001_m_000000.pendingset", "own"])
def test_pending_sets_of_hadoops_magic_committer(run: Run, record: str) -> None:
    """Those that name their tasks as Hadoop does are a job's; others late tasks may have left."""
    place = MemoryPlace("s3")
    layout = place.layout("j")
    name = f"{layout.task_id(0)}.pendingset" if record == "own" else record
    place.write(f"__magic_job-j/job-j/00/{name}", b"{}")
    shown = rows(run, place.dest)["j"]["if_dead"]
    assert shown[-1].split()[1] == ("cleanup" if record == "own" else "abort")
    assert (len(shown) == 1) == (record == "own")
    # It stands among the output.
    assert "_temporary" not in run("cleanup", place.dest, "--job", "j").out
    assert run(*typed(shown[-1]), "--yes").code == 0
    assert rows(run, place.dest) == {}


# -- jobs without records -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["listing", "message"])
@pytest.mark.parametrize("kind", ["disk", "hdfs", "adls", "gcs", "s3"])
def test_a_job_that_lost_its_setup_record_is_removed(
    run: Run, tmp_path: pytest.TempPathFactory, kind: str, delivery: str
) -> None:
    place: Place = make_place(kind, tmp_path)  # type: ignore[arg-type]

    async def leave() -> None:
        job = await place.open_job(job_id="j", delivery=delivery)
        for number in range(3):
            await place.run_task(job, number, {f"f{number}": b"x"})
        await job.close()

    asyncio.run(leave())
    place.remove(in_job(place, "j", "setup"))
    row = rows(run, place.dest)["j"]
    assert (row["state"], "it is over" in row["attention"]) == ("unknown", True)
    assert run(*typed(row["next_step"]), "--yes").code == 0
    assert rows(run, place.dest) == {}
    assert place.temporary() == set()


@pytest.mark.parametrize("kind", ["local", "adls", "gcs", "s3"])
def test_what_a_cleanup_left_that_died_is_removed(run: Run, kind: str) -> None:
    place = MemoryPlace(kind)

    async def die() -> None:
        job = await place.open_job(job_id="j")
        await place.run_task(job, 0, {"a": b"x"})
        await job.close()
        place.faults(
            Fault(kind="crash_before", operation="delete_directory", path=".removed"),
            Fault(kind="crash_after", operation="delete_file", path="/setup"),
        )
        with pytest.raises(SimulatedCrash):
            await committer.cleanup(place.dest, job_id="j", storage_options=place.options)

    asyncio.run(die())
    row = rows(run, place.dest)["j"]
    renames = kind in ("local", "adls")
    assert row["state"] == ("unknown" if renames else "aborted")
    assert ("being removed" if renames else "not cleaned up") in row["attention"]
    assert run(*typed(row["next_step"]), "--yes").code == 0
    assert rows(run, place.dest) == {}
    assert place.temporary() == set()


@pytest.mark.parametrize("name", ["0", "foreign"])
def test_what_another_committer_left_may_be_alive(run: Run, lake: Lake, name: str) -> None:
    (lake.temporary / name / "_temporary" / "attempt").mkdir(parents=True)
    row = rows(run, lake.path)[name]
    assert (row["next_step"], "alive" in row["attention"]) == ("", True)
    [shown] = row["if_dead"]
    assert run(*typed(shown), "--yes").code == 0
    assert not (lake.temporary / name).exists()


# -- the other end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", [False, True], ids=["new", "replaces"])
def test_a_job_that_can_only_go_forward_shows_one_end(run: Run, old: bool) -> None:
    place = MemoryPlace("s3")
    if old:
        place.write("a", b"old")
    die_in_commit(place, {"a": b"new"}, CommitterConfig(existing_target="replace"))
    row = rows(run, place.dest)["j"]
    assert bool(row["otherwise"]) is not old
    assert run(*typed(row["next_step" if old else "otherwise"]), "--yes").code == 0
    assert place.files() == ({"a": b"new"} if old else {})


def test_a_rollback_that_keeps_no_other_driver_out_is_shown_with_what_it_takes(run: Run) -> None:
    """GCS: a driver that is alive could go on while files are rolled back, so the operator has to vouch that none is."""
    place = MemoryPlace("gcs")
    die_in_commit(place, {"a": b"new", "b": b"new"})
    row = rows(run, place.dest)["j"]
    assert row["otherwise"] == f"committer recover {place.dest} j --rollback --force"
    said = "or, once no other driver of it is alive, to end it with nothing of it published:"
    assert f"{said}\n  {row['otherwise']}\n" in run("jobs", place.dest).out
    assert run(*typed(row["otherwise"]), "--yes").code == 0
    assert (place.files(), rows(run, place.dest)) == ({}, {})


# -- outcomes that are kept ---------------------------------------------------------------------------------------------


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> MemoryPlace:
    """A bucket that shows a directory with nothing in it any more beside a kept outcome, as SeaweedFS does."""
    place = MemoryPlace("s3")
    asyncio.run(place.run_job({"a": b"a"}, job_id="j", config=CommitterConfig(outcome_kept=True)))
    listed = MemoryStore.list

    async def list_with_emptied(self: MemoryStore, path: StorePath) -> AsyncIterator[FileStatus]:
        async for child in listed(self, path):
            yield child
        if path.path == f"/table/{in_job(place, 'j')}":
            yield FileStatus(path / "00", True, 0)

    monkeypatch.setattr(MemoryStore, "list", list_with_emptied)
    return place


def test_an_emptied_directory_beside_a_kept_outcome_is_nothing(run: Run, kept: MemoryPlace) -> None:
    row = rows(run, kept.dest)["j"]
    assert (row["kept"], row["next_step"], row["if_dead"]) == (True, "", [])
    kept.write(in_job(kept, "j", "00/tasks/late"), b"late")
    assert "something else" in str((row := rows(run, kept.dest)["j"])["attention"])
    assert run(*typed(row["next_step"]), "--yes").code == 0
    assert rows(run, kept.dest)["j"]["next_step"] == ""


def test_a_kept_outcome_that_cannot_be_read(run: Run, kept: MemoryPlace) -> None:
    kept.write(in_job(kept, "j", "kept"), b"{")
    row = rows(run, kept.dest)["j"]
    assert (row["owner"], "cannot be read" in row["attention"]) == ("committer", True)
    assert run(*typed(row["next_step"]), "--yes").code == 0
    assert not has_in_job(kept, "j", "kept")
