"""`committer settle`: the exit code tells a script whether to run the job."""

from __future__ import annotations

import pytest

from committer.cli.text import Exit
from tests.cli.conftest import Lake, Run
from tests.cli.test_dead_driver import kill_a_driver


def test_an_id_that_is_free(run: Run, lake: Lake) -> None:
    lake.path.mkdir()
    done = run("settle", lake.path, "never", "--yes")
    assert (done.code, "its id is free to run" in done.out) == (Exit.NOT_FOUND, True)


@pytest.mark.parametrize("state", ["decided", "unfinished", "committed"])
def test_a_job_that_committed(run: Run, lake: Lake, state: str) -> None:
    getattr(lake, state)("J")
    planned = run("settle", lake.path, "J")
    assert (planned.code, "nothing was done" in planned.err) == (2, True)
    for _again in range(2):
        done = run("settle", lake.path, "J", "--yes", "--output", "json")
        assert (done.code, done.json["report"]["files_committed"]) == (0, 3)
    assert len(lake.files()) == 3


@pytest.mark.parametrize("state", ["open", "begun"])
def test_an_undecided_job_needs_force_or_an_age_while_its_driver_may_run(run: Run, lake: Lake, state: str) -> None:
    getattr(lake, state)("J")
    for more in ([], ["--yes"], ["--older-than", "1h", "--yes"]):
        refused = run("settle", lake.path, "J", *more)
        assert (refused.code, "is in use" in refused.err) == (Exit.BUSY, True)
        assert "Go ahead" not in refused.err
    for force in (["--force"], ["--older-than", "0s"]):
        planned = run("settle", lake.path, "J", *force)
        assert (planned.code, "delete its directory" in planned.out) == (2, True)
    done = run("settle", lake.path, "J", "--force", "--yes", "--output", "json")
    assert (done.code, done.json["result"]) == (Exit.NOT_FOUND, "nothing says that it committed: its id is free to run")
    assert "no jobs" in run("jobs", lake.path).out


def test_a_job_whose_driver_was_killed_needs_no_force(run: Run, lake: Lake) -> None:
    kill_a_driver(lake, "0.0", "1.0")
    assert run("settle", lake.path, "killed", "--yes").code == Exit.NOT_FOUND
    assert lake.files() == []
    assert "no jobs" in run("jobs", lake.path).out


def test_an_age_that_is_none(run: Run, lake: Lake) -> None:
    assert run("settle", lake.path, "J", "--older-than", "soon").code == Exit.USAGE
