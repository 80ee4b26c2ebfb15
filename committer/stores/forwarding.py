"""Base of store wrappers, and the table of store calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec

from committer.errors import StoreError
from committer.events import names
from committer.flow.pacing import Kind
from committer.paths import StorePath
from committer.stores.abilities import (
    BATCH_DELETE,
    BATCH_RENAME,
    CONDITIONAL_DELETE,
    CONDITIONAL_REPLACE,
    HARD_LINKS,
    LOCAL_PATHS,
    SYNC,
    TREE_COUNTS,
    TREE_LISTING,
    Capabilities,
    TreeCounts,
    Wrapper,
)
from committer.stores.base import FileStatus, FileWriter, Store
from committer.stores.examination import EXAMINATION, Finding
from committer.stores.uploads import BLOCK_LISTS, UPLOADS, PendingUpload, UncommittedBlock, UploadPart

Repetition: TypeAlias = Literal["changes nothing", "repeatable", "once"]
CHANGES_NOTHING: Final = "changes nothing"
REPEATABLE: Final = "repeatable"
ONCE: Final = "once"


class Operation(msgspec.Struct, frozen=True):
    """Description of a store method for wrappers.

    A writer's method has ``writer`` in its name. Calls are counted and timed under `statistic`, if it has any.
    `repetition` says when a call may be repeated after a lost response.
    """

    name: str
    statistic: str
    kind: Kind
    repetition: Repetition


PROBE: Final = Operation("probe", "", "write", CHANGES_NOTHING)
STATUS: Final = Operation("status", names.OP_GET_FILE_STATUS, "read", CHANGES_NOTHING)
LIST: Final = Operation("list", names.OP_LIST_STATUS, "read", CHANGES_NOTHING)
LIST_TREE: Final = Operation("list_tree", names.OP_LIST_STATUS, "read", CHANGES_NOTHING)
READ: Final = Operation("read", names.OP_OPEN, "read", CHANGES_NOTHING)
PUT: Final = Operation("put", names.OP_CREATE, "write", REPEATABLE)
PUT_EXCLUSIVE: Final = Operation("put", names.OP_CREATE, "write", ONCE)
OPEN_WRITER: Final = Operation("open_writer", names.OP_CREATE, "write", ONCE)
WRITE: Final = Operation("write", "", "write", ONCE)
CLOSE_WRITER: Final = Operation("close_writer", "", "write", ONCE)
ABORT_WRITER: Final = Operation("abort_writer", "", "write", REPEATABLE)
MAKE_DIRECTORY: Final = Operation("make_directory", names.OP_MKDIRS, "write", REPEATABLE)
RENAME_FILE: Final = Operation("rename_file", names.COMMIT_FILE_RENAME, "write", ONCE)
RENAME_FILES: Final = Operation("rename_files", names.COMMIT_FILE_RENAME, "write", ONCE)
COUNT_TREE: Final = Operation("count_tree", names.OP_GET_CONTENT_SUMMARY, "read", CHANGES_NOTHING)
RENAME_DIRECTORY: Final = Operation("rename_directory", names.OP_RENAME, "write", ONCE)
DELETE_FILE: Final = Operation("delete_file", names.OP_DELETE, "delete", REPEATABLE)
DELETE_FILE_IF: Final = Operation("delete_file_if", names.OP_DELETE, "delete", REPEATABLE)
DELETE_FILES: Final = Operation("delete_files", names.OBJECT_BULK_DELETE_REQUEST, "delete", REPEATABLE)
DELETE_DIRECTORY: Final = Operation("delete_directory", names.OP_DELETE, "delete", REPEATABLE)
DELETE_TREE: Final = Operation("delete_directory", names.OP_DELETE_DIR, "delete", REPEATABLE)
LINK_FILE: Final = Operation("link_file", names.OP_LINK, "write", ONCE)
ENCLOSE_FILE: Final = Operation("enclose_file", names.OP_RENAME, "write", ONCE)
MADE_ALIKE: Final = Operation("made_alike", names.OP_GET_FILE_STATUS, "read", CHANGES_NOTHING)
FIND_LINK: Final = Operation("find_link", names.OP_GET_FILE_STATUS, "read", CHANGES_NOTHING)
SYNC_TO_DISK: Final = Operation("sync", names.OP_HSYNC, "write", REPEATABLE)
# Named as `put`: wrappers need not tell them apart.
REPLACE_FILE: Final = Operation("put", names.OP_CREATE, "write", ONCE)
PUT_DESCRIBED: Final = Operation("put", names.OP_CREATE, "write", REPEATABLE)
CREATE_UPLOAD: Final = Operation("create_upload", names.OBJECT_MULTIPART_INITIATED, "write", ONCE)
PUT_PART: Final = Operation("put_part", names.MULTIPART_UPLOAD_PART_PUT, "write", REPEATABLE)
COMPLETE_UPLOAD: Final = Operation("complete_upload", names.COMMITTER_MATERIALIZE_FILE, "write", ONCE)
ABORT_UPLOAD: Final = Operation("abort_upload", names.OBJECT_MULTIPART_ABORTED, "delete", REPEATABLE)
LIST_UPLOADS: Final = Operation("list_uploads", names.OBJECT_MULTIPART_LIST, "read", CHANGES_NOTHING)
LIST_PARTS: Final = Operation("list_parts", names.OBJECT_MULTIPART_LIST_PARTS, "read", CHANGES_NOTHING)
PUT_BLOCK: Final = Operation("put_block", names.MULTIPART_UPLOAD_PART_PUT, "write", REPEATABLE)
PUT_BLOCK_LIST: Final = Operation("put_block_list", names.COMMITTER_MATERIALIZE_FILE, "write", ONCE)
LIST_BLOCKS: Final = Operation("list_uncommitted_blocks", names.OBJECT_MULTIPART_LIST_PARTS, "read", CHANGES_NOTHING)


T = TypeVar("T")


class ForwardingStore(Wrapper, Store):
    """Wrapper that forwards every call to `inner`, with those of all optional abilities.

    A subclass overrides `call` (and `stream` for listings) to act on each call, or single methods. `local_path`,
    `findings` and `close` do not go through `call`.
    """

    def __init__(self, inner: Store) -> None:
        self.inner: Store = inner

    async def call(
        self,
        operation: Operation,
        send: Callable[[], Awaitable[T]],
        path: StorePath,
        destination: StorePath | None = None,
    ) -> T:
        """Makes a call by `send`; `path` is its path, or the first of several. A wrapper may call `send` repeatedly."""
        return await send()

    def stream(
        self, operation: Operation, entries: Callable[[], AsyncIterator[T]], path: StorePath
    ) -> AsyncIterator[T]:
        """Makes a listing; see `call`."""
        return entries()

    @property
    def scheme(self) -> str:
        """The inner store's scheme."""
        return self.inner.scheme

    @property
    def endpoint(self) -> str:
        """The inner store's endpoint."""
        return self.inner.endpoint

    @property
    def capabilities(self) -> Capabilities:
        """The inner store's capabilities."""
        return self.inner.capabilities

    async def probe(self, directory: StorePath) -> None:
        """See `Store.probe`."""
        await self.call(PROBE, partial(self.inner.probe, directory), directory)

    async def status(self, path: StorePath) -> FileStatus:
        """See `Store.status`."""
        return await self.call(STATUS, partial(self.inner.status, path), path)

    def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """See `Store.list`."""
        return self.stream(LIST, partial(self.inner.list, directory), directory)

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        """See `Store.read`."""
        return await self.call(READ, partial(self.inner.read, path, limit=limit), path)

    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        temporary: StorePath | None = None,
        durable: bool = False,
    ) -> FileStatus:
        """See `Store.put`."""
        return await self.call(
            PUT_EXCLUSIVE if exclusive else PUT,
            partial(self.inner.put, path, data, exclusive=exclusive, temporary=temporary, durable=durable),
            path,
        )

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        """See `Store.open_writer`; the writer's calls go through `call`, too."""
        writer = await self.call(OPEN_WRITER, partial(self.inner.open_writer, path, durable=durable), path)
        return ForwardingWriter(self, writer, path)

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """See `Store.make_directory`."""
        return await self.call(MAKE_DIRECTORY, partial(self.inner.make_directory, path, parents=parents), path)

    async def rename_file(
        self,
        source: StorePath,
        destination: StorePath,
        *,
        replace: bool = False,
        identity: str | None = None,
        version: str | None = None,
    ) -> None:
        """See `Store.rename_file`."""
        await self.call(
            RENAME_FILE,
            partial(self.inner.rename_file, source, destination, replace=replace, identity=identity, version=version),
            source,
            destination,
        )

    async def rename_files(
        self,
        renames: Sequence[tuple[StorePath, StorePath]],
        *,
        seen: Sequence[tuple[str | None, int]] | None = None,
        looks: bool = True,
    ) -> dict[int, StoreError]:
        """See `SupportsBatchRename.rename_files`; `call` gets the first paths."""
        if not renames:
            return {}
        inner = BATCH_RENAME.required(self.inner, "rename_files", renames[0][0])
        return await self.call(RENAME_FILES, partial(inner.rename_files, renames, seen=seen, looks=looks), *renames[0])

    async def count_tree(self, directory: StorePath) -> TreeCounts:
        """See `SupportsTreeCounts.count_tree`."""
        inner = TREE_COUNTS.required(self.inner, "count_tree", directory)
        return await self.call(COUNT_TREE, partial(inner.count_tree, directory), directory)

    async def rename_directory(self, source: StorePath, destination: StorePath, *, known: bool = False) -> None:
        """See `Store.rename_directory`."""
        await self.call(
            RENAME_DIRECTORY,
            partial(self.inner.rename_directory, source, destination, known=known),
            source,
            destination,
        )

    async def delete_file(self, path: StorePath) -> bool:
        """See `Store.delete_file`."""
        return await self.call(DELETE_FILE, partial(self.inner.delete_file, path), path)

    async def delete_file_if(self, path: StorePath, *, identity: str) -> bool:
        """See `SupportsConditionalDelete.delete_file_if`."""
        inner = CONDITIONAL_DELETE.required(self.inner, "delete_file_if", path)
        return await self.call(DELETE_FILE_IF, partial(inner.delete_file_if, path, identity=identity), path)

    async def replace_file(self, path: StorePath, data: bytes, *, seen: FileStatus) -> FileStatus:
        """See `SupportsConditionalReplace.replace_file`."""
        inner = CONDITIONAL_REPLACE.required(self.inner, "put", path)
        return await self.call(REPLACE_FILE, partial(inner.replace_file, path, data, seen=seen), path)

    async def delete_files(self, files: Mapping[StorePath, str | None]) -> Mapping[StorePath, StoreError]:
        """See `SupportsBatchDelete.delete_files`; `call` gets the first path."""
        if not files:
            return {}
        first = next(iter(files))
        inner = BATCH_DELETE.required(self.inner, "delete_files", first)
        return await self.call(DELETE_FILES, partial(inner.delete_files, files), first)

    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        """See `Store.delete_directory`."""
        return await self.call(
            DELETE_TREE if recursive else DELETE_DIRECTORY,
            partial(self.inner.delete_directory, path, recursive=recursive),
            path,
        )

    async def link_file(self, source: StorePath, destination: StorePath) -> None:
        """See `SupportsHardLinks.link_file`."""
        inner = HARD_LINKS.required(self.inner, "link_file", source)
        await self.call(LINK_FILE, partial(inner.link_file, source, destination), source, destination)

    def list_tree(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """See `SupportsTreeListing.list_tree`."""
        inner = TREE_LISTING.required(self.inner, "list_tree", directory)
        return self.stream(LIST_TREE, partial(inner.list_tree, directory), directory)

    async def made_alike(self, pairs: Sequence[tuple[StorePath, StorePath]]) -> Sequence[bool]:
        """See `SupportsLocalPaths.made_alike`; `call` gets the first pair."""
        inner = LOCAL_PATHS.required(self.inner, "made_alike", pairs[0][0])
        return await self.call(MADE_ALIKE, partial(inner.made_alike, pairs), *pairs[0])

    async def find_link(self, root: StorePath, directories: Collection[str]) -> str | None:
        """See `SupportsLocalPaths.find_link`."""
        inner = LOCAL_PATHS.required(self.inner, "find_link", root)
        return await self.call(FIND_LINK, partial(inner.find_link, root, directories), root)

    def local_path(self, path: StorePath) -> str:
        """See `SupportsLocalPaths.local_path`."""
        return LOCAL_PATHS.required(self.inner, "local_path", path).local_path(path)

    async def enclose_file(self, path: StorePath, name: str) -> None:
        """See `SupportsLocalPaths.enclose_file`."""
        inner = LOCAL_PATHS.required(self.inner, "enclose_file", path)
        await self.call(ENCLOSE_FILE, partial(inner.enclose_file, path, name), path)

    async def sync(self, path: StorePath, *, kind: Literal["file", "directory"]) -> None:
        """See `SupportsSync.sync`."""
        inner = SYNC.required(self.inner, "sync", path)
        await self.call(SYNC_TO_DISK, partial(inner.sync, path, kind=kind), path)

    async def findings(self, directory: StorePath, *, scratch: StorePath | None = None) -> Sequence[Finding]:
        """See `SupportsExamination.findings`."""
        inner = EXAMINATION.required(self.inner, "findings", directory)
        return await inner.findings(directory, scratch=scratch)

    async def put_described(self, path: StorePath, data: bytes, *, metadata: Mapping[str, str]) -> FileStatus:
        """See `SupportsUploads.put_described`."""
        inner = UPLOADS.required(self.inner, "put_described", path)
        return await self.call(PUT_DESCRIBED, partial(inner.put_described, path, data, metadata=metadata), path)

    async def create_upload(self, path: StorePath, *, stamp: str) -> str:
        """See `SupportsUploads.create_upload`."""
        inner = UPLOADS.required(self.inner, "create_upload", path)
        return await self.call(CREATE_UPLOAD, partial(inner.create_upload, path, stamp=stamp), path)

    async def put_part(
        self, path: StorePath, upload_id: str, number: int, data: bytes | bytearray | memoryview
    ) -> UploadPart:
        """See `SupportsUploads.put_part`."""
        inner = UPLOADS.required(self.inner, "put_part", path)
        return await self.call(PUT_PART, partial(inner.put_part, path, upload_id, number, data), path)

    async def complete_upload(
        self, path: StorePath, upload_id: str, parts: Sequence[UploadPart], *, exclusive: bool = False
    ) -> str | None:
        """See `SupportsUploads.complete_upload`."""
        inner = UPLOADS.required(self.inner, "complete_upload", path)
        return await self.call(
            COMPLETE_UPLOAD, partial(inner.complete_upload, path, upload_id, parts, exclusive=exclusive), path
        )

    async def abort_upload(self, path: StorePath, upload_id: str) -> bool:
        """See `SupportsUploads.abort_upload`."""
        inner = UPLOADS.required(self.inner, "abort_upload", path)
        return await self.call(ABORT_UPLOAD, partial(inner.abort_upload, path, upload_id), path)

    def list_uploads(self, directory: StorePath) -> AsyncIterator[PendingUpload]:
        """See `SupportsUploads.list_uploads`."""
        inner = UPLOADS.required(self.inner, "list_uploads", directory)
        return self.stream(LIST_UPLOADS, partial(inner.list_uploads, directory), directory)

    def list_parts(self, path: StorePath, upload_id: str) -> AsyncIterator[UploadPart]:
        """See `SupportsUploads.list_parts`."""
        inner = UPLOADS.required(self.inner, "list_parts", path)
        return self.stream(LIST_PARTS, partial(inner.list_parts, path, upload_id), path)

    async def put_block(self, path: StorePath, block_id: str, data: bytes | bytearray | memoryview) -> None:
        """See `SupportsBlockLists.put_block`."""
        inner = BLOCK_LISTS.required(self.inner, "put_block", path)
        await self.call(PUT_BLOCK, partial(inner.put_block, path, block_id, data), path)

    async def put_block_list(
        self,
        path: StorePath,
        block_ids: Sequence[str],
        *,
        stamp: str,
        exclusive: bool = False,
        identity: str | None = None,
    ) -> str | None:
        """See `SupportsBlockLists.put_block_list`."""
        inner = BLOCK_LISTS.required(self.inner, "put_block_list", path)
        return await self.call(
            PUT_BLOCK_LIST,
            partial(inner.put_block_list, path, block_ids, stamp=stamp, exclusive=exclusive, identity=identity),
            path,
        )

    async def list_uncommitted_blocks(self, path: StorePath) -> Sequence[UncommittedBlock]:
        """See `SupportsBlockLists.list_uncommitted_blocks`."""
        inner = BLOCK_LISTS.required(self.inner, "list_uncommitted_blocks", path)
        return await self.call(LIST_BLOCKS, partial(inner.list_uncommitted_blocks, path), path)

    async def close(self) -> None:
        """Closes the inner store."""
        await self.inner.close()


class ForwardingWriter(FileWriter):
    """Writer whose calls go through `ForwardingStore.call`.

    A wrapper may repeat a refused `write` or `close`, so a writer that raises `StoreThrottledError` or
    `StoreUnavailableError` must take the same call again.
    """

    def __init__(self, store: ForwardingStore, inner: FileWriter, path: StorePath) -> None:
        self._store = store
        self._inner = inner
        self._path = path

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `FileWriter.write`."""
        await self._store.call(WRITE, partial(self._inner.write, data), self._path)

    async def close(self) -> FileStatus:
        """See `FileWriter.close`."""
        return await self._store.call(CLOSE_WRITER, self._inner.close, self._path)

    async def abort(self) -> None:
        """See `FileWriter.abort`."""
        await self._store.call(ABORT_WRITER, self._inner.abort, self._path)
