# ruff: noqa: S101
"""Conformance tests of block lists."""

from __future__ import annotations

import asyncio

import pytest

from committer.errors import (
    ConfigurationError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    StorePartsError,
    StorePreconditionError,
    UnsupportedError,
)
from committer.paths import StorePath
from committer.stores.base import Capabilities, Store
from committer.stores.uploads import BLOCK_LISTS, SupportsBlockLists
from committer.testing._conformance_base import (
    STAMP,
    WRONG_STAMPS,
    Channel,
    ConformanceBase,
    names_in,
    outcomes,
    refused,
    required,
    requires,
    undeclared,
    winner_of,
)


class BlockListConformance(ConformanceBase):
    """Tests of stores with `block_lists`."""

    @pytest.fixture
    def blocks(self, store: Store) -> SupportsBlockLists:
        """Store with block lists; skips the tests of one without."""
        return required(BLOCK_LISTS, store)

    async def test_a_file_appears_when_its_list_is_put(
        self, blocks: SupportsBlockLists, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        path = root / "year=2026/part-0"
        for block_id, data in (("b1", b"one"), ("b2", b"two"), ("b3", b"three")):
            await blocks.put_block(path, block_id, data)
            assert await channel.files() == {}
            with pytest.raises(StoreNotFoundError):
                await store.status(path)
            with pytest.raises(StoreNotFoundError):
                await names_in(store, root / "year=2026")
        identity = await blocks.put_block_list(path, ["b3", "b1"], stamp=STAMP)
        assert await channel.files() == {"year=2026/part-0": b"threeone"}
        status = await store.status(path)
        assert (status.size, status.identity, status.stamp) == (8, identity, STAMP)
        assert (identity is not None) == can.identity
        assert [(one.size, one.identity) async for one in store.list(path.parent)] == [(8, identity)]
        assert await waiting(blocks, path) == {}, "a block that was not named is dropped"

    async def test_an_empty_list_makes_an_empty_file(
        self, blocks: SupportsBlockLists, store: Store, root: StorePath, channel: Channel
    ) -> None:
        await blocks.put_block_list(root / "empty", [], stamp=STAMP)
        assert await channel.files() == {"empty": b""}
        assert (await store.status(root / "empty")).stamp == STAMP
        await store.put(root / "empty", b"")
        assert (await store.status(root / "empty")).stamp is None

    async def test_blocks_belong_to_their_name(
        self, blocks: SupportsBlockLists, root: StorePath, channel: Channel
    ) -> None:
        paths = [root / name for name in ("file", "file10", "d/file")]
        await asyncio.gather(*(blocks.put_block(path, "id", path.name.encode()) for path in paths))
        await blocks.put_block_list(paths[0], ["id"], stamp=STAMP)
        assert await channel.files() == {"file": b"file"}
        assert [await waiting(blocks, path) for path in paths] == [{}, {"id": 6}, {"id": 4}]

    async def test_a_block_is_replaced_by_one_of_its_id(
        self, blocks: SupportsBlockLists, root: StorePath, channel: Channel
    ) -> None:
        await blocks.put_block(root / "file", "id", b"old")
        await blocks.put_block(root / "file", "id", b"newer")
        assert await waiting(blocks, root / "file") == {"id": 5}
        await blocks.put_block_list(root / "file", ["id"], stamp=STAMP)
        assert await channel.files() == {"file": b"newer"}

    async def test_a_block_buffer_may_be_used_again(
        self, blocks: SupportsBlockLists, root: StorePath, channel: Channel
    ) -> None:
        buffer = bytearray(b"one")
        await blocks.put_block(root / "file", "1", memoryview(buffer))
        buffer[:] = b"two"
        await blocks.put_block(root / "file", "2", memoryview(buffer))
        await blocks.put_block_list(root / "file", ["1", "2"], stamp=STAMP)
        assert await channel.files() == {"file": b"onetwo"}

    async def test_ids_out_of_bounds(self, blocks: SupportsBlockLists, root: StorePath) -> None:
        for block_id in ("", "x" * 65, "é"):
            with pytest.raises(ConfigurationError):
                await blocks.put_block(root / "file", block_id, b"x")
        with pytest.raises(ConfigurationError):
            await blocks.put_block(root / "file", "id", b"")
        await blocks.put_block(root / "file", "x" * 64, b"x")
        with pytest.raises(StorePartsError):
            await blocks.put_block(root / "file", "x" * 63, b"x")
        await blocks.put_block(root / "other", "x" * 63, b"x")
        assert await waiting(blocks, root / "file") == {"x" * 64: 1}

    async def test_stamps_of_blocks_out_of_bounds(
        self, blocks: SupportsBlockLists, root: StorePath, channel: Channel
    ) -> None:
        for stamp in WRONG_STAMPS:
            with pytest.raises(ConfigurationError):
                await blocks.put_block_list(root / "file", [], stamp=stamp)
        assert await channel.files() == {}

    async def test_a_list_of_what_is_not_there(
        self, blocks: SupportsBlockLists, root: StorePath, channel: Channel
    ) -> None:
        await blocks.put_block(root / "file", "b1", b"one")
        with refused(StorePartsError, root / "file"):
            await blocks.put_block_list(root / "file", ["b1", "b2"], stamp=STAMP)
        assert await channel.files() == {}
        assert await waiting(blocks, root / "file") == {"b1": 3}

    async def test_blocks_are_used_up(
        self, blocks: SupportsBlockLists, store: Store, root: StorePath, channel: Channel
    ) -> None:
        path = root / "file"
        await blocks.put_block(path, "b1", b"one")
        identity = await blocks.put_block_list(path, ["b1"], stamp=STAMP)
        for exclusive in (False, True):
            with pytest.raises((StorePartsError, StoreExistsError)):
                await blocks.put_block_list(path, ["b1"], stamp="other", exclusive=exclusive)
        status = await store.status(path)
        assert (status.identity, status.stamp) == (identity, STAMP)
        await store.delete_file(path)
        with pytest.raises(StorePartsError):
            await blocks.put_block_list(path, ["b1"], stamp=STAMP)
        assert await channel.files() == {}

    async def test_a_put_drops_what_waits(
        self, blocks: SupportsBlockLists, store: Store, root: StorePath, channel: Channel
    ) -> None:
        for path in (root / "put", root / "written"):
            await blocks.put_block(path, "b1", b"one")
        await store.put(root / "put", b"2")
        writer = await store.open_writer(root / "written")
        await writer.write(b"2")
        await writer.close()
        for path in (root / "put", root / "written"):
            assert await waiting(blocks, path) == {}
            with pytest.raises(StorePartsError):
                await blocks.put_block_list(path, ["b1"], stamp=STAMP)
        assert await channel.files() == {"put": b"2", "written": b"2"}

    async def test_a_file_stays_while_blocks_wait(
        self, blocks: SupportsBlockLists, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        old = await store.put(root / "file", b"old")
        await blocks.put_block(root / "file", "b1", b"new")
        assert await store.status(root / "file") == old
        identity = await blocks.put_block_list(root / "file", ["b1"], stamp=STAMP)
        assert await channel.files() == {"file": b"new"}
        assert identity != old.identity or not can.identity

    async def test_put_a_list_exclusively(
        self, blocks: SupportsBlockLists, store: Store, root: StorePath, channel: Channel
    ) -> None:
        path = root / "file"
        await blocks.put_block(path, "b1", b"new")
        await blocks.put_block_list(path, ["b1"], stamp=STAMP, exclusive=True)
        await blocks.put_block(path, "b1", b"newer")
        with refused(StoreExistsError, path):
            await blocks.put_block_list(path, ["b1"], stamp="other", exclusive=True)
        assert await channel.files() == {"file": b"new"}
        assert (await store.status(path)).stamp == STAMP
        assert await waiting(blocks, path) == {"b1": 5}

    async def test_put_lists_exclusively_at_once(
        self, blocks: SupportsBlockLists, root: StorePath, channel: Channel
    ) -> None:
        path = root / "file"
        for number in range(6):
            await blocks.put_block(path, f"{number}", f"{number}".encode())
        found = await outcomes(
            blocks.put_block_list(path, [f"{number}"], stamp=STAMP, exclusive=True) for number in range(6)
        )
        winner = winner_of(found, StoreExistsError, StorePartsError)
        assert await channel.files() == {"file": f"{winner}".encode()}

    async def test_put_a_list_over_the_file_that_was_seen(
        self, blocks: SupportsBlockLists, store: Store, root: StorePath, channel: Channel
    ) -> None:
        requires(store, "identity")
        path = root / "file"
        first = await store.put(path, b"first")
        second = await store.put(path, b"second")
        assert first.identity is not None
        assert second.identity is not None
        await blocks.put_block(path, "b1", b"new")
        with refused(StorePreconditionError, path):
            await blocks.put_block_list(path, ["b1"], stamp=STAMP, identity=first.identity)
        with pytest.raises(ConfigurationError):
            await blocks.put_block_list(path, ["b1"], stamp=STAMP, identity=second.identity, exclusive=True)
        await blocks.put_block(root / "missing", "b1", b"new")
        with pytest.raises(StorePreconditionError):
            await blocks.put_block_list(root / "missing", ["b1"], stamp=STAMP, identity=first.identity)
        assert await channel.files() == {"file": b"second"}
        await blocks.put_block_list(path, ["b1"], stamp=STAMP, identity=second.identity)
        assert await channel.files() == {"file": b"new"}

    async def test_stores_without_block_lists_refuse_them(self, store: Store, root: StorePath) -> None:
        able = undeclared(BLOCK_LISTS, store)
        if able is None:
            return
        for use in (
            able.put_block(root / "file", "id", b"x"),
            able.put_block_list(root / "file", [], stamp=STAMP),
            able.list_uncommitted_blocks(root / "file"),
        ):
            with pytest.raises(UnsupportedError):
                await use
        with pytest.raises(StoreError):
            await store.status(root / "file")


async def waiting(blocks: SupportsBlockLists, path: StorePath) -> dict[str, int]:
    """Returns the lengths of the uncommitted blocks of a name, by id."""
    found = await blocks.list_uncommitted_blocks(path)
    assert len({block.block_id for block in found}) == len(found)
    return {block.block_id: block.size for block in found}
