"""A driver that is killed anywhere in the setup of its job leaves an id that can be used again."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import committer
from committer import CommitterConfig
from committer.errors import JobExistsError
from tests.job_paths import has_in_job, in_job
from tests.processes.harness import visible
from tests.processes.system_calls import killed_at

pytestmark = pytest.mark.allow_blocking("waits for a child")

STEP = 5


async def _set_up(destination: Path, config: CommitterConfig, options: dict[str, Any]) -> None:
    job = await committer.open_job(destination, job_id="J", config=config, storage_options=options)
    await job.close()


async def _commit(destination: Path, config: CommitterConfig, options: dict[str, Any]) -> None:
    async with (
        committer.open_job(destination, job_id="J", config=config, storage_options=options) as job,
        job.task_attempt(0) as task,
        task.open("a") as file,
    ):
        await file.write(b"a")


async def _goes_on(destination: Path, config: CommitterConfig, options: dict[str, Any], *, by_age: bool) -> str:
    """Opens the id again; where a setup record stands the job is there, to be joined or cleaned up by its name."""
    try:
        await _commit(destination, config, options)
        return "claimed"
    except JobExistsError:
        assert has_in_job(destination, "J", "setup")
    if by_age:
        report = await committer.cleanup(destination, older_than=0, storage_options=options)
        assert report.removed == ["J"]
    else:
        job = await committer.attach_job(destination, job_id="J", storage_options=options)
        await job.abort()
        await job.close()
    assert not (destination / "_temporary").exists()
    await _commit(destination, config, options)
    return "aborted"


@pytest.mark.parametrize("no_replace", ["auto", "link"])
@pytest.mark.parametrize("durability", ["none", "fsync"])
def test_killed_at_every_system_call(tmp_path: Path, durability: Any, no_replace: str) -> None:
    config, options = CommitterConfig(durability=durability), {"no_replace": no_replace, "threads": 1}
    ends = []
    for number in count(1, STEP):
        destination = tmp_path / f"{number}/o"
        if not killed_at(number, partial(_set_up, destination, config, options)):
            break
        ends.append(asyncio.run(_goes_on(destination, config, options, by_age=number % 2 == 0)))
        assert visible(destination) == {"a": b"a"}
        # What the dead setup left keeps no job out.
        asyncio.run(committer.cleanup(destination, older_than=0, storage_options=options))
        assert not (destination / "_temporary").exists()
    assert "claimed" in ends
    assert len(ends) > 60 // STEP


@pytest.mark.parametrize("how", ["by name", "by age"])
def test_what_a_killed_setup_left_is_cleaned_up(tmp_path: Path, how: str) -> None:
    """Without force; nothing of it is left, and nothing else is touched."""
    config = CommitterConfig()
    for number in count(1, 2 * STEP):
        destination = tmp_path / f"{number}/o"
        if not killed_at(number, partial(_set_up, destination, config, {"threads": 1})):
            break
        if not in_job(destination, "J").exists():
            continue
        choice: dict[str, Any] = {"job_id": "J"} if how == "by name" else {"older_than": 0}
        report = asyncio.run(committer.cleanup(destination, **choice))
        assert report.removed == ["J"], (number, report.kept)
        assert not (destination / "_temporary").exists()
    assert number > 40
