"""Real drivers that run out of memory in a job commit: never `_SUCCESS` with less, and a fresh process ends the job."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import committer
from committer.errors import JobUndecidedError
from tests.processes.harness import environment, visible

pytestmark = [
    pytest.mark.allow_blocking("waits for a child"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits what a process may map by /proc"),
]

TASKS, FILES_A_TASK = 8, 400
DRIVER = Path(__file__).with_name("short_of_memory.py")


async def _prepare(destination: Path) -> set[str]:
    job = await committer.open_job(destination, job_id="J")
    names = set()
    for task in range(TASKS):
        async with job.task_attempt(task) as attempt:
            for number in range(FILES_A_TASK):
                name = f"part={task % 3}/{'x' * 60}-{task}-{number:05d}"
                async with attempt.open(name) as file:
                    await file.write(b"%d" % number)
                names.add(name)
    await job.close()
    return names


async def _finish(destination: Path) -> None:
    try:
        await committer.recover(destination, "J")
    except JobUndecidedError:
        async with committer.attach_job(destination, job_id="J") as job:
            await job.commit(tasks=TASKS)


@pytest.mark.parametrize(
    "megabytes", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), 4, 200]
)
def test_job_commit(tmp_path: Path, megabytes: int) -> None:
    destination = tmp_path / "o"
    names = asyncio.run(_prepare(destination))
    driver = subprocess.run(
        [sys.executable, str(DRIVER), str(destination), "J", str(megabytes)],
        env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    if (destination / "_SUCCESS").exists():
        assert visible(destination).keys() == names
    if driver.returncode == 0:
        assert driver.stdout == "committed\n"
        assert (destination / "_SUCCESS").exists()
    else:
        assert megabytes < 200, driver.stderr
        asyncio.run(_finish(destination))
    assert visible(destination).keys() == names
    assert asyncio.run(committer.validate(destination)).ok
    assert not (destination / "_temporary").exists()
    print(megabytes, driver.returncode, driver.stdout, driver.stderr[-300:])
