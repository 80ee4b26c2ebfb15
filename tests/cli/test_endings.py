"""plan, commit, recover, abort, cleanup: what they show first, what they do, what they return."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import time
from pathlib import Path

import pytest

import committer.sync
from committer import CommitterConfig
from committer.cli.target import older
from committer.errors import ConfigurationError
from tests.cli.conftest import JAVA_JOB, Lake, Run, die_in_commit, shell
from tests.job_paths import jobs_at
from tests.places import MemoryPlace

THREE = ["year=2026/part-0.csv", "year=2026/part-1.csv", "year=2026/part-2.csv"]


# -- plan and commit ----------------------------------------------------------------------------------------------------


def test_a_plan_changes_nothing(run: Run, lake: Lake) -> None:
    lake.open()
    before = sorted(str(path) for path in lake.path.rglob("*"))
    result = run("plan", lake.path, "open")
    assert result.code == 0
    assert "3 files, 6.00 kB, of 3 tasks" in result.out
    assert sorted(str(path) for path in lake.path.rglob("*")) == before


def test_a_plan_that_would_be_refused_fails_and_says_why(run: Run, lake: Lake) -> None:
    lake.open()
    (lake.path / "year=2026").mkdir()
    (lake.path / "year=2026/part-1.csv").write_text("another job's")
    result = run("plan", lake.path, "open", "--output", "json")
    assert result.code == 1
    assert "part-1.csv" in result.json["plan"]["conflicts"][0]
    refused = run("commit", lake.path, "open", "--yes")
    assert refused.code == 1
    assert "part-1.csv" in refused.err
    assert (lake.path / "year=2026/part-1.csv").read_text() == "another job's"


@pytest.mark.parametrize("files", [20, 21, 99, 100, 250])
def test_of_much_that_stands_in_the_way_the_first_are_shown(run: Run, lake: Lake, files: int) -> None:
    """The engine tells of a hundred at most, so an answer does not say that there are no others."""
    names = [f"part-{number:03}" for number in range(files)]
    lake.path.mkdir()
    for name in names:
        (lake.path / name).write_text("old")
    job = committer.sync.open_job(lake.path, job_id="many")
    with job.task_attempt(0, 0) as task:
        for name in names:
            with task.open(name) as file:
                file.write(b"new")
    job.close()
    more = {20: "", 21: "and 1 more", 99: "and 79 more"}.get(files, "and at least 80 more")
    planned = run("plan", lake.path, "many")
    refused = run("commit", lake.path, "many", "--yes")
    assert (planned.code, refused.code) == (1, 1)
    for text, start in ((planned.out, "    "), (refused.err, "  - ")):
        shown = [line for line in text.splitlines() if line.startswith(f"{start}a file exists at ")]
        assert shown == [f"{start}a file exists at {name}, where a file goes" for name in names[:20]]
        assert [line for line in text.splitlines() if line == f"{start}{more}"] == [f"{start}{more}"] * bool(more)


def test_commit_asks_for_yes_and_says_what_it_would_do(run: Run, lake: Lake) -> None:
    lake.open()
    result = run("commit", lake.path, "open")
    assert result.code == 2
    assert "3 files" in result.out
    assert "--yes" in result.err
    assert lake.files() == []
    done = run("commit", lake.path, "open", "--yes")
    assert done.code == 0
    assert "3 files" in done.err
    assert lake.files() == THREE
    assert (lake.path / "_SUCCESS").exists()


def test_commit_as_json_prints_one_object_and_nothing_else(run: Run, lake: Lake) -> None:
    lake.open()
    planned = run("commit", lake.path, "open", "--output", "json")
    assert (planned.code, planned.json["plan"]["files"]) == (2, 3)
    done = run("commit", lake.path, "open", "--yes", "--output=json")
    assert (done.code, done.json["report"]["files_committed"], done.json["done"]) == (0, 3, True)
    assert done.err == ""


def test_commit_refuses_another_number_of_tasks(run: Run, lake: Lake) -> None:
    lake.open()
    more = run("commit", lake.path, "open", "--tasks", "4", "--yes")
    assert (more.code, "run the missing tasks again" in more.err) == (1, True)
    fewer = run("commit", lake.path, "open", "--tasks", "1", "--yes")
    assert fewer.code == 1
    assert "was to be committed with 1 task, and 3 committed" in fewer.err
    # None is missing.
    assert "missing" not in fewer.err
    done = run("commit", lake.path, "open", "--tasks", "3", "-o", "existing_target=replace", "--yes")
    assert (done.code, "existing_target has no effect" in done.err) == (0, True)


def test_a_job_by_message_is_committed_with_its_messages(run: Run, lake: Lake, tmp_path: Path) -> None:
    messages = lake.open(delivery="message")
    missing = run("commit", lake.path, "open", "--yes")
    assert missing.code == 2
    assert "--task-commits" in missing.err
    file = tmp_path / "messages"
    file.write_bytes(b"\n".join(messages[:2]) + b"\n")
    assert run("commit", lake.path, "open", "--task-commits", file, "--yes").code == 0
    assert lake.files() == THREE[:2]


def test_a_line_that_is_no_message_is_named(run: Run, lake: Lake, tmp_path: Path) -> None:
    messages = lake.open(delivery="message")
    file = tmp_path / "messages"
    file.write_bytes(messages[0] + b"\nrubbish\n")
    result = run("plan", lake.path, "open", "--task-commits", file)
    assert result.code == 2
    assert "line 2" in result.err
    assert run("plan", lake.path, "open", "--task-commits", tmp_path / "nowhere").code == 2


def test_a_job_that_java_set_up_is_committed(run: Run, lake: Lake) -> None:
    lake.java()
    planned = run("plan", lake.path, JAVA_JOB)
    assert planned.code == 0
    assert "Hadoop's manifest committer" in planned.out
    assert "16 files" in planned.out
    assert run("commit", lake.path, JAVA_JOB, "--tasks", "5", "--yes").code == 0
    assert len([path for path in lake.path.rglob("*") if path.is_file()]) == 17
    assert run("validate", lake.path).code == 0
    assert not lake.temporary.exists()


def test_a_java_job_that_finds_a_file_in_its_way_is_committed_with_the_choice_that_is_named(
    run: Run, lake: Lake
) -> None:
    lake.java()
    (lake.path / "year=2024").mkdir(parents=True, exist_ok=True)
    (lake.path / "year=2024" / "month=03").write_bytes(b"where a directory goes")
    commit = ["commit", lake.path, JAVA_JOB, "--tasks", "5", "--yes"]
    refused = run(*commit, "--output", "json")
    assert refused.code == 1
    # Its tasks need not run again: who commits a job of Hadoop's gives the choices.
    assert "commit the job with existing_target='replace'" in refused.json["error"]["next_step"]
    assert run(*commit, "-o", "existing_target=replace").code == 0
    assert run("validate", lake.path).code == 0


def test_the_job_attempt_of_a_java_job_can_be_named(run: Run, lake: Lake) -> None:
    lake.java(attempt="00")
    (lake.temporary / JAVA_JOB / "01" / "manifests").mkdir(parents=True)
    assert run("plan", lake.path, JAVA_JOB, "--output", "json").json["plan"]["files"] == 0
    first = run("plan", lake.path, JAVA_JOB, "--job-attempt", "0", "--output", "json")
    assert first.json["plan"]["files"] == 16


# -- recover ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "words", "said", "files"),
    [
        ("decided", "recover", "publish what is missing of 3 files", 3),
        ("decided", "commit", "decided (commit, 3 files), not ended", 3),
        ("decided", "recover --rollback", "roll back", 0),
        ("begun", "recover", "go on where a driver began", 3),
        ("unfinished", "recover", "last steps", 3),
    ],
)
def test_what_a_driver_left_is_ended_as_the_plan_says(
    run: Run, lake: Lake, state: str, words: str, said: str, files: int
) -> None:
    getattr(lake, state)("j")
    name, *more = words.split()
    shown = run(name, lake.path, "j", *more)
    assert (shown.code, said in shown.out) == (2, True)
    done = run(name, lake.path, "j", *more, "--yes", "--output", "json")
    assert (done.code, done.json["report"]["success"], len(lake.files())) == (0, files == 3, files)
    assert (lake.path / "_SUCCESS").exists() is (files == 3)
    if files:
        assert run("recover", lake.path, "j", "--yes").code == 0, "again and again"


def test_a_committed_job_that_is_gone_is_not_said_to_be_taken_back(run: Run, lake: Lake) -> None:
    lake.decided()
    assert run("recover", lake.path, "decided", "--yes").code == 0
    refused = run("recover", lake.path, "decided", "--rollback", "--yes", "--output", "json")
    assert (refused.code, refused.json["error"]["outcome"]) == (1, "committed")
    assert "it cannot be rolled back" in refused.json["error"]["message"]
    assert len(lake.files()) == 3


@pytest.mark.parametrize("command", ["recover", "settle", "abort", "cleanup"])
def test_what_file_v2_made_visible_is_not_said_to_go(run: Run, lake: Lake, command: str) -> None:
    lake.open("early", committer="file-v2")
    words = {"recover": ["early", "--rollback"], "cleanup": ["--job", "early"], "settle": ["early", "--force"]}
    ended = run(command, lake.path, *words.get(command, ["early"]), "--yes")
    assert ended.code == (4 if command == "settle" else 0)
    assert not any(said in ended.out + ended.err for said in ("never published", "nothing of it", "tasks' output"))
    assert len(lake.files()) == 3


def test_a_rollback_that_is_interrupted_is_never_followed_by_a_commit(
    run: Run, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    lake.decided()
    with monkeypatch.context() as patched:
        patched.setattr("committer.cli.ending.recover", interrupted)
        answer = run("recover", lake.path, "decided", "--rollback", "--yes", "--output", "json")
    assert (answer.code, answer.json["interrupted"]) == (3, "recover")
    assert run(*shlex.split(answer.json["next_step"])[1:], "--yes").code == 0
    assert lake.files() == []


def test_a_rollback_that_is_refused_is_never_followed_by_a_commit(run: Run) -> None:
    """Where no driver can be fenced off it takes a word, and `recover` alone would publish the job."""
    place = MemoryPlace("gcs")
    die_in_commit(place, {"x": b"x"})
    refused = run("recover", place.dest, "j", "--rollback", "--yes")
    assert (refused.code, place.files()) == (3, {})
    assert f"committer recover {place.dest} j --rollback --force" in refused.err.replace("\n", "")
    assert run("recover", place.dest, "j", "--rollback", "--force", "--yes").code == 0
    assert place.files() == {}


def test_uploads_that_may_be_another_jobs_are_named(run: Run) -> None:
    place = MemoryPlace("s3")

    async def leave() -> None:
        job = await place.open_job(job_id="j", delivery="listing")
        await place.run_task(job, 0, {"x": b"x"})
        await place.space.store().create_upload(place.space.path("table/y"), stamp="another-program")
        await job.close()

    asyncio.run(leave())
    done = run("commit", place.dest, "j", "--yes")
    assert done.code == 0
    assert f"{place.dest}/y" in done.out


def test_recover_by_force_commits_a_job_that_no_driver_began_to_commit(run: Run, lake: Lake) -> None:
    lake.open()
    assert run("recover", lake.path, "open", "--force", "--yes").code == 0
    assert lake.files() == THREE


# -- abort --------------------------------------------------------------------------------------------------------------


def test_abort_removes_an_open_job(run: Run, lake: Lake) -> None:
    lake.open()
    assert run("abort", lake.path, "open").code == 2
    assert lake.in_job("open").exists()
    assert run("abort", lake.path, "open", "--yes").code == 0
    assert not lake.temporary.exists()
    assert run("abort", lake.path, "open", "--yes").code == 4


@pytest.mark.parametrize("command", ["abort", "cleanup --job"])
def test_the_entries_of_a_job_that_is_gone_are_deleted(run: Run, lake: Lake, command: str) -> None:
    lake.open()
    lake.entry("gone")
    verb, *option = command.split()
    assert run(verb, lake.path, *option, "gone").code == 2
    done = run(verb, lake.path, *option, "gone", "--yes")
    assert done.code == 0
    assert "its entries are deleted" in done.out
    assert run("commit", lake.path, "open", "--yes").code == 0


@pytest.mark.parametrize("way", [0, 1], ids=["finished", "rolled back"])
def test_two_neighbours_in_the_way_are_both_named(run: Run, lake: Lake, way: int) -> None:
    """One is decided, one was about to be: the code says busy, and a command for each is shown that ends it."""
    lake.decided("first")
    lake.begun("second")
    lake.open("replacing", config=CommitterConfig(conflict_mode="replace", superseded_scope="destination"))
    busy = run("commit", lake.path, "replacing", "--yes", "--output", "json")
    assert (busy.code, busy.json["error"]["type"]) == (5, "DestinationBusyError")
    assert "jobs first, second" in busy.json["error"]["message"]
    shown = [shlex.split(one)[1:] for one in busy.json["error"]["commands"]]
    for owner in ("first", "second"):
        assert run(*[words for words in shown if owner in words][way], "--yes").code == 0
    assert run("commit", lake.path, "replacing", "--yes").code == 0
    assert len(lake.files()) == 3


# -- cleanup ------------------------------------------------------------------------------------------------------------


def test_cleanup_takes_what_is_old_and_says_what_it_keeps(run: Run, lake: Lake) -> None:
    lake.open("old")
    lake.open("young")
    lake.decided("decided")
    a_week_ago = time.time() - 8 * 86400
    for directory in ("old", "decided"):
        for path in lake.in_job(directory).rglob("*"):
            os.utime(path, (a_week_ago, a_week_ago))
    shown = run("cleanup", lake.path, "--older-than", "7d", "--output", "json")
    assert shown.code == 2
    assert shown.json["removes"] == ["old"]
    assert sorted(shown.json["keeps"]) == ["decided", "young"]
    assert lake.in_job("old").exists()
    done = run("cleanup", lake.path, "--older-than", "7d", "--yes", "--output", "json")
    assert (done.code, done.json["removed"]) == (0, ["old"])
    assert jobs_at(lake.path) == ["decided", "young"]


def test_cleanup_of_what_is_kept_for_a_stream_needs_force(run: Run, lake: Lake) -> None:
    lake.committed("batch", config=committer.CommitterConfig(outcome_kept=True))
    files = lake.files()
    for words in ((), ("--yes",), ("--output", "json")):
        refused = run("cleanup", lake.path, "--job", "batch", *words)
        assert refused.code == 1
        assert "kept for a stream" in refused.err
        assert f"committer cleanup {lake.path} --job batch --force" in refused.err
    planned = run("cleanup", lake.path, "--job", "batch", "--force")
    assert planned.code == 2
    assert "published a second time, or stops" in planned.out
    assert "its published files stay" in planned.out
    assert lake.in_job("batch", "kept").exists()
    assert run("cleanup", lake.path, "--job", "batch", "--force", "--yes").code == 0
    assert not lake.temporary.exists()
    assert lake.files() == files


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("open", "it never committed, and the task output in its directory is lost"),
        ("decided", "what it published stays; what it did not publish"),
        ("skipped", "its published files stay"),
    ],
)
def test_cleanup_says_of_each_job_what_is_lost(run: Run, lake: Lake, state: str, said: str) -> None:
    if state == "skipped":
        lake.committed(state, config=committer.CommitterConfig(cleanup_skipped=True))
    else:
        getattr(lake, state)()
    files = lake.files()
    planned = run("cleanup", lake.path, "--job", state, "--force")
    assert said in planned.out
    assert run("cleanup", lake.path, "--job", state, "--force", "--yes").code == 0
    assert lake.files() == files


def test_cleanup_of_another_committers_directory_needs_force(run: Run, lake: Lake) -> None:
    (lake.temporary / "0" / "_temporary" / "attempt").mkdir(parents=True)
    assert run("cleanup", lake.path, "--job", "0", "--yes").code == 1
    assert (lake.temporary / "0").exists()
    assert run("cleanup", lake.path, "--job", "0", "--force", "--yes").code == 0


def test_cleanup_takes_one_of_job_and_age(run: Run, lake: Lake) -> None:
    assert run("cleanup", lake.path, "--yes").code == 2
    assert run("cleanup", lake.path, "--job", "a", "--older-than", "7d", "--yes").code == 2
    assert run("cleanup", lake.path, "--older-than", "soon", "--yes").code == 2
    assert run("cleanup", lake.path, "--job", "a", "--yes").code == 4


@pytest.mark.parametrize("text", ["", "d", "7", "-7d", "7 days", "infd", "nand", "1e999d", "٧d"])
def test_an_age_is_a_number_and_a_unit(text: str) -> None:
    with pytest.raises(ConfigurationError):
        older(text)
    ages = {"90s": 90, "1.5h": 5400, "7d": 604800, "2W": 1209600, "0m": 0}
    assert {age: found.total_seconds() for age in ages if (found := older(age)) is not None} == ages


@pytest.mark.parametrize("command", ["plan", "commit", "abort"])
def test_who_comes_after_another_operator_is_told_how_the_job_ended(run: Run, lake: Lake, command: str) -> None:
    lake.decided()
    assert run("recover", lake.path, "decided", "--yes").code == 0
    late = run(command, lake.path, "decided", *(["--yes"] if command != "plan" else []))
    assert late.code == 4
    recover = f"committer recover {lake.path} decided"
    assert recover in [line.strip() for line in late.err.splitlines()]
    told = run(*recover.split()[1:], "--yes")
    assert (told.code, "job decided: committed" in told.out) == (0, True)


def test_a_bad_job_id_is_usage(run: Run, lake: Lake) -> None:
    assert run("recover", lake.path, "../../etc", "--yes").code == 2


# -- outputs outside the destination --------------------------------------------------------------------------------


def test_roots_outside_the_destination_are_given_again(run: Run, tmp_path: Path) -> None:
    outside = tmp_path / "warehouse"
    lake = Lake(tmp_path / "lake")
    job = committer.sync.open_job(lake.path, job_id="nightly", config=CommitterConfig(absolute_roots=(str(outside),)))
    spec = job.spec
    job.close()
    with committer.sync.open_task(spec, task=0) as task, task.open_absolute(str(outside / "p/part-0")) as file:
        file.write(b"1")
    refused = run("commit", lake.path, "nightly", "--yes")
    assert refused.code == 1
    assert "absolute_roots" in refused.err
    assert not list(outside.rglob("part-0"))
    done = run("commit", lake.path, "nightly", "--yes", "-o", f"absolute_roots={outside}")
    assert done.code == 0
    assert "no effect" not in done.err
    assert (outside / "p/part-0").read_bytes() == b"1"


def test_a_cleanup_that_could_not_remove_a_job_fails(run: Run, lake: Lake) -> None:
    """So that what runs it every night is told; the other jobs are removed."""
    for job_id in ("damaged", "dead"):
        lake.open(job_id)
    lake.in_job("damaged", "decision").write_text("{")
    done = run("cleanup", lake.path, "--older-than", "0s", "--yes", "--output", "json")
    assert (done.code, done.json["removed"], done.json["failed"]) == (1, ["dead"], ["damaged"])
    assert run("cleanup", lake.path, "--older-than", "7d", "--yes").code == 0


def test_messages_are_read_from_standard_input(lake: Lake) -> None:
    """As a word of its own: `--task-commits -`."""
    lines = "\n".join(message.decode() for message in lake.open(delivery="message"))
    assert shell("plan", lake.path, "open", "--task-commits", "-", stdin=lines).code == 0
    assert shell("commit", lake.path, "open", "--task-commits", "-", "--tasks", "3", "--yes", stdin=lines).code == 0
    assert len(lake.files()) == 3


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({}, False),
        ({"conflict_mode": "replace", "superseded_scope": "destination"}, True),
        ({"existing_target": "replace"}, True),
    ],
)
def test_a_rollback_speaks_of_old_files_where_there_can_be_some(
    run: Run, lake: Lake, choices: dict[str, str], said: bool
) -> None:
    lake.committed("old")
    lake.decided(config=CommitterConfig(io_concurrency=1, **choices))  # type: ignore[arg-type]
    assert ("old files come back" in run("recover", lake.path, "decided", "--rollback").out) is said


# -- jobs that are gone ---------------------------------------------------------------------------------------------


def test_recover_of_an_aborted_job_fails_also_where_a_summary_report_is_kept(
    run: Run, lake: Lake, tmp_path: Path
) -> None:
    kept = f"summary_report_directory={tmp_path / 'reports'}"
    lake.open(config=CommitterConfig(summary_report_directory=str(tmp_path / "reports")))
    assert run("abort", lake.path, "open", "-o", kept, "--yes").code == 0
    assert json.loads((tmp_path / "reports/summary-open.json").read_text())["success"] is False
    for more in ((), ("--yes",)):
        result = run("recover", lake.path, "open", "-o", kept, *more)
        assert result.code == 1
        assert "was aborted, or rolled back" in result.err
    assert run("recover", lake.path, "open", "-o", kept, "--rollback", "--yes").code == 0
    assert run("recover", lake.path, "open", "--yes").code == 4
