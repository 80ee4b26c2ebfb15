# ruff: noqa: S101
"""Conformance tests of uploads and block lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

import pytest

from committer.errors import (
    ConfigurationError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    StorePartsError,
    StorePreconditionError,
    StoreUploadNotFoundError,
    UnsupportedError,
)
from committer.paths import StorePath
from committer.stores.base import Capabilities, Store
from committer.stores.uploads import BLOCK_LISTS, UPLOADS, SupportsBlockLists, SupportsUploads, UploadPart
from committer.testing._conformance_base import (
    STAMP,
    WRONG_STAMPS,
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

T = TypeVar("T")


async def begin(
    uploads: SupportsUploads, path: StorePath, contents: Sequence[bytes], *, stamp: str = STAMP
) -> tuple[str, list[UploadPart]]:
    """Creates an upload and sends its parts; leaves it pending."""
    upload_id = await uploads.create_upload(path, stamp=stamp)
    return upload_id, [await uploads.put_part(path, upload_id, number, data) for number, data in enumerate(contents, 1)]


async def upload(uploads: SupportsUploads, path: StorePath, contents: Sequence[bytes]) -> str:
    """Uploads a file whole, and returns the upload's id."""
    upload_id, parts = await begin(uploads, path, contents)
    await uploads.complete_upload(path, upload_id, parts)
    return upload_id


async def drained(entries: AsyncIterator[T]) -> list[T]:
    return [entry async for entry in entries]


class UploadConformance(ConformanceBase):
    """Tests of stores with `multipart`."""

    @pytest.fixture
    def uploads(self, store: Store) -> SupportsUploads:
        """Store with uploads; skips the tests of one without."""
        return required(UPLOADS, store)

    @pytest.fixture
    def contents(self, can: Capabilities) -> list[bytes]:
        """Contents of three successive parts; the last is short."""
        length = max(can.min_part_bytes, 3)
        return [b"a" * length, b"b" * length, b"c"]

    async def test_an_upload_appears_when_it_is_completed(
        self, uploads: SupportsUploads, store: Store, root: StorePath, channel: Channel, contents: list[bytes]
    ) -> None:
        path = root / "year=2026/part-0"
        upload_id = await uploads.create_upload(path, stamp=STAMP)
        parts = []
        for number, data in enumerate(contents, 1):
            parts.append(await uploads.put_part(path, upload_id, number, data))
            assert (parts[-1].number, parts[-1].size) == (number, len(data))
            assert await channel.files() == {}
            with pytest.raises(StoreNotFoundError):
                await store.status(path)
            with pytest.raises(StoreNotFoundError):
                await names_in(store, root / "year=2026")
        identity = await uploads.complete_upload(path, upload_id, parts)
        assert await channel.files() == {"year=2026/part-0": b"".join(contents)}
        status = await store.status(path)
        assert (status.size, status.identity, status.stamp) == (sum(map(len, contents)), identity, STAMP)
        assert not await drained(uploads.list_uploads(root))

    async def test_a_completed_file_is_looked_at_like_any_other(
        self, uploads: SupportsUploads, store: Store, root: StorePath, can: Capabilities
    ) -> None:
        await upload(uploads, root / "d/file", [b"1"])
        await store.put(root / "d/put", b"1")
        listed = {status.path.name: status async for status in store.list(root / "d")}
        for name, stamp in (("file", STAMP), ("put", None)):
            status = await store.status(root / "d" / name)
            assert (status.size, status.stamp) == (1, stamp)
            assert (listed[name].size, listed[name].identity) == (status.size, status.identity)
            assert (status.identity is not None) == can.identity
        await store.put(root / "d/file", b"2")
        assert (await store.status(root / "d/file")).stamp is None

    async def test_a_file_with_metadata_is_put_whole(
        self, uploads: SupportsUploads, store: Store, root: StorePath, channel: Channel
    ) -> None:
        for data in (b"old", b"new data"):
            status = await uploads.put_described(root / "file", data, metadata={"length": "8"})
            assert alike(status, await store.status(root / "file"))
        assert await channel.files() == {"file": b"new data"}
        assert not await drained(uploads.list_uploads(root))

    async def test_a_file_without_content(
        self, uploads: SupportsUploads, store: Store, root: StorePath, channel: Channel
    ) -> None:
        await upload(uploads, root / "empty", [b""])
        assert await channel.files() == {"empty": b""}
        assert (await store.status(root / "empty")).stamp == STAMP

    async def test_parts_come_in_any_order_and_at_once(
        self, uploads: SupportsUploads, root: StorePath, channel: Channel, contents: list[bytes]
    ) -> None:
        path = root / "file"
        upload_id = await uploads.create_upload(path, stamp=STAMP)
        numbers = [7, 2, 30]
        parts = await asyncio.gather(
            *(uploads.put_part(path, upload_id, number, contents[0]) for number in numbers[:2]),
            uploads.put_part(path, upload_id, numbers[2], contents[2]),
        )
        found = await drained(uploads.list_parts(path, upload_id))
        assert [part.number for part in found] == [2, 7, 30]
        assert {(part.number, part.etag, part.size) for part in found} == {
            (part.number, part.etag, part.size) for part in parts
        }
        await uploads.complete_upload(path, upload_id, sorted(parts, key=lambda part: part.number))
        assert await channel.files() == {"file": contents[0] * 2 + contents[2]}

    async def test_a_part_is_replaced_by_one_of_its_number(
        self, uploads: SupportsUploads, root: StorePath, channel: Channel
    ) -> None:
        path = root / "file"
        upload_id, [old] = await begin(uploads, path, [b"old"])
        new = await uploads.put_part(path, upload_id, 1, b"newer")
        assert [part.etag for part in await drained(uploads.list_parts(path, upload_id))] == [new.etag]
        with pytest.raises(StorePartsError):
            await uploads.complete_upload(path, upload_id, [old])
        await uploads.complete_upload(path, upload_id, [new])
        assert await channel.files() == {"file": b"newer"}

    async def test_a_buffer_may_be_used_again(
        self, uploads: SupportsUploads, root: StorePath, channel: Channel, contents: list[bytes]
    ) -> None:
        path = root / "file"
        upload_id = await uploads.create_upload(path, stamp=STAMP)
        parts = []
        buffer = bytearray(contents[0])
        for number in (1, 2):
            parts.append(await uploads.put_part(path, upload_id, number, memoryview(buffer)))
            buffer[:] = contents[1]
        await uploads.complete_upload(path, upload_id, parts)
        assert await channel.files() == {"file": contents[0] + contents[1]}

    async def test_numbers_out_of_bounds(self, uploads: SupportsUploads, root: StorePath, can: Capabilities) -> None:
        upload_id = await uploads.create_upload(root / "file", stamp=STAMP)
        for number in (0, -1, *([can.max_parts + 1] if can.max_parts else [])):
            with pytest.raises(ConfigurationError):
                await uploads.put_part(root / "file", upload_id, number, b"x")
        if can.max_parts:
            part = await uploads.put_part(root / "file", upload_id, can.max_parts, b"x")
            await uploads.complete_upload(root / "file", upload_id, [part])

    async def test_stamps_out_of_bounds(self, uploads: SupportsUploads, root: StorePath) -> None:
        for stamp in WRONG_STAMPS:
            with pytest.raises(ConfigurationError):
                await uploads.create_upload(root / "file", stamp=stamp)
        assert not await drained(uploads.list_uploads(root))

    async def test_an_aborted_upload_is_gone(
        self, uploads: SupportsUploads, store: Store, root: StorePath, channel: Channel
    ) -> None:
        path = root / "file"
        await store.put(path, b"old")
        upload_id, parts = await begin(uploads, path, [b"new"])
        assert await uploads.abort_upload(path, upload_id)
        assert not await drained(uploads.list_uploads(root))
        for use in (
            uploads.put_part(path, upload_id, 1, b"new"),
            uploads.complete_upload(path, upload_id, parts),
            drained(uploads.list_parts(path, upload_id)),
        ):
            with refused(StoreUploadNotFoundError, path):
                await use
        await uploads.abort_upload(path, upload_id)
        assert await channel.files() == {"file": b"old"}

    async def test_aborting_a_completed_upload_leaves_its_file(
        self, uploads: SupportsUploads, root: StorePath, channel: Channel
    ) -> None:
        upload_id = await upload(uploads, root / "file", [b"1"])
        await uploads.abort_upload(root / "file", upload_id)
        assert await channel.files() == {"file": b"1"}

    async def test_uploads_are_apart(
        self, uploads: SupportsUploads, root: StorePath, channel: Channel, contents: list[bytes]
    ) -> None:
        path = root / "dataset1/file"
        ours, parts = await begin(uploads, path, contents)
        same_name, _ = await begin(uploads, path, [b"other"])
        longer_name, other = await begin(uploads, root / "dataset1/file10", [b"other"])
        assert len({ours, same_name, longer_name}) == 3
        with pytest.raises(StoreUploadNotFoundError):
            await uploads.complete_upload(path, longer_name, other)
        assert not await channel.files()
        await uploads.abort_upload(path, same_name)
        await uploads.complete_upload(path, ours, parts)
        assert [found.upload_id for found in await drained(uploads.list_uploads(root))] == [longer_name]
        assert await channel.files() == {"dataset1/file": b"".join(contents)}

    async def test_uploads_below_a_directory(self, uploads: SupportsUploads, root: StorePath) -> None:
        names = ("d/file", "d/e/f=1/deep", "d2/file", "d", "d.txt", "with space/per%20cent+é")
        begun = {name: await uploads.create_upload(root / name, stamp=STAMP) for name in names}
        twice = await uploads.create_upload(root / "d/file", stamp=STAMP)
        found = await drained(uploads.list_uploads(root / "d"))
        assert sorted((one.path, one.upload_id) for one in found) == sorted(
            [
                (root / "d/file", begun["d/file"]),
                (root / "d/file", twice),
                (root / "d/e/f=1/deep", begun["d/e/f=1/deep"]),
            ]
        )
        assert all(one.initiated > 0 for one in found)
        everything = await drained(uploads.list_uploads(root))
        assert {one.upload_id for one in everything} == {twice, *begun.values()}
        assert {one.path for one in everything} == {root / name for name in names}
        assert not await drained(uploads.list_uploads(root / "missing"))
        for one in everything:
            assert await uploads.abort_upload(one.path, one.upload_id)

    async def test_many_uploads_are_listed(self, uploads: SupportsUploads, root: StorePath) -> None:
        paths = [root / f"d/{number:04}" for number in range(self.many)]
        await asyncio.gather(*(uploads.create_upload(path, stamp=STAMP) for path in paths))
        found = await drained(uploads.list_uploads(root))
        assert sorted(one.path.path for one in found) == [path.path for path in paths]
        await asyncio.gather(*(uploads.abort_upload(one.path, one.upload_id) for one in found))

    async def test_stores_without_uploads_refuse_them(self, store: Store, root: StorePath) -> None:
        able = undeclared(UPLOADS, store)
        if able is None:
            return
        for use in (
            able.create_upload(root / "file", stamp=STAMP),
            able.put_part(root / "file", "any", 1, b""),
            able.complete_upload(root / "file", "any", []),
            able.abort_upload(root / "file", "any"),
            able.put_described(root / "file", b"", metadata={}),
        ):
            with pytest.raises(UnsupportedError):
                await use
        with pytest.raises(UnsupportedError):
            await drained(able.list_uploads(root))
        with pytest.raises(UnsupportedError):
            await drained(able.list_parts(root / "file", "any"))

    async def test_anyone_completes_an_upload_from_what_was_answered(
        self, uploads: SupportsUploads, root: StorePath, channel: Channel, contents: list[bytes]
    ) -> None:
        upload_id, parts = await begin(uploads, root / "file", contents)
        recorded = [UploadPart(part.number, part.etag) for part in parts]
        await uploads.complete_upload(root / "file", upload_id, recorded)
        assert await channel.files() == {"file": b"".join(contents)}

    async def test_parts_that_are_not_named_are_dropped(
        self, uploads: SupportsUploads, root: StorePath, channel: Channel, contents: list[bytes]
    ) -> None:
        upload_id, parts = await begin(uploads, root / "file", contents)
        await uploads.complete_upload(root / "file", upload_id, [parts[0], parts[2]])
        assert await channel.files() == {"file": contents[0] + contents[2]}

    async def test_wrong_parts_are_refused_and_the_upload_stays(
        self, uploads: SupportsUploads, root: StorePath, channel: Channel, contents: list[bytes], can: Capabilities
    ) -> None:
        path = root / "file"
        upload_id, parts = await begin(uploads, path, contents)
        one, two, last = parts
        wrong: list[list[UploadPart]] = [
            [],
            [two, one],
            [one, one],
            [one, UploadPart(two.number, last.etag)],
            [one, two, last, UploadPart(4, last.etag)],
        ]
        if can.min_part_bytes > 1:
            short = await uploads.put_part(path, upload_id, 5, b"d")
            wrong.append([one, last, short])
        for named in wrong:
            with refused(StorePartsError, path):
                await uploads.complete_upload(path, upload_id, named)
            assert await channel.files() == {}
        await uploads.complete_upload(path, upload_id, parts)
        assert await channel.files() == {"file": b"".join(contents)}

    async def test_complete_replaces(
        self, uploads: SupportsUploads, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        old = await store.put(root / "file", b"old")
        upload_id, parts = await begin(uploads, root / "file", [b"new"])
        assert await channel.files() == {"file": b"old"}
        identity = await uploads.complete_upload(root / "file", upload_id, parts)
        assert await channel.files() == {"file": b"new"}
        assert identity != old.identity or not can.identity

    async def test_complete_exclusively(
        self, uploads: SupportsUploads, store: Store, root: StorePath, channel: Channel
    ) -> None:
        path = root / "file"
        upload_id, parts = await begin(uploads, path, [b"new"])
        await store.put(path, b"old")
        with refused(StoreExistsError, path):
            await uploads.complete_upload(path, upload_id, parts, exclusive=True)
        assert await channel.files() == {"file": b"old"}
        assert [found.upload_id for found in await drained(uploads.list_uploads(root))] == [upload_id]
        await store.delete_file(path)
        await uploads.complete_upload(path, upload_id, parts, exclusive=True)
        assert await channel.files() == {"file": b"new"}

    async def test_complete_exclusively_at_once(
        self, uploads: SupportsUploads, store: Store, root: StorePath, channel: Channel
    ) -> None:
        path = root / "file"
        begun = [await begin(uploads, path, [f"{number}".encode()], stamp=f"{number}") for number in range(6)]
        found = await outcomes(uploads.complete_upload(path, *one, exclusive=True) for one in begun)
        winner = winner_of(found, StoreExistsError, StoreConflictError)
        assert all(one.outcome == "unchanged" for one in found if isinstance(one, StoreError))
        assert await channel.files() == {"file": f"{winner}".encode()}
        assert (await store.status(path)).stamp == f"{winner}"

    async def test_completing_twice_changes_nothing(
        self, uploads: SupportsUploads, store: Store, root: StorePath, channel: Channel
    ) -> None:
        path = root / "file"
        for exclusive in (False, True):
            await store.delete_file(path)
            upload_id, parts = await begin(uploads, path, [b"1"])
            identity = await uploads.complete_upload(path, upload_id, parts, exclusive=exclusive)
            [again] = await outcomes([uploads.complete_upload(path, upload_id, parts, exclusive=exclusive)])
            if isinstance(again, BaseException):
                assert isinstance(again, StoreUploadNotFoundError) or (
                    exclusive and isinstance(again, StoreExistsError)
                )
                assert (again.outcome, again.path) == ("unchanged", str(path))
            else:
                assert again == identity
            assert await channel.files() == {"file": b"1"}
            assert (await store.status(path)).stamp == STAMP

    async def test_deleting_ends_no_upload(
        self, uploads: SupportsUploads, store: Store, root: StorePath, channel: Channel
    ) -> None:
        path = root / "d/file"
        await store.put(path, b"old")
        upload_id, parts = await begin(uploads, path, [b"new"])
        assert await store.delete_file(path)
        await store.put(root / "d/other", b"")
        assert await store.delete_directory(root / "d", recursive=True)
        assert [one.upload_id for one in await drained(uploads.list_uploads(root))] == [upload_id]
        await uploads.complete_upload(path, upload_id, parts)
        assert await channel.files() == {"d/file": b"new"}


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
