# ruff: noqa: S101
"""Conformance tests of renames and symbolic links."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, runtime_checkable

import pytest

from committer.errors import (
    CommitterError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreLinkError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StorePreconditionError,
    UnsupportedError,
)
from committer.paths import StorePath
from committer.stores.abilities import BATCH_RENAME, HARD_LINKS, LOCAL_PATHS, SYNC, TREE_COUNTS
from committer.stores.base import Capabilities, FileStatus, Store
from committer.stores.helpers import walk
from committer.testing._conformance_base import (
    Channel,
    ConformanceBase,
    names_in,
    outcomes,
    refused,
    required,
    requires,
    winner_of,
)


class RenameConformance(ConformanceBase):
    """Tests of renames; of a store without renames, that it refuses them and changes nothing."""

    @pytest.fixture
    def replaces(self, can: Capabilities) -> list[bool]:
        """Values of `replace` that the store supports."""
        if not can.atomic_file_rename:
            return []
        return [replace for replace in (False, True) if (can.replacing_rename if replace else can.no_replace_rename)]

    async def test_rename_file(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities, replaces: list[bool]
    ) -> None:
        for replace in replaces:
            await channel.write("from/file", b"1")
            await channel.write("to/other", b"2")
            before = await store.status(root / "from/file")
            await store.rename_file(root / "from/file", root / "to/file", replace=replace, identity=before.identity)
            assert await channel.files() == {"to/file": b"1", "to/other": b"2"}
            after = await store.status(root / "to/file")
            if can.identity and can.identity_through_rename:
                assert after.identity == before.identity
            await store.delete_directory(root / "to", recursive=True)

    async def test_rename_of_any_version(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities, replaces: list[bool]
    ) -> None:
        """Only stores with versions compare one, and only in a rename that replaces nothing."""
        for replace in replaces:
            if replace or not can.versions:
                await channel.write("file", b"1")
                await store.rename_file(root / "file", root / f"to-{replace}", replace=replace, version="of no file")
                assert (await channel.files())[f"to-{replace}"] == b"1"

    async def test_rename_by_version(self, store: Store, root: StorePath, channel: Channel) -> None:
        requires(store, "versions")
        there, old, file = root / "there", root / "old", root / "file"
        await store.put(there, b"there")
        gone = await store.put(old, b"gone")
        await store.delete_file(old)
        written = await store.put(file, b"1")
        version = written.version or ""
        assert version == (await store.status(file)).version
        with pytest.raises(StoreExistsError):
            await store.rename_file(file, there, version=version, identity=written.identity)
        with refused(StoreNotFoundError, old):
            await store.rename_file(old, root / "new", version=gone.version or "", identity=gone.identity)
        await store.rename_file(file, root / "new", version=version, identity=written.identity)
        assert await channel.files() == {"there": b"there", "new": b"1"}
        assert (await store.status(root / "new")).identity == written.identity

    async def test_rename_by_another_version(self, store: Store, root: StorePath, channel: Channel) -> None:
        """A replaced generation: the identity decides, if known, for a file renamed and back, and for another one."""
        requires(store, "versions")
        file, other = root / "file", root / "other"
        written = await store.put(file, b"1")
        version = written.version or ""
        await store.rename_file(file, other)
        await store.rename_file(other, file)
        assert (await store.status(file)).version not in (None, version)
        for number, odd in enumerate((version, "", "no version", "0", "9" * 40)):
            await store.rename_file(file, root / f"new-{number}", version=odd, identity=written.identity)
            file = root / f"new-{number}"
        await store.put(root / "file", b"2")
        for identity in (written.identity, None):
            with pytest.raises(StorePreconditionError):
                await store.rename_file(root / "file", root / "to", version=version, identity=identity)
        assert await channel.files() == {"new-4": b"1", "file": b"2"}

    async def test_count_and_rename(self, store: Store, root: StorePath, channel: Channel) -> None:
        able = required(TREE_COUNTS, store)
        for number in range(3):
            await channel.write(f"tree/deep/{number}", b"x" * number)
        await store.make_directory(root / "tree/empty", parents=False)
        assert await able.count_tree(root / "tree") == (3, 3, 3)
        with pytest.raises(StoreNotFoundError):
            await able.count_tree(root / "missing")
        renames = [(root / f"tree/deep/{number}", root / f"tree/to-{number}") for number in range(4)]
        await channel.write("tree/to-1", b"there")
        errors = await BATCH_RENAME.required(store, "rename_files").rename_files(renames, looks=False)
        assert {index: type(error) for index, error in errors.items()} == {1: StoreExistsError, 3: StoreNotFoundError}
        assert await channel.files() == {
            "tree/to-0": b"",
            "tree/to-1": b"there",
            "tree/to-2": b"xx",
            "tree/deep/1": b"x",
        }
        assert await able.count_tree(root / "tree") == (4, 3, 8)

    async def test_rename_that_is_not_offered(
        self, store: Store, root: StorePath, channel: Channel, replaces: list[bool]
    ) -> None:
        await channel.write("file", b"1")
        for replace in {False, True}.difference(replaces):
            with pytest.raises(UnsupportedError):
                await store.rename_file(root / "file", root / "new", replace=replace)
        assert await channel.files() == {"file": b"1"}

    async def test_rename_replaces_nothing(self, store: Store, root: StorePath, channel: Channel) -> None:
        requires(store, "atomic_file_rename", "no_replace_rename")
        await channel.write("file", b"1")
        await channel.write("there", b"2")
        with refused(StoreExistsError, root / "there"):
            await store.rename_file(root / "file", root / "there")
        with pytest.raises(StoreExistsError):
            await store.rename_file(root / "file", root / "file")
        assert await channel.files() == {"file": b"1", "there": b"2"}

    async def test_rename_replaces_when_told(self, store: Store, root: StorePath, channel: Channel) -> None:
        requires(store, "atomic_file_rename", "replacing_rename")
        await channel.write("file", b"1")
        await channel.write("there", b"2")
        await store.rename_file(root / "file", root / "there", replace=True)
        assert await channel.files() == {"there": b"1"}

    async def test_rename_never_into_a_directory(
        self, store: Store, root: StorePath, channel: Channel, replaces: list[bool]
    ) -> None:
        requires(store, "directories")
        await channel.write("file", b"1")
        await channel.write("full/other", b"2")
        await store.make_directory(root / "empty", parents=False)
        for replace in replaces:
            for name in ("full", "empty"):
                with pytest.raises(StoreIsADirectoryError if replace else StoreExistsError):
                    await store.rename_file(root / "file", root / name, replace=replace)
        assert await channel.files() == {"file": b"1", "full/other": b"2"}
        assert await channel.directories() == {"full", "empty"}

    async def test_rename_of_nothing(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities, replaces: list[bool]
    ) -> None:
        await channel.write("d/file", b"1")
        for replace in replaces:
            for name in ("missing", "d/file/below"):
                with refused(StoreNotFoundError, root / name):
                    await store.rename_file(root / name, root / "new", replace=replace)
            if can.directories:
                with refused(StoreNotFoundError, root / "not/there"):
                    await store.rename_file(root / "d/file", root / "not/there", replace=replace)
                with pytest.raises(StoreNotADirectoryError):
                    await store.rename_file(root / "d/file", root / "d/file/below", replace=replace)
                with refused(StoreIsADirectoryError, root / "d"):
                    await store.rename_file(root / "d", root / "new", replace=replace)
        assert await channel.files() == {"d/file": b"1"}

    async def test_rename_only_the_file_that_is_meant(
        self, store: Store, root: StorePath, channel: Channel, replaces: list[bool]
    ) -> None:
        requires(store, "conditional_rename")
        await channel.write("file", b"1")
        old = (await store.status(root / "file")).identity
        await store.put(root / "file", b"2")
        for replace in replaces:
            with pytest.raises(StorePreconditionError):
                await store.rename_file(root / "file", root / "new", replace=replace, identity=old)
        assert await channel.files() == {"file": b"2"}

    async def test_many_renames_to_one_name(self, store: Store, root: StorePath, channel: Channel) -> None:
        requires(store, "atomic_file_rename", "no_replace_rename")
        for number in range(8):
            await channel.write(f"file-{number}", f"{number}".encode())
        found = await outcomes(store.rename_file(root / f"file-{number}", root / "new") for number in range(8))
        winner = winner_of(found, StoreExistsError)
        expected = {f"file-{number}": f"{number}".encode() for number in range(8) if number != winner}
        assert await channel.files() == {**expected, "new": f"{winner}".encode()}

    async def test_many_renames_of_one_file(
        self, store: Store, root: StorePath, channel: Channel, replaces: list[bool]
    ) -> None:
        # On a file system whose renames are links and unlinks, the file would keep two names.
        requires(store, "atomic_file_rename", "atomic_directory_rename")
        if not replaces:
            pytest.skip("the store renames no files")
        await channel.write("file", b"1")
        found = await outcomes(
            store.rename_file(root / "file", root / f"new-{number}", replace=replaces[0]) for number in range(8)
        )
        assert await channel.files() == {f"new-{winner_of(found, StoreNotFoundError)}": b"1"}

    @pytest.mark.parametrize("known", [False, True])
    async def test_rename_directory(
        self, store: Store, root: StorePath, channel: Channel, can: Capabilities, known: bool
    ) -> None:
        await channel.write("from/a", b"1")
        await channel.write("from/b/c", b"2")
        await channel.write("from-2/d", b"3")
        if not can.atomic_directory_rename:
            with pytest.raises(UnsupportedError):
                await store.rename_directory(root / "from", root / "to", known=known)
            assert set(await channel.files()) == {"from/a", "from/b/c", "from-2/d"}
            return
        before = await store.status(root / "from/b/c")
        await store.rename_directory(root / "from", root / "to", known=known)
        with pytest.raises(StoreNotFoundError):
            await store.rename_directory(root / "from", root / "to", known=known)
        assert await channel.files() == {"to/a": b"1", "to/b/c": b"2", "from-2/d": b"3"}
        assert await channel.directories() == {"to", "to/b", "from-2"}
        assert (await store.status(root / "to/b/c")).identity == before.identity

    @pytest.mark.parametrize("known", [False, True])
    async def test_rename_directory_refuses(self, store: Store, root: StorePath, channel: Channel, known: bool) -> None:
        requires(store, "atomic_directory_rename")
        await channel.write("from/a", b"1")
        await channel.write("full/b", b"2")
        await channel.write("file", b"3")
        await store.make_directory(root / "empty", parents=False)
        files, directories = await channel.files(), await channel.directories()
        for name in ("full", "empty", "file", "from"):
            with refused(StoreExistsError, root / name):
                await store.rename_directory(root / "from", root / name, known=known)
        with refused(StoreNotFoundError, root / "missing"):
            await store.rename_directory(root / "missing", root / "new", known=known)
        with refused(StoreNotFoundError, root / "not/there"):
            await store.rename_directory(root / "from", root / "not/there", known=known)
        if not known:
            with pytest.raises(StoreNotADirectoryError):
                await store.rename_directory(root / "file", root / "new")
        with pytest.raises(StoreNotADirectoryError):
            await store.rename_directory(root / "from", root / "file/below", known=known)
        with pytest.raises(CommitterError):
            await store.rename_directory(root / "from", root / "from/below", known=known)
        assert (await channel.files(), await channel.directories()) == (files, directories)

    async def test_many_directories_to_one_name(self, store: Store, root: StorePath, channel: Channel) -> None:
        requires(store, "atomic_directory_rename")
        for number in range(6):
            await channel.write(f"from-{number}/{number}", b"")
        found = await outcomes(store.rename_directory(root / f"from-{number}", root / "to") for number in range(6))
        winner = winner_of(found, StoreExistsError)
        expected = {f"from-{number}/{number}" for number in range(6) if number != winner} | {f"to/{winner}"}
        assert set(await channel.files()) == expected

    async def test_link(self, store: Store, root: StorePath, channel: Channel) -> None:
        await channel.write("d/file", b"1")
        able = required(HARD_LINKS, store)
        await able.link_file(root / "d/file", root / "other")
        assert (await store.status(root / "d/file")).identity == (await store.status(root / "other")).identity
        with pytest.raises(StoreExistsError):
            await able.link_file(root / "d/file", root / "other")
        with pytest.raises(StoreNotFoundError):
            await able.link_file(root / "missing", root / "new")
        with pytest.raises(StoreIsADirectoryError):
            await able.link_file(root / "d", root / "new")
        await store.put(root / "d/file", b"2")
        assert await channel.files() == {"d/file": b"2", "other": b"1"}

    async def test_replacing_rename_over_a_link_of_itself(
        self, store: Store, root: StorePath, channel: Channel
    ) -> None:
        able = required(HARD_LINKS, store)
        requires(store, "replacing_rename")
        await channel.write("file", b"1")
        await able.link_file(root / "file", root / "aside")
        await able.link_file(root / "file", root / "new")
        await store.rename_file(root / "file", root / "new", replace=True)
        assert await channel.files() == {"aside": b"1", "new": b"1"}
        await store.rename_file(root / "new", root / "new", replace=True)
        assert await channel.files() == {"aside": b"1", "new": b"1"}

    async def test_local_path(self, store: Store, root: StorePath) -> None:
        able = required(LOCAL_PATHS, store)
        await store.put(root / "a file", b"1")
        with open(able.local_path(root / "a file"), "rb") as file:  # noqa: ASYNC230
            assert file.read() == b"1"

    async def test_sync(self, store: Store, root: StorePath, channel: Channel) -> None:
        able = required(SYNC, store)
        await channel.write("d/file", b"1")
        await able.sync(root / "d/file", kind="file")
        await able.sync(root / "d", kind="directory")
        with pytest.raises(StoreNotFoundError):
            await able.sync(root / "missing", kind="file")


@runtime_checkable
class LinkChannel(Channel, Protocol):
    """A channel to a store with `links`; its `files` and `directories` leave links out."""

    async def link(self, name: str, leads_to: str) -> None:
        """Creates a symbolic link below the root, and its directories."""

    async def links(self) -> dict[str, str]:
        """Lists every link below the root, with its target."""


class LinkConformance(ConformanceBase):
    """Tests that a link itself is read, renamed and deleted, never its target."""

    @pytest.fixture
    def linked(self, store: Store, channel: Channel) -> LinkChannel:
        """Channel that makes links; skips the tests of a store without."""
        requires(store, "local_paths")
        assert isinstance(channel, LinkChannel), "a store with links needs a channel that makes them"
        return channel

    async def test_links_are_seen_themselves(
        self, store: Store, root: StorePath, linked: LinkChannel, can: Capabilities
    ) -> None:
        await linked.write("d/file", b"12345")
        targets = {"to-file": "d/file", "to-directory": "d", "to-nowhere": "missing", "to-itself": "to-itself"}
        for name, leads_to in targets.items():
            await linked.link(name, leads_to)
        listed = {status.path.name: status async for status in store.list(root)}
        assert set(listed) == {"d", *targets}
        assert not listed["d"].is_link
        for name in targets:
            status = listed[name]
            assert status == await store.status(root / name)
            assert (status.is_link, status.is_special) == (True, False)
            assert status.is_directory == (name == "to-directory")
            assert (status.identity is not None) == can.identity
        if can.identity:
            there = await store.status(root / "d/file")
            identities = {there.identity, *(listed[name].identity for name in targets)}
            assert len(identities) == 1 + len(targets), "a link is no other name of what it leads to"

    async def test_directories_are_reached_through_links(
        self, store: Store, root: StorePath, linked: LinkChannel
    ) -> None:
        await linked.write("elsewhere/old", b"1")
        await linked.link("partition", "elsewhere")
        await store.put(root / "partition/new", b"2")
        assert not await store.make_directory(root / "partition", parents=True)
        assert {status.path async for status in store.list(root / "partition")} == {
            root / "partition/old",
            root / "partition/new",
        }
        assert not (await store.status(root / "partition/new")).is_link
        assert await linked.files() == {"elsewhere/old": b"1", "elsewhere/new": b"2"}

    async def test_a_walk_stays_where_it_began(self, store: Store, root: StorePath, linked: LinkChannel) -> None:
        await linked.write("outside/secret", b"")
        await linked.write("d/below/file", b"")
        for name, leads_to in {"d/out": "../outside", "d/below/up": "..", "d/below/loop": "."}.items():
            await linked.link(name, leads_to)
        found = [status.path.relative_to(root) async for status in walk(store, root / "d")]
        assert sorted(found) == ["d/below", "d/below/file", "d/below/loop", "d/below/up", "d/out"]

    async def test_links_are_moved_themselves(
        self, store: Store, root: StorePath, linked: LinkChannel, can: Capabilities
    ) -> None:
        await linked.write("d/file", b"1")
        expected = {}
        for name, leads_to in {"to-file": "d/file", "to-directory": "d", "to-nowhere": "missing"}.items():
            await linked.link(name, leads_to)
            before = await store.status(root / name)
            await store.rename_file(root / name, root / f"d/{name}")
            expected[f"d/{name}"] = leads_to
            after = await store.status(root / f"d/{name}")
            if can.identity and can.identity_through_rename:
                assert (after.identity, after.size) == (before.identity, before.size)
        assert await linked.links() == expected
        assert await linked.files() == {"d/file": b"1"}

    async def test_links_are_in_the_way(self, store: Store, root: StorePath, linked: LinkChannel) -> None:
        await linked.write("file", b"1")
        await linked.write("d/other", b"2")
        targets = {"to-file": "d/other", "to-directory": "d", "to-nowhere": "missing"}
        for name, leads_to in targets.items():
            await linked.link(name, leads_to)
            with pytest.raises(StoreExistsError):
                await store.rename_file(root / "file", root / name)
            with pytest.raises(StoreExistsError):
                await store.put(root / name, b"3", exclusive=True)
            with pytest.raises(StoreExistsError):
                await store.open_writer(root / name)
        assert await linked.links() == targets
        for name in targets:
            await linked.write("file", name.encode())
            await store.rename_file(root / "file", root / name, replace=True)
        assert await linked.links() == {}
        assert await linked.files() == {"d/other": b"2", **{name: name.encode() for name in targets}}

    async def test_hard_links_of_links(self, store: Store, root: StorePath, linked: LinkChannel) -> None:
        able = required(HARD_LINKS, store)
        await linked.link("old", "missing")
        await able.link_file(root / "old", root / "aside")
        assert await linked.links() == {"old": "missing", "aside": "missing"}

    async def test_links_are_deleted_themselves(self, store: Store, root: StorePath, linked: LinkChannel) -> None:
        await linked.write("d/file", b"1")
        for name, leads_to in {"to-file": "d/file", "to-d": "d", "to-nowhere": "missing", "in/to-d": "../d"}.items():
            await linked.link(name, leads_to)
        for name in ("to-file", "to-d"):
            with pytest.raises((StoreNotADirectoryError, StoreIsADirectoryError)):
                await store.delete_directory(root / name, recursive=False)
        assert set(await linked.links()) == {"to-file", "to-d", "to-nowhere", "in/to-d"}
        assert await store.delete_file(root / "to-file")
        assert await store.delete_file(root / "to-nowhere")
        assert await store.delete_directory(root / "to-d", recursive=True)
        assert await store.delete_directory(root / "in", recursive=True)
        assert await linked.links() == {}
        assert await linked.files() == {"d/file": b"1"}

    async def test_no_link_is_followed_in_a_jobs_directories(
        self, store: Store, root: StorePath, linked: LinkChannel
    ) -> None:
        """Paths from `_temporary` on are a job's: a link anywhere on such a path comes from another program."""
        outside = {"outside/file": b"1", "outside/d/file": b"2"}
        for name, data in outside.items():
            await linked.write(name, data)
        await linked.write("_temporary/job/own/file", b"3")
        await linked.link("_temporary/job/link", "../../outside")
        await linked.link("_temporary/job/record", "../../outside/file")
        await linked.link("below/_temporary", "../outside")
        for behind in (root / "_temporary/job/link", root / "below/_temporary"):
            calls: list[Awaitable[object]] = [
                store.status(behind / "file"),
                names_in(store, behind),
                names_in(store, behind / "d"),
                store.read(behind / "file", limit=9),
                store.put(behind / "new", b"4"),
                store.open_writer(behind / "new"),
                store.make_directory(behind, parents=True),
                store.make_directory(behind / "new", parents=True),
                store.rename_file(behind / "file", root / "stolen"),
                store.rename_file(root / "_temporary/job/own/file", behind / "new"),
                store.delete_file(behind / "file"),
                store.delete_directory(behind / "d", recursive=True),
            ]
            if store.capabilities.atomic_directory_rename:
                calls.append(store.rename_directory(behind / "d", root / "stolen"))
            for call in calls:
                with pytest.raises(StoreLinkError):
                    await call
        with pytest.raises(StoreLinkError):
            await store.read(root / "_temporary/job/record", limit=9)
        assert await linked.files() == {**outside, "_temporary/job/own/file": b"3"}
        assert (await store.status(root / "_temporary/job/link")).is_link
        assert await store.delete_directory(root / "_temporary/job", recursive=True)
        assert await linked.files() == outside

    async def test_find_link(self, store: Store, root: StorePath, linked: LinkChannel) -> None:
        able = LOCAL_PATHS.required(store, "find_link")
        await linked.write("d/below/file", b"1")
        await linked.link("d/link", "below")
        await linked.link("top", "d")
        assert await able.find_link(root, []) is None
        assert await able.find_link(root, ["d", "d/below", "missing/below", "d/below/file/odd"]) is None
        assert await able.find_link(root, ["d/below", "d/link"]) == "d/link"
        assert await able.find_link(root, {"d/link/deeper/still"}) == "d/link"
        assert await able.find_link(root, ["top/below"]) == "top"
        assert await able.find_link(root / "top", ["below"]) is None

    async def test_without_links_nothing_is_one(self, store: Store, root: StorePath, can: Capabilities) -> None:
        if can.local_paths:
            return
        await store.put(root / "file", b"1")
        found: list[FileStatus] = [await store.status(root / "file"), *[status async for status in store.list(root)]]
        assert not any(status.is_link or status.is_special for status in found)
        with pytest.raises(StoreNotFoundError):
            await store.status(root / "missing")
