"""Output of formats that make a directory of each part, as Hadoop's MapFile does: every committer keeps its structure."""

from __future__ import annotations

import pytest

from committer.testing.faults import Fault
from tests.places import EVERY_COMMITTER, Place, place_fixture, write_file

place = place_fixture(*EVERY_COMMITTER)

PARTS = {
    f"part-r-{task:05}/{name}": b"%d %s" % (task, name.encode()) for task in range(2) for name in ("data", "index")
}


@pytest.mark.parametrize("fails", [False, True])
async def test_directories_of_a_map_file_keep_their_structure(place: Place, fails: bool) -> None:
    """Also where a first attempt of a task left half of its part behind."""
    async with place.open_job() as job:
        if fails:
            lost = await place.open_task(job.spec, 0)
            await write_file(lost, "part-r-00000/data", b"half")
            place.faults(Fault(kind="unanswered", operation="delete_directory", times=1))
            await lost.abort()
        for task in range(2):
            files = {name: data for name, data in PARTS.items() if name.startswith(f"part-r-{task:05}")}
            await place.run_task(job, task, files, attempt=int(fails))
    assert place.files() == PARTS
    assert place.temporary() == set()
