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
    StoreConflictError,
    StoreExistsError,
    StoreNotFoundError,
    StorePartsError,
    StorePreconditionError,
    StoreUploadNotFoundError,
    UnsupportedError,
)
from committer.flow.runtime import use_runtime
from committer.paths import StorePath
from committer.stores.memory import PROFILES, MemorySpace, MemoryStore
from committer.stores.uploads import UploadPart
from committer.testing.virtual_time import BEGINNING, VirtualRuntime

_numbers = itertools.count()


def new_space(profile: str = "local", **flags: int) -> MemorySpace:
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
    for wrong in (True, "16", 1.5):
        with pytest.raises(ConfigurationError, match="whole number"):
            MemoryStore.open_for(path, {"profile": "s3", "min_part_bytes": wrong})
    assert MemoryStore.open_for(path, {"profile": "gcs", "http_session": None}).capabilities == PROFILES["gcs"]
    limited = StorePath.of(f"memory://memory-{next(_numbers)}/x")
    store = MemoryStore.open_for(limited, {"profile": "s3", "min_part_bytes": 16, "batch_delete": False})
    assert (store.capabilities.min_part_bytes, store.capabilities.batch_delete) == (16, False)


def test_what_the_profiles_can() -> None:
    assert {name for name, can in PROFILES.items() if can.atomic_directory_rename} == {"local", "hdfs", "adls"}
    assert {name for name, can in PROFILES.items() if can.directories} == {"local", "hdfs", "adls"}
    assert {name for name, can in PROFILES.items() if not can.atomic_file_rename} == {"s3", "azure-flat"}
    assert {name for name, can in PROFILES.items() if can.conditional_delete} == {"gcs", "s3", "azure-flat"}
    assert {name for name, can in PROFILES.items() if can.multipart and can.batch_delete} == {"s3"}
    assert {name for name, can in PROFILES.items() if can.block_lists} == {"azure-flat"}
    assert {name for name, can in PROFILES.items() if can.hard_links} == {"local"}
    assert all(can.exclusive_put and can.identity for can in PROFILES.values())


async def test_a_space_without_identities() -> None:
    space = new_space(identity=False)
    store = space.store()
    assert (await store.put(space.path("a"), b"")).identity is None
    assert (await (await store.open_writer(space.path("b"))).close()).identity is None


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


# --- Uploads and blocks -------------------------------------------------------------------------------------------


async def begin(space: MemorySpace, name: str, *contents: bytes, stamp: str = "s") -> tuple[str, list[UploadPart]]:
    path, store = space.path(name), space.store()
    upload_id = await store.create_upload(path, stamp=stamp)
    return upload_id, [await store.put_part(path, upload_id, number, data) for number, data in enumerate(contents, 1)]


async def test_identities_of_s3_are_its_etags() -> None:
    space = new_space("s3")
    store = space.store()
    first = await store.put(space.path("a"), b"hello")
    assert first.identity == "5d41402abc4b2a76b9719d911017c592"
    assert (await store.put(space.path("b"), b"hello")).identity == first.identity
    upload_id, parts = await begin(space, "c", b"hello", b"world")
    assert parts[0].etag == first.identity
    # md5(md5(hello) + md5(world)), and the number of parts.
    assert await store.complete_upload(space.path("c"), upload_id, parts) == "065947336a2f2a95ba8899f3675c3be6-2"
    upload_id, parts = await begin(space, "d", b"hello")
    identity = await store.complete_upload(space.path("d"), upload_id, parts)
    assert identity != first.identity
    assert identity is not None
    assert identity.endswith("-1")


async def test_an_upload_completed_again_is_not_found_or_answered_as_before() -> None:
    space = new_space("s3")
    store, path = space.store(), space.path("a")
    upload_id, parts = await begin(space, "a", b"1")
    identity = await store.complete_upload(path, upload_id, parts)
    with pytest.raises(StoreUploadNotFoundError):
        await store.complete_upload(path, upload_id, parts)
    space.uploads.answers_again = True
    await store.put(path, b"theirs")
    assert await store.complete_upload(path, upload_id, parts) == identity
    assert space.files() == {"/a": b"theirs"}
    with pytest.raises(StoreUploadNotFoundError):
        await store.complete_upload(space.path("b"), upload_id, parts)
    aborted, parts = await begin(space, "a", b"2")
    await store.abort_upload(path, aborted)
    with pytest.raises(StoreUploadNotFoundError):
        await store.complete_upload(path, aborted, parts)


async def test_an_exclusive_completion_that_meets_another_change_loses_its_upload() -> None:
    """Not so one that finds a file: S3 tells 409 from 412."""
    space = new_space("s3")
    store, path = space.store(), space.path("a")
    for change in (store.put(path, b"theirs"), store.delete_file(path)):
        upload_id, parts = await begin(space, "a", b"1")
        found = await asyncio.gather(
            change, store.complete_upload(path, upload_id, parts, exclusive=True), return_exceptions=True
        )
        assert isinstance(found[1], StoreConflictError)
        assert not list(space.uploads)
        space.write("/a", b"there")
    upload_id, parts = await begin(space, "a", b"1")
    with pytest.raises(StoreExistsError):
        await store.complete_upload(path, upload_id, parts, exclusive=True)
    assert [one.upload_id for one in space.uploads] == [upload_id]


async def test_uploads_say_when_they_began() -> None:
    space = new_space("s3")
    with use_runtime(VirtualRuntime()) as runtime:
        await begin(space, "a")
        await runtime.sleep(60.0)
        await begin(space, "b")
        found = {one.path.name: one.initiated async for one in space.store().list_uploads(space.path(""))}
    assert found == {"a": BEGINNING.timestamp(), "b": BEGINNING.timestamp() + 60.0}


async def test_sizes_of_parts_are_enforced_where_a_flag_says_so() -> None:
    space = new_space("s3", min_part_bytes=3, max_part_bytes=5, max_parts=2)
    store, path = space.store(), space.path("a")
    assert (space.capabilities.min_part_bytes, PROFILES["s3"].min_part_bytes) == (3, 0)
    upload_id, short = await begin(space, "a", b"12", b"3")
    with pytest.raises(StorePartsError, match="too short"):
        await store.complete_upload(path, upload_id, short)
    with pytest.raises(ConfigurationError):
        await store.put_part(path, upload_id, 1, b"123456")
    with pytest.raises(ConfigurationError):
        await store.put_part(path, upload_id, 3, b"1")
    long = await store.put_part(path, upload_id, 1, b"123")
    await store.complete_upload(path, upload_id, [long, short[1]])
    assert space.files() == {"/a": b"1233"}


async def test_blocks_wait_a_week() -> None:
    space = new_space("azure-flat")
    store, path = space.store(), space.path("a")
    with use_runtime(VirtualRuntime()) as runtime:
        await store.put_block(path, "1", b"1")
        await runtime.sleep(6 * 86_400.0)
        await store.put_block(path, "2", b"2")
        await runtime.sleep(6 * 86_400.0)
        assert [block.block_id for block in await store.list_uncommitted_blocks(path)] == ["1", "2"]
        await runtime.sleep(86_400.0)
        assert await store.list_uncommitted_blocks(path) == []
        with pytest.raises(StorePartsError):
            await store.put_block_list(path, ["1"], stamp="s")


async def test_limits_of_blocks() -> None:
    space = new_space("azure-flat", max_parts=2, max_part_bytes=4)
    store, path = space.store(), space.path("a")
    with pytest.raises(ConfigurationError):
        await store.put_block(path, "1", b"12345")
    for block_id in "123":
        await store.put_block(path, block_id, b"1")
    with pytest.raises(StorePartsError):
        await store.put_block_list(path, ["1", "2", "3"], stamp="s")
    await store.put_block_list(path, ["3", "1"], stamp="s")
    assert (await store.status(path)).size == 2


async def test_a_cleared_space_has_no_uploads_and_no_blocks() -> None:
    for profile in ("s3", "azure-flat"):
        space = new_space(profile)
        if profile == "s3":
            await begin(space, "a", b"1")
        else:
            await space.store().put_block(space.path("a"), "1", b"1")
        space.clear()
        assert not list(space.uploads)
        assert not space.blocks.listed(space.path("a"))
