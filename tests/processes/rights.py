"""A job on a destination that refuses something, in a process of its own: `python rights.py SCENARIO DIRECTORY`.

Prepares as root, commits as an ordinary user or (where something is mounted) below `unshare -m`, and prints what became
of it as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import committer
from committer import CommitterConfig
from committer.errors import CommitterError

UNPRIVILEGED = 65534


def put(table: Path, name: str, *, mode: int = 0o644, above: int = 0o777) -> None:
    path = table / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"old")
    path.chmod(mode)
    path.parent.chmod(above)


def mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def volume(table: Path) -> None:
    (table / "x").mkdir()
    mount("-t", "tmpfs", "none", table / "x")
    (table / "x/old").write_bytes(b"old")


def volume_below(table: Path) -> None:
    (table / "x/below").mkdir(parents=True)
    mount("-t", "tmpfs", "none", table / "x/below")
    (table / "x/below/old").write_bytes(b"old")


def part_of_the_volume(table: Path) -> None:
    (table / "x").mkdir()
    (table.parent / "elsewhere").mkdir()
    (table.parent / "elsewhere/old").write_bytes(b"old")
    mount("--bind", table.parent / "elsewhere", table / "x")


def link_to_another_disk(table: Path) -> None:
    disk = table.parent / "disk"
    disk.mkdir()
    mount("-t", "tmpfs", "none", disk)
    (disk / "deep").mkdir()
    (table / "x").symlink_to(disk)


def single_file(table: Path) -> None:
    (table / "x").write_bytes(b"")
    (table.parent / "elsewhere").write_bytes(b"old")
    mount("--bind", table.parent / "elsewhere", table / "x")


SCENARIOS: dict[str, tuple[Callable[[Path], None], str, CommitterConfig, bool]] = {
    "sticky": (lambda table: put(table, "p/old", above=0o1777), "p/new", CommitterConfig(conflict_mode="replace"), True),
    "sticky marker": (lambda table: put(table, "_SUCCESS", above=0o1777), "p/new", CommitterConfig(), True),
    "sticky target": (lambda table: put(table, "p/x", mode=0o666, above=0o1777), "p/x", CommitterConfig(existing_target="replace"), True),
    "protected link": (lambda table: put(table, "p/x"), "p/x", CommitterConfig(existing_target="replace"), True),
    "protected link, old files": (lambda table: put(table, "p/x"), "p/x", CommitterConfig(conflict_mode="replace"), True),
    "link allowed": (lambda table: put(table, "p/x", mode=0o666), "p/x", CommitterConfig(existing_target="replace"), True),
    "another's old file": (lambda table: put(table, "p/old"), "p/new", CommitterConfig(conflict_mode="replace"), True),
    "closed": (lambda table: put(table, "p/old", above=0o755), "p/new", CommitterConfig(), True),
    "closed above": (lambda table: put(table, "p/old", above=0o755), "p/q/new", CommitterConfig(), True),
    "closed beside": (lambda table: put(table, "p/old", above=0o755), "q/new", CommitterConfig(conflict_mode="replace", superseded_scope="destination"), True),
    "closed target": (lambda table: put(table, "x/old", above=0o755), "x", CommitterConfig(existing_target="replace"), True),
    "closed root": (lambda table: table.chmod(0o755), "p/new", CommitterConfig(), True),
    "closed root, no marker": (lambda table: table.chmod(0o755), "p/new", CommitterConfig(mark_successful_jobs=False), True),
    "closed root, new directory": (lambda table: table.chmod(0o755), "q/new", CommitterConfig(mark_successful_jobs=False), True),
    "volume": (volume, "x", CommitterConfig(existing_target="replace"), False),
    "volume below": (volume_below, "x", CommitterConfig(existing_target="replace"), False),
    "volume on the way": (volume, "x/new", CommitterConfig(), False),
    "volume with old files": (volume, "p/new", CommitterConfig(conflict_mode="replace", superseded_scope="destination"), False),
    "part of the volume": (part_of_the_volume, "x", CommitterConfig(existing_target="replace"), False),
    "part of the volume on the way": (part_of_the_volume, "x/new", CommitterConfig(), False),
    "link to another disk": (link_to_another_disk, "x/new", CommitterConfig(conflict_mode="replace"), False),
    "way through a link to another disk": (link_to_another_disk, "x/deep/new", CommitterConfig(), False),
    "link to another disk, replaced": (link_to_another_disk, "p/new", CommitterConfig(conflict_mode="replace", superseded_scope="destination"), False),
    "single file": (single_file, "x", CommitterConfig(existing_target="replace"), False),
}  # fmt: skip


async def commit(table: Path, name: str, config: CommitterConfig) -> dict[str, object]:
    job = await committer.open_job(table, job_id="j", config=config)
    async with job.task_attempt(0) as task:
        for number, one in enumerate((f"a/first-{len(name)}", name)):
            async with task.open(one) as file:
                await file.write(b"%d" % number)
    answer: dict[str, object] = {"error": "", "said": "", "outcome": "", "causes": []}
    try:
        await job.commit(tasks=1)
    except CommitterError as error:
        answer = {"error": type(error).__name__, "said": str(error), "outcome": error.outcome}
    answer["decided"] = any(table.glob("_temporary/*/decision"))
    await job.close()
    answer["visible"] = sorted(
        str(path.relative_to(table))
        for path in table.rglob("*")
        if path.is_file() and "_temporary" not in path.parts and path.name != "_SUCCESS"
    )
    return answer


def main(scenario: str, directory: Path) -> None:
    prepare, name, config, drop = SCENARIOS[scenario]
    # What is imported late must be there before this process may not read it any more.
    asyncio.run(commit(directory / "warm-up", "p/x", CommitterConfig()))
    table = directory / "table"
    table.mkdir()
    table.chmod(0o777)
    if scenario.startswith("closed root"):
        # What was there before the root was closed, and still may be written to.
        for name_of_it in ("a", "p", "_temporary"):
            (table / name_of_it).mkdir()
            (table / name_of_it).chmod(0o777)
    prepare(table)
    if drop:
        os.setgroups([])
        os.setgid(UNPRIVILEGED)
        os.setuid(UNPRIVILEGED)
    print(json.dumps(asyncio.run(commit(table, name, config))))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
