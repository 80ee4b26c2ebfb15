"""A store that fails when it is told to, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Literal

from committer.errors import StoreError, UnsupportedError
from committer.paths import StorePath
from committer.stores.base import (
    Capabilities,
    FileStatus,
    FileWriter,
    Store,
    SupportsBatchDelete,
    SupportsConditionalDelete,
    SupportsHardLinks,
    SupportsLinks,
    SupportsLocalPaths,
    SupportsSync,
)
from committer.stores.helpers import put_described
from committer.stores.uploads import (
    PendingUpload,
    SupportsBlockLists,
    SupportsUploads,
    UncommittedBlock,
    UploadPart,
    uploads_of,
)
from committer.testing._fault_kinds import Call, Fault, FaultKind, SimulatedCrash
from committer.testing._faulty_calls import FaultyCalls, Hook

__all__ = ["Call", "Fault", "FaultKind", "FaultyStore", "Hook", "SimulatedCrash"]


class FaultyStore(FaultyCalls, Store):
    """Wraps a store and stands for one process's connection to it.

    A listing is one call; what hits it after its effect comes behind its last entry. `local_path` and `close` are no
    store calls: they always work, so that a test can tidy up after a crash.

    Attributes:
        inner: The store itself: what another process, or a test, looks through.
        faults: What goes wrong from now on; the first that fits a call hits it. May be changed at any time.
        calls: Every call so far, in order of arrival.
        before_call: Awaited before each call, crashes included; lets a test do something at exactly that moment.
        after_effect: Called right after each effect, before anything else can happen; of late requests too.
        crashed: Whether the process died.
        under_way: Requests that will still arrive.
    """

    @property
    def scheme(self) -> str:
        """The inner store's."""
        return self.inner.scheme

    @property
    def endpoint(self) -> str:
        """The inner store's."""
        return self.inner.endpoint

    @property
    def capabilities(self) -> Capabilities:
        """The inner store's."""
        return self.inner.capabilities

    async def probe(self, directory: StorePath) -> None:
        """One call."""
        await self.run("probe", lambda: self.inner.probe(directory), directory)

    async def status(self, path: StorePath) -> FileStatus:
        """One call."""
        return await self.run("status", lambda: self.inner.status(path), path)

    def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """One call, however many pages."""
        return self.stream("list", lambda: self.inner.list(directory), directory)

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        """One call."""
        return await self.run("read", lambda: self.inner.read(path, limit=limit), path)

    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        temporary: StorePath | None = None,
        durable: bool = False,
    ) -> FileStatus:
        """One call."""
        return await self.run(
            "put",
            lambda: self.inner.put(path, data, exclusive=exclusive, temporary=temporary, durable=durable),
            path,
        )

    async def put_described(self, path: StorePath, data: bytes, *, metadata: Mapping[str, str]) -> FileStatus:
        """One call, known as `put`."""
        return await self.run("put", lambda: put_described(self.inner, path, data, metadata=metadata), path)

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        """One call; then one for each use of the writer."""
        writer = await self.run("open_writer", lambda: self.inner.open_writer(path, durable=durable), path)
        return _FaultyWriter(self, writer, path)

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """One call."""
        return await self.run("make_directory", lambda: self.inner.make_directory(path, parents=parents), path)

    async def rename_file(
        self, source: StorePath, destination: StorePath, *, replace: bool = False, identity: str | None = None
    ) -> None:
        """One call."""
        await self.run(
            "rename_file",
            lambda: self.inner.rename_file(source, destination, replace=replace, identity=identity),
            source,
            destination,
        )

    async def rename_directory(self, source: StorePath, destination: StorePath) -> None:
        """One call."""
        await self.run(
            "rename_directory", lambda: self.inner.rename_directory(source, destination), source, destination
        )

    async def delete_file(self, path: StorePath) -> bool:
        """One call."""
        return await self.run("delete_file", lambda: self.inner.delete_file(path), path)

    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        """One call."""
        return await self.run("delete_directory", lambda: self.inner.delete_directory(path, recursive=recursive), path)

    async def link_file(self, source: StorePath, destination: StorePath) -> None:
        """One call.

        Raises:
            UnsupportedError: The inner store has no hard links.
        """
        inner = self.inner
        if not isinstance(inner, SupportsHardLinks):
            raise _lacks("hard links", "link_file", source)
        await self.run("link_file", lambda: inner.link_file(source, destination), source, destination)

    async def find_link(self, root: StorePath, directories: Collection[str]) -> str | None:
        """One call.

        Raises:
            UnsupportedError: The inner store has no symbolic links.
        """
        inner = self.inner
        if not isinstance(inner, SupportsLinks):
            raise _lacks("symbolic links", "find_link", root)
        return await self.run("find_link", lambda: inner.find_link(root, directories), root)

    async def sync(self, path: StorePath, *, kind: Literal["file", "directory"]) -> None:
        """One call.

        Raises:
            UnsupportedError: The inner store cannot sync.
        """
        inner = self.inner
        if not isinstance(inner, SupportsSync):
            raise _lacks("syncing", "sync", path)
        await self.run("sync", lambda: inner.sync(path, kind=kind), path)

    def local_path(self, path: StorePath) -> str:
        """The inner store's, never a call.

        Raises:
            UnsupportedError: The inner store has no local paths.
        """
        if not isinstance(self.inner, SupportsLocalPaths):
            raise _lacks("local paths", "local_path", path)
        return self.inner.local_path(path)

    async def delete_file_if(self, path: StorePath, *, identity: str) -> bool:
        """One call.

        Raises:
            UnsupportedError: The inner store deletes nothing on a condition.
        """
        inner = self.inner
        if not isinstance(inner, SupportsConditionalDelete):
            raise _lacks("conditional deletes", "delete_file_if", path)
        return await self.run("delete_file_if", lambda: inner.delete_file_if(path, identity=identity), path)

    async def delete_files(self, paths: Sequence[StorePath]) -> Mapping[StorePath, StoreError]:
        """One call, known by the first of its paths; without any, none.

        Raises:
            UnsupportedError: The inner store deletes one file at a time.
        """
        inner = self.inner
        if not isinstance(inner, SupportsBatchDelete):
            raise _lacks("batch deletes", "delete_files", *paths[:1])
        if not paths:
            return {}
        return await self.run("delete_files", lambda: inner.delete_files(paths), paths[0])

    async def create_upload(self, path: StorePath, *, stamp: str) -> str:
        """One call.

        Raises:
            UnsupportedError: The inner store has no uploads; so below.
        """
        inner = self._uploads("create_upload", path)
        return await self.run("create_upload", lambda: inner.create_upload(path, stamp=stamp), path)

    async def put_part(
        self, path: StorePath, upload_id: str, number: int, data: bytes | bytearray | memoryview
    ) -> UploadPart:
        """One call."""
        inner = self._uploads("put_part", path)
        content = bytes(data)  # It may arrive when the caller's buffer holds something else.
        return await self.run("put_part", lambda: inner.put_part(path, upload_id, number, content), path)

    async def complete_upload(
        self, path: StorePath, upload_id: str, parts: Sequence[UploadPart], *, exclusive: bool = False
    ) -> str | None:
        """One call."""
        inner = self._uploads("complete_upload", path)
        return await self.run(
            "complete_upload", lambda: inner.complete_upload(path, upload_id, parts, exclusive=exclusive), path
        )

    async def abort_upload(self, path: StorePath, upload_id: str) -> bool:
        """One call."""
        inner = self._uploads("abort_upload", path)
        return await self.run("abort_upload", lambda: inner.abort_upload(path, upload_id), path)

    def list_uploads(self, directory: StorePath) -> AsyncIterator[PendingUpload]:
        """One call, however many pages."""
        inner = self._uploads("list_uploads", directory)
        return self.stream("list_uploads", lambda: inner.list_uploads(directory), directory)

    def list_parts(self, path: StorePath, upload_id: str) -> AsyncIterator[UploadPart]:
        """One call, however many pages."""
        inner = self._uploads("list_parts", path)
        return self.stream("list_parts", lambda: inner.list_parts(path, upload_id), path)

    async def put_block(self, path: StorePath, block_id: str, data: bytes | bytearray | memoryview) -> None:
        """One call.

        Raises:
            UnsupportedError: The inner store has no block lists; so below.
        """
        inner = self._block_lists("put_block", path)
        content = bytes(data)  # It may arrive when the caller's buffer holds something else.
        await self.run("put_block", lambda: inner.put_block(path, block_id, content), path)

    async def put_block_list(
        self,
        path: StorePath,
        block_ids: Sequence[str],
        *,
        stamp: str,
        exclusive: bool = False,
        identity: str | None = None,
    ) -> str | None:
        """One call."""
        inner = self._block_lists("put_block_list", path)
        return await self.run(
            "put_block_list",
            lambda: inner.put_block_list(path, block_ids, stamp=stamp, exclusive=exclusive, identity=identity),
            path,
        )

    async def list_uncommitted_blocks(self, path: StorePath) -> Sequence[UncommittedBlock]:
        """One call."""
        inner = self._block_lists("list_uncommitted_blocks", path)
        return await self.run("list_uncommitted_blocks", lambda: inner.list_uncommitted_blocks(path), path)

    async def close(self) -> None:
        """Closes the inner store, never a call."""
        await self.inner.close()

    def _uploads(self, operation: str, path: StorePath) -> SupportsUploads:
        uploads = uploads_of(self.inner)
        if uploads is None:
            raise _lacks("uploads", operation, path)
        return uploads

    def _block_lists(self, operation: str, path: StorePath) -> SupportsBlockLists:
        if not isinstance(self.inner, SupportsBlockLists):
            raise _lacks("block lists", operation, path)
        return self.inner


class _FaultyWriter(FileWriter):
    def __init__(self, store: FaultyStore, inner: FileWriter, path: StorePath) -> None:
        self._store = store
        self._inner = inner
        self._path = path

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        await self._store.run("write", lambda: self._inner.write(data), self._path)

    async def close(self) -> FileStatus:
        return await self._store.run("close_writer", self._inner.close, self._path)

    async def abort(self) -> None:
        await self._store.run("abort_writer", self._inner.abort, self._path)


def _lacks(ability: str, operation: str, *path: StorePath) -> UnsupportedError:
    return UnsupportedError(f"the store has no {ability}", operation=operation, path=path[0] if path else "")
