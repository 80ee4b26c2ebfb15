"""A driver is killed at any stage of its job; the job is settled and run again under its id, with no operator."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import committer
from committer import CommitterConfig
from committer.errors import JobExistsError
from tests.processes.harness import TIMEOUT_S, driver, expected, visible, wait_for
from tests.processes.system_calls import killed_at

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.allow_blocking("waits for a child")]

STEP = 7
FILES = 400
OPTIONS: dict[str, Any] = {"threads": 1}


async def run(destination: Path, number: int, config: CommitterConfig) -> None:
    """Runs the job whole; the names and the content of its files tell which run it was."""
    async with committer.open_job(destination, job_id="J", config=config, storage_options=OPTIONS) as job:
        for part in range(2):
            async with job.task_attempt(part) as task, task.open(f"p={part}/run-{number}") as file:
                await file.write(b"%d" % number)
        await job.commit(tasks=2)


def of_run(number: int) -> dict[str, bytes]:
    return {f"p={part}/run-{number}": b"%d" % number for part in range(2)}


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_killed_at_every_system_call(tmp_path: Path, mode: Any) -> None:
    """All published files are of one run, none is missing, and the next run of the id learns of it."""
    config = CommitterConfig(conflict_mode=mode, io_concurrency=2)
    ends = []
    for number in count(1, STEP):
        destination = tmp_path / f"{number}/table"
        old = {"p=0/old": b"old", "q/old": b"old"}
        for name, data in old.items():
            (destination / name).parent.mkdir(parents=True)
            (destination / name).write_bytes(data)
        kept = {"q/old": b"old"} if mode == "replace" else old
        if not killed_at(number, partial(run, destination, 1, config)):
            break
        report = asyncio.run(committer.settle(destination, "J", storage_options=OPTIONS))
        ends.append(report is not None)
        assert visible(destination) == (old if report is None else kept | of_run(1)), number
        if report is None:
            asyncio.run(run(destination, 2, config))
            assert visible(destination) == kept | of_run(2), number
        else:
            assert report.files_committed == 2, number
        again = asyncio.run(committer.settle(destination, "J", storage_options=OPTIONS))
        assert again is not None, number
        assert again.files_committed == 2
        # A setup that is not opened may be on its way: only its age removes it.
        assert all(path.name.endswith(".new") for path in (destination / "_temporary").glob("*")), number
    # Free to run as long as it is undecided, committed from the decision on.
    assert ends == sorted(ends)
    assert set(ends) == {False, True}


def test_a_driver_that_stands_still_is_not_taken_for_dead(tmp_path: Path) -> None:
    destination = tmp_path / "table"
    with driver(destination, "J", FILES, "--wait") as process:
        process.send_signal(signal.SIGSTOP)
        before = sorted(destination.rglob("*"))
        with pytest.raises(JobExistsError) as caught:
            asyncio.run(committer.settle(destination, "J"))
        assert (caught.value.state, caught.value.outcome) == ("open", "unchanged")
        assert "its driver runs, driver.py of " in caught.value.message
        assert f"as process {process.pid} on" in caught.value.message
        assert sorted(destination.rglob("*")) == before
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert out == f"committed {FILES}\n", err
    report = asyncio.run(committer.settle(destination, "J"))
    assert report is not None
    assert report.files_committed == FILES


def test_a_decided_job_is_finished_beside_a_driver_that_stands_still(tmp_path: Path) -> None:
    """Whether a driver is alive does not matter from the decision on."""
    destination = tmp_path / "table"
    with driver(destination, "J", FILES) as process:
        wait_for(destination, 20)
        process.send_signal(signal.SIGSTOP)
        report = asyncio.run(committer.settle(destination, "J"))
        assert report is not None
        assert visible(destination) == expected(FILES)
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert out == f"committed {FILES}\n", err


def test_a_job_that_is_run_again_says_that_its_driver_is_dead_and_its_advice_works(tmp_path: Path) -> None:
    destination = tmp_path / "table"
    with driver(destination, "J", FILES, "--wait") as process:
        process.kill()
        process.wait(TIMEOUT_S)

    async def again() -> None:
        with pytest.raises(JobExistsError) as caught:
            await committer.open_job(destination, job_id="J")
        assert "its driver is dead, driver.py" in caught.value.message
        step = f"`await committer.settle('file:{destination}', 'J')` removes what it left; then run the job again"
        assert caught.value.next_step == step
        assert await committer.settle(str(destination), "J") is None

    asyncio.run(again())
    assert visible(destination) == {}
    asyncio.run(run(destination, 2, CommitterConfig()))
    assert visible(destination) == of_run(2)


def test_two_that_settle_at_once(tmp_path: Path) -> None:
    for files in (0, 100):
        destination = tmp_path / f"after-{files}"
        with driver(destination, "J", FILES, *([] if files else ["--wait"])) as process:
            if files:
                wait_for(destination, files)
            process.kill()
            process.wait(TIMEOUT_S)

        async def both(destination: Path = destination) -> list[committer.JobReport | None]:
            return list(await asyncio.gather(committer.settle(destination, "J"), committer.settle(destination, "J")))

        first, second = asyncio.run(both())
        assert (first is None) == (second is None)
        assert visible(destination) == ({} if first is None else expected(FILES))
        assert not (destination / "_temporary").exists()
