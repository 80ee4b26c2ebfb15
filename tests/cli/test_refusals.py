"""What is refused is refused before a person is asked, in a sentence, with the right code; a bad command line too."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Lake, Run
from tests.cli.test_processes import Terminal, lines_of

COMMANDS = {
    "jobs": [],
    "explain": [],
    "doctor": [],
    "validate": [],
    "inspect": [],
    "plan": ["job"],
    "commit": ["job", "--yes"],
    "recover": ["job", "--yes"],
    "abort": ["job", "--yes"],
    "cleanup": ["--job", "job", "--yes"],
    "uploads list": [],
    "uploads abort": ["--all", "--yes"],
    "uploads expect": ["0"],
}
OF_JOBS = ["plan", "commit", "recover", "abort", "cleanup"]


@pytest.mark.parametrize(
    ("state", "words", "code", "said"),
    [
        ("none", ["recover"], 4, "there is no job j"),
        ("none", ["abort"], 4, "there is no job j"),
        ("none", ["commit"], 4, "there is no job j"),
        ("open", ["recover"], 1, "no driver began to commit"),
        ("message", ["recover", "--force"], 1, "no driver began to commit"),
        ("open", ["commit", "--tasks", "4"], 1, "not committed: 3"),
        ("message", ["commit"], 2, "which attempts win"),
        ("aborted", ["recover"], 1, "was aborted"),
        ("decided", ["abort"], 3, "cannot be aborted any more"),
        ("unfinished", ["abort"], 1, "do nothing: the job is committed"),
        ("unfinished", ["recover", "--rollback"], 1, "cannot be rolled back"),
        ("kept", ["recover", "--rollback"], 1, "cannot be rolled back"),
        ("kept", ["cleanup", "--job"], 1, "kept for a stream"),
        ("decided", ["cleanup", "--job"], 3, "was kept"),
    ],
)
def test_what_will_be_refused_is_never_asked_about(
    lake: Lake, state: str, words: list[str], code: int, said: str
) -> None:
    """At a real terminal, where a person would be asked."""
    lake.prepare(state)
    name, *more = words
    arguments = [name, str(lake.path), *more, "j"] if "--job" in more else [name, str(lake.path), "j", *more]
    terminal = Terminal([sys.executable, "-m", "committer.cli", *arguments])
    assert terminal.finish() == code
    seen = " ".join(" ".join(lines_of(terminal.seen)).split())
    assert "Go ahead?" not in seen
    assert said in seen


def test_where_nothing_would_be_removed_no_question_is_asked(run: Run, lake: Lake) -> None:
    lake.open()
    shown = run("cleanup", lake.path, "--older-than", "7d")
    assert (shown.code, "nothing will be removed" in shown.out) == (0, True)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_without_arguments_says_what_it_takes(run: Run, name: str) -> None:
    result = run(*name.split())
    assert result.code == 2
    needs = ["PATH" if name == "inspect" else "URI", *("JOB-ID",) * (name in OF_JOBS and name != "cleanup")]
    needs += ["NUMBER"] * name.endswith("expect")
    assert f"error: {name} needs {' and '.join(needs)}" in result.err
    assert f"      committer {name} {' '.join(needs)}\n" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["recover", "DEST"], "recover DEST JOB-ID"),
        (["recover", "DEST", "--job-id"], "recover DEST --job-id JOB-ID"),
        (["recover", "DEST", "--rollback", "-o", "io_rate=9"], "recover DEST --rollback -o io_rate=9 JOB-ID"),
        (["recover", "--rollback", "--job-id", "j"], "recover --rollback --job-id j URI"),
        (["recover", "--job-id=j"], "recover --job-id=j URI"),
        (["plan", "DEST", "--output", "json"], "plan DEST --output json JOB-ID"),
        (["abort", "DEST"], "abort DEST JOB-ID"),
        (["commit", "DEST", "--tasks", "3"], "commit DEST --tasks 3 JOB-ID"),
    ],
)
def test_what_is_said_of_a_missing_word_works_when_it_is_followed(
    run: Run, lake: Lake, words: list[str], line: str
) -> None:
    lake.begun("j")
    dest = str(lake.path)
    result = run(*(dest if word == "DEST" else word for word in words))
    assert result.code == 2
    shown = [one.strip() for one in result.err.splitlines() if one.startswith("      committer ")]
    assert shown[0] == f"committer {line}".replace("DEST", dest)
    named = {"JOB-ID": "j", "URI": dest}
    followed = run(*(named.get(word, word) for word in shlex.split(shown[0])[1:]))
    assert (followed.code, "j at" in followed.out or '"job_id": "j"' in followed.out) in [(0, True), (2, True)]
    if "URI" not in line:
        assert shown[1:] == [f"committer jobs {dest}"]
        assert "j" in run(*shlex.split(shown[1])[1:]).out


@pytest.mark.parametrize(
    "words",
    [
        ["abfss://c@a.dfs.core.windows.net/x", "--storage", "account_key=S3CRET"],
        ["abfss://c@a.dfs.core.windows.net/x", "--storage", "S3CRET"],
        ["abfss://c@a.dfs.core.windows.net/x", "--storage", "S3CRET/7x=1"],
        ["/data/x", "--storage", "S3CRET/7x=1"],
        ["/data/x", "-o", "S3CRET/7x=1"],
        ["abfss://c@a.dfs.core.windows.net/x", "--storage", "account_key", "=S3CRET"],
        ["--storage=account_key=S3CRET"],
        ["--storage", "account_key", "S3CRET"],
        ["s3://b/x", "-o", "fs.s3a.secret.key=S3CRET"],
        ["s3://b/x", "--option=fs.s3a.secret.key=S3CRET"],
        ["s3://key:S3CRET@b/x"],
        ["--uri", "s3://key:S3CRET@b/x"],
    ],
)
@pytest.mark.parametrize("output", ["text", "json"])
def test_no_secret_is_said_again_where_a_word_is_missing(run: Run, words: list[str], output: str) -> None:
    result = run("plan", *words, "--output", output)
    assert (result.code, "S3CRET" in result.err + result.out) == (2, False)


def test_the_line_to_type_reaches_the_store_as_the_one_that_was_typed(run: Run) -> None:
    place = "abfss://c@a.dfs.core.windows.net/x"
    reach = "--storage account_key=env:HOME --storage=endpoint=http://127.0.0.1:1"
    result = run("recover", *reach.split(), place)
    assert f"      committer recover {reach} {place} JOB-ID\n" in result.err
    assert f"      committer jobs {place} {reach.replace('storage=', 'storage ')}\n" in result.err
    # What follows two dashes has no name before it.
    assert f"      committer recover {reach} -- {place} JOB-ID\n" in run("recover", *reach.split(), "--", place).err
    counted = run("uploads", "expect", place, *reach.split())
    assert f"      committer uploads expect {place} {reach} NUMBER\n" in counted.err


@pytest.mark.parametrize(
    "words",
    [
        ["commit", "/d", "--tasks", "x"],
        ["recover", "/d", "--storage", "region=env:NO_SUCH_VARIABLE"],
        ["recover", "/d", "-o", "nosuch=1"],
        ["recover", "--job-id"],
    ],
)
def test_no_line_is_shown_that_would_be_refused_for_another_reason(run: Run, words: list[str]) -> None:
    result = run(*words)
    assert result.code == 2
    assert f"{words[0]} needs JOB-ID" in result.err
    assert "add --help to see what the command takes" in result.err
    assert "      committer" not in result.err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_scheme_is_named(run: Run, name: str) -> None:
    result = run(*name.split(), "nosuch://bucket/table", *COMMANDS[name])
    assert result.code in (1, 2)
    assert "nosuch:" in result.out + result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("name", OF_JOBS)
def test_a_file_in_place_of_a_destination_holds_no_job(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    result = run(name, path, *COMMANDS[name])
    assert (result.code, path.read_text()) == (4, "x")
    assert "Traceback" not in result.err


@pytest.mark.parametrize("name", OF_JOBS)
@pytest.mark.parametrize("yes", [True, False])
def test_a_job_that_is_not_there(run: Run, lake: Lake, name: str, yes: bool) -> None:
    words = [word for word in COMMANDS[name] if yes or word != "--yes"]
    absent = run(name, lake.path, *words, "--output", "json")
    # Where there is no destination, no list of jobs can be shown.
    assert (absent.code, absent.json["error"]["next_step"].startswith("correct the path")) == (4, True)
    lake.committed("another")
    result = run(name, lake.path, *words)
    assert result.code == 4
    assert f"committer jobs {lake.path}" in result.err


@pytest.mark.parametrize("place", ["_temporary", "", "00", "setup"])
@pytest.mark.parametrize("command", ["plan", "commit", "recover", "recover --rollback", "abort"])
def test_no_plan_is_made_through_a_link(run: Run, lake: Lake, place: str, command: str) -> None:
    """No command that stops at once says what it would do, and no flag leads past it."""
    lake.open("open")
    there = lake.temporary if place == "_temporary" else lake.in_job("open", place)
    there.rename(lake.path / "moved")
    there.symlink_to("/nowhere")
    name, *flags = command.split()
    for more in ([], ["--yes"] * (name != "plan")):
        done = run(name, lake.path, "open", *flags, *more)
        assert done.code == 1
        assert f"{there} is a link" in done.err.replace("\n", " ")
        assert "remove the link by hand" in done.err
        assert " will " not in done.out
    there.unlink()
    (lake.path / "moved").rename(there)
    assert run("commit", lake.path, "open", "--yes").code == 0


@pytest.mark.parametrize("command", [*OF_JOBS, "jobs", "doctor", "validate"])
def test_a_destination_that_is_a_link_to_nowhere_is_named(run: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "lake").symlink_to(tmp_path / "gone")
    words = ["--job", "job"] if command == "cleanup" else ["job"] if command in OF_JOBS else []
    done = run(command, tmp_path / "lake", *words)
    assert done.code == 4
    assert f"is a link to {tmp_path / 'gone'}, which does not exist" in done.err
    assert command not in OF_JOBS or "make what the link leads to" in done.err
