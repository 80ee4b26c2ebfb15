"""jobs: whose each directory below `_temporary` is, what is odd about it, and the command that settles it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from committer import CommitterConfig
from committer import sync as committer_sync
from committer.committers.registry import BUILT_IN
from committer.stores.local import LocalStore
from committer.stores.memory import MemoryStore
from committer.stores.registry import register_store, unregister_store
from committer.testing.faults import Fault, FaultyStore
from tests.cli.conftest import JAVA_JOB, Lake, Run, rows, typed
from tests.job_paths import INTENT, KEPT


@contextmanager
def disk_with(fault: Fault) -> Iterator[None]:
    register_store("file", lambda path, options: FaultyStore(LocalStore(), [fault]))
    try:
        yield
    finally:
        unregister_store("file")


def test_nothing_there(run: Run, lake: Lake) -> None:
    lake.path.mkdir(exist_ok=True)
    assert "no jobs" in run("jobs", lake.path).out
    lake.committed()
    assert "no jobs" in run("jobs", lake.path).out


def test_every_kind_of_job(run: Run, lake: Lake) -> None:
    lake.open()
    lake.begun()
    lake.decided()
    lake.unfinished()
    lake.java()
    lake.java("manifest_job_202401010000_0002", attempt="0")
    (lake.temporary / "0" / "_temporary").mkdir(parents=True)
    (lake.temporary / "1").mkdir()
    (lake.temporary / "emptied").mkdir()
    (lake.temporary / "foreign" / "stuff").mkdir(parents=True)
    lake.in_job("damaged").mkdir()
    lake.in_job("damaged", "setup").write_text("{}")
    lake.in_job("damaged", "decision").write_text("{")
    found = rows(run, lake.path)
    assert {name: (row["owner"], row["state"]) for name, row in found.items()} == {
        "0": ("classic", "unknown"),
        "1": ("classic", "unknown"),
        "begun": ("committer", "open"),
        "damaged": ("committer", "unknown"),
        "decided": ("committer", "committing"),
        "emptied": ("nobody", "unknown"),
        "foreign": ("unknown", "unknown"),
        JAVA_JOB: ("hadoop", "open"),
        "manifest_job_202401010000_0002": ("hadoop", "open"),
        "open": ("committer", "open"),
        "unfinished": ("committer", "committed"),
    }
    assert found["open"]["attention"] == ""
    assert "a driver began" in found["begun"]["attention"]
    assert "not ended" in found["decided"]["attention"]
    assert found["decided"]["files"] == 3
    assert "last steps" in found["unfinished"]["attention"]
    assert "orphan" in found["emptied"]["attention"]
    assert found[JAVA_JOB]["task_records"] == 5
    commit, abort = f"committer commit {lake.path} {JAVA_JOB} --tasks N", f"committer abort {lake.path} {JAVA_JOB}"
    assert (found[JAVA_JOB]["next_step"], found[JAVA_JOB]["if_dead"]) == ("", [commit, abort])
    assert "older Hadoop" in found["manifest_job_202401010000_0002"]["attention"]
    assert "damaged" in run("jobs", lake.path).out


def test_an_outcome_that_is_kept_for_a_stream_is_not_what_remains(run: Run, lake: Lake) -> None:
    lake.committed("batch", config=CommitterConfig(outcome_kept=True))
    row = rows(run, lake.path)["batch"]
    assert (row["state"], row["kept"], row["next_step"]) == ("committed", True, "")
    assert "kept for a stream" in row["attention"]
    assert "committer cleanup" not in run("jobs", lake.path).out
    lake.in_job("batch", "intent-late").write_text("{}")
    assert run(*typed(rows(run, lake.path)["batch"]["next_step"]), "--yes").code == 0
    assert {path.name for path in lake.in_job("batch").iterdir()} == KEPT


@pytest.mark.parametrize("record", ["setup", "decision", "outcome", "intent"])
def test_a_record_of_a_newer_release_is_no_reason_to_remove_a_job(run: Run, lake: Lake, record: str) -> None:
    getattr(lake, {"decision": "decided", "outcome": "unfinished", "intent": "begun"}.get(record, "open"))("newer")
    path = lake.in_job("newer", INTENT if record == "intent" else record)
    path.write_text(path.read_text().replace('"version": 1', '"version": 2', 1))
    row = rows(run, lake.path)["newer"]
    assert "unknown to this release" in row["attention"]
    assert "use the release that wrote it" in row["attention"]
    assert row["next_step"] == ""
    path.write_text("{")
    row = rows(run, lake.path)["newer"]
    if record == "intent":
        # No way to end the job needs it.
        assert run(*typed(row["if_dead"][0], 3), "--yes").code == 0
        assert len(lake.files()) == 3
    else:
        assert "are lost" in row["attention"]
        assert row["next_step"] == f"committer cleanup {lake.path} --job newer --force"


def test_a_record_that_the_store_does_not_show_is_no_reason_to_remove_a_job(run: Run, lake: Lake) -> None:
    lake.open("hidden")
    with disk_with(Fault(kind="forbidden", operation="read", path="setup")):
        row = rows(run, lake.path)["hidden"]
    assert (row["state"], row["next_step"]) == ("unknown", "")


def test_a_directory_that_this_user_may_not_read_hides_no_other_job(run: Run, lake: Lake) -> None:
    """Several users write below one destination: what one of them keeps to himself stops no operator."""
    lake.decided("seen")
    lake.open("hidden")
    with disk_with(Fault(kind="forbidden", operation="list", path=str(lake.in_job("hidden")), times=None)):
        found, text = rows(run, lake.path), run("jobs", lake.path).out
    assert found["seen"]["next_step"] == f"committer recover {lake.path} seen"
    hidden = found["hidden"]
    assert (hidden["state"], hidden["owner"], hidden["next_step"], hidden["if_dead"]) == ("unknown", "unknown", "", [])
    assert "its directory cannot be read" in hidden["attention"]
    assert "its directory cannot be read" in text


@pytest.mark.parametrize("name", ["j", "j~0123.removed", "j~0123.new", "j~0123", "damaged~0123"])
def test_the_command_that_is_named_removes_what_is_left(run: Run, lake: Lake, name: str) -> None:
    directory = lake.temporary / name
    directory.mkdir(parents=True)
    if name == "damaged~0123":
        (directory / "setup").write_text("{}")
    [row] = rows(run, lake.path).values()
    assert (row["job_id"], row["directory"]) == (name.partition("~")[0], name)
    # A setup may be on its way.
    dead = row["if_dead"] if name in ("j~0123.new", "j~0123") else [row["next_step"]]
    [shown] = dead
    assert run(*typed(shown), "--yes").code == 0
    assert not directory.exists()


def test_what_dead_setups_and_removals_left_beside_a_job_is_shown_and_goes_once_it_is_over(
    run: Run, lake: Lake
) -> None:
    """A cleanup by their id would end the job, so none is named for now."""
    lake.open("j")
    live = lake.in_job("j").name
    for orphan in ("j~0000.removed", "j~0001.new"):
        (lake.temporary / orphan).mkdir()
    found = run("jobs", lake.path, "--output", "json").json["jobs"]
    assert {row["directory"]: row["state"] for row in found} == {
        live: "open", "j~0000.removed": "unknown", "j~0001.new": "unknown",
    }  # fmt: skip
    assert [row["next_step"] for row in found] == ["", "", ""]
    clean = f"committer cleanup {lake.path} --job j"
    orphans = [row for row in found if row["state"] == "unknown"]
    assert [row["if_dead"] for row in orphans] == [[clean], [clean]]
    text = run("jobs", lake.path).out
    assert text.count(f"Once no job j runs:\n  {clean}\n") == 2
    assert all(row["directory"] in text for row in found)
    assert run("commit", lake.path, "j", "--tasks", "3", "--yes").code == 0
    assert run(*clean.split()[1:], "--yes").code == 0
    assert (len(lake.files()), rows(run, lake.path)) == (3, {})


def test_entries_of_a_job_that_is_gone_are_shown(run: Run, lake: Lake) -> None:
    lake.entry("gone")
    result = run("jobs", lake.path, "--output", "json")
    assert result.json["jobs_of_orphan_entries"] == ["gone"]
    text = run("jobs", lake.path).out
    assert "entries of jobs that are gone: they block no job" in text
    assert f"committer cleanup {lake.path} --job gone" in text


def test_names_that_no_job_has(run: Run, lake: Lake) -> None:
    (lake.temporary / "not a job" / "x").mkdir(parents=True)
    row = rows(run, lake.path)["not a job"]
    assert (row["owner"], row["next_step"]) == ("unknown", "")
    assert run("cleanup", lake.path, "--job", "not a job", "--force", "--yes").code == 2
    assert (lake.temporary / "not a job").exists()


def test_a_link_in_the_place_of_a_job_is_shown_and_not_followed(run: Run, lake: Lake, tmp_path: Path) -> None:
    lake.open()
    os.symlink(tmp_path, lake.temporary / "link")
    row = rows(run, lake.path)["link"]
    assert (row["state"], row["owner"], row["next_step"]) == ("unknown", "unknown", "")
    assert "link is a link" in row["attention"]
    assert "remove the link by hand" in run("jobs", lake.path).out


def test_what_tasks_made_visible_is_not_to_be_taken_back(run: Run, lake: Lake) -> None:
    lake.published("j", committer="file-v2")
    said = run("jobs", lake.path).out
    assert "committer recover" in said
    assert "--rollback" not in said
    refused = run("abort", lake.path, "j", "--yes")
    assert refused.code == 3
    assert "cannot be rolled back" in " ".join(refused.err.split())
    assert "--rollback" not in refused.err
    assert run("recover", lake.path, "j", "--yes").code == 0


def test_a_committer_that_is_unsafe_is_called_so(run: Run, tmp_path: Path) -> None:
    for name in ("file-v1", "file-v2"):
        with committer_sync.open_job(tmp_path / name, job_id="j", committer=name) as job:
            with job.task_attempt(task=0) as task, task.open("part-0") as file:
                file.write(b"x")
            said = run("jobs", tmp_path / name).out
            assert ("file-v2 is unsafe: output is visible when a task commits" in said) == (name == "file-v2")
            assert ("3 tasks committed" in said or "1 task committed" in said) == (name == "file-v1")
            plan = run("plan", tmp_path / name, "j").out
            assert "1 file," in plan
            assert "leaves alone" not in plan
    said = run("explain", tmp_path).out
    assert "file-v1; file-v2 (unsafe: " in " ".join(said.split())


@pytest.mark.parametrize("profile", ["local", "gcs", "s3", "azure-flat"])
def test_every_committer_is_explained_for_every_store(run: Run, profile: str) -> None:
    """The one that a job gets, the others that it can have, and those that the store cannot carry, with the reason."""
    space = MemoryStore.space(f"explained-{profile}", profile)
    said = run("explain", f"memory://{space.name}/table", "--output", "json").json
    told = f"{said['committer']}; {said['others']}; {said['not_here']}"
    assert all(re.search(rf"(?:^|; ){name}(?: \(|;|$)", told) for name in BUILT_IN), told
    stocator = "unsafe: files are visible before the job is decided"
    assert (stocator in said["others"]) == (profile != "local")
    MemoryStore.forget(space.name)


@pytest.mark.parametrize("below", ["_temporary", "_temporary/", "_temporary/JOB", "_temporary/JOB/00"])
def test_a_place_where_jobs_work_is_no_destination(run: Run, lake: Lake, below: str) -> None:
    """As a path is copied from an error, or from a listing; a job stands, so that "no jobs" would be a lie."""
    lake.open()
    place = f"{lake.path}/{below.replace('JOB', lake.in_job('open').name)}"
    for words in (("jobs", place), ("recover", place, "open"), ("commit", place, "open"), ("abort", place, "open")):
        result = run(*words, "--output", "json")
        assert result.code == 4, words
        assert result.json["error"]["commands"] == [f"committer jobs {lake.path}"], words
    assert "open" in run("jobs", lake.path).out


def test_a_destination_whose_name_only_begins_so_is_one(run: Run, lake: Lake) -> None:
    table = lake.path / "_temporary_table"
    table.mkdir(parents=True)
    assert run("jobs", table).code == 0
