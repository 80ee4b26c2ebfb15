"""The suite that every store passes, and a job of a thousand files, on real services: where their user names a place.

Nothing is broken on purpose here; that is what the emulators are for. This shows that the services do what the emulators
say they do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import committer
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.registry import open_store
from committer.testing._conformance_base import AWKWARD_NAMES
from committer.testing.conformance import Channel, StoreConformance
from tests.services.conftest import StoreChannel, left_of
from tests.services.places import NO_PLACE, Place, places

if not places():
    pytest.skip(NO_PLACE, allow_module_level=True)

TASKS, FILES_A_TASK = 10, 100


class TestStore(StoreConformance):
    """The store by itself, without pacing: each call is sent once."""

    # Google's service takes no line breaks, and SeaweedFS no backslash.
    awkward_names = tuple(name for name in AWKWARD_NAMES if "\n" not in name and "\\" not in name)

    @pytest.fixture
    async def store(self, place: Place) -> AsyncIterator[Store]:
        store = open_store(place.path, place.options)
        yield store
        await store.close()

    @pytest.fixture
    async def root(self, room: StorePath, second: Store) -> StorePath:
        await second.make_directory(room / "root", parents=True)
        return room / "root"

    @pytest.fixture
    def channel(self, second: Store, root: StorePath) -> Channel:
        return StoreChannel(second, root)


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_a_job_of_a_thousand_files(place: Place, room: StorePath, second: Store, delivery: str) -> None:
    expected = {
        f"part={number % 10}/file-{number:04}": f"{number}\n".encode() for number in range(TASKS * FILES_A_TASK)
    }
    names = sorted(expected)
    async with committer.open_job(room.uri, delivery=delivery, storage_options=place.options) as job:

        async def run(task: int) -> None:
            async with job.task_attempt(task=task, attempt=0) as attempt:
                for name in names[task::TASKS]:
                    async with attempt.open(name) as file:
                        await file.write(expected[name])

        await asyncio.gather(*(run(task) for task in range(TASKS)))
        # Working directories and pending uploads are not output.
        seen = [status.path.name async for status in second.list(room)]
        assert {name.partition("-")[0] for name in seen} <= {"_temporary", "__magic_job"}
        report = await job.commit(tasks=TASKS)
    assert (report.success, report.files_committed) == (True, len(expected))
    assert (await committer.validate(room.uri, storage_options=place.options)).ok
    found = await StoreChannel(second, room).files()
    assert found.pop("_SUCCESS")
    assert found == expected
    # And no more: neither records nor uploads.
    assert len([name for name in await left_of(second, room) if "part=" not in name]) == 1


async def test_an_aborted_job_leaves_nothing(place: Place, room: StorePath, second: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        async with committer.open_job(room.uri, storage_options=place.options) as job:
            async with job.task_attempt(task=0, attempt=0) as attempt, attempt.open("part=0/file") as file:
                await file.write(b"1")
            raise ZeroDivisionError
    assert [name for name in await left_of(second, room) if not name.endswith("/_temporary")] == []
