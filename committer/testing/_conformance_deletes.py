# ruff: noqa: S101
"""Conformance: deletes on a condition, and of many files at once, where the store has them."""

from __future__ import annotations

import pytest

from committer.errors import ConfigurationError, StorePreconditionError, UnsupportedError
from committer.paths import StorePath
from committer.stores.abilities import BATCH_DELETE, CONDITIONAL_DELETE
from committer.stores.base import Capabilities, Store
from committer.testing._conformance_base import Channel, ConformanceBase, outcomes, undeclared


class DeleteConformance(ConformanceBase):
    """What holds of a store whose capabilities say `conditional_delete` or `batch_delete`."""

    async def test_delete_only_what_was_seen(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        if not can.conditional_delete:
            return
        able = CONDITIONAL_DELETE.required(store, "delete_file_if")
        path = root / "d/file"
        first = await store.put(path, b"first")
        second = await store.put(path, b"second")
        assert first.identity is not None
        assert second.identity is not None
        with pytest.raises(StorePreconditionError) as caught:
            await able.delete_file_if(path, identity=first.identity)
        assert (caught.value.outcome, caught.value.path) == ("unchanged", str(path))
        assert await channel.files() == {"d/file": b"second"}
        assert await able.delete_file_if(path, identity=second.identity)
        assert not await able.delete_file_if(path, identity=second.identity)
        assert not await able.delete_file_if(root / "missing", identity=second.identity)
        assert await channel.files() == {}

    async def test_delete_what_was_seen_at_once(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        if not can.conditional_delete:
            return
        able = CONDITIONAL_DELETE.required(store, "delete_file_if")
        status = await store.put(root / "file", b"1")
        assert status.identity is not None
        found = await outcomes(able.delete_file_if(root / "file", identity=status.identity) for _ in range(6))
        assert set(found) <= {True, False}
        assert True in found
        assert await channel.files() == {}

    async def test_delete_many(self, store: Store, root: StorePath, channel: Channel, can: Capabilities) -> None:
        if not can.batch_delete:
            return
        able = BATCH_DELETE.required(store, "delete_files")
        names = ["d/a", "d/with space/per%20cent&<é>", "d/b", "d2/a", "d.txt"]
        for name in names:
            await channel.write(name, name.encode())
        assert not await able.delete_files([root / name for name in (*names[:3], "missing")])
        assert await channel.files() == {name: name.encode() for name in names[3:]}
        assert not await able.delete_files([])

    async def test_delete_too_many(self, store: Store, root: StorePath, channel: Channel, can: Capabilities) -> None:
        if not can.batch_delete or can.max_batch_delete is None:
            return
        able = BATCH_DELETE.required(store, "delete_files")
        paths = [root / f"d/{number}" for number in range(can.max_batch_delete + 1)]
        for path in (paths[0], paths[-1]):
            await store.put(path, b"")
        with pytest.raises(ConfigurationError):
            await able.delete_files(paths)
        assert set(await channel.files()) == {"d/0", f"d/{can.max_batch_delete}"}
        assert not await able.delete_files(paths[1:])
        assert set(await channel.files()) == {"d/0"}

    async def test_stores_without_such_deletes_refuse_them(
        self, store: Store, root: StorePath, channel: Channel
    ) -> None:
        await channel.write("file", b"1")
        conditional, batch = undeclared(CONDITIONAL_DELETE, store), undeclared(BATCH_DELETE, store)
        if conditional is not None:
            with pytest.raises(UnsupportedError):
                await conditional.delete_file_if(root / "file", identity="any")
        if batch is not None:
            with pytest.raises(UnsupportedError):
                await batch.delete_files([root / "file"])
        assert await channel.files() == {"file": b"1"}
