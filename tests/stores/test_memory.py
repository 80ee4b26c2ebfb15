"""Memory spaces: profiles, flags, folding, what tests see past the store."""

from __future__ import annotations

import asyncio
import itertools
import pickle

import pytest

from committer.errors import (
    CommitterError,
    ConfigurationError,
    InvalidPathError,
    StoreExistsError,
    StoreNotFoundError,
    StorePreconditionError,
    UnsupportedError,
)
from committer.flow.runtime import use_runtime
from committer.paths import StorePath
from committer.stores.memory import PROFILES, MemorySpace, MemoryStore
from committer.testing.virtual_time import BEGINNING, VirtualRuntime

_numbers = itertools.count()


def new_space(profile: str = "local", **flags: bool) -> MemorySpace:
    return MemoryStore.space(f"memory-{next(_numbers)}", profile, **flags)


async def test_identities_are_the_same_in_every_run() -> None:
    async def identities() -> list[str | None]:
        space = new_space()
        store = space.store()
        found = [(await store.put(space.path("a"), b"x")).identity for _ in range(3)]
        await store.rename_file(space.path("a"), space.path("b"))
        return [*found, (await store.status(space.path("b"))).identity]

    first = await identities()
    assert first == await identities()
    assert len(set(first)) == 3
    assert first[2] == first[3]


async def test_times_are_the_runtimes() -> None:
    space = new_space()
    with use_runtime(VirtualRuntime()):
        status = await space.store().put(space.path("a"), b"x")
    assert status.modified == BEGINNING.timestamp()


async def test_every_call_lets_others_run_once() -> None:
    space = new_space()
    store = space.store()
    order: list[str] = []

    async def work(name: str) -> None:
        for number in range(3):
            await store.put(space.path(f"{name}-{number}"), b"")
            order.append(name)

    await asyncio.gather(work("a"), work("b"))
    assert order == ["a", "b"] * 3


async def test_a_space_is_seen_past_its_stores() -> None:
    space = new_space()
    space.write("/d/e/file", b"1")
    assert space.files() == {"/d/e/file": b"1"}
    assert space.directories() == {"/d", "/d/e"}
    await MemoryStore(space.name).put(space.path("d/new"), b"2")
    assert space.files() == {"/d/e/file": b"1", "/d/new": b"2"}
    space.clear()
    assert (space.files(), space.directories()) == ({}, set())


async def test_a_store_pickles_by_the_name_of_its_space() -> None:
    space = new_space("adls")
    space.write("/file", b"1" * 10_000)
    pickled = pickle.dumps(space.store())
    assert len(pickled) < 200
    assert await pickle.loads(pickled).read(space.path("file"), limit=1 << 20) == b"1" * 10_000


def test_a_space_keeps_what_it_was_made_with() -> None:
    space = new_space("adls", case_folding=True)
    assert MemoryStore.space(space.name) is space
    assert MemoryStore.space(space.name, "adls", case_folding=True) is space
    for profile, flags in (("gcs", {}), ("adls", {}), (None, {"case_folding": False})):
        with pytest.raises(ConfigurationError):
            MemoryStore.space(space.name, profile, **flags)
    MemoryStore.forget(space.name)
    assert MemoryStore.space(space.name, "gcs") is not space


def test_unknown_profiles_and_flags() -> None:
    path = StorePath.of("memory://never-made/x")
    for options in (
        {"profile": "nfs"},
        {"profile": 1},
        {"case_folding": "yes"},
        {"case_foldin": True},
        {"local_paths": True},
    ):
        with pytest.raises(ConfigurationError):
            MemoryStore.open_for(path, options)
    with pytest.raises(ConfigurationError, match="did you mean 'case_folding'"):
        MemoryStore.space("never-made", case_foldin=True)
    assert MemoryStore.open_for(path, {"profile": "gcs", "session": None}).capabilities == PROFILES["gcs"]


def test_what_the_profiles_can() -> None:
    assert {name for name, can in PROFILES.items() if can.atomic_directory_rename} == {"local", "hdfs", "adls"}
    assert {name for name, can in PROFILES.items() if can.directories} == {"local", "hdfs", "adls"}
    assert {name for name, can in PROFILES.items() if not can.atomic_file_rename} == {"s3", "azure-flat"}
    assert {name for name, can in PROFILES.items() if can.conditional_delete} == {"s3", "azure-flat"}
    assert {name for name, can in PROFILES.items() if can.multipart and can.batch_delete} == {"s3"}
    assert {name for name, can in PROFILES.items() if can.block_lists} == {"azure-flat"}
    assert {name for name, can in PROFILES.items() if can.hard_links} == {"local"}
    assert all(can.exclusive_put and can.identity for can in PROFILES.values())


async def test_a_space_without_identities() -> None:
    space = new_space(identity=False)
    store = space.store()
    assert (await store.put(space.path("a"), b"")).identity is None
    assert (await (await store.open_writer(space.path("b"))).close()).identity is None


async def test_a_move_in_gcs_keeps_the_stamp() -> None:
    space = new_space("gcs")
    store = space.store()
    before = await store.put(space.path("a"), b"1")
    await store.rename_file(space.path("a"), space.path("b"), identity=before.identity)
    assert (await store.status(space.path("b"))).identity == before.identity


async def test_a_move_may_make_another_identity() -> None:
    space = new_space("gcs", identity_through_rename=False)
    store = space.store()
    before = await store.put(space.path("a"), b"1")
    await store.rename_file(space.path("a"), space.path("b"), identity=before.identity)
    after = await store.status(space.path("b"))
    assert after.identity != before.identity
    with pytest.raises(StorePreconditionError):
        await store.rename_file(space.path("b"), space.path("c"), identity=before.identity)


async def test_flags_take_abilities_away() -> None:
    space = new_space("local", no_replace_rename=False, hard_links=False)
    store = space.store()
    await store.put(space.path("a"), b"1")
    with pytest.raises(UnsupportedError):
        await store.rename_file(space.path("a"), space.path("b"))
    with pytest.raises(UnsupportedError):
        await store.link_file(space.path("a"), space.path("b"))
    await store.rename_file(space.path("a"), space.path("b"), replace=True)


async def test_folded_names_are_one_file_under_its_first_spelling() -> None:
    space = new_space(case_folding=True, unicode_folding=True)
    store = space.store()
    await store.make_directory(space.path("Dir"), parents=False)
    await store.put(space.path("Dir/Straße-é"), b"1")
    for name in ("dir/STRASSE-É", "DIR/straße-e\u0301"):
        assert await store.read(space.path(name), limit=10) == b"1"
        with pytest.raises(StoreExistsError):
            await store.put(space.path(name), b"2", exclusive=True)
    assert not await store.make_directory(space.path("dIR"), parents=False)
    assert [status.path.name async for status in store.list(space.path("dir"))] == ["Straße-é"]
    await store.rename_file(space.path("dir/strasse-é"), space.path("dir/strasse-É"), replace=True)
    assert [status.path.name async for status in store.list(space.path("Dir"))] == ["strasse-É"]
    await store.rename_directory(space.path("DIR"), space.path("other"))
    assert await store.read(space.path("Other/STRASSE-é"), limit=10) == b"1"


async def test_a_file_and_names_below_it_without_directories() -> None:
    space = new_space("s3")
    store = space.store()
    await store.put(space.path("a/b"), b"1")
    await store.put(space.path("a/b/c"), b"2")
    found = {(status.path.path, status.is_directory) async for status in store.list(space.path("a"))}
    assert found == {("/a/b", False), ("/a/b", True)}
    assert not (await store.status(space.path("a/b"))).is_directory
    assert await store.delete_file(space.path("a/b"))
    assert (await store.status(space.path("a/b"))).is_directory


async def test_objects_appear_when_they_are_closed() -> None:
    space = new_space("gcs")
    store = space.store()
    first, second = [await store.open_writer(space.path("file")) for _ in range(2)]
    await first.write(b"1")
    assert space.files() == {}
    await first.close()
    with pytest.raises(StoreExistsError):
        await second.close()
    assert space.files() == {"/file": b"1"}


async def test_a_file_that_vanished_while_it_was_written() -> None:
    space = new_space()
    store = space.store()
    await store.make_directory(space.path("d"), parents=False)
    writer = await store.open_writer(space.path("d/file"))
    await store.delete_directory(space.path("d"), recursive=True)
    with pytest.raises(StoreNotFoundError):
        await writer.close()
    with pytest.raises(CommitterError):
        await writer.write(b"")
    assert space.files() == {}


async def test_paths_of_other_spaces_are_refused() -> None:
    store = new_space().store()
    for path in ("memory://another/file", "file:/file"):
        with pytest.raises(ConfigurationError):
            await store.status(StorePath.of(path))


async def test_names_that_end_in_a_period_where_that_is_forbidden() -> None:
    space = new_space("adls")
    for name in ("file.", "d./file"):
        with pytest.raises(InvalidPathError):
            await space.store().put(space.path(name), b"")
    await space.store().put(space.path(".file"), b"")


async def test_the_root() -> None:
    space = new_space()
    store = space.store()
    root = StorePath.of(f"memory://{space.name}/")
    assert (await store.status(root)).is_directory
    assert [status async for status in store.list(root)] == []
    await store.put(root / "file", b"")
    assert [status.path async for status in store.list(root)] == [root / "file"]
    assert await store.delete_directory(root, recursive=True)
    assert space.files() == {}
