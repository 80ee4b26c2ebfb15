"""Stores with one bug each, in uploads, block lists, and the deletes that come with them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from committer.errors import StoreExistsError, StoreNotFoundError, StorePartsError, StoreUploadNotFoundError
from committer.paths import StorePath
from committer.stores.abilities import has_conditions
from committer.stores.base import FileStatus
from committer.stores.helpers import exists
from committer.stores.memory import MemoryStore
from committer.stores.uploads import PendingUpload, UploadPart


class OnS3(MemoryStore):
    profile = "s3"


class CompletesEarly(OnS3):
    """Each part shows at once, as on a file system."""

    async def put_part(self, path: StorePath, upload_id: str, number: int, data: Any) -> UploadPart:
        await self.put(path, bytes(data))
        return await super().put_part(path, upload_id, number, data)


class ShowsPendingUploads(OnS3):
    """An empty file stands for what is not complete, as ADLS shows it."""

    async def create_upload(self, path: StorePath, *, stamp: str) -> str:
        await self.put(path, b"")
        return await super().create_upload(path, stamp=stamp)


class ListsUploadsByPrefix(OnS3):
    async def list_uploads(self, directory: StorePath) -> AsyncIterator[PendingUpload]:
        async for upload in super().list_uploads(directory.parent):
            if upload.path.path.startswith(directory.path):
                yield upload


class ListsUploadsOfOneLevel(OnS3):
    async def list_uploads(self, directory: StorePath) -> AsyncIterator[PendingUpload]:
        async for upload in super().list_uploads(directory):
            if upload.path.parent == directory:
                yield upload


class ListsOnePageOfUploads(OnS3):
    async def list_uploads(self, directory: StorePath) -> AsyncIterator[PendingUpload]:
        left = 50
        async for upload in super().list_uploads(directory):
            left -= 1
            if left >= 0:
                yield upload


class ListsOneUploadForAName(OnS3):
    async def list_uploads(self, directory: StorePath) -> AsyncIterator[PendingUpload]:
        seen = set()
        async for upload in super().list_uploads(directory):
            if upload.path not in seen:
                seen.add(upload.path)
                yield upload


class AbortsByPrefix(OnS3):
    async def abort_upload(self, path: StorePath, upload_id: str) -> bool:
        for upload in list(self._space.uploads):
            if upload.path.path.startswith(path.path):
                await super().abort_upload(upload.path, upload.upload_id)
        return True


class AbortsByName(OnS3):
    async def abort_upload(self, path: StorePath, upload_id: str) -> bool:
        for upload in list(self._space.uploads):
            if upload.path == path:
                await super().abort_upload(path, upload.upload_id)
        return True


class AbortsNothing(OnS3):
    async def abort_upload(self, path: StorePath, upload_id: str) -> bool:
        return True


class AbortsTheFileToo(OnS3):
    async def abort_upload(self, path: StorePath, upload_id: str) -> bool:
        await self.delete_file(path)
        return await super().abort_upload(path, upload_id)


class DeletesUploadsToo(OnS3):
    async def delete_file(self, path: StorePath) -> bool:
        for upload in list(self._space.uploads):
            if upload.path == path:
                await super().abort_upload(path, upload.upload_id)
        return await super().delete_file(path)


class CompletesOverFiles(OnS3):
    async def complete_upload(self, path: StorePath, upload_id: str, parts: Any, *, exclusive: bool = False) -> Any:
        return await super().complete_upload(path, upload_id, parts)


class LooksThenCompletes(OnS3):
    async def complete_upload(self, path: StorePath, upload_id: str, parts: Any, *, exclusive: bool = False) -> Any:
        if exclusive and await exists(self, path):
            raise StoreExistsError("there", operation="complete_upload", path=path)
        return await super().complete_upload(path, upload_id, parts)


class RefusedUploadsAreLost(OnS3):
    async def complete_upload(self, path: StorePath, upload_id: str, parts: Any, *, exclusive: bool = False) -> Any:
        try:
            return await super().complete_upload(path, upload_id, parts, exclusive=exclusive)
        except StorePartsError:
            await self.abort_upload(path, upload_id)
            raise


class NeverReplacesOnCompletion(OnS3):
    async def complete_upload(self, path: StorePath, upload_id: str, parts: Any, *, exclusive: bool = False) -> Any:
        return await super().complete_upload(path, upload_id, parts, exclusive=True)


class SortsParts(OnS3):
    async def complete_upload(self, path: StorePath, upload_id: str, parts: Any, *, exclusive: bool = False) -> Any:
        parts = sorted(parts, key=lambda part: part.number)
        return await super().complete_upload(path, upload_id, parts, exclusive=exclusive)


class TakesPartsAsTheyCame(OnS3):
    """Joins what was sent in the order of arrival."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._came: dict[str, dict[int, int]] = {}

    async def put_part(self, path: StorePath, upload_id: str, number: int, data: Any) -> UploadPart:
        came = self._came.setdefault(upload_id, {})
        place = came.setdefault(number, len(came) + 1)
        part = await super().put_part(path, upload_id, place, data)
        return UploadPart(number, part.etag, part.size)

    async def list_parts(self, path: StorePath, upload_id: str) -> AsyncIterator[UploadPart]:
        async for part in super().list_parts(path, upload_id):
            yield part

    async def complete_upload(self, path: StorePath, upload_id: str, parts: Any, *, exclusive: bool = False) -> Any:
        came = self._came.get(upload_id, {})
        placed = sorted((UploadPart(came.get(part.number, 99), part.etag) for part in parts), key=lambda p: p.number)
        return await super().complete_upload(path, upload_id, placed, exclusive=exclusive)


class CompletesWithEveryPart(OnS3):
    async def complete_upload(self, path: StorePath, upload_id: str, parts: Any, *, exclusive: bool = False) -> Any:
        parts = parts and [part async for part in self.list_parts(path, upload_id)]
        return await super().complete_upload(path, upload_id, parts, exclusive=exclusive)


class TrustsEtags(OnS3):
    async def complete_upload(self, path: StorePath, upload_id: str, parts: Any, *, exclusive: bool = False) -> Any:
        there = {part.number: part async for part in self.list_parts(path, upload_id)}
        named = [there.get(part.number, part) for part in parts]
        return await super().complete_upload(path, upload_id, named, exclusive=exclusive)


class KeepsTheFirstPart(OnS3):
    async def put_part(self, path: StorePath, upload_id: str, number: int, data: Any) -> UploadPart:
        async for part in self.list_parts(path, upload_id):
            if part.number == number:
                return part
        return await super().put_part(path, upload_id, number, data)


class LosesStamps(OnS3):
    async def create_upload(self, path: StorePath, *, stamp: str) -> str:
        return await super().create_upload(path, stamp="lost")


class StampsLinger(OnS3):
    async def put(self, path: StorePath, data: bytes, **rest: object) -> FileStatus:
        old = self._space.tree.find(path, "put")
        status = await super().put(path, data, **rest)  # type: ignore[arg-type]
        self._space.tree.file(path, "put").stamp = old.stamp if old is not None else None
        return status


class AnswersAnotherIdentity(OnS3):
    async def complete_upload(self, path: StorePath, upload_id: str, parts: Any, *, exclusive: bool = False) -> Any:
        await super().complete_upload(path, upload_id, parts, exclusive=exclusive)
        return upload_id


class SaysItWasNeverThere(OnS3):
    """Every trouble with an upload is a missing file."""

    async def complete_upload(self, path: StorePath, upload_id: str, parts: Any, *, exclusive: bool = False) -> Any:
        try:
            return await super().complete_upload(path, upload_id, parts, exclusive=exclusive)
        except StoreUploadNotFoundError as error:
            raise StoreNotFoundError("there is none", operation="complete_upload", path=path) from error


class DeletesWhateverIsThere(OnS3):
    async def delete_file_if(self, path: StorePath, *, identity: str) -> bool:
        return await self.delete_file(path)


class DeletesOneOfMany(OnS3):
    async def delete_files(self, files: Any) -> Any:
        if has_conditions(files):
            return await super().delete_files(files)
        await super().delete_files(dict.fromkeys([*files][:1]))
        return {}


class MissesTheMissing(OnS3):
    async def delete_files(self, files: Any) -> Any:
        if has_conditions(files):
            return await super().delete_files(files)
        gone = [path for path in files if not await exists(self, path)]
        await super().delete_files(files)
        return {path: StoreNotFoundError("missing", operation="delete_files", path=path) for path in gone}


class DeletesManyWhateverIsThere(OnS3):
    async def delete_files(self, files: Any) -> Any:
        return await super().delete_files(dict.fromkeys(files))


class SparesAllForOne(OnS3):
    """One file that is another spares all that come after it."""

    async def delete_files(self, files: Any) -> Any:
        if not has_conditions(files):
            return await super().delete_files(files)
        refused: dict[Any, Any] = {}
        for path, identity in files.items():
            if not refused:
                refused |= await super().delete_files({path: identity})
        return refused


class SaysNothingOfTheSpared(OnS3):
    async def delete_files(self, files: Any) -> Any:
        await super().delete_files(files)
        return {}


class TakesAnyMatch(OnS3):
    """An identity of `*` is that of any file, as in `If-Match: *`."""

    async def delete_files(self, files: Any) -> Any:
        return await super().delete_files({path: None if one == "*" else one for path, one in files.items()})


class OnAzure(MemoryStore):
    profile = "azure-flat"


class ShowsBlocks(OnAzure):
    async def put_block(self, path: StorePath, block_id: str, data: Any) -> None:
        await super().put_block(path, block_id, data)
        if not await exists(self, path):
            self._space.tree.put(path, self._space.tree.new_file(b""), "put_block", replace=True)
            await super().put_block(path, block_id, data)


class SharesBlocks(OnAzure):
    """Ids are one pool for all names that end alike."""

    async def put_block(self, path: StorePath, block_id: str, data: Any) -> None:
        await super().put_block(path, block_id, data)
        await super().put_block(path.parent / f"{path.name}10", block_id, data)


class SortsBlocks(OnAzure):
    async def put_block_list(self, path: StorePath, block_ids: Any, **rest: Any) -> Any:
        return await super().put_block_list(path, sorted(block_ids), **rest)


class PutsListsOverFiles(OnAzure):
    async def put_block_list(self, path: StorePath, block_ids: Any, *, exclusive: bool = False, **rest: Any) -> Any:
        return await super().put_block_list(path, block_ids, **rest)


class LooksThenPutsLists(OnAzure):
    async def put_block_list(self, path: StorePath, block_ids: Any, *, exclusive: bool = False, **rest: Any) -> Any:
        if exclusive and await exists(self, path):
            raise StoreExistsError("there", operation="put_block_list", path=path)
        kept = dict(self._space.blocks.uncommitted(path))
        found = await super().put_block_list(path, block_ids, **rest)
        for block_id, data in kept.items():
            if block_id not in block_ids:
                await super().put_block(path, block_id, data)
        return found


class IgnoresTheSeenFile(OnAzure):
    async def put_block_list(self, path: StorePath, block_ids: Any, *, identity: Any = None, **rest: Any) -> Any:
        return await super().put_block_list(path, block_ids, **rest)


class LosesStampsOfBlocks(OnAzure):
    async def put_block_list(self, path: StorePath, block_ids: Any, *, stamp: str, **rest: Any) -> Any:
        return await super().put_block_list(path, block_ids, stamp="lost", **rest)


class SkipsMissingBlocks(OnAzure):
    async def put_block_list(self, path: StorePath, block_ids: Any, **rest: Any) -> Any:
        there = self._space.blocks.uncommitted(path)
        return await super().put_block_list(path, [one for one in block_ids if one in there], **rest)


class KeepsBlocks(OnAzure):
    """A list takes committed blocks too, so that it can be put twice (``<Latest>``)."""

    async def put_block_list(self, path: StorePath, block_ids: Any, **rest: Any) -> Any:
        kept = dict(self._space.blocks.uncommitted(path))
        found = await super().put_block_list(path, block_ids, **rest)
        for block_id in block_ids:
            await super().put_block(path, block_id, kept[block_id])
        return found


class KeepsBlocksThroughPuts(OnAzure):
    async def put(self, path: StorePath, data: bytes, **rest: object) -> FileStatus:
        kept = dict(self._space.blocks.uncommitted(path))
        status = await super().put(path, data, **rest)  # type: ignore[arg-type]
        for block_id, block in kept.items():
            await super().put_block(path, block_id, block)
        return status


class KeepsTheFirstBlock(OnAzure):
    async def put_block(self, path: StorePath, block_id: str, data: Any) -> None:
        if block_id not in self._space.blocks.uncommitted(path):
            await super().put_block(path, block_id, data)


class TakesIdsOfAnyLength(OnAzure):
    async def put_block(self, path: StorePath, block_id: str, data: Any) -> None:
        with contextlib.suppress(StorePartsError):
            await super().put_block(path, block_id, data)
