"""A driver dies in the middle of a job commit of 2,000 files, and an operator finishes it."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from pathlib import Path

import pytest

import committer
from tests.processes.harness import TIMEOUT_S, driver, expected, finish, visible, wait_for

FILES = 2000
MOMENTS = 20

pytestmark = pytest.mark.xdist_group("processes")


def reach(moment: int, destination: Path) -> None:
    """Waits for a random moment: five before or around the decision, three around the end, the others in between.

    Drawn from what the driver has done rather than from a clock, so that they fall there on any machine.
    """
    drawn = random.Random(moment)
    if moment < 5:
        time.sleep(drawn.uniform(0.0, 0.05))
    elif moment < 17:
        wait_for(destination, drawn.randrange(1, FILES))
    else:
        wait_for(destination, FILES)
        time.sleep(drawn.uniform(0.0, 0.03))


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_killed_at_a_random_moment_then_recovered(tmp_path: Path, moment: int) -> None:
    destination = tmp_path / "table"
    with driver(destination, "J", FILES) as process:
        reach(moment, destination)
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT_S)
    report = finish(destination, "J", FILES)
    assert report.success
    assert report.files_committed == FILES
    assert visible(destination) == expected(FILES)
    assert b'"jobId" : "J"' in (destination / "_SUCCESS").read_bytes()
    assert not (destination / "_temporary").exists()


def test_recovered_while_the_old_driver_is_stopped(tmp_path: Path) -> None:
    destination = tmp_path / "table"
    with driver(destination, "J", FILES) as process:
        wait_for(destination, 200)
        process.send_signal(signal.SIGSTOP)
        report = finish(destination, "J", FILES)
        assert report.success
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert out == f"committed {FILES}\n", err
    assert visible(destination) == expected(FILES)
    assert b'"jobId" : "J"' in (destination / "_SUCCESS").read_bytes()


@pytest.mark.parametrize("replace", [False, True], ids=["append", "replace"])
def test_rolled_back_while_the_old_driver_is_stopped(tmp_path: Path, replace: bool) -> None:
    destination = tmp_path / "table"
    old = {f"p={number}/old": b"old" for number in range(3)} | {"other/kept": b"kept"}
    for name, content in old.items():
        path = destination / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    (destination / "_SUCCESS").write_bytes(b"{}")
    with driver(destination, "J", FILES, *(["--replace"] if replace else [])) as process:
        wait_for(destination, len(old) + 200)
        process.send_signal(signal.SIGSTOP)
        report = asyncio.run(committer.recover(destination, "J", rollback=True))
        assert not report.success
        assert visible(destination) == old
        process.send_signal(signal.SIGCONT)
        _out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode != 0
    assert "JobRolledBackError" in err or "JobNotFoundError" in err, err
    assert visible(destination) == old
    assert (destination / "_SUCCESS").read_bytes() == b"{}"
    assert not (destination / "_temporary").exists()
