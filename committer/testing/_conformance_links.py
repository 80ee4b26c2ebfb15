# ruff: noqa: S101
"""Conformance tests of symbolic links."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, runtime_checkable

import pytest

from committer.errors import (
    StoreExistsError,
    StoreIsADirectoryError,
    StoreLinkError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.paths import StorePath
from committer.stores.abilities import HARD_LINKS, LOCAL_PATHS
from committer.stores.base import Capabilities, FileStatus, Store
from committer.stores.helpers import walk
from committer.testing._conformance_base import Channel, ConformanceBase, names_in, required, requires


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
