"""Outputs at absolute paths outside the destination: how tests name, write, and see them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig, Job, JobSpec
from committer.errors import CommitterError
from committer.paths import StorePath
from committer.testing.faults import Fault
from tests.places import DiskPlace, MemoryPlace, Place, write_file

ROOT = "warehouse"


def uri(place: Place, name: str = "") -> str:
    """A place below the root outside, as a user names it."""
    root = StorePath.of(place.dest).parent / ROOT
    return str(root / name if name else root)


def config(place: Place, **choices: object) -> CommitterConfig:
    return CommitterConfig(absolute_roots=(uri(place),), **choices)  # type: ignore[arg-type]


def outside(place: Place, *, directories: bool = False) -> dict[str, bytes]:
    """Every file below the root, by relative name; directories too, with a slash at the end, when asked for."""
    found: dict[str, bytes] = {}
    if isinstance(place, DiskPlace):
        root = place.root.parent / ROOT
        for directory, below, names in os.walk(root):
            for name in names:
                path = Path(directory, name)
                found[path.relative_to(root).as_posix()] = path.read_bytes()
            if directories:
                found |= {f"{Path(directory, name).relative_to(root).as_posix()}/": b"" for name in below}
        return found
    assert isinstance(place, MemoryPlace)
    prefix = f"/{ROOT}/"
    for name, data in place.space.files().items():
        if name.startswith(prefix):
            found[name.removeprefix(prefix)] = data
    if directories:
        found |= {f"{name.removeprefix(prefix)}/": b"" for name in place.space.directories() if name.startswith(prefix)}
    return found


def put(place: Place, name: str, data: bytes) -> None:
    """Puts a file below the root, with its directories."""
    if isinstance(place, DiskPlace):
        path = place.root.parent / ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    else:
        assert isinstance(place, MemoryPlace)
        place.space.write(f"/{ROOT}/{name}", data)


async def run_task(
    place: Place,
    job: Job | JobSpec,
    task: int,
    elsewhere: Mapping[str, bytes],
    files: Mapping[str, bytes] | None = None,
    attempt: int = 0,
) -> committer.TaskCommit:
    spec = job.spec if isinstance(job, Job) else job
    async with place.open_task(spec, task, attempt) as writer:
        for name, data in (files or {}).items():
            await write_file(writer, name, data)
        for name, data in elsewhere.items():
            async with writer.open_absolute(uri(place, name)) as file:
                await file.write(data)
    return writer.task_commit


NEW = {"part-0": b"zero", "p=1/part-0": b"one", "p=2/q=1/part-0": b"two"}
HERE = {"p=1/part-0": b"here"}


async def decided(place: Place, **choices: object) -> Job:
    """A job whose commit stopped half way."""
    job = await place.open_job(job_id="j-1", config=config(place, io_concurrency=1, **choices))
    await run_task(place, job, 0, NEW, HERE)
    place.faults(Fault(kind="forbidden", operation="rename_file", path=f"{ROOT}/p=2/q=1/part-0"))
    with pytest.raises(CommitterError) as caught:
        await job.commit()
    assert caught.value.outcome == "partial"
    assert outside(place)
    return job
