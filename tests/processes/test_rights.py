"""What a disk refuses is seen before the decision where it can be, and else rolls the job back: real users and mounts."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import rights
from tests.processes.harness import run_apart

Run = Callable[[str], dict[str, Any]]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user, and mounts")


@pytest.fixture
def run() -> Iterator[Run]:
    """Runs a scenario, where an ordinary user may look too."""
    directory = tempfile.mkdtemp(prefix="committer-rights-")
    os.chmod(directory, 0o777)

    def run(scenario: str) -> dict[str, Any]:
        return run_apart(rights.__file__, scenario, directory, mounts=not rights.SCENARIOS[scenario][3])

    yield run
    shutil.rmtree(directory)


@pytest.mark.parametrize(
    ("scenario", "says", "visible"),
    [
        ("sticky", "sticky bit", ["p/old"]),
        ("sticky marker", "_SUCCESS cannot be moved aside", []),
        ("sticky target", "sticky bit", ["p/x"]),
        ("protected link", "fs.protected_hardlinks", ["p/x"]),
        ("protected link, old files", "fs.protected_hardlinks", ["p/x"]),
        ("closed", "no file can go into p: this user may not write there", ["p/old"]),
        ("closed above", "no file can go into p: this user may not write there", ["p/old"]),
        ("closed beside", "p/old cannot be moved aside: this user may not write there", ["p/old"]),
        ("closed target", "x cannot be replaced: this user may not write there", ["x/old"]),
        ("closed root", "no file can go into the destination: this user may not write there", []),
        ("closed root, new directory", "no file can go into the destination: this user may not write there", []),
        ("volume", "another volume is mounted there", ["x/old"]),
        ("volume below", "another volume is mounted at", ["x/below/old"]),
        ("volume on the way", "no file can go into x: another volume is mounted there", ["x/old"]),
        ("part of the volume", "x cannot be replaced: another volume is mounted there", ["x/old"]),
        ("part of the volume on the way", "no file can go into x: another volume is mounted there", ["x/old"]),
        ("link to another disk", "/disk, which is on another disk", []),
        ("way through a link to another disk", "no file can go into x: it is a link to", []),
        ("volume with old files", "x/old cannot be moved aside: another volume", ["x/old"]),
    ],
)
def test_refused_before_the_decision(run: Run, scenario: str, says: str, visible: list[str]) -> None:
    if "link" in scenario and Path("/proc/sys/fs/protected_hardlinks").read_text().strip() != "1":
        pytest.skip("fs.protected_hardlinks is off")
    answer = run(scenario)
    assert answer["error"] == "PreflightError"
    assert answer["outcome"] == "unchanged"
    assert says in answer["said"]
    assert "unmount" in answer["said"]
    assert not answer["decided"]
    assert answer["visible"] == visible


def test_mount_that_no_device_number_shows_takes_the_job_back(run: Run) -> None:
    answer = run("single file")
    assert answer["error"] == "StoreCrossDeviceError"
    assert answer["outcome"] == "unchanged"
    assert not answer["decided"]
    assert answer["visible"] == ["x"]


@pytest.mark.parametrize(
    ("scenario", "visible"),
    [
        ("link allowed", ["a/first-3", "p/x"]),
        ("another's old file", ["a/first-5", "p/new"]),
        ("link to another disk, replaced", ["a/first-5", "p/new"]),
        ("closed root, no marker", ["a/first-5", "p/new"]),
    ],
)
def test_what_the_system_allows_is_not_refused(run: Run, scenario: str, visible: list[str]) -> None:
    answer = run(scenario)
    assert answer["error"] == "", answer
    assert answer["visible"] == visible
