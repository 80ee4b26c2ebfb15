# ruff: noqa: S101
"""Conformance: completing an upload, where the store has them: of which parts, in place of what, and how often."""

from __future__ import annotations

import pytest

from committer.errors import (
    StoreConflictError,
    StoreExistsError,
    StorePartsError,
    StoreUploadNotFoundError,
)
from committer.paths import StorePath
from committer.stores.base import Capabilities, Store
from committer.stores.uploads import SupportsUploads, UploadPart
from committer.testing._conformance_base import (
    STAMP,
    Channel,
    outcomes,
    successes,
)
from committer.testing._uploading import UploadFixtures, begin, drained


class CompletionConformance(UploadFixtures):
    """What holds of a store whose capabilities say `multipart`, when an upload is completed."""

    async def test_anyone_completes_an_upload_from_what_was_answered(
        self, uploads: SupportsUploads | None, root: StorePath, channel: Channel, contents: list[bytes]
    ) -> None:
        if uploads is None:
            return
        upload_id, parts = await begin(uploads, root / "file", contents)
        recorded = [UploadPart(part.number, part.etag) for part in parts]
        await uploads.complete_upload(root / "file", upload_id, recorded)
        assert await channel.files() == {"file": b"".join(contents)}

    async def test_parts_that_are_not_named_are_dropped(
        self, uploads: SupportsUploads | None, root: StorePath, channel: Channel, contents: list[bytes]
    ) -> None:
        if uploads is None:
            return
        upload_id, parts = await begin(uploads, root / "file", contents)
        await uploads.complete_upload(root / "file", upload_id, [parts[0], parts[2]])
        assert await channel.files() == {"file": contents[0] + contents[2]}

    async def test_wrong_parts_are_refused_and_the_upload_stays(
        self,
        uploads: SupportsUploads | None,
        root: StorePath,
        channel: Channel,
        contents: list[bytes],
        can: Capabilities,
    ) -> None:
        if uploads is None:
            return
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
            with pytest.raises(StorePartsError) as caught:
                await uploads.complete_upload(path, upload_id, named)
            assert (caught.value.outcome, caught.value.path) == ("unchanged", str(path))
            assert await channel.files() == {}
        await uploads.complete_upload(path, upload_id, parts)
        assert await channel.files() == {"file": b"".join(contents)}

    async def test_complete_replaces(
        self, uploads: SupportsUploads | None, store: Store, root: StorePath, channel: Channel, can: Capabilities
    ) -> None:
        if uploads is None:
            return
        old = await store.put(root / "file", b"old")
        upload_id, parts = await begin(uploads, root / "file", [b"new"])
        assert await channel.files() == {"file": b"old"}
        identity = await uploads.complete_upload(root / "file", upload_id, parts)
        assert await channel.files() == {"file": b"new"}
        assert identity != old.identity or not can.identity

    async def test_complete_exclusively(
        self, uploads: SupportsUploads | None, store: Store, root: StorePath, channel: Channel
    ) -> None:
        if uploads is None:
            return
        path = root / "file"
        upload_id, parts = await begin(uploads, path, [b"new"])
        await store.put(path, b"old")
        with pytest.raises(StoreExistsError) as caught:
            await uploads.complete_upload(path, upload_id, parts, exclusive=True)
        assert (caught.value.outcome, caught.value.path) == ("unchanged", str(path))
        assert await channel.files() == {"file": b"old"}
        assert [found.upload_id for found in await drained(uploads.list_uploads(root))] == [upload_id]
        await store.delete_file(path)
        await uploads.complete_upload(path, upload_id, parts, exclusive=True)
        assert await channel.files() == {"file": b"new"}

    async def test_complete_exclusively_at_once(
        self, uploads: SupportsUploads | None, store: Store, root: StorePath, channel: Channel
    ) -> None:
        if uploads is None:
            return
        path = root / "file"
        begun = [await begin(uploads, path, [f"{number}".encode()], stamp=f"{number}") for number in range(6)]
        found = await outcomes(uploads.complete_upload(path, *one, exclusive=True) for one in begun)
        assert successes(found) == 1
        errors = [one for one in found if isinstance(one, BaseException)]
        assert all(isinstance(one, (StoreExistsError, StoreConflictError)) for one in errors)
        assert all(getattr(one, "outcome", "") == "unchanged" for one in errors)
        winner = next(number for number, one in enumerate(found) if not isinstance(one, BaseException))
        assert await channel.files() == {"file": f"{winner}".encode()}
        assert (await store.status(path)).stamp == f"{winner}"

    async def test_completing_twice_changes_nothing(
        self, uploads: SupportsUploads | None, store: Store, root: StorePath, channel: Channel
    ) -> None:
        if uploads is None:
            return
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
        self, uploads: SupportsUploads | None, store: Store, root: StorePath, channel: Channel
    ) -> None:
        if uploads is None:
            return
        path = root / "d/file"
        await store.put(path, b"old")
        upload_id, parts = await begin(uploads, path, [b"new"])
        assert await store.delete_file(path)
        await store.put(root / "d/other", b"")
        assert await store.delete_directory(root / "d", recursive=True)
        assert [one.upload_id for one in await drained(uploads.list_uploads(root))] == [upload_id]
        await uploads.complete_upload(path, upload_id, parts)
        assert await channel.files() == {"d/file": b"new"}
