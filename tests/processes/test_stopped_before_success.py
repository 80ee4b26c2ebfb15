"""A driver stopped by a signal right before its `_SUCCESS`, or before it says that it is finished, on a real disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.errors import DestinationBusyError
from committer.records.success import decode_success
from tests.processes import stopping_driver
from tests.processes.harness import TIMEOUT_S, environment, visible

REPLACE = CommitterConfig(conflict_mode="replace", superseded_scope="destination")


async def replace_all(destination: Path, job_id: str) -> None:
    async with committer.open_job(destination, job_id=job_id, config=REPLACE) as job:
        async with job.task_attempt(0) as attempt, attempt.open("p=1/later") as file:
            await file.write(b"later")


def marked(destination: Path) -> str:
    return decode_success((destination / "_SUCCESS").read_bytes(), source="").jobId


@pytest.mark.allow_blocking("waits for a process")
@pytest.mark.parametrize("kept", [False, True], ids=["", "later-runs"])
async def test_a_stopped_driver_writes_no_success_over_a_later_one(tmp_path: Path, kept: bool) -> None:
    destination = tmp_path / "table"
    script = str(Path(stopping_driver.__file__))
    process = subprocess.Popen(
        [sys.executable, script, str(destination), "past"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        _pid, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), process.stderr and process.stderr.read()
        assert not (destination / "_SUCCESS").exists()

        # Alive or dead, it has not finished: who replaces its data waits, and the job is named.
        with pytest.raises(DestinationBusyError) as caught:
            await replace_all(destination, "too-early")
        assert caught.value.owners == ("past",)
        assert visible(destination) == {"p=1/of-the-past": b"past"}
        assert "run the job again" in caught.value.next_step
        report = await committer.recover(destination, "past")
        assert report.files_committed == 1
        assert marked(destination) == "past"

        if kept:
            # A later job is under way when the driver goes on.
            later = await committer.open_job(destination, job_id="under-way")
        await replace_all(destination, "later")
        assert marked(destination) == "later"
        process.send_signal(signal.SIGCONT)
        out, error = process.communicate(timeout=TIMEOUT_S)
        assert (out, process.returncode) == ("committed\n", 0), error
        assert marked(destination) == "later"
        assert visible(destination) == {"p=1/later": b"later"}
        report_of = await committer.validate(destination)
        assert report_of.ok
        if kept:
            await later.abort()
            await later.close()
        assert not (destination / "_temporary").exists()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(TIMEOUT_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
