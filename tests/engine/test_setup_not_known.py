"""Going on with a job whose committer, as its setup record says, is not known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import committer
from committer import CommitterConfig
from committer.committers.manifest import ManifestCommitter
from committer.committers.registry import register_committer, unregister_committer
from committer.errors import UnsupportedError
from tests.neighbours.meeting import Table

OLD = {"part-0": b"old", "part-1": b"old"}
CONFIG = CommitterConfig(conflict_mode="replace")


async def _set_up(table: Table, name: str | None = None) -> None:
    job = await committer.open_job(
        table.dest, job_id="job", committer=name, config=CONFIG, storage_options=table.options
    )
    async with (
        committer.open_task(job.spec, task=0, storage_options=table.options) as task,
        task.open("part-0") as file,
    ):
        await file.write(b"new")
    await job.close()


class _Own(ManifestCommitter):
    name = "own"


@pytest.fixture
def registered() -> Iterator[None]:
    register_committer(_Own)
    yield
    unregister_committer(_Own.name)


@pytest.mark.usefixtures("registered")
async def test_recover_where_the_committer_is_not_registered() -> None:
    """What the error says to do first works when it is done."""
    table = Table("local", OLD)
    await _set_up(table, _Own.name)
    unregister_committer(_Own.name)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="'own' is unknown in this process") as caught:
            await committer.recover(table.dest, "job", rollback=True, storage_options=table.options)
        assert "committer.committers.registry.register_committer" in caught.value.next_step
    assert [info.committer for info in await committer.list_jobs(table.dest, storage_options=table.options)] == ["own"]
    register_committer(_Own)
    report = await committer.recover(table.dest, "job", rollback=True, storage_options=table.options)
    assert not report.success
    assert table.files() == OLD
