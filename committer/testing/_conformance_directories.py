# ruff: noqa: S101
"""Conformance tests of directories and deletes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
import pytest

from committer.errors import (
    ConfigurationError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
    StorePreconditionError,
    UnsupportedError,
)
from committer.paths import StorePath
from committer.stores.abilities import (
    BATCH_DELETE,
    CONDITIONAL_DELETE,
    CONDITIONAL_REPLACE,
    LOCAL_PATHS,
    TREE_LISTING,
    SupportsBatchDelete,
)
from committer.stores.base import Capabilities, Store
from committer.stores.helpers import exists, walk
from committer.testing._conformance_base import (
    Channel,
    ConformanceBase,
    alike,
    names_in,
    outcomes,
    refused,
    required,
    requires,
    undeclared,
    winner_of,
)


class DirectoryConformance(ConformanceBase):
    """Tests of directories and their deletes."""

    async def test_list_children(self, store: Store, root: StorePath, channel: Channel) -> None:
        for name in ("file", "file2", "d/one", "d/two", "d/deep/three", "d-4", "d.5/x"):
            await channel.write(name, name.encode())
        found = {status.path: status async for status in store.list(root)}
        assert set(found) == {root / name for name in ("file", "file2", "d", "d-4", "d.5")}
        assert {path.name for path, status in found.items() if status.is_directory} == {"d", "d.5"}
        for path, status in found.items():
            looked_at = await store.status(path)
            # A listing may lack stamps.
            assert msgspec.structs.replace(status, stamp=looked_at.stamp) == looked_at
            assert status.stamp in (None, looked_at.stamp)
        assert await names_in(store, root / "d") == {"one", "two", "deep"}

    async def test_list_many(self, store: Store, root: StorePath, channel: Channel) -> None:
        names = {f"file-{number:05}" for number in range(self.many)}
        for name in names:
            await channel.write(name, b"")
        assert await names_in(store, root) == names

    async def test_a_listing_may_be_left_early(self, store: Store, root: StorePath, channel: Channel) -> None:
        for number in range(self.many):
            await channel.write(f"d/file-{number}", b"")
        listing = store.list(root / "d")
        async for _ in listing:
            break
        await listing.aclose()  # type: ignore[attr-defined]
        assert await store.delete_directory(root / "d", recursive=True)

    async def test_list_nothing(self, store: Store, root: StorePath, channel: Channel, can: Capabilities) -> None:
        await channel.write("file", b"")
        with pytest.raises(StoreNotFoundError):
            await names_in(store, root / "missing")
        with pytest.raises(StoreNotFoundError):
            await names_in(store, root / "file/below")
        with pytest.raises(StoreNotADirectoryError):
            await names_in(store, root / "file")
        if can.directories:
            await store.make_directory(root / "empty", parents=False)
            assert await names_in(store, root / "empty") == set()

    async def test_walk(self, store: Store, root: StorePath, channel: Channel) -> None:
        for name in ("a", "b/c", "b/d/e", "f/g/h/i"):
            await channel.write(name, b"")
        found = [status.path.relative_to(root) async for status in walk(store, root)]
        assert sorted(found) == ["a", "b", "b/c", "b/d", "b/d/e", "f", "f/g", "f/g/h", "f/g/h/i"]
        assert all(found.index(name) > found.index(name.rpartition("/")[0]) for name in found if "/" in name)

    async def test_exists(self, store: Store, root: StorePath, channel: Channel) -> None:
        await channel.write("d/file", b"")
        assert [await exists(store, root / name) for name in ("d", "d/file", "d/none")] == [True, True, False]

    async def test_directories_without_directories(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        if can.directories:
            return
        assert await store.make_directory(root / "d", parents=True)
        with pytest.raises(StoreNotFoundError):
            await store.status(root / "d")
        await channel.write("d/e/file", b"")
        assert (await store.status(root / "d/e")).is_directory
        assert await store.delete_file(root / "d/e/file")
        with pytest.raises(StoreNotFoundError):
            await store.status(root / "d")
        assert not await store.delete_directory(root / "d", recursive=True)

    async def test_make_directory(self, store: Store, root: StorePath, channel: Channel) -> None:
        requires(store, "directories")
        assert await store.make_directory(root / "d", parents=False)
        assert not await store.make_directory(root / "d", parents=False)
        assert not await store.make_directory(root / "d", parents=True)
        assert await store.make_directory(root / "a/b/c", parents=True)
        assert await channel.directories() == {"d", "a", "a/b", "a/b/c"}

    async def test_make_directory_refuses(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        requires(store, "directories")
        await channel.write("file", b"1")
        if not can.implicit_parents:
            with pytest.raises(StoreNotFoundError):
                await store.make_directory(root / "a/b", parents=False)
        for parents in (False, True):
            with pytest.raises(StoreExistsError):
                await store.make_directory(root / "file", parents=parents)
            with pytest.raises(StoreNotADirectoryError):
                await store.make_directory(root / "file/below", parents=parents)
        with pytest.raises(StoreNotADirectoryError):
            await store.make_directory(root / "file/far/below", parents=True)
        assert await channel.files() == {"file": b"1"}
        assert await channel.directories() == set()

    async def test_make_directories_at_once(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        found = await asyncio.gather(
            *(store.make_directory(root / f"a/b/{number % 4}", parents=True) for number in range(16))
        )
        assert sum(found) >= 4
        if can.directories:
            assert await channel.directories() == {"a", "a/b", "a/b/0", "a/b/1", "a/b/2", "a/b/3"}

    async def test_list_tree(self, store: Store, root: StorePath, channel: Channel) -> None:
        """A tree listing has the entries of a listing of every directory."""
        able = required(TREE_LISTING, store)
        many = (f"m/{number % 7}/file-{number:05}" for number in range(self.many))
        for name in ("file", "d/one", "d/deep/two", "d/deep/er/three", "d-4/x", *many):
            await channel.write(name, name.encode())
        await store.make_directory(root / "d/empty", parents=True)
        for directory in (root, root / "d", root / "m", root / "d/empty"):
            shown = [status async for status in able.list_tree(directory)]
            walked = [status async for status in walk(store, directory)]
            assert sorted(shown, key=lambda one: one.path.path) == sorted(walked, key=lambda one: one.path.path)
        for name, error in {
            "missing": StoreNotFoundError,
            "file/below": StoreNotFoundError,
            "file": StoreNotADirectoryError,
        }.items():
            with pytest.raises(error):
                [status async for status in able.list_tree(root / name)]

    async def test_made_alike(self, store: Store, root: StorePath, channel: Channel) -> None:
        """Only directories that this process made may be reported as alike; each pair has its answer."""
        requires(store, "directory_rights")
        able = required(LOCAL_PATHS, store)
        for name in ("there", "_temporary/one", "_temporary/two/below"):
            await store.make_directory(root / name, parents=True)
        await channel.write("_temporary/file", b"1")
        before = await channel.files(), await channel.directories()
        there = root / "there"
        asked = [
            ("one", there, True),
            ("missing", there, False),
            ("two", root / "missing", False),
            ("two/below", there, True),
            ("file", there, False),
            ("two", there / "missing/far", False),
            ("two", root / "_temporary/file", False),
            ("one/missing", there, False),
            ("two", root, True),
        ]
        answers = list(await able.made_alike([(root / "_temporary" / name, parent) for name, parent, _may in asked]))
        assert len(answers) == len(asked)
        assert not [name for (name, _parent, may), answer in zip(asked, answers, strict=True) if answer and not may]
        # The answers to many pairs equal those to each.
        for (name, parent, _may), answer in zip(asked, answers, strict=True):
            assert list(await able.made_alike([(root / "_temporary" / name, parent)])) == [answer]
        assert (await channel.files(), await channel.directories()) == before

    async def test_delete_file(self, store: Store, root: StorePath, channel: Channel) -> None:
        await channel.write("d/file", b"")
        await channel.write("d/other", b"")
        assert await store.delete_file(root / "d/file")
        assert not await store.delete_file(root / "d/file")
        assert not await store.delete_file(root / "missing/file")
        assert not await store.delete_file(root / "d/other/below")
        assert set(await channel.files()) == {"d/other"}

    async def test_delete_file_spares_directories(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        await channel.write("d/file", b"")
        if can.directories:
            await store.make_directory(root / "empty", parents=False)
            for name in ("d", "empty"):
                with pytest.raises(StoreIsADirectoryError):
                    await store.delete_file(root / name)
            assert await channel.directories() == {"d", "empty"}
        else:
            assert not await store.delete_file(root / "d")
        assert set(await channel.files()) == {"d/file"}

    async def test_delete_directory(self, store: Store, root: StorePath, channel: Channel, can: Capabilities) -> None:
        for name in ("d/one", "d/e/two", "d-2/three", "dd"):
            await channel.write(name, b"")
        with pytest.raises(StoreNotEmptyError):
            await store.delete_directory(root / "d", recursive=False)
        assert await store.delete_directory(root / "d", recursive=True)
        assert not await store.delete_directory(root / "d", recursive=True)
        assert not await store.delete_directory(root / "d", recursive=False)
        assert set(await channel.files()) == {"d-2/three", "dd"}
        if can.directories:
            await store.make_directory(root / "empty", parents=False)
            assert await store.delete_directory(root / "empty", recursive=False)
            assert await channel.directories() == {"d-2"}

    async def test_delete_directory_spares_files(self, store: Store, root: StorePath, channel: Channel) -> None:
        await channel.write("file", b"1")
        for recursive in (False, True):
            with pytest.raises(StoreNotADirectoryError):
                await store.delete_directory(root / "file", recursive=recursive)
            assert not await store.delete_directory(root / "file/below", recursive=recursive)
        assert await channel.files() == {"file": b"1"}

    async def test_delete_one_tree_twice_at_once(self, store: Store, root: StorePath, channel: Channel) -> None:
        for number in range(40):
            await channel.write(f"d/{number % 5}/{number}", b"")
        found = await outcomes(store.delete_directory(root / "d", recursive=True) for _ in range(4))
        assert not [one for one in found if isinstance(one, BaseException)]
        assert any(found)
        assert await channel.files() == {}
        assert await channel.directories() == set()


class DeleteConformance(ConformanceBase):
    """Tests of `conditional_delete`, `conditional_replace`, `batch_delete` and `conditional_batch_delete`."""

    async def test_replace_only_what_was_seen(self, store: Store, root: StorePath, channel: Channel) -> None:
        able = required(CONDITIONAL_REPLACE, store)
        path = root / "d/file"
        first = await store.put(path, b"first", exclusive=True)
        second = await able.replace_file(path, b"second", seen=first)
        assert await channel.files() == {"d/file": b"second"}
        with refused(StorePreconditionError, path):
            await able.replace_file(path, b"third", seen=first)
        assert await channel.files() == {"d/file": b"second"}
        # The status of `status` works like that of `put`.
        assert alike(second, await store.status(path))
        await able.replace_file(path, b"fourth", seen=await store.status(path))
        assert await channel.files() == {"d/file": b"fourth"}

    async def test_replace_nothing_that_is_gone(self, store: Store, root: StorePath, channel: Channel) -> None:
        able = required(CONDITIONAL_REPLACE, store)
        seen = await store.put(root / "d/file", b"first")
        await store.delete_file(root / "d/file")
        with pytest.raises(StorePreconditionError) as caught:
            await able.replace_file(root / "d/file", b"second", seen=seen)
        assert caught.value.outcome == "unchanged"
        assert await channel.files() == {}

    async def test_replace_what_was_seen_at_once(self, store: Store, root: StorePath, channel: Channel) -> None:
        able = required(CONDITIONAL_REPLACE, store)
        seen = await store.put(root / "file", b"first")
        contents = [f"writer {number}".encode() for number in range(6)]
        found = await outcomes(able.replace_file(root / "file", data, seen=seen) for data in contents)
        winner = winner_of(found, StorePreconditionError)
        assert await channel.files() == {"file": contents[winner]}

    async def test_delete_only_what_was_seen(self, store: Store, root: StorePath, channel: Channel) -> None:
        able = required(CONDITIONAL_DELETE, store)
        path = root / "d/file"
        first = await store.put(path, b"first")
        second = await store.put(path, b"second")
        assert first.identity is not None
        assert second.identity is not None
        with refused(StorePreconditionError, path):
            await able.delete_file_if(path, identity=first.identity)
        assert await channel.files() == {"d/file": b"second"}
        assert await able.delete_file_if(path, identity=second.identity)
        assert not await able.delete_file_if(path, identity=second.identity)
        assert not await able.delete_file_if(root / "missing", identity=second.identity)
        assert await channel.files() == {}

    async def test_delete_what_was_seen_at_once(self, store: Store, root: StorePath, channel: Channel) -> None:
        able = required(CONDITIONAL_DELETE, store)
        status = await store.put(root / "file", b"1")
        assert status.identity is not None
        found = await outcomes(able.delete_file_if(root / "file", identity=status.identity) for _ in range(6))
        assert set(found) <= {True, False}
        assert True in found
        assert await channel.files() == {}

    async def test_delete_many(self, store: Store, root: StorePath, channel: Channel) -> None:
        able = required(BATCH_DELETE, store)
        names = ["d/a", "d/with space/per%20cent&<é>", "d/b", "d2/a", "d.txt"]
        for name in names:
            await channel.write(name, name.encode())
        assert not await able.delete_files(dict.fromkeys(root / name for name in (*names[:3], "missing")))
        assert await channel.files() == {name: name.encode() for name in names[3:]}
        assert not await able.delete_files({})

    @pytest.mark.parametrize("conditional", [False, True])
    async def test_delete_too_many(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities, conditional: bool
    ) -> None:
        if can.max_batch_delete is None:
            pytest.skip("the store deletes any number of files in a call")
        able = await _deletes_many_on_conditions(store, root) if conditional else required(BATCH_DELETE, store)
        paths = [root / f"d/{number}" for number in range(can.max_batch_delete + 1)]
        identity = None
        for path in (paths[0], paths[-1]):
            identity = (await store.put(path, b"same")).identity or ""
        seen = dict.fromkeys(paths, identity if conditional else None)
        with pytest.raises(ConfigurationError):
            await able.delete_files(seen)
        assert set(await channel.files()) == {"d/0", f"d/{can.max_batch_delete}"}
        del seen[paths[0]]
        refused = await able.delete_files(seen)
        assert paths[-1] not in refused
        assert conditional or not refused
        assert set(await channel.files()) == {"d/0"}

    async def test_delete_many_only_what_was_seen(self, store: Store, root: StorePath, channel: Channel) -> None:
        able = await _deletes_many_on_conditions(store, root)
        names = ["d/a", "d/with space/per%20cent&<é>", 'd/\'"quoted"', "d/changed", "d/kept", "d2/a"]
        seen: dict[StorePath, str | None] = {}
        for name in names:
            seen[root / name] = (await store.put(root / name, name.encode())).identity or ""
        await channel.write("d/changed", b"of another job")
        left = {"d/changed": b"of another job", "d/kept": b"d/kept", "d2/a": b"d2/a"}
        missing = root / "missing"
        asked = {missing: seen[root / "d/a"], **{root / name: seen[root / name] for name in names[:4]}}
        refused = await able.delete_files(asked)
        assert await channel.files() == left
        # For a missing name a service may report that, or another file.
        assert {path for path in refused if path != missing} == {root / "d/changed"}
        assert all(isinstance(error, StorePreconditionError) for error in refused.values())
        assert {error.outcome for error in refused.values()} == {"unchanged"}
        # Repeated, as after a lost response: files written meanwhile stay.
        await channel.write("d/a", b"of another job, too")
        again = await able.delete_files(asked)
        assert isinstance(again[root / "d/a"], StorePreconditionError)
        assert await channel.files() == {**left, "d/a": b"of another job, too"}
        # A condition of one name holds for no other.
        refused = await able.delete_files({root / "d/kept": None, root / "d/changed": seen[root / "d/changed"]})
        assert set(refused) == {root / "d/changed"}
        left = {"d/a": b"of another job, too", "d/changed": b"of another job", "d2/a": b"d2/a"}
        assert await channel.files() == left
        assert not await able.delete_files({})

    async def test_delete_many_by_no_identity_of_a_file(self, store: Store, root: StorePath, channel: Channel) -> None:
        able = await _deletes_many_on_conditions(store, root)
        for identity in ("*", '"', "", "a,b", "<ETag>", "x y"):
            await store.put(root / "file", b"1")
            refused = await able.delete_files({root / "file": identity})
            assert isinstance(refused[root / "file"], StorePreconditionError), identity
            assert await channel.files() == {"file": b"1"}

    async def test_delete_many_of_what_was_seen_at_once(self, store: Store, root: StorePath, channel: Channel) -> None:
        able = await _deletes_many_on_conditions(store, root)
        seen: dict[StorePath, str | None] = {}
        for number in range(5):
            seen[root / f"d/{number}"] = (await store.put(root / f"d/{number}", b"%d" % number)).identity or ""
        found = await outcomes(able.delete_files(seen) for _ in range(4))
        for one in found:
            assert isinstance(one, Mapping)
            assert all(isinstance(error, StorePreconditionError) for error in one.values())
        assert await channel.files() == {}

    async def test_stores_without_such_deletes_refuse_them(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        identity = (await store.put(root / "file", b"1")).identity or "any"
        conditional, batch = undeclared(CONDITIONAL_DELETE, store), undeclared(BATCH_DELETE, store)
        if conditional is not None:
            with pytest.raises(UnsupportedError):
                await conditional.delete_file_if(root / "file", identity="any")
        if batch is not None:
            with pytest.raises(UnsupportedError):
                await batch.delete_files({root / "file": None})
        on_conditions = batch or BATCH_DELETE.of(store)
        if on_conditions is not None and not can.conditional_batch_delete:
            with pytest.raises(UnsupportedError):
                await on_conditions.delete_files({root / "file": identity})
        assert await channel.files() == {"file": b"1"}


async def _deletes_many_on_conditions(store: Store, root: StorePath) -> SupportsBatchDelete:
    """Returns the store if it deletes many files on conditions, which only a probe finds out; else skips the test."""
    await store.probe(root)
    requires(store, "conditional_batch_delete")
    return required(BATCH_DELETE, store)
