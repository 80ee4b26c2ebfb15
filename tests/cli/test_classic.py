"""Jobs of Hadoop's FileOutputCommitter, and directories in which no record tells of a job: what commands say of them."""

from __future__ import annotations

import re
import shlex

import pytest

import committer
from committer.records.job_state import Intent, encode_record
from committer.stores.memory import MemoryStore
from tests.cli.conftest import Lake, Run, rows, typed

JOB = "job_202401010000_0002"


@pytest.fixture
def shared(lake: Lake) -> Lake:
    """The output of two jobs of FileOutputCommitter whose drivers died; nothing of it is at the destination."""
    for name in (
        "task_202401010000_0002_m_000000",
        "task_202401010000_0002_m_000001",
        "task_202401010000_0003_m_000000",
    ):
        task = lake.temporary / "0" / name
        task.mkdir(parents=True)
        (task / f"part-{name[-13:]}").write_text("x")
    return lake


def in_python(text: str) -> str:
    """What an error says to do in Python, for a job of two tasks."""
    [code] = re.findall(r"`(with committer[^`]+)`", text)
    return code.replace("tasks=N", "tasks=2")


@pytest.mark.parametrize("command", ["plan", "commit", "recover", "abort"])
@pytest.mark.parametrize("job_id", [JOB, "0"])
@pytest.mark.parametrize("yes", [True, False])
def test_no_command_ends_such_a_job_and_each_says_what_does(
    run: Run, shared: Lake, command: str, job_id: str, yes: bool
) -> None:
    before = sorted(shared.path.rglob("*"))
    result = run(command, shared.path, job_id, *(["--yes"] if yes and command != "plan" else []))
    assert result.code == 2
    assert "FileOutputCommitter" in result.err
    assert "no command ends such a job" in result.err
    assert sorted(shared.path.rglob("*")) == before
    exec(in_python(result.err), {"committer": committer})
    assert shared.files() == ["part-0002_m_000000", "part-0002_m_000001"]
    assert committer.sync.validate(shared.path).ok


def test_with_storage_options_python_is_told_to_have_them_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFILE", "hdfs")
    place = "memory://cli-classic/table"
    space = MemoryStore.space("cli-classic", "hdfs")
    space.write("/table/_temporary/0/task_202401010000_0002_m_000000/part-0", b"x")
    result = run("commit", place, JOB, "--storage", "profile=env:PROFILE")
    assert "storage_options={...})" in in_python(result.err)


@pytest.mark.parametrize("profile", ["s3", "gcs", "azure-flat"])
def test_where_python_cannot_commit_it_nothing_is_said_to_do_in_python(
    run: Run, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    monkeypatch.setenv("PROFILE", profile)
    words = [f"memory://cli-classic-{profile}/table", "--storage", "profile=env:PROFILE"]
    space = MemoryStore.space(f"cli-classic-{profile}", profile)
    space.write("/table/_temporary/0/task_202401010000_0002_m_000000/part-0", b"x")
    for job_id in (JOB, "0"):
        result = run("commit", *words, job_id)
        assert (result.code, "in Python" in result.err) == (2, False)
        assert "run the job again: on this store only Hadoop could commit it" in result.err
    [row] = run("jobs", *words, "--output", "json").json["jobs"]
    assert "of job_202401010000_0002" in row["attention"]
    assert "Python" not in row["attention"]


@pytest.mark.parametrize("job_id", [JOB, "0"])
def test_the_newest_job_attempt_is_committed(run: Run, shared: Lake, job_id: str) -> None:
    """It took over the tasks of the one before."""
    task = "task_202401010000_0002_m_000000"
    (shared.temporary / "1").mkdir()
    (shared.temporary / "0" / task).rename(shared.temporary / "1" / task)
    exec(in_python(run("commit", shared.path, job_id).err).replace("tasks=2", "tasks=1"), {"committer": committer})
    assert shared.files() == ["part-0002_m_000000"]


def test_jobs_names_the_command_that_says_how_and_what_is_lost_with_the_other(run: Run, shared: Lake) -> None:
    [row] = run("jobs", shared.path, "--output", "json").json["jobs"]
    assert "share" in row["attention"]
    assert "the output of 3 committed tasks of job_202401010000_0002 and 1 more" in row["attention"]
    said = f"`committer commit {shared.path} {JOB}` says how Python commits it"
    assert row["attention"].endswith(said)
    assert row["if_dead"] == [f"committer cleanup {shared.path} --job 0 --force"]
    assert "If no such job is alive:" in run("jobs", shared.path).out
    words = typed(row["if_dead"][0])
    planned = run(*words)
    assert (planned.code, "alive" in planned.out, "is lost" in planned.out) == (2, True, True)
    assert "how it ended" not in planned.out
    assert run(*words, "--yes").code == 0
    assert rows(run, shared.path) == {}


# -- directories without a record of a job ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stands", "lost"),
    [
        ("0/task_202401010000_0002_m_000000/part-0", "another committer's, whose jobs may share it and be alive"),
        ("j/stuff/part-0", "another committer's, whose jobs may share it and be alive"),
        ("j/", "what drivers, tasks and cleanups of this engine left"),
        ("j/intent-0123", "what drivers, tasks and cleanups of this engine left"),
        ("j~0123.new/setup", "a setup that was not finished, which published nothing"),
        ("j~0123/00/tasks/", "a setup that was not finished, which published nothing"),
        ("j~0123.removed/outcome", "it is over: what it published, if anything, stays"),
        ("j~0123.new.removed/setup", "it is over: what it published, if anything, stays"),
    ],
)
def test_what_a_cleanup_would_lose_where_no_record_tells_of_a_job(run: Run, lake: Lake, stands: str, lost: str) -> None:
    path = lake.temporary / stands
    (path if stands.endswith("/") else path.parent).mkdir(parents=True)
    if not stands.endswith("/"):
        path.write_text("x")
    directory = stands.partition("/")[0]
    job_id = directory.partition("~")[0]
    shown = run("cleanup", lake.path, "--job", job_id, "--force")
    assert "what is left of these will be removed" in shown.out
    assert lost in shown.out
    assert ("another committer's" in shown.out) == lost.startswith("another")
    assert run("cleanup", lake.path, "--job", job_id, "--force", "--yes").code == 0
    assert not lake.temporary.exists()


def test_a_cleanup_by_age_removes_what_has_a_name_that_no_job_can_have(run: Run, lake: Lake) -> None:
    names = (".hidden", "a job", "j")
    for name in (*names, "0/task_202401010000_0002_m_000000", ".with files/task"):
        (lake.temporary / name).mkdir(parents=True)
    (lake.temporary / ".with files/task/part").write_text("x")
    words = ["cleanup", lake.path, "--older-than", "0s", "--force"]
    shown = run(*words)
    for name in names:
        assert (
            f"    {name}: it holds no record of a job: what drivers, tasks and cleanups of this engine left"
            in shown.out
        )
    assert "another committer's, perhaps alive; only its id with force removes it" in shown.out
    assert "    .with files: no job has such a name: look at it, and remove it by hand" in shown.out
    assert run(*words, "--yes").code == 0
    assert {path.name for path in lake.temporary.iterdir()} == {"0", ".with files"}


@pytest.mark.parametrize("intent", [False, True], ids=["nothing", "a late intent"])
@pytest.mark.parametrize("command", ["plan", "commit", "recover", "abort"])
def test_what_would_be_done_is_said_of_no_job_that_is_none(run: Run, lake: Lake, command: str, *, intent: bool) -> None:
    (lake.temporary / "j").mkdir(parents=True)
    if intent:
        late = Intent(job_id="j", driver="dead", created="2026-11-21T00:00:00+00:00", tasks=3)
        (lake.temporary / "j" / "intent-dead").write_bytes(encode_record(late))
    result = run(command, lake.path, "j")
    assert (result.code, "there is no job j" in result.err) == (4, True)
    assert "recover --rollback" not in result.err
    if command == "abort":
        # What it names removes it.
        assert f"committer jobs {lake.path}" in result.err
        [row] = run("jobs", lake.path, "--output", "json").json["jobs"]
        _program, *words = shlex.split(row["next_step"])
        assert run(*words, "--yes").code == 0
        assert not (lake.temporary / "j").exists()


@pytest.mark.parametrize("job_id", [JOB, "0"])
def test_no_advice_offers_to_commit_a_job_with_reducers(run: Run, lake: Lake, job_id: str) -> None:
    for name in ("task_202401010000_0002_m_000000", "task_202401010000_0002_r_000000"):
        (lake.temporary / "0" / name).mkdir(parents=True)
        (lake.temporary / "0" / name / "part-0").write_text("x")
    result = run("commit", lake.path, job_id)
    assert result.code == 2
    assert "run the job again: it has reducers" in result.err
    assert "attach_job" not in result.err
    [row] = run("jobs", lake.path, "--output", "json").json["jobs"]
    assert "Python" not in row["attention"]
