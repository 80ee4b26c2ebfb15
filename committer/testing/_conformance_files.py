# ruff: noqa: S101
"""Conformance tests of status, reads and writes."""

from __future__ import annotations

import asyncio
import pickle
from array import array
from typing import cast

import pytest

from committer.errors import (
    CommitterError,
    InvalidPathError,
    RecordError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.paths import StorePath
from committer.stores.base import Capabilities, Store
from committer.stores.helpers import create_exclusively
from committer.testing._conformance_base import (
    Channel,
    ConformanceBase,
    alike,
    names_in,
    outcomes,
    refused,
    requires,
    winner_of,
)

LIMIT = 1 << 24


class FileConformance(ConformanceBase):
    """Tests of single files."""

    async def test_status_of_a_file(self, store: Store, root: StorePath, channel: Channel, can: Capabilities) -> None:
        await channel.write("d/file", b"12345")
        status = await store.status(root / "d/file")
        assert (status.path, status.is_directory, status.size) == (root / "d/file", False, 5)
        assert (status.identity is not None) == can.identity

    async def test_status_of_a_directory(self, store: Store, root: StorePath, channel: Channel) -> None:
        await channel.write("d/file", b"")
        status = await store.status(root / "d")
        assert (status.path, status.is_directory, status.size, status.identity) == (root / "d", True, 0, None)

    async def test_status_of_nothing(self, store: Store, root: StorePath, channel: Channel) -> None:
        await channel.write("file", b"")
        for name in ("missing", "missing/below", "file/below"):
            with refused(StoreNotFoundError, root / name):
                await store.status(root / name)

    @pytest.mark.parametrize("size", [0, 1, 70_000, (1 << 20) + 3])
    async def test_put_then_read(self, store: Store, root: StorePath, channel: Channel, size: int) -> None:
        data = (b"0123456789abcdef" * (size // 16 + 1))[:size]
        put = await store.put(root / "file", data)
        assert put.size == size
        assert alike(put, await store.status(root / "file"))
        assert await store.read(root / "file", limit=LIMIT) == data
        assert await channel.files() == {"file": data}

    async def test_read_stops_at_the_limit(self, store: Store, root: StorePath) -> None:
        await store.put(root / "file", b"x" * 100)
        assert len(await store.read(root / "file", limit=100)) == 100
        with pytest.raises(RecordError):
            await store.read(root / "file", limit=99)

    async def test_read_what_is_no_file(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        await channel.write("d/file", b"")
        for name in ("missing", "d/file/below"):
            with pytest.raises(StoreNotFoundError) as caught:
                await store.read(root / name, limit=LIMIT)
            # Tells a driver whose put was refused that the parent is not what is missing.
            assert caught.value.operation == "read"
        # Without real directories a store may report that nothing is there.
        expected = StoreIsADirectoryError if can.directories else (StoreIsADirectoryError, StoreNotFoundError)
        with pytest.raises(expected):
            await store.read(root / "d", limit=LIMIT)

    async def test_put_replaces(self, store: Store, root: StorePath, channel: Channel, can: Capabilities) -> None:
        first = await store.put(root / "file", b"old")
        second = await store.put(root / "file", b"new")
        assert await channel.files() == {"file": b"new"}
        if can.identity:
            assert first.identity != second.identity

    async def test_put_exclusively(self, store: Store, root: StorePath, channel: Channel, can: Capabilities) -> None:
        assert can.exclusive_put, "the engine decides a job by this"
        await store.put(root / "file", b"first", exclusive=True)
        with refused(StoreExistsError, root / "file"):
            await store.put(root / "file", b"second", exclusive=True)
        assert await channel.files() == {"file": b"first"}

    async def test_put_exclusively_at_once(self, store: Store, root: StorePath, channel: Channel) -> None:
        contents = [f"writer {number}".encode() * 1000 for number in range(8)]
        found = await outcomes(store.put(root / "file", data, exclusive=True) for data in contents)
        winner = winner_of(found, StoreExistsError)
        assert await channel.files() == {"file": contents[winner]}

    async def test_one_creator_wins_and_all_learn_it(self, store: Store, root: StorePath, channel: Channel) -> None:
        contents = [f"writer {number}".encode() for number in range(8)]
        found = await asyncio.gather(*(create_exclusively(store, root / "file", data) for data in contents))
        assert {"file": found[0]} == await channel.files()
        assert len(set(found)) == 1

    async def test_put_through_a_named_temporary(self, store: Store, root: StorePath, channel: Channel) -> None:
        await channel.write("work/left-over", b"of a run that died")
        await store.put(root / "file", b"1", temporary=root / "work/left-over")
        with pytest.raises(StoreExistsError):
            await store.put(root / "file", b"2", exclusive=True, temporary=root / "work/second")
        found = await channel.files()
        assert found.pop("work/left-over", None) in {None, b"of a run that died"}
        assert found == {"file": b"1"}

    async def test_put_through_a_temporary_whose_directory_is_gone(
        self, store: Store, root: StorePath, channel: Channel
    ) -> None:
        """A stale driver writes a record after its job was cleaned up and set up anew: its directory is gone."""
        requires(store, "refuses_late_writes")
        for exclusive in (True, False):
            with pytest.raises(StoreNotFoundError) as caught:
                await store.put(root / "file", b"1", exclusive=exclusive, temporary=root / "gone/file.tmp")
            assert caught.value.operation != "read"
        assert await channel.files() == {}

    async def test_put_durably(self, store: Store, root: StorePath, channel: Channel) -> None:
        await store.put(root / "file", b"1", durable=True)
        await store.put(root / "other", b"2", durable=True, exclusive=True)
        assert await channel.files() == {"file": b"1", "other": b"2"}

    async def test_put_where_no_parent_is(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        if not can.directories:
            await store.put(root / "not/there/file", b"1")
            assert await channel.files() == {"not/there/file": b"1"}
            return
        if can.implicit_parents:
            for exclusive in (False, True):
                await store.put(root / f"not/there/{exclusive}", b"1", exclusive=exclusive)
            await (await store.open_writer(root / "nor/here/file")).close()
            assert await channel.files() == {"not/there/False": b"1", "not/there/True": b"1", "nor/here/file": b""}
            assert await channel.directories() == {"not", "not/there", "nor", "nor/here"}
            return
        for exclusive in (False, True):
            with pytest.raises(StoreNotFoundError) as caught:
                await store.put(root / "not/there/file", b"1", exclusive=exclusive)
            assert caught.value.operation != "read"
        assert await channel.files() == {}
        assert await channel.directories() == set()

    async def test_put_where_a_directory_is(self, store: Store, root: StorePath, channel: Channel) -> None:
        requires(store, "directories")
        await channel.write("d/file", b"1")
        with pytest.raises(StoreIsADirectoryError):
            await store.put(root / "d", b"2")
        with pytest.raises(StoreExistsError):
            await store.put(root / "d", b"2", exclusive=True)
        with pytest.raises(StoreNotADirectoryError):
            await store.put(root / "d/file/below", b"2")
        assert await channel.files() == {"d/file": b"1"}

    async def test_readers_never_see_half_a_put(self, store: Store, root: StorePath) -> None:
        versions = {letter.encode() * 50_000 for letter in "abcd"}
        await store.put(root / "file", b"a" * 50_000)

        async def write() -> None:
            for version in sorted(versions) * 3:
                await store.put(root / "file", version)

        async def read() -> None:
            for _ in range(12):
                assert await store.read(root / "file", limit=LIMIT) in versions

        await asyncio.gather(write(), read(), read())

    async def test_a_cancelled_put_is_done_or_not(self, store: Store, root: StorePath, channel: Channel) -> None:
        for number in range(6):
            task = asyncio.ensure_future(store.put(root / f"file-{number + 1}", b"x" * 10_000))
            for _ in range(number):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled() or task.exception() is None
        assert set((await channel.files()).values()) <= {b"x" * 10_000}
        await store.put(root / "file-0", b"y")
        assert await store.read(root / "file-0", limit=LIMIT) == b"y"

    async def test_write_a_file(self, store: Store, root: StorePath, channel: Channel) -> None:
        writer = await store.open_writer(root / "file")
        buffer = bytearray(b"one,")
        await writer.write(buffer)
        buffer[:] = b"two,"
        await writer.write(memoryview(buffer))
        await writer.write(b"")
        await writer.write(b"three")
        status = await writer.close()
        assert (status.path, status.size) == (root / "file", 13)
        assert alike(status, await store.status(root / "file"))
        assert await channel.files() == {"file": b"one,two,three"}

    async def test_write_a_large_file(self, store: Store, root: StorePath, channel: Channel) -> None:
        parts = [bytes([number]) * size for number, size in enumerate((10, 900_000, 200_000, 3_000_000, 1, 0, 1 << 20))]
        writer = await store.open_writer(root / "file", durable=True)
        for part in parts:
            await writer.write(part)
        status = await writer.close()
        assert status.size == sum(map(len, parts))
        assert await channel.files() == {"file": b"".join(parts)}

    async def test_write_buffers_whose_items_are_longer_than_a_byte(
        self, store: Store, root: StorePath, channel: Channel
    ) -> None:
        numbers = array("q", range(100_000))
        parts = [numbers, memoryview(numbers), memoryview(numbers)[10:90], numbers[:3]]
        writer = await store.open_writer(root / "file")
        for part in parts:
            await writer.write(cast("memoryview", part))
        # Not contiguous memory: refused before anything is written.
        with pytest.raises(TypeError):
            await writer.write(memoryview(numbers)[::2])
        await writer.write(b"end")
        status = await writer.close()
        data = b"".join([*(memoryview(cast("memoryview", part)).tobytes() for part in parts), b"end"])
        assert status.size == len(data)
        assert await channel.files() == {"file": data}

    async def test_write_an_empty_file(self, store: Store, root: StorePath, channel: Channel) -> None:
        status = await (await store.open_writer(root / "file")).close()
        assert status.size == 0
        assert await channel.files() == {"file": b""}

    async def test_open_refuses_what_is_there(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        await channel.write("d/file", b"old")
        with pytest.raises(StoreExistsError):
            await store.open_writer(root / "d/file")
        if can.directories:
            with pytest.raises(StoreExistsError):
                await store.open_writer(root / "d")
            if not can.implicit_parents:
                with pytest.raises(StoreNotFoundError):
                    await store.open_writer(root / "not/there")
            with pytest.raises(StoreNotADirectoryError):
                await store.open_writer(root / "d/file/below")
        assert await channel.files() == {"d/file": b"old"}

    async def test_a_finished_writer_takes_nothing(self, store: Store, root: StorePath, channel: Channel) -> None:
        writer = await store.open_writer(root / "file")
        await writer.write(b"1")
        await writer.close()
        with pytest.raises(CommitterError):
            await writer.write(b"2")
        with pytest.raises(CommitterError):
            await writer.close()
        await writer.abort()
        await writer.abort()
        assert await channel.files() == {"file": b"1"}

    async def test_abort_a_file(self, store: Store, root: StorePath) -> None:
        writer = await store.open_writer(root / "file")
        await writer.write(b"x" * 2_000_000)
        await writer.abort()
        await writer.abort()
        with pytest.raises(CommitterError):
            await writer.write(b"2")
        await store.delete_file(root / "file")
        await (await store.open_writer(root / "file")).close()

    async def test_awkward_names(self, store: Store, root: StorePath, channel: Channel) -> None:
        for name in self.awkward_names:
            await store.put(root / name, name.encode())
        assert await channel.files() == {name: name.encode() for name in self.awkward_names}
        assert await names_in(store, root) == set(self.awkward_names)
        for name in self.awkward_names:
            assert await store.read(root / name, limit=LIMIT) == name.encode()
            assert await store.delete_file(root / name)
        assert await channel.files() == {}

    async def test_names_no_store_can_hold(self, store: Store, root: StorePath, can: Capabilities) -> None:
        longest = can.max_name_bytes
        if longest is not None:
            await store.put(root / ("n" * longest), b"")
            for name in ("n" * (longest + 1), "ü" * (longest // 2 + 1)):
                with pytest.raises(InvalidPathError):
                    await store.put(root / name, b"")
        if can.max_path_bytes is not None:
            with pytest.raises(InvalidPathError):
                await store.status(root / "/".join(["n" * 100] * (can.max_path_bytes // 100 + 1)))
        if can.forbids_trailing_period:
            with pytest.raises(InvalidPathError):
                await store.put(root / "period.", b"")
        with pytest.raises(InvalidPathError):
            await store.put(StorePath(root.scheme, root.authority, f"{root.path}/nul\0byte"), b"")

    @pytest.mark.parametrize(
        ("one", "other", "flag"), [("Name", "nAME", "case_folding"), ("caf\u00e9", "cafe\u0301", "unicode_folding")]
    )
    async def test_folding_of_names(
        self, store: Store, root: StorePath, can: Capabilities, one: str, other: str, flag: str
    ) -> None:
        await store.put(root / one, b"one")
        if getattr(can, flag):
            assert await store.read(root / other, limit=LIMIT) == b"one"
            with pytest.raises(StoreExistsError):
                await store.put(root / other, b"other", exclusive=True)
            return
        with pytest.raises(StoreNotFoundError):
            await store.status(root / other)
        await store.put(root / other, b"other", exclusive=True)
        assert await names_in(store, root) == {one, other}

    async def test_a_pickled_store_sees_the_same_files(self, store: Store, root: StorePath) -> None:
        await store.put(root / "file", b"1")
        copy = pickle.loads(pickle.dumps(store))  # noqa: S301
        assert copy.capabilities == store.capabilities
        assert await copy.read(root / "file", limit=LIMIT) == b"1"
        await copy.close()

    async def test_close_and_use_again(self, store: Store, root: StorePath) -> None:
        await store.put(root / "file", b"1")
        await store.close()
        await store.close()
        assert await store.read(root / "file", limit=LIMIT) == b"1"

    async def test_probe_leaves_nothing(self, store: Store, root: StorePath, channel: Channel) -> None:
        await asyncio.gather(store.probe(root), store.probe(root))
        assert await channel.files() == {}
        assert await channel.directories() == set()
