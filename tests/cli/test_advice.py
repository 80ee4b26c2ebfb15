"""Each command that an error prints is typed as it stands, in the state that the error came from."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import committer
from committer.advice import call
from committer.cli.text import as_commands, commands_of, has_sentence, reach_by, sentence_of
from committer.stores.local import LocalStore
from committer.testing.faults import Fault, FaultyStore, SimulatedCrash
from tests.cli.conftest import Lake, Run, typed
from tests.job_paths import has_in_job
from tests.spoiled import SPOILED, visible


@pytest.fixture
def spaced(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "it's my lake")


def prepare(lake: Lake, state: str) -> None:
    if state == "locked":
        lake.begun("owner")
        lake.entry("owner")
        state = "open"
    lake.prepare(state)


@pytest.mark.parametrize(
    ("state", "words", "number", "code", "files"),
    [
        ("open", "recover", 0, 0, 3),
        ("open", "recover", 1, 0, 0),
        ("message", "recover", 0, 0, 3),
        ("message", "recover", 1, 0, 0),
        ("message", "plan", 1, 0, 3),
        ("message", "commit", 1, 0, 3),
        ("message", "commit", 2, 0, 0),
        ("open", "commit --tasks 5", 0, 0, 0),
        ("decided", "abort", 0, 0, 3),
        ("decided", "cleanup --job", 0, 0, 3),
        ("unfinished", "cleanup --job", 0, 0, 3),
        ("kept", "cleanup --job", 0, 0, 3),
        ("kept", "recover --rollback", 0, 0, 3),
        ("unfinished", "recover --rollback", 0, 0, 3),
        ("aborted", "recover", 0, 0, 0),
        ("locked", "commit", 0, 0, 3),
        ("locked", "commit", 1, 0, 0),
    ],
)
def test_the_command_that_an_error_shows_works_as_typed(
    run: Run, spaced: Lake, state: str, words: str, number: int, code: int, files: int
) -> None:
    prepare(spaced, state)
    name, *more = words.split()
    arguments = [*more, "j"] if "--job" in more else ["j", *more]
    refused = run(name, spaced.path, *arguments, "--output", "json", *([] if name == "plan" else ["--yes"]))
    assert refused.code not in (0, 2) or "task commits by message" in refused.err
    shown = refused.json["error"]["commands"]
    # Only how many tasks there are is left to the operator.
    followed = typed(shown[number])
    assert run(*followed).code in (1, 2), "it asks first, or says at once what is not to be"
    assert run(*followed, "--yes").code == code
    assert len(spaced.files()) == files


@pytest.mark.parametrize("name", SPOILED)
def test_what_stands_before_a_command_is_said_too(run: Run, tmp_path: Path, name: str) -> None:
    """Without it the command would fail again, in the same way."""
    table, case = tmp_path / "table", SPOILED[name]
    asyncio.run(case.spoil(table))
    back = ["--rollback"] if case.rollback else []
    refused = run("recover", table, "j", *back, "--yes", "--output", "json")
    assert refused.code not in (0, 2)
    error = refused.json["error"]
    if case.mend is not None:
        case.mend(table, error["next_step"])
    assert run(*typed(error["commands"][case.way]), "--yes").code == 0
    assert visible(table) == case.files
    assert not (table / "_temporary").exists()


def test_every_command_names_the_destination_as_it_was_typed(run: Run, tmp_path: Path) -> None:
    for place in (tmp_path / "table", f"{tmp_path}/./table", f"file:{tmp_path}/table"):
        asyncio.run(SPOILED["one source gone"].spoil(tmp_path / "table"))
        refused = run("recover", place, "j", "--yes", "--output", "json")
        assert (refused.code, refused.json["error"]["outcome"]) == (3, "unknown")
        commands = refused.json["error"]["commands"]
        assert commands == [f"committer recover {place} j", f"committer recover {place} j --rollback"]
        assert has_in_job(tmp_path / "table", "j", "decision"), "nothing is deleted"
        assert run(*typed(commands[-1]), "--yes").code == 0


def test_choices_and_storage_options_are_said_again(run: Run, tmp_path: Path) -> None:
    lake, root = Lake(tmp_path / "lake"), f"{tmp_path}/out side"
    choices = {"absolute_roots": [root]}

    async def die() -> None:
        async with committer.open_job(lake.path, job_id="j", config=choices) as job:
            async with job.task_attempt(task=0) as task, task.open_absolute(f"{root}/part-0") as file:
                await file.write(b"0")
            await job.close()
            store = FaultyStore(LocalStore(), [Fault(kind="crash_before", operation="rename_file", path="side/part-0")])
            dies = await committer.attach_job(lake.path, job_id="j", config=choices, storage_options={"store": store})
            await dies.commit()

    with pytest.raises(SimulatedCrash):
        asyncio.run(die())
    refused = run("recover", lake.path, "j", "--yes", "--output", "json")
    assert refused.code == 2
    [shown] = refused.json["error"]["commands"]
    assert run(*typed(shown), "--yes").code == 0
    assert Path(f"{root}/part-0").read_bytes() == b"0"
    lake.open("k")
    again = run("recover", lake.path, "k", "-o", f"absolute_roots={root}", "--output", "json").json["error"]["commands"]
    assert all(f"-o 'absolute_roots={root}'" in one for one in again)


def test_calls_become_commands() -> None:
    reach_by(["account_key=env:KEY"], ["io_concurrency=2"])
    try:
        said = f"call {call('recover', '/a b', 'j', rollback=True, config={'io_concurrency': 4})}, then go on"
        assert commands_of(as_commands(said)) == [
            "committer recover '/a b' j --rollback -o io_concurrency=4 --storage account_key=env:KEY"
        ]
        assert commands_of(as_commands(call("cleanup", "/t", job_id="j", force=True))) == [
            "committer cleanup /t --job j --force --storage account_key=env:KEY -o io_concurrency=2"
        ]
        assert commands_of(as_commands(call("list_jobs", "/t"))) == [
            "committer jobs /t --storage account_key=env:KEY -o io_concurrency=2"
        ]
    finally:
        reach_by([])


def test_a_sentence_names_its_commands_in_short_and_they_stand_below_it(run: Run, tmp_path: Path) -> None:
    """The words beside a command say what it does, so the sentence must stay whole."""
    asyncio.run(SPOILED["one source gone"].spoil(tmp_path / "table"))
    refused = run("recover", tmp_path / "table", "j", "--yes")
    recover = f"committer recover {tmp_path / 'table'} j"
    below = refused.err.partition("  next step\n")[2].splitlines()[:3]
    assert below[1:] == [f"      {recover}", f"      {recover} --rollback"]
    assert "`recover` goes on from here, nothing was deleted" in below[0]
    assert below[0].endswith("`recover --rollback` rolls the job back")


@pytest.mark.parametrize(("delivery", "name"), [("listing", "recover"), ("message", "commit")])
def test_the_ways_out_in_one_sentence_are_told_apart(run: Run, lake: Lake, delivery: str, name: str) -> None:
    lake.open(delivery=delivery)
    sentence = run(name, lake.path, "open", "--yes").err.partition("  next step\n")[2].splitlines()[0]
    # What is said of the next way follows a command only after a semicolon.
    assert [after[:1] for after in sentence.split("`")[2::2]] == [";"] * (sentence.count("`") // 2 - 1) + [""]
    assert sentence.endswith("; else: `abort`")


@pytest.mark.parametrize(
    ("typed", "short"),
    [
        ("committer recover '/a b' j --rollback --force --storage account_key=env:KEY", "recover --rollback --force"),
        ("committer cleanup /t --job j --force -o io_rate=3", "cleanup --force"),
        ("committer commit /t j --from-attempts --tasks N", "commit --from-attempts --tasks N"),
        ("committer jobs /t --storage endpoint=http://x", "jobs"),
    ],
)
def test_a_command_in_short(typed: str, short: str) -> None:
    assert sentence_of(f"then `{typed}` ends it; write `job.abort()`") == f"then `{short}` ends it; write `job.abort()`"


def test_advice_without_commands_stays_a_sentence() -> None:
    said = "use `task.open`, or close it"
    assert (commands_of(said), has_sentence(said), sentence_of(said)) == ([], True, said)
    assert (commands_of(""), has_sentence("")) == ([], False)
