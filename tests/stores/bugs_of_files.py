"""Stores with one bug each, in what every store does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from committer.errors import StoreExistsError, StoreIsADirectoryError, StoreNotFoundError, StorePreconditionError
from committer.paths import StorePath
from committer.stores.base import FileStatus, FileWriter
from committer.stores.helpers import exists
from committer.stores.memory import MemoryStore


class LooksThenCreates(MemoryStore):
    async def put(self, path: StorePath, data: bytes, *, exclusive: bool = False, **rest: object) -> FileStatus:
        if exclusive and await exists(self, path):
            raise StoreExistsError("there", operation="put", path=path)
        return await super().put(path, data)


class MakesParents(MemoryStore):
    async def put(self, path: StorePath, data: bytes, **rest: object) -> FileStatus:
        await self.make_directory(path.parent, parents=True)
        return await super().put(path, data, **rest)  # type: ignore[arg-type]


class LeavesTemporaries(MemoryStore):
    async def put(self, path: StorePath, data: bytes, **rest: object) -> FileStatus:
        await super().put(path.parent / f".{path.name}.tmp", data)
        return await super().put(path, data, **rest)  # type: ignore[arg-type]


class WritesInPlace(MemoryStore):
    async def put(self, path: StorePath, data: bytes, *, exclusive: bool = False, **rest: object) -> FileStatus:
        await super().put(path, data[: len(data) // 2], exclusive=exclusive)
        return await super().put(path, data)


class RenamesIntoDirectories(MemoryStore):
    async def rename_file(self, source: StorePath, destination: StorePath, **rest: object) -> None:
        if await exists(self, destination) and (await self.status(destination)).is_directory:
            destination = destination / source.name
        await super().rename_file(source, destination, **rest)  # type: ignore[arg-type]


class ReplacesSilently(MemoryStore):
    async def rename_file(self, source: StorePath, destination: StorePath, **rest: object) -> None:
        await super().rename_file(source, destination, replace=True)


class LooksThenRenames(MemoryStore):
    async def rename_file(
        self, source: StorePath, destination: StorePath, *, replace: bool = False, **rest: object
    ) -> None:
        if not replace and await exists(self, destination):
            raise StoreExistsError("there", operation="rename_file", path=destination)
        await super().rename_file(source, destination, replace=True)


class CopiesAndDeletes(MemoryStore):
    async def rename_file(
        self, source: StorePath, destination: StorePath, *, replace: bool = False, **_: object
    ) -> None:
        data = await self.read(source, limit=1 << 24)
        await super().put(destination, data, exclusive=not replace)
        await self.delete_file(source)


class IgnoresVersions(MemoryStore):
    profile = "gcs"

    async def rename_file(
        self, source: StorePath, destination: StorePath, *, version: str | None = None, **rest: Any
    ) -> None:
        await super().rename_file(source, destination, **rest if version is None else {})


class KnowsVersionsOnly(MemoryStore):
    profile = "gcs"

    async def rename_file(
        self, source: StorePath, destination: StorePath, *, version: str | None = None, **rest: Any
    ) -> None:
        if version is not None and (await self.status(source)).version != version:
            raise StorePreconditionError("another version", operation="rename_file", path=source)
        await super().rename_file(source, destination, **rest)


class TakesNoIdentityForAny(MemoryStore):
    profile = "gcs"

    async def rename_file(
        self, source: StorePath, destination: StorePath, *, version: str | None = None, **rest: Any
    ) -> None:
        await super().rename_file(source, destination, **rest)


class ReplacesByVersion(MemoryStore):
    profile = "gcs"

    async def rename_file(
        self, source: StorePath, destination: StorePath, *, version: str | None = None, **rest: Any
    ) -> None:
        replace = version is not None or rest.pop("replace", False)
        await super().rename_file(source, destination, **{**rest, "replace": replace})


class MergesDirectories(MemoryStore):
    async def rename_directory(self, source: StorePath, destination: StorePath, *, known: bool = False) -> None:
        if await exists(self, destination) and not [child async for child in self.list(destination)]:
            await self.delete_directory(destination, recursive=False)
        await super().rename_directory(source, destination, known=known)


class NamesTheWrongPath(MemoryStore):
    async def rename_file(self, source: StorePath, destination: StorePath, **rest: object) -> None:
        try:
            await super().rename_file(source, destination, **rest)  # type: ignore[arg-type]
        except StoreNotFoundError as error:
            error.path = str(source)
            raise


class ListsTwice(MemoryStore):
    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        async for status in super().list(directory):
            yield status
            yield status


class ListsWithoutIdentity(MemoryStore):
    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        async for status in super().list(directory):
            yield FileStatus(status.path, status.is_directory, status.size)


class ListsNothingQuietly(MemoryStore):
    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        try:
            async for status in super().list(directory):
                yield status
        except StoreNotFoundError:
            return


class ReadsEverything(MemoryStore):
    async def read(self, path: StorePath, *, limit: int) -> bytes:
        return await super().read(path, limit=1 << 30)


class DeletesDirectoriesAsFiles(MemoryStore):
    async def delete_file(self, path: StorePath) -> bool:
        try:
            return await super().delete_file(path)
        except StoreIsADirectoryError:
            return await self.delete_directory(path, recursive=True)


class AlwaysDeleted(MemoryStore):
    async def delete_file(self, path: StorePath) -> bool:
        await super().delete_file(path)
        return True


class DeletesChildren(MemoryStore):
    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        return await super().delete_directory(path, recursive=True)


class DeletesByPrefix(MemoryStore):
    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        found = await super().delete_directory(path, recursive=recursive)
        if recursive:
            for name in list(self._space.files()):
                if name.startswith(path.path):
                    await self.delete_file(StorePath(path.scheme, path.authority, name))
        return found


class OpensOverFiles(MemoryStore):
    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        with contextlib.suppress(StoreIsADirectoryError):
            await self.delete_file(path)
        return await super().open_writer(path)


class _KeepsBuffers(FileWriter):
    def __init__(self, inner: FileWriter) -> None:
        self._inner = inner
        self._parts: list[bytes | bytearray | memoryview] = []

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        self._parts.append(data)

    async def close(self) -> FileStatus:
        for part in self._parts:
            await self._inner.write(part)
        return await self._inner.close()

    async def abort(self) -> None:
        await self._inner.abort()


class KeepsBuffers(MemoryStore):
    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        return _KeepsBuffers(await super().open_writer(path))


class SaysItMadeIt(MemoryStore):
    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        await super().make_directory(path, parents=parents)
        return True


class ProbesUntidily(MemoryStore):
    async def probe(self, directory: StorePath) -> None:
        await self.put(directory / ".probe", b"")


class HoldsALock(MemoryStore):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.lock = asyncio.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return object.__reduce_ex__(self, 2)  # type: ignore[return-value]
