"""Files that a store renames many at a time: never more in flight than the job allows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.errors import StoreError
from committer.paths import StorePath
from committer.stores.local import LocalStore

FILES = 300


class Counting(LocalStore):
    """Counts the files that are being renamed, and the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = self.calls = 0

    async def rename_files(
        self,
        renames: Sequence[tuple[StorePath, StorePath]],
        *,
        seen: Sequence[tuple[str | None, int]] | None = None,
        identities: Sequence[str | None] | None = None,
    ) -> dict[int, StoreError]:
        self.calls += 1
        self.now += len(renames)
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        try:
            return await super().rename_files(renames, seen=seen, identities=identities)
        finally:
            self.now -= len(renames)


@pytest.mark.parametrize(("io_concurrency", "most"), [(1, 1), (3, 3), (8, 8), (200, 200), (512, FILES)])
async def test_no_more_files_are_renamed_at_a_time_than_calls_are_allowed(
    tmp_path: Path, io_concurrency: int, most: int
) -> None:
    store = Counting()
    config = CommitterConfig(io_concurrency=io_concurrency)
    async with committer.open_job(
        str(tmp_path / "out"), job_id="job-1", config=config, storage_options={"store": store}
    ) as job:
        async with job.task_attempt(task=0) as task:
            for number in range(FILES):
                Path(task.work_path(f"part-{number}")).write_bytes(b"")
        report = await job.commit()
    assert report.files_committed == FILES
    assert store.most == most
    assert store.calls < FILES or io_concurrency < 4
    await store.close()
