"""What comes from records and paths cannot act upon a terminal; options hold references, never secrets."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Group

from committer.cli.output import Screen, parts_of_error
from committer.errors import CommitterError
from committer.readable import clean, seconds, size
from tests.cli.conftest import JAVA, Lake, Run, shell
from tests.cli.test_inspect import TRAP_MARKER

NASTY = "a\x1b[31mred\x1b]0;title\x07\r\nb\x9b2Jc\u202etxt.exe\u2028d\x7f [bold]markup[/bold] :smile:"
ALLOWED = re.compile(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]*")


@given(st.text(st.characters()))
@example("São Paulo/名前=東京/😀 [x] \\")
def test_clean_text_has_no_harmful_character(text: str) -> None:
    cleaned = clean(text)
    assert ALLOWED.fullmatch(cleaned)
    assert "\n" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert cleaned == text or not text.startswith("São Paulo")


def nasty_marker(directory: Path) -> Path:
    marker = {**TRAP_MARKER, "filenames": [NASTY], "jobId": NASTY, "diagnostics": {NASTY: NASTY}, "hostname": NASTY}
    path = directory / "_SUCCESS"
    path.write_text(json.dumps(marker))
    return path


def test_a_record_cannot_act_upon_the_terminal(run: Run, tmp_path: Path) -> None:
    path = nasty_marker(tmp_path)
    result = run("inspect", path)
    assert result.code == 0
    assert all(ALLOWED.fullmatch(line) for line in (result.out + result.err).split("\n"))
    assert r"\x1b[31mred" in result.out
    assert "[bold]markup[/bold] :smile:" in result.out
    as_json = run("inspect", path, "--output", "json")
    assert as_json.out.isascii()
    assert ALLOWED.fullmatch(as_json.out)
    assert as_json.json["record"]["jobId"] == NASTY
    validated = run("validate", tmp_path)
    assert ALLOWED.fullmatch(validated.out + validated.err)


def test_neither_can_names_on_the_disk_and_errors(run: Run, lake: Lake) -> None:
    lake.open()
    (lake.temporary / "evil\x1b[2J").mkdir()
    (lake.temporary / "evil\x1b[2J" / "x").mkdir()
    for words in (
        ("jobs", lake.path),
        ("jobs", str(lake.path) + "\x1b[31m"),
        ("inspect", "/nowhere/\x1b[31m"),
        ("commit", lake.path, "\x1b[31m"),
        ("\x1b[31m",),
        ("jobs", lake.path, "--\x1b[31m"),
        ("jobs", lake.path, "-o", "\x1b[31m=1"),
    ):
        result = run(*words)
        assert ALLOWED.fullmatch(result.out + result.err), words


def test_a_locale_without_unicode_is_no_reason_to_fail() -> None:
    path = JAVA / "mr-job" / "manifests" / "task_202401010000_0001_m_000001-manifest.json"
    result = shell("inspect", path, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert result.code == 0
    assert r"\u540d" in result.out


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (9_999, "10.0 kB"), (999_999, "1.00 MB"), (123_456_789, "123 MB")],
)
def test_sizes(number: int, text: str) -> None:
    assert size(number) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0.04, "0.0 s"), (12.4, "12 s"), (185, "3 min 5 s"), (7800, "2 h 10 min"), (273600, "3 d 4 h")]
)
def test_durations(number: float, text: str) -> None:
    assert seconds(number) == text


# -- options ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("conflict_mode=overwrite", "-o conflict_mode cannot be 'overwrite': it must be one of append, fail, replace"),
        ("io_concurrency=many", "-o io_concurrency cannot be 'many': it must be an integer of 1 or more"),
        ("io_rate=-1", "-o io_rate cannot be '-1': it must be a number"),
    ],
)
def test_a_value_that_a_choice_cannot_have_is_told_which_it_can(
    run: Run, tmp_path: Path, choice: str, said: str
) -> None:
    result = run("explain", tmp_path, "-o", choice)
    assert result.code == 2
    assert said in " ".join(result.err.split())
    assert "give another value, or leave it out" in " ".join(result.err.split())


def test_every_choice_has_an_origin(run: Run, tmp_path: Path) -> None:
    result = run(
        "explain", tmp_path, "-o", "spark.hadoop.mapreduce.manifest.committer.io.threads=8",
        "-o", "existing_target=replace", "-o", "io_rate=none", "--output", "json",
    )  # fmt: skip
    assert result.code == 0
    rows = {row["field"]: row for row in result.json["choices"]}
    assert rows["io_concurrency"]["value"] == 8
    assert rows["io_concurrency"]["origin"] == "spark.hadoop.mapreduce.manifest.committer.io.threads"
    assert (rows["existing_target"]["value"], rows["existing_target"]["origin"]) == ("replace", "argument")
    assert rows["durability"]["origin"] == "default"
    assert result.json["committer"] == "manifest"
    assert result.json["calls_in_flight"] == "8"


def test_places_of_a_job_are_those_of_a_real_one(run: Run, lake: Lake) -> None:
    lake.open("it")
    places = run("explain", lake.path, "--job", "it", "--output", "json").json["places"]
    for name in ("task records (listing)", "task attempts"):
        place = places[name].removeprefix("file:").replace("it~SETUP", lake.in_job("it").name)
        assert Path(place).is_dir()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "io_concurency=4"], "did you mean io_concurrency?"),
        (["-o", "mapreduce.manifest.committer.io.thread=4"], "did you mean mapreduce.manifest.committer.io.threads?"),
        (["-o", "io_concurrency=many"], "io_concurrency"),
        (["-o", "existing_target=keep"], "existing_target"),
        (["-o", "io_concurrency"], "key=value"),
        (["-o", "unique_names=true", "-o", "unique_names=false"], "twice"),
        (["-o", "io_concurrency=4", "-o", "mapreduce.manifest.committer.io.threads=4"], "both"),
        (["--outptu", "json"], "Did you mean"),
        (["--output", "yaml"], "yaml"),
    ],
)
def test_options_that_cannot_be_honoured(run: Run, tmp_path: Path, words: list[str], said: str) -> None:
    result = run("explain", tmp_path, *words)
    assert result.code == 2
    assert said in result.err
    assert result.out == ""


@pytest.mark.parametrize("words", [["--storage", "account_key=hunter2"], ["--storage", "hunter2"], ["-o", "hunter2"]])
def test_a_literal_secret_is_refused_and_never_repeated(run: Run, tmp_path: Path, words: list[str]) -> None:
    for output in ("text", "json"):
        result = run("jobs", tmp_path, *words, "--output", output)
        assert result.code == 2
        assert "hunter2" not in result.out + result.err


def test_references_are_fetched(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    # The local store takes no options: that it names the key shows that the value was found.
    for reference in (f"file:{file}", "env:LAKE_KEY"):
        monkeypatch.setenv("LAKE_KEY", "hunter2")
        result = run("jobs", tmp_path, "--storage", f"account_key={reference}")
        assert result.code == 2
        assert "account_key" in result.err
        assert "hunter2" not in result.err
    monkeypatch.delenv("LAKE_KEY")
    assert "LAKE_KEY" in run("jobs", tmp_path, "--storage", "account_key=env:LAKE_KEY").err
    assert "cannot be read" in run("jobs", tmp_path, "--storage", f"account_key=file:{tmp_path}/none").err


def test_a_note_of_many_lines_is_shown_as_lines() -> None:
    """As azure-identity says of each credential that it tried."""
    error = CommitterError("no token")
    error.add_note("Attempted credentials:\n\tone: no\n\ttwo: no")
    screen = Screen(json=False)
    with screen.err.capture() as capture:
        screen.err.print(Group(*parts_of_error(error)))
    lines = [text.rstrip() for text in capture.get().splitlines()]
    assert lines[-3:] == ["  note: Attempted credentials:", "    one: no", "    two: no"]


def test_options_lists_every_choice(run: Run) -> None:
    from committer import CommitterConfig

    listed = run("options", "--output", "json").json
    assert [row["field"] for row in listed["choices"]] == list(CommitterConfig.__struct_fields__)
    text = run("options").out
    assert all(row["key"] in text for row in listed["choices"] + listed["without_effect"])


def test_an_option_without_effect_is_said(run: Run, tmp_path: Path) -> None:
    result = run("explain", tmp_path, "-o", "mapreduce.fileoutputcommitter.algorithm.version=2")
    assert result.code == 0
    assert "no effect" in result.err
