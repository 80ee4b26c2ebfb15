"""A task that hard-links old files into its output, as `cp -al` and `rsync --link-dest` do with what did not change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest

from committer import CommitterConfig
from committer.errors import CommitterError
from committer.stores.local import LocalStore
from committer.testing.faults import Fault, FaultyStore
from tests.engine.places import DiskPlace

CONFIGS = {
    "targets": CommitterConfig(existing_target="replace"),
    "directories": CommitterConfig(conflict_mode="replace"),
    "both": CommitterConfig(conflict_mode="replace", existing_target="replace"),
}


# By links, rolling back cannot fence and so sweeps the destination afterwards.
@pytest.mark.parametrize("no_replace", ["auto", "link"])
@pytest.mark.parametrize("which", CONFIGS)
@pytest.mark.parametrize("stop", ["a=1/q", "a=1/same", "/outcome"])
@pytest.mark.parametrize("rollback", [False, True])
async def test_a_file_that_did_not_change_is_never_lost(
    tmp_path: Path, no_replace: Literal["auto", "link"], which: str, stop: str, rollback: bool
) -> None:
    disk = DiskPlace(tmp_path)
    disk.store = FaultyStore(LocalStore(threads=1, no_replace=no_replace))
    old = {"a=1/same": b"unchanged", "a=1/q": b"old", "a=1/renamed": b"moved"}
    for name, data in old.items():
        disk.write(name, data)
    job = await disk.open_job(job_id="job-1", config=CONFIGS[which])
    async with await disk.open_task(job.spec, 0) as task:
        os.link(disk.root / "a=1/same", task.work_path("a=1/same"))
        os.link(disk.root / "a=1/renamed", task.work_path("a=1/new-name"))
        Path(task.work_path("a=1/q")).write_bytes(b"new")
    operation = {"a=1/q": "rename_file", "a=1/same": "delete_file", "/outcome": "put"}[stop]
    disk.faults(Fault(kind="forbidden", operation=operation, path=stop))
    with pytest.raises(CommitterError):
        await job.commit()
    await job.close()
    await disk.recover("job-1", rollback=rollback, force=True)
    new = {"a=1/same": b"unchanged", "a=1/q": b"new", "a=1/new-name": b"moved"}
    if which == "targets":
        new["a=1/renamed"] = b"moved"
    assert disk.files() == (old if rollback else new)
    assert disk.temporary() == set()
