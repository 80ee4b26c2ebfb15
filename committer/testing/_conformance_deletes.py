# ruff: noqa: S101
"""Conformance: deletes on a condition, and of many files at once, where the store has them."""

from __future__ import annotations

import pytest

from committer.errors import ConfigurationError, StorePreconditionError, UnsupportedError
from committer.paths import StorePath
from committer.stores.base import Capabilities, Store, SupportsBatchDelete, SupportsConditionalDelete
from committer.testing._conformance_base import Channel, ConformanceBase, outcomes


class DeleteConformance(ConformanceBase):
    """What holds of a store whose capabilities say `conditional_delete` or `batch_delete`."""

    async def test_delete_only_what_was_seen(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        if not can.conditional_delete:
            return
        assert isinstance(store, SupportsConditionalDelete)
        path = root / "d/file"
        first = await store.put(path, b"first")
        second = await store.put(path, b"second")
        assert first.identity is not None
        assert second.identity is not None
        with pytest.raises(StorePreconditionError) as caught:
            await store.delete_file_if(path, identity=first.identity)
        assert (caught.value.outcome, caught.value.path) == ("unchanged", str(path))
        assert await channel.files() == {"d/file": b"second"}
        assert await store.delete_file_if(path, identity=second.identity)
        assert not await store.delete_file_if(path, identity=second.identity)
        assert not await store.delete_file_if(root / "missing", identity=second.identity)
        assert await channel.files() == {}

    async def test_delete_what_was_seen_at_once(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        if not can.conditional_delete:
            return
        assert isinstance(store, SupportsConditionalDelete)
        status = await store.put(root / "file", b"1")
        assert status.identity is not None
        found = await outcomes(store.delete_file_if(root / "file", identity=status.identity) for _ in range(6))
        assert set(found) <= {True, False}
        assert True in found
        assert await channel.files() == {}

    async def test_delete_many(self, store: Store, root: StorePath, channel: Channel, can: Capabilities) -> None:
        if not can.batch_delete:
            return
        assert isinstance(store, SupportsBatchDelete)
        names = ["d/a", "d/with space/per%20cent&<é>", "d/b", "d2/a", "d.txt"]
        for name in names:
            await channel.write(name, name.encode())
        assert not await store.delete_files([root / name for name in (*names[:3], "missing")])
        assert await channel.files() == {name: name.encode() for name in names[3:]}
        assert not await store.delete_files([])

    async def test_delete_too_many(self, store: Store, root: StorePath, channel: Channel, can: Capabilities) -> None:
        if not can.batch_delete or can.max_batch_delete is None:
            return
        assert isinstance(store, SupportsBatchDelete)
        paths = [root / f"d/{number}" for number in range(can.max_batch_delete + 1)]
        for path in (paths[0], paths[-1]):
            await store.put(path, b"")
        with pytest.raises(ConfigurationError):
            await store.delete_files(paths)
        assert set(await channel.files()) == {"d/0", f"d/{can.max_batch_delete}"}
        assert not await store.delete_files(paths[1:])
        assert set(await channel.files()) == {"d/0"}

    async def test_stores_without_such_deletes_refuse_them(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        await channel.write("file", b"1")
        if not can.conditional_delete and isinstance(store, SupportsConditionalDelete):
            with pytest.raises(UnsupportedError):
                await store.delete_file_if(root / "file", identity="any")
        if not can.batch_delete and isinstance(store, SupportsBatchDelete):
            with pytest.raises(UnsupportedError):
                await store.delete_files([root / "file"])
        assert await channel.files() == {"file": b"1"}
