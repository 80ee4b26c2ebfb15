"""A directory of its own for every test, on each service that the environment names, and nothing left of it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator

import pytest

from committer.paths import StorePath
from committer.stores.base import FileStatus, Store
from committer.stores.helpers import status_or_none, walk
from committer.stores.registry import open_store
from committer.stores.uploads import UPLOADS
from tests.services.places import Place, places

_numbers = itertools.count()
# Several may test in one place at once.
_RUN = f"committer-test-{uuid.uuid4().hex[:12]}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        found = places()
        metafunc.parametrize("place", found, ids=[place.variable for place in found])


class StoreChannel:
    """A way to the files by a store of its own: what one connection did another one sees."""

    def __init__(self, store: Store, root: StorePath) -> None:
        self._store = store
        self._root = root

    async def files(self) -> dict[str, bytes]:
        return {
            status.path.relative_to(self._root): await self._store.read(status.path, limit=1 << 30)
            for status in await self._below()
            if not status.is_directory
        }

    async def directories(self) -> set[str]:
        if not self._store.capabilities.directories:
            return set()
        return {status.path.relative_to(self._root) for status in await self._below() if status.is_directory}

    async def write(self, name: str, data: bytes) -> None:
        path = self._root / name
        await self._store.make_directory(path.parent, parents=True)
        await self._store.put(path, data)

    async def _below(self) -> list[FileStatus]:
        if await status_or_none(self._store, self._root) is None:
            return []
        return [status async for status in walk(self._store, self._root)]


async def left_of(store: Store, directory: StorePath) -> list[str]:
    """What stands below a directory, and which uploads are pending there."""
    real = store.capabilities.directories
    found = []
    if await status_or_none(store, directory) is not None:
        # SeaweedFS lists directories that it keeps for names that were there.
        found = [str(one.path) async for one in walk(store, directory) if real or not one.is_directory]
    able = UPLOADS.of(store)
    if able is not None:
        found += [f"an upload of {upload.path}" async for upload in able.list_uploads(directory)]
    return found


async def remove(store: Store, directory: StorePath) -> None:
    """Takes away a directory with all that is in it, pending uploads too."""
    able = UPLOADS.of(store)
    if able is not None:
        for upload in [upload async for upload in able.list_uploads(directory)]:
            await able.abort_upload(upload.path, upload.upload_id)
    if await status_or_none(store, directory) is not None:
        await store.delete_directory(directory, recursive=True)


@pytest.fixture
async def second(place: Place) -> AsyncIterator[Store]:
    """A connection of its own to the service."""
    store = open_store(place.path, place.options)
    yield store
    await store.close()


@pytest.fixture
async def room(place: Place, second: Store) -> AsyncIterator[StorePath]:
    """A directory of the test's own, which is gone afterwards, as are those above it that were not there."""
    above = [place.path / _RUN]
    while above[-1].path != "/":
        above.append(above[-1].parent)
    made = [path for path in above if path.path != "/" and await status_or_none(second, path) is None]
    room = place.path / _RUN / f"{next(_numbers)}"
    yield room
    await remove(second, room)
    assert await left_of(second, room) == []
    if second.capabilities.directories:
        for path in made:
            if await status_or_none(second, path) is not None:
                await second.delete_directory(path, recursive=False)
