"""`progress=`: what it shows, where, and that it ends with the job."""

from __future__ import annotations

import pty
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import committer
from committer import sync
from committer.events import JobEvent, display

JOB = textwrap.dedent(
    """
    import asyncio, sys
    import committer
    from committer.events import display
    from committer.stores.local import LocalStore

    class Slow(LocalStore):
        async def rename_file(self, source, destination, **options):
            await asyncio.sleep(0.15)
            await super().rename_file(source, destination, **options)

    display.PLAIN_INTERVAL_S = 0.1

    async def main():
        options = {"store": Slow()}
        config = committer.CommitterConfig(io_concurrency=2)
        async with committer.open_job(sys.argv[1], storage_options=options, progress=True, config=config) as job:
            async with job.task_attempt(task=0) as task:
                for number in range(8):
                    async with task.open(f"part-{number}") as file:
                        await file.write(b"abc")

    asyncio.run(main())
    """
)


def test_lines_where_nothing_can_be_drawn_over(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", JOB, tmp_path / "table"], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert any("publish files: " in line and " of 8, " in line for line in lines), lines
    assert all(line.startswith("[") for line in lines), lines


def test_a_bar_in_a_terminal_that_is_gone_afterwards(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    master, slave = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", JOB, tmp_path / "table"], stderr=slave, stdout=slave) as process:
        shown = b""
        threading.Thread(target=lambda: (process.wait(60), pty.os.close(slave)), daemon=True).start()
        while True:
            try:
                part = pty.os.read(master, 65536)
            except OSError:
                break
            if not part:
                break
            shown += part
    text = shown.decode()
    assert process.returncode == 0, text
    assert "publish files" in text
    assert "of 8" in text
    assert "━" in text
    assert "\x1b[2K" in text  # the line is cleared


async def test_a_callable_is_told_every_event(tmp_path: Path) -> None:
    events: list[JobEvent] = []
    async with committer.open_job(str(tmp_path / "table"), progress=events.append) as job:
        async with job.task_attempt(task=0) as task:
            async with task.open("part-0") as file:
                await file.write(b"abc")
    assert ("stage_completed", "job_stage_rename_files") in {(event.kind, event.stage) for event in events}


def _drawing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "committer-progress"]


async def test_the_drawing_ends_with_the_job_and_with_one_that_was_not_set_up(tmp_path: Path) -> None:
    async with committer.open_job(str(tmp_path / "table"), job_id="j1", progress=True):
        assert len(_drawing()) == 1
        with pytest.raises(committer.errors.JobExistsError):
            await committer.open_job(str(tmp_path / "table"), job_id="j1", progress=True)
        assert len(_drawing()) == 1
    assert _drawing() == []


def test_the_blocking_functions_take_it_too(tmp_path: Path) -> None:
    events: list[JobEvent] = []
    with sync.open_job(str(tmp_path / "table"), job_id="j1", progress=events.append):
        pass
    assert events
    with pytest.raises(committer.errors.JobNotFoundError):
        sync.recover(str(tmp_path / "other"), "j1", progress=True)
    assert _drawing() == []


def test_a_view_in_a_notebook_is_escaped() -> None:
    board = display.Board()
    board(JobEvent(kind="advanced", job_id="j", stage="<b>&", done=3, total=9, at_s=1.0))
    view = board.view()
    assert view is not None
    assert display._html(view) == '<div>&lt;b&gt;&amp; <progress value="3" max="9"></progress> 3 of 9</div>'
