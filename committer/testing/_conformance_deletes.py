# ruff: noqa: S101
"""Conformance: deletes on a condition, and of many files at once, where the store has them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from committer.errors import ConfigurationError, StorePreconditionError, UnsupportedError
from committer.paths import StorePath
from committer.stores.abilities import BATCH_DELETE
from committer.stores.base import Capabilities, Store
from committer.stores.conditions import CONDITIONAL_BATCH_DELETE, CONDITIONAL_DELETE, CONDITIONAL_REPLACE
from committer.testing._conformance_base import Channel, ConformanceBase, alike, outcomes, successes, undeclared


class DeleteConformance(ConformanceBase):
    """What holds of a store whose capabilities say `conditional_delete`, `conditional_replace`, `batch_delete` or
    `conditional_batch_delete`.
    """

    async def test_replace_only_what_was_seen(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        able = CONDITIONAL_REPLACE.of(store)
        assert (able is not None) == can.conditional_replace
        if able is None:
            return
        path = root / "d/file"
        first = await store.put(path, b"first", exclusive=True)
        second = await able.replace_file(path, b"second", seen=first)
        assert await channel.files() == {"d/file": b"second"}
        with pytest.raises(StorePreconditionError) as caught:
            await able.replace_file(path, b"third", seen=first)
        assert (caught.value.outcome, caught.value.path) == ("unchanged", str(path))
        assert await channel.files() == {"d/file": b"second"}
        # What a look says serves as what the put said.
        assert alike(second, await store.status(path))
        await able.replace_file(path, b"fourth", seen=await store.status(path))
        assert await channel.files() == {"d/file": b"fourth"}

    async def test_replace_nothing_that_is_gone(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        able = CONDITIONAL_REPLACE.of(store)
        assert (able is not None) == can.conditional_replace
        if able is None:
            return
        seen = await store.put(root / "d/file", b"first")
        await store.delete_file(root / "d/file")
        with pytest.raises(StorePreconditionError) as caught:
            await able.replace_file(root / "d/file", b"second", seen=seen)
        assert caught.value.outcome == "unchanged"
        assert await channel.files() == {}

    async def test_replace_what_was_seen_at_once(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        able = CONDITIONAL_REPLACE.of(store)
        assert (able is not None) == can.conditional_replace
        if able is None:
            return
        seen = await store.put(root / "file", b"first")
        contents = [f"writer {number}".encode() for number in range(6)]
        found = await outcomes(able.replace_file(root / "file", data, seen=seen) for data in contents)
        assert successes(found) == 1
        assert all(isinstance(one, StorePreconditionError) for one in found if isinstance(one, BaseException))
        winner = next(number for number, one in enumerate(found) if not isinstance(one, BaseException))
        assert await channel.files() == {"file": contents[winner]}

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

    async def test_delete_many_only_what_was_seen(self, store: Store, root: StorePath, channel: Channel) -> None:
        if not await _deletes_many_on_conditions(store, root):
            return
        able = CONDITIONAL_BATCH_DELETE.required(store, "delete_files")
        names = ["d/a", "d/with space/per%20cent&<é>", 'd/\'"quoted"', "d/changed", "d/kept", "d2/a"]
        seen: dict[StorePath, str] = {}
        for name in names:
            seen[root / name] = (await store.put(root / name, name.encode())).identity or ""
        await channel.write("d/changed", b"of another job")
        left = {"d/changed": b"of another job", "d/kept": b"d/kept", "d2/a": b"d2/a"}
        missing = root / "missing"
        asked = {missing: seen[root / "d/a"], **{root / name: seen[root / name] for name in names[:4]}}
        refused = await able.delete_files_if(asked)
        assert await channel.files() == left
        # Of a name where nothing is a service may say that, or what it says of another file.
        assert {path for path in refused if path != missing} == {root / "d/changed"}
        assert all(isinstance(error, StorePreconditionError) for error in refused.values())
        assert {error.outcome for error in refused.values()} == {"unchanged"}
        # The same once more, as after a lost answer: what stands there by now is spared.
        await channel.write("d/a", b"of another job, too")
        again = await able.delete_files_if(asked)
        assert isinstance(again[root / "d/a"], StorePreconditionError)
        assert await channel.files() == {**left, "d/a": b"of another job, too"}
        assert not await able.delete_files_if({})

    async def test_delete_many_by_no_identity_of_a_file(self, store: Store, root: StorePath, channel: Channel) -> None:
        if not await _deletes_many_on_conditions(store, root):
            return
        able = CONDITIONAL_BATCH_DELETE.required(store, "delete_files")
        for identity in ("*", '"', "", "a,b", "<ETag>", "x y"):
            await store.put(root / "file", b"1")
            refused = await able.delete_files_if({root / "file": identity})
            assert isinstance(refused[root / "file"], StorePreconditionError), identity
            assert await channel.files() == {"file": b"1"}

    async def test_delete_too_many_of_what_was_seen(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        if can.max_batch_delete is None or not await _deletes_many_on_conditions(store, root):
            return
        able = CONDITIONAL_BATCH_DELETE.required(store, "delete_files")
        paths = [root / f"d/{number}" for number in range(can.max_batch_delete + 1)]
        identity = ""
        for path in (paths[0], paths[-1]):
            identity = (await store.put(path, b"same")).identity or ""
        seen = dict.fromkeys(paths, identity)
        with pytest.raises(ConfigurationError):
            await able.delete_files_if(seen)
        assert set(await channel.files()) == {"d/0", f"d/{can.max_batch_delete}"}
        del seen[paths[0]]
        refused = await able.delete_files_if(seen)
        assert paths[-1] not in refused
        assert set(await channel.files()) == {"d/0"}

    async def test_delete_many_of_what_was_seen_at_once(self, store: Store, root: StorePath, channel: Channel) -> None:
        if not await _deletes_many_on_conditions(store, root):
            return
        able = CONDITIONAL_BATCH_DELETE.required(store, "delete_files")
        seen: dict[StorePath, str] = {}
        for number in range(5):
            seen[root / f"d/{number}"] = (await store.put(root / f"d/{number}", b"%d" % number)).identity or ""
        found = await outcomes(able.delete_files_if(seen) for _ in range(4))
        for one in found:
            assert isinstance(one, Mapping)
            assert all(isinstance(error, StorePreconditionError) for error in one.values())
        assert await channel.files() == {}

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
        both = undeclared(CONDITIONAL_BATCH_DELETE, store)
        if both is not None:
            with pytest.raises(UnsupportedError):
                await both.delete_files_if({root / "file": "any"})
        assert await channel.files() == {"file": b"1"}


async def _deletes_many_on_conditions(store: Store, root: StorePath) -> bool:
    """Whether it does, once it has tried: of a service only a probe can tell."""
    await store.probe(root)
    return store.capabilities.conditional_batch_delete
