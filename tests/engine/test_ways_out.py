"""A job that another program spoiled is ended by what its error says, done to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest

import committer
from committer.errors import CommitterError
from committer.testing.faults import Fault, SimulatedCrash
from tests.engine.places import MemoryPlace
from tests.engine.spoiled import SPOILED, visible
from tests.engine.test_advice import calls_in, follow
from tests.job_paths import in_job


@pytest.mark.parametrize("name", SPOILED)
async def test_what_the_error_says_ends_the_job(tmp_path: Path, name: str) -> None:
    table, case = tmp_path / "table", SPOILED[name]
    await case.spoil(table)
    with pytest.raises(CommitterError) as caught:
        await committer.recover(table, "j", rollback=case.rollback)
    if case.mend is not None:
        case.mend(table, caught.value.next_step)
    await follow(calls_in(caught.value)[case.way])
    assert visible(table) == case.files
    assert await committer.list_jobs(table) == []


async def test_what_is_given_up_is_said(tmp_path: Path) -> None:
    table = tmp_path / "table"
    await SPOILED["records gone"].spoil(table)
    with pytest.raises(CommitterError) as caught:
        await committer.recover(table, "j", rollback=True)
    assert "what it published stays; what it did not publish" in caught.value.next_step
    assert Path(caught.value.path).name.startswith("plan-00000-")


@pytest.mark.parametrize("profile", ["hdfs", "adls", "gcs"])
@pytest.mark.parametrize("name", ["/b", "tasks"])
async def test_sources_that_are_gone_elsewhere(profile: str, name: str) -> None:
    """A source, or all of them: a rollback takes the job back where it can, else the job is given up."""
    place = MemoryPlace(profile)
    config = committer.CommitterConfig(io_concurrency=1)
    job = await place.open_job(job_id="j", config=config)
    for number, file in enumerate("ab"):
        await place.run_task(job, number, {file: file.encode()})
    place.faults(Fault(kind="crash_before", operation="rename_file", path="/b"))
    with pytest.raises(SimulatedCrash):
        await job.commit(tasks=2)
    for source in [one for one in place.all_files() if "/tasks/" in one and one.endswith(name)]:
        place.remove(source)
    if name == "tasks":
        place.remove(in_job(place, "j", "00/tasks"))
    with pytest.raises(CommitterError) as caught:
        await committer.recover(place.dest, "j")
    back = name == "/b" or profile == "gcs"
    said = calls_in(caught.value)[-1]
    assert ("rollback=True" in said, "force=True" in said) == (back, profile == "gcs" or not back)
    await follow(said)
    assert place.files() == ({} if back else {"a": b"a"})
    assert place.temporary() == set()
