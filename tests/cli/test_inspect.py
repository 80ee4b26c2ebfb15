"""inspect and validate: every record there is, this engine's and Hadoop's, and the marker that vouches for nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import committer
from committer.cli.text import Exit
from tests.cli.conftest import JAVA, Lake, Run, typed
from tests.job_paths import INTENT

TRAP_MARKER = {
    "name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1",
    "timestamp": 1790000000000,
    "success": True,
    "committer": "org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitter",
    "jobId": "job_202611210215_0001",
    "jobIdSource": "JobID",
    "filenames": [],
    "iostatistics": {
        "counters": {"committer_files_committed": 0, "committer_bytes_committed": 0},
        "gauges": {},
        "minimums": {},
        "maximums": {},
        "meanstatistics": {},
    },
}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (path, "task manifest" if "manifest" in path.name else "success record")
        for path in sorted(JAVA.rglob("*"))
        if path.name == "_SUCCESS" or path.name.endswith(("-manifest.json", "attempts.json")) or "summary" in path.name
    ],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
def test_every_record_java_wrote(run: Run, path: Path, kind: str) -> None:
    text = run("inspect", path)
    assert (text.code, text.out.splitlines()[0]) == (0, kind)
    record = json.loads(path.read_text())
    assert (record.get("taskAttemptID") or record["jobId"]) in text.out
    assert ("NO: a report of a job that failed" in text.out) is (record.get("success") is False)
    assert path.name != "_SUCCESS" or "warning" not in text.out
    result = run("inspect", path, "--output", "json")
    assert (result.json["kind"], result.json["record"]["jobId"]) == (kind, record["jobId"])


@pytest.mark.parametrize(
    ("name", "kind"),
    [("x_y.csv.pending", "pending upload"), ("task_202401010000_0001_m_000000.pendingset", "pending set")],
)
@pytest.mark.parametrize("version", ["hadoop-3.5.0", "hadoop-3.3.6"])
def test_uploads_that_java_left_waiting(run: Run, version: str, name: str, kind: str) -> None:
    path = JAVA.parent / "java-magic-committer" / version / name
    text = run("inspect", path)
    assert (text.code, text.out.splitlines()[0]) == (0, kind)
    assert "table/a=1/x y.csv" in text.out
    record = run("inspect", path, "--output", "json").json["record"]
    assert (record["commits"][0] if kind == "pending set" else record)["etags"][0]["etag"]


def test_statistics_are_shown_as_hadoops_printer_shows_them(run: Run) -> None:
    lines = [" ".join(line.split()) for line in run("inspect", JAVA / "mr-job" / "_SUCCESS").out.splitlines()]
    shown = lines[lines.index("statistics") + 3 :]
    assert "commit_file_rename 16 0 ms 0.6 ms 6 ms" in shown
    assert "committer_task_file_count 32 0 3.2 7" in shown
    assert "task_stage_save_manifest 5" in shown
    assert [line.split()[0] for line in shown] == sorted(line.split()[0] for line in shown)
    assert not any(line.split()[1] == "0" for line in shown)


def test_every_record_of_this_engine(run: Run, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.begun()
    with monkeypatch.context() as patch:
        # Little enough stands in the decision itself.
        patch.setattr("committer.stages.decide.decide.FACTS_IN_DECISION", -1)
        lake.decided()
    lake.unfinished()
    lake.committed("done")
    entry = lake.entry("decided")
    found = {
        kind: run("inspect", path, "--output", "json").json["kind"]
        for kind, path in {
            "job setup": lake.in_job("begun", "setup"),
            "opened": lake.in_job("begun", "opened"),
            "intent to commit": lake.in_job("begun", INTENT),
            "decision": lake.in_job("decided", "decision"),
            "outcome": lake.in_job("unfinished", "outcome"),
            "entry of a job that commits": entry,
            "success record": lake.path / "_SUCCESS",
            "task manifest": next(lake.in_job("begun").rglob("*-manifest.json")),
            "side file of a decision": next(lake.in_job("decided").glob("plan-00001-*")),
        }.items()
    }
    assert {kind: kind for kind in found} == found
    for path in lake.temporary.rglob("*"):
        if path.is_file() and path.suffix != ".csv":
            assert run("inspect", path).code == 0, path
    text = run("inspect", lake.in_job("decided", "decision")).out
    assert "6.00 kB" in text
    assert "decided" in text


def test_long_lists_are_cut_as_text_and_whole_as_json(run: Run, lake: Lake) -> None:
    lake.committed()
    text = run("inspect", lake.path / "_SUCCESS", "--limit", "1").out
    assert "and 2 more" in text
    assert (
        len(run("inspect", lake.path / "_SUCCESS", "--limit", "1", "--output", "json").json["record"]["lengths"]) == 3
    )


def test_an_empty_marker_is_the_classic_committers(run: Run, lake: Lake) -> None:
    lake.path.mkdir()
    (lake.path / "_SUCCESS").touch()
    result = run("inspect", lake.path / "_SUCCESS")
    assert result.code == 0
    assert "FileOutputCommitter" in result.out
    assert run("validate", lake.path).code == 1, "it says nothing that could be compared"


def test_what_is_no_record(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b\n")
    (tmp_path / "empty.json").touch()
    assert run("inspect", tmp_path / "data.csv").code == 1
    assert run("inspect", tmp_path / "empty.json").code == 1
    assert run("inspect", tmp_path / "nothing").code == 4
    assert run("inspect", tmp_path).code == 1
    assert "directory" in run("inspect", tmp_path).err


# -- the trap -----------------------------------------------------------------------------------------------------------


def test_a_marker_that_vouches_for_nothing_is_told(run: Run, lake: Lake) -> None:
    lake.path.mkdir()
    (lake.path / "_SUCCESS").write_text(json.dumps(TRAP_MARKER))
    result = run("inspect", lake.path / "_SUCCESS")
    assert result.code == 0
    assert "warning: it names the manifest committer, and that committed no file" in result.out
    assert run("inspect", lake.path / "_SUCCESS", "--output", "json").json["warnings"]
    assert run("validate", lake.path).code == 0, "a job that wrote nothing leaves the same"
    (lake.path / "_hidden").touch()
    (lake.path / "a=1" / "_temporary").mkdir(parents=True)
    (lake.path / "a=1" / "_temporary" / "part-0").touch()
    assert run("validate", lake.path).code == 0
    (lake.path / "a=1" / "part-0.csv").touch()
    result = run("validate", lake.path)
    assert result.code == 1
    assert "0 files committed, but 1 files exist here" in result.out


def test_a_real_commit_of_nothing_is_no_trap(run: Run, lake: Lake) -> None:
    lake.path.mkdir()
    (lake.path / "there-before.csv").touch()
    with committer.sync.open_job(lake.path):
        pass
    assert "warning" not in run("inspect", lake.path / "_SUCCESS").out
    assert run("validate", lake.path).code == 0


# -- validate -----------------------------------------------------------------------------------------------------------


def test_validate(run: Run, lake: Lake) -> None:
    assert run("validate", lake.path).code == 4
    lake.committed()
    assert run("validate", lake.path).code == 0
    (lake.path / "year=2026" / "part-0.csv").unlink()
    (lake.path / "year=2026" / "part-1.csv").write_text("short")
    (lake.path / "year=2026" / "more.csv").write_text("x")
    result = run("validate", lake.path)
    assert result.code == 1
    for name in ("part-0.csv", "part-1.csv", "more.csv"):
        assert name in result.out
    report = run("validate", lake.path, "--output", "json").json["report"]
    assert [len(report[name]) for name in ("missing", "wrong", "extra")] == [1, 1, 1]


def test_validate_says_first_what_it_could_not_compare(run: Run, tmp_path: Path) -> None:
    dest, lists = tmp_path / "table", tmp_path / "lists"
    (dest / "p=9").mkdir(parents=True)
    (dest / "p=9" / "old").touch()

    def overwrite(job_id: str, **options: str) -> None:
        config = committer.CommitterConfig(
            conflict_mode="replace",
            superseded_scope="destination",
            **options,  # type: ignore[arg-type]
        )

        async def write() -> None:
            async with committer.open_job(dest, job_id=job_id, config=config) as job, job.task_attempt(task=0) as task:
                for number in range(1234):
                    async with task.open(f"p={number % 2}/part-{number}") as file:
                        await file.write(b"x")

        asyncio.run(write())

    overwrite("first")
    result = run("validate", dest)
    assert result.code == Exit.NOT_ALL_COMPARED == 6
    first, second, *_rest = result.out.splitlines()
    assert first == "compared 100 of 1,234 files: _SUCCESS names no more"
    assert second == f"in these, {dest} is as its _SUCCESS says"
    found = run("validate", dest, "--output", "json")
    assert (found.code, found.json["report"]["files"], found.json["report"]["committed"]) == (6, 100, 1234)

    overwrite("second", file_list_directory=str(lists))
    result = run("validate", dest)
    assert result.code == 6
    assert "give file_list_directory" in result.out
    result = run("validate", dest, "-o", f"file_list_directory={lists}")
    assert result.code == 0
    assert result.out.splitlines()[0] == f"{dest} is as its _SUCCESS says"
    assert "1,234 files" in result.out

    overwrite("third", file_list_directory=str(dest / "_lists"))
    assert run("validate", dest).code == 0
    (dest / "p=1" / "part-1233").unlink()
    result = run("validate", dest)
    assert result.code == 1
    assert "part-1233" in result.out


def test_a_directory_is_told_which_records_lie_in_it(run: Run, lake: Lake) -> None:
    """Each command that is shown can be typed."""
    lake.decided()
    job = lake.in_job("decided")
    result = run("inspect", job, "--output", "json")
    assert result.code == Exit.FAILED
    names = ", ".join(sorted(path.name for path in job.iterdir() if path.is_file()))
    assert f"such as {names}: " in result.json["error"]["next_step"]
    for command in result.json["error"]["commands"]:
        assert run(*typed(command)).code == 0
    for empty in (lake.path, job / "00"):
        commands = run("inspect", empty, "--output", "json").json["error"]["commands"]
        assert commands == [f"committer jobs {lake.path}"]
        assert run(*typed(commands[0])).code == 0
