"""What the checker sees of a store in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.memory import PROFILES
from committer_testing.simulate.worlds import OUT, MemoryWorld


async def write_slowly(store: Store, path: StorePath, look: Callable[[], None]) -> None:
    writer = await store.open_writer(path)
    look()
    await writer.write(b"by a writer")
    look()
    await writer.close()


@pytest.mark.parametrize("profile", sorted(PROFILES))
async def test_it_is_never_out_of_date(profile: str) -> None:
    """It is made again only when something changed; a change that was not counted would be overlooked for good."""
    world = MemoryWorld(profile)
    store, out = world.store(), world.destination
    world.write(f"{OUT}/seen/before", b"0")

    def look() -> None:
        files = {name.removeprefix(f"{OUT}/"): data for name, data in world.files().items()}
        assert world.visible() == files

    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: store.make_directory(out / "a/b", parents=True),
        lambda: store.put(out / "a/b/put", b"1"),
        lambda: store.put(out / "a/b/put", b"2"),
        lambda: write_slowly(store, out / "a/b/written", look),
        lambda: store.delete_file(out / "a/b/put"),
        lambda: store.delete_directory(out / "a", recursive=True),
    ]
    if store.capabilities.atomic_file_rename:
        changes.insert(4, lambda: store.rename_file(out / "a/b/written", out / "a/b/renamed"))
    look()
    for change in changes:
        await change()
        look()
    world.remove(f"{OUT}/seen/before")
    look()
    assert world.visible() == {}
    world.forget()
