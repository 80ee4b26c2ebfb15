"""Starting, stopping and killing drivers, and looking at what they left."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import committer
from committer.errors import JobUndecidedError
from tests.processes import driver as driver_module

DRIVER = Path(driver_module.__file__)
TIMEOUT_S = 60


def environment() -> dict[str, str]:
    root = str(DRIVER.parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}


def may_mount() -> bool:
    """Whether file systems can be mounted, in a mount namespace of a process's own."""
    tried = subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, check=False
    ) if shutil.which("unshare") else None  # fmt: skip
    return tried is not None and tried.returncode == 0


def run_apart(script: str, *arguments: object, mounts: bool = True) -> dict[str, Any]:
    """Runs a script, and returns the JSON that it prints; with `mounts` in a mount namespace of its own, or skips the test."""
    command = [sys.executable, script, *map(str, arguments)]
    if mounts:
        if not may_mount():
            pytest.skip("nothing can be mounted here")
        command = ["unshare", "-m", "--propagation", "private", *command]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@contextmanager
def script(path: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Starts a process that reads commands line by line; kills it at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, path, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait(TIMEOUT_S)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def serving(*command: str) -> Iterator[str]:
    """The URL that a server in Python prints first; the server is dead when the block ends."""
    command = (sys.executable, *command)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment()) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            assert url.startswith("http"), "it did not start"
            yield url
        finally:
            process.kill()


@contextmanager
def driver(destination: Path, job_id: str, files: int, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A driver that is about to commit; dead when the block ends."""
    with script(str(DRIVER), str(destination), job_id, str(files), *options) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.stderr and process.stderr.read()
        yield process


def visible(destination: Path) -> dict[str, bytes]:
    """Every file but `_SUCCESS` and what is below `_temporary`."""
    found = {}
    for path in destination.rglob("*"):
        name = path.relative_to(destination).as_posix()
        if path.is_file() and not name.startswith("_"):
            found[name] = path.read_bytes()
    return found


def expected(files: int) -> dict[str, bytes]:
    a_task = driver_module.FILES_A_TASK
    return {
        driver_module.name(task, number): driver_module.content(task, number)
        for task in range(files // a_task)
        for number in range(a_task)
    }


def published(destination: Path) -> int:
    """How many files exist at the destination, cheaply."""
    return sum(len(names) for top, _dirs, names in os.walk(destination) if "_temporary" not in top)


def finish(destination: Path, job_id: str, files: int) -> committer.JobReport:
    """What an operator does: recover; commit a job that no driver began to commit."""

    async def work() -> committer.JobReport:
        try:
            return await committer.recover(destination, job_id)
        except JobUndecidedError:
            async with committer.attach_job(destination, job_id=job_id) as job:
                return await job.commit(tasks=files // driver_module.FILES_A_TASK)

    return asyncio.run(work())


def wait_for(destination: Path, files: int) -> None:
    """Waits until so many files are published."""
    give_up = time.monotonic() + TIMEOUT_S
    while published(destination) < files:
        assert time.monotonic() < give_up, "the driver does not get on"
