"""A real driver is killed; an operator then does exactly what the command line prints, to the end."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Lake, Run, typed

# A driver that has what its tasks committed, by message, and is killed before it commits.
DRIVER = textwrap.dedent(
    """
    import asyncio, sys, time
    import committer

    async def main(dest, delivery, attempts):
        job = await committer.open_job(dest, job_id="killed", delivery=delivery)
        for text in attempts:
            number, attempt = map(int, text.split("."))
            async with job.task_attempt(task=number, attempt=attempt) as task:
                async with task.open(f"year=2026/part-{number}.csv") as file:
                    await file.write(b"x" * 10)
        print("ready", flush=True)
        time.sleep(600)

    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
    """
)


def kill_a_driver(lake: Lake, *attempts: str, delivery: str = "message") -> None:
    command = [sys.executable, "-c", DRIVER, str(lake.path), delivery, *attempts]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n"
        driver.send_signal(signal.SIGKILL)


def commands_in(text: str, tasks: int = 3) -> list[list[str]]:
    """The words of each command that is shown on a line of its own, with the number that only the operator knows."""
    shown = [line.strip() for line in text.splitlines()]
    return [typed(line, tasks) for line in shown if line.startswith("committer ")]


@pytest.fixture
def spaced(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "my lake")


@pytest.mark.parametrize("delivery", ["message", "listing"])
@pytest.mark.parametrize("way", [0, 1])
def test_what_jobs_shows_ends_the_job(run: Run, spaced: Lake, delivery: str, way: int) -> None:
    kill_a_driver(spaced, "0.0", "1.0", "2.1", delivery=delivery)
    shown = run("jobs", spaced.path)
    assert "3 task" in shown.out
    assert ": dead\n" in shown.out
    commands = commands_in(shown.out.partition("To end it")[2])
    assert [words[0] for words in commands] == ["commit", "abort"]
    assert run(*commands[way]).code == 2
    assert run(*commands[way], "--yes").code == 0
    assert len(spaced.files()) == (3 if way == 0 else 0)
    assert "no jobs" in run("jobs", spaced.path).out


def test_a_job_of_which_no_task_committed_can_only_be_aborted(run: Run, spaced: Lake) -> None:
    kill_a_driver(spaced)
    shown = run("jobs", spaced.path)
    assert "open, 0 task attempts committed. To end it:" in shown.out
    [words] = commands_in(shown.out)
    assert words[0] == "abort"
    assert run(*words, "--yes").code == 0
    assert "no jobs" in run("jobs", spaced.path).out


def test_the_number_of_tasks_must_be_given(run: Run, lake: Lake) -> None:
    """As shown, with the N, the command says what is missing and changes nothing."""
    kill_a_driver(lake, "0.0")
    [commit_it, _] = run("jobs", lake.path, "--output", "json").json["jobs"][0]["if_dead"]
    refused = run(*shlex.split(commit_it)[1:], "--yes")
    assert refused.code == 2
    assert "--tasks" in refused.err
    wrong = run(*typed(commit_it, 2), "--yes")
    assert wrong.code == 1
    assert "task 1 has no committed attempt" in wrong.err
    assert lake.files() == []


@pytest.mark.parametrize(
    "command", ["recover", "recover --yes", "recover --force --yes", "commit", "commit --yes", "plan"]
)
def test_no_command_sends_the_operator_in_a_circle(run: Run, spaced: Lake, command: str) -> None:
    kill_a_driver(spaced, "0.0", "1.0")
    name, *more = command.split()
    refused = run(name, spaced.path, "killed", *more)
    assert refused.code in (1, 2)
    assert "Go ahead" not in refused.err
    assert "nothing was done: repeat" not in refused.err
    ways = [words for words in commands_in(refused.err, 2) if "FILE" not in words]
    assert [words[0] for words in ways] == ["commit", "abort"]
    assert run(*ways[0], "--yes").code == 0
    assert len(spaced.files()) == 2


def test_two_attempts_of_a_task_are_named(run: Run, lake: Lake) -> None:
    kill_a_driver(lake, "0.0", "0.1", "1.0")
    for words in (("commit", "--yes"), ("commit",), ("plan",)):
        refused = run(words[0], lake.path, "killed", "--from-attempts", "--tasks", "2", *words[1:])
        assert refused.code == 1
        assert "task 0 committed as attempt 0" in refused.err
        ways = [one for one in commands_in(refused.err) if "FILE" not in one]
        assert [one[0] for one in ways] == ["abort"]
    assert run(*ways[0], "--yes").code == 0
    assert lake.files() == []


@pytest.mark.parametrize(
    "words", [("--from-attempts",), ("--from-attempts", "--tasks", "1", "--task-commits", "-"), ("--tasks", "-1")]
)
def test_what_does_not_fit_together_is_usage(run: Run, lake: Lake, words: tuple[str, ...]) -> None:
    lake.open(delivery="message")
    assert run("commit", lake.path, "open", *words, "--yes").code == 2
    assert run("plan", lake.path, "open", *words).code == 2
