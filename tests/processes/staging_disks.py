"""A staging job whose task writes to a disk that is full, or read-only: `python staging_disks.py CASE DIRECTORY`.

Runs below `unshare -m`. Mounts, has one attempt write and commit there, then another one where there is room, and prints
what became of both as JSON.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import committer
from committer import CommitterConfig
from committer.errors import CommitterError
from committer.stores.memory import MemoryStore

LONG = b"x" * (1 << 20)


def mount(at: Path, options: str) -> None:
    """Mounts an empty disk there."""
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(at)], check=True)


def make_read_only(at: Path) -> None:
    """As a disk becomes that fails."""
    subprocess.run(["mount", "-o", "remount,ro", str(at)], check=True)


async def _write(task: committer.TaskAttempt, case: str, small: Path) -> None:
    if case == "full, by a path":
        await asyncio.to_thread(Path(task.work_path("long")).write_bytes, LONG)
        return
    async with task.open("first") as file:
        await file.write(b"first")
    if case == "read-only while it writes":
        make_read_only(small)
    async with task.open("long") as file:
        await file.write(LONG if case.startswith("full") else b"x")
    if case == "read-only before it commits":
        make_read_only(small)


async def act(case: str, directory: Path) -> dict[str, object]:
    """Runs a job of one task, of which a first attempt meets the trouble."""
    small, roomy = directory / "small", directory / "roomy"
    mount(roomy, "size=8m")
    mount(small, "size=512k,ro" if case.startswith("read-only from the start") else "size=512k")
    space = MemoryStore.space("disks", "s3")
    dest, options = "memory://disks/table", {"store": space.store()}
    both = case.endswith("another one is there")
    first = CommitterConfig(staging_directories=(str(small), str(roomy)) if both else (str(small),))
    answer: dict[str, object] = {"error": "", "next_step": "", "outcome": ""}
    job = await committer.open_job(dest, job_id="j", committer="directory", config=first, storage_options=options)
    try:
        async with job.task_attempt(0) as task:
            await _write(task, case, small)
    except CommitterError as error:
        answer = {"error": type(error).__name__, "next_step": error.next_step, "outcome": error.outcome}
    except OSError as error:
        answer["error"] = f"{type(error).__name__} of the program's own"
    answer["uploads"] = sum(1 for _upload in space.uploads)
    answer["left"] = sorted(path.name for path in small.rglob("*") if path.is_file())
    if answer["error"]:
        # As on another machine, whose disk has room.
        subprocess.run(["umount", str(small)], check=True)
        subprocess.run(["mount", "--bind", str(roomy), str(small)], check=True)
        async with committer.open_task(job.spec, task=0, attempt=1, storage_options=options) as task:
            async with task.open("first") as file:
                await file.write(b"first")
            async with task.open("long") as file:
                await file.write(LONG if case.startswith("full") else b"x")
    report = await job.commit(tasks=1)
    await job.close()
    answer["committed"] = report.files_committed
    files = {name.removeprefix("/table/"): len(data) for name, data in space.files().items()}
    answer["files"] = {name: size for name, size in files.items() if not name.startswith("_")}
    answer["left_at_the_end"] = sorted(path.name for path in roomy.rglob("*") if path.is_file())
    answer["uploads_at_the_end"] = sum(1 for _upload in space.uploads)
    return answer


if __name__ == "__main__":
    print(json.dumps(asyncio.run(act(sys.argv[1], Path(sys.argv[2])))))
