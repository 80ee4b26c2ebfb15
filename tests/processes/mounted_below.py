"""Something mounted below a directory that is deleted: `python mounted_below.py ACTION KIND PLACE DIRECTORY`.

Runs below `unshare -m`. Mounts, acts, then does what the error advises, and prints what became of it as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import committer
from committer.errors import CommitterError
from committer.paths import StorePath
from committer.stores.local import LocalStore


def mount(kind: str, at: Path, elsewhere: Path) -> None:
    """Puts a file system, a part of this one or a file of it there, each with a file that nothing may delete."""
    elsewhere.mkdir()
    (elsewhere / "precious").write_bytes(b"x")
    if kind == "file":
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(b"")
        arguments = ["--bind", str(elsewhere / "precious"), str(at)]
    else:
        at.mkdir(parents=True, exist_ok=True)
        arguments = ["--bind", str(elsewhere), str(at)] if kind == "bind" else ["-t", "tmpfs", "none", str(at)]
    subprocess.run(["mount", *arguments], check=True)
    if kind == "tmpfs":
        (at / "precious").write_bytes(b"x")


def mount_late(kind: str, at: Path, elsewhere: Path) -> None:
    """Mounts it when the delete has found that a directory is not empty, before it opens that."""
    at.mkdir()
    (at / "below").write_bytes(b"x")
    rmdir = os.rmdir

    def first_refuse(name: str, *, dir_fd: int | None = None) -> None:
        if name == at.name:
            os.rmdir = rmdir
            try:
                rmdir(name, dir_fd=dir_fd)
            finally:
                mount(kind, at, elsewhere)
        else:
            rmdir(name, dir_fd=dir_fd)

    os.rmdir = first_refuse


def mounted_in(directory: Path) -> Path:
    """Where below a directory something is mounted."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    [place] = [line.split()[4] for line in lines if line.split()[4].startswith(f"{directory}/")]
    return Path(place)


async def delete(directory: Path) -> None:
    store = LocalStore()
    try:
        await store.delete_directory(StorePath.of(directory), recursive=True)
    finally:
        await store.close()


async def act(action: str, kind: str, place: str, directory: Path) -> dict[str, object]:
    table, elsewhere = directory / "table", directory / "elsewhere"
    steps: Sequence[Callable[[], Awaitable[object]]]
    if action in {"delete", "late"}:
        top = table / "d"
        (top / "beside").mkdir(parents=True)
        (top / "beside/file").write_bytes(b"x")
        (mount if action == "delete" else mount_late)(kind, mounted := table / place, elsewhere)
        steps = [lambda: delete(top), lambda: delete(top)]
    else:
        job = await committer.open_job(table, job_id="j")
        async with job.task_attempt(0) as task, task.open("p=1/new") as file:
            await file.write(b"new")
        mount(kind, mounted := Path(task.directory.path, place), elsewhere)
        steps = {"commit": [job.commit, lambda: committer.recover(table, "j")], "abort": [job.abort, job.abort]}[action]
    answer: dict[str, object] = {"error": ""}
    try:
        await steps[0]()
    except CommitterError as error:
        answer = {"error": type(error).__name__, "outcome": error.outcome, "next_step": error.next_step}
        unmount = re.search(r"unmount (\S+?)(,|$)", error.next_step)
        # A delete moves what lies too deep for it up.
        mounted = mounted_in(directory)
        answer["named"] = unmount is not None and Path(unmount[1]) == mounted
    answer["kept"] = mounted.is_file() or os.listdir(mounted) == ["precious"]
    subprocess.run(["umount", str(mounted)], check=True)
    await steps[1]()
    if action in {"commit", "abort"}:
        await job.close()
    answer["elsewhere"] = os.listdir(elsewhere)
    answer["left"] = sorted(str(path.relative_to(table)) for path in table.rglob("*") if path.is_file())
    answer["temporary"] = (table / "_temporary").exists() or (table / "d").exists()
    return answer


if __name__ == "__main__":
    print(json.dumps(asyncio.run(act(*sys.argv[1:4], Path(sys.argv[4])))))
