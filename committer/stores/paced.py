"""A store whose calls are paced, counted and, where that is safe, sent again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Literal, cast

from committer.errors import StoreError, UnsupportedError
from committer.events import names
from committer.flow.retry import RetryPolicy, nothing_was_done
from committer.paths import StorePath
from committer.stores.base import (
    Capabilities,
    FileStatus,
    FileWriter,
    Store,
    SupportsBatchDelete,
    SupportsBatchRename,
    SupportsConditionalDelete,
    SupportsHardLinks,
    SupportsLinks,
    SupportsLocalPaths,
    SupportsSync,
)
from committer.stores.helpers import put_described
from committer.stores.paced_calls import CHANGES_NOTHING, ONCE, REPEATABLE, PacedCalls, out_of_memory
from committer.stores.uploads import (
    PendingUpload,
    SupportsBlockLists,
    SupportsUploads,
    UncommittedBlock,
    UploadPart,
    uploads_of,
)


class PacedStore(PacedCalls, Store):
    """Wraps a store so that each wire attempt takes one permit of its endpoint, and a definite refusal is retried.

    What is retried. After `StoreThrottledError` and `StoreUnavailableError`, which leave nothing behind: everything.
    After a lost answer (`StoreOutcomeUnknownError`):

    - `status`, `read`, `probe`, `list_uncommitted_blocks`, and listings (`list`, `list_uploads`, `list_parts`) until
      their first entry is there. They change nothing, so an answer that stays lost is raised as
      `StoreUnavailableError`.
    - `put` that may replace, `make_directory`, the deletes, `sync`, giving up a writer, sending a part or a block,
      aborting an upload. The result is the same after the second time, but the first may have done it:
      `make_directory` may then say False of a directory it made, the deletes and the abort False of what they deleted,
      and a conditional delete may meet what others put there since (its outcome is ``unknown`` then). A repeated
      delete, or put, also hits what others put under that path in between; what several parties create under
      one name (a lock) must be given up by renaming it away.
    - Never `put` with `exclusive`, `open_writer`, writing to a file and closing it, renames, links, completing an
      upload, putting a block list: the second time would fail because of the first, or destroy what it did. Nor
      beginning an upload: the first would pend unknown. Who calls them looks.

    What is counted, under Hadoop's names: each operation once with its duration, waits and retries included;
    ``store_io_request`` each attempt, ``store_io_retry`` each further one, ``store_io_throttled`` each refusal,
    ``store_io_rate_limited`` (durations only) each wait for a permit. A listing takes one permit and is timed until its
    first entry; later pages are neither. Renames of files are ``commit_file_rename``, of directories ``op_rename``;
    completing an upload and putting a block list are ``committer_materialize_file``. Names that an answer to
    `delete_files` says were refused are sent again, and count as a further attempt.

    Args:
        inner: The store.
        pacer: The limits of its endpoint.
        statistics: Where calls are counted.
        retry_policy: How often and how fast calls are sent again.
        owned: Whether closing this closes the inner store: not one that a user gave, who may have other work for it.
        weights: Tokens of the rate that a call costs, by what it does.
        claim: What was asked of the endpoint's limits for this store, and ends when it is closed.
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
        """See `Store.probe`; takes one permit for its handful of calls."""
        await self._attempts(lambda: self.inner.probe(directory), "write", CHANGES_NOTHING)

    async def status(self, path: StorePath) -> FileStatus:
        """See `Store.status`."""
        return await self._call(names.OP_GET_FILE_STATUS, lambda: self.inner.status(path), "read", CHANGES_NOTHING)

    def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """See `Store.list`; no permit is held between entries."""
        return self._stream(names.OP_LIST_STATUS, lambda: self.inner.list(directory))

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        """See `Store.read`."""
        return await self._call(names.OP_OPEN, lambda: self.inner.read(path, limit=limit), "read", CHANGES_NOTHING)

    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        temporary: StorePath | None = None,
        durable: bool = False,
    ) -> FileStatus:
        """See `Store.put`; repeated after a lost answer unless `exclusive`."""
        return await self._call(
            names.OP_CREATE,
            lambda: self.inner.put(path, data, exclusive=exclusive, temporary=temporary, durable=durable),
            "write",
            ONCE if exclusive else REPEATABLE,
        )

    async def put_described(self, path: StorePath, data: bytes, *, metadata: Mapping[str, str]) -> FileStatus:
        """See `SupportsMetadata.put_described`; repeated after a lost answer."""
        return await self._call(
            names.OP_CREATE,
            lambda: put_described(self.inner, path, data, metadata=metadata),
            "write",
            REPEATABLE,
        )

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        """See `Store.open_writer`; the writer is paced too."""
        writer = await self._call(names.OP_CREATE, lambda: self.inner.open_writer(path, durable=durable), "write", ONCE)
        return PacedWriter(self, writer)

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """See `Store.make_directory`; False may be wrong after an answer was lost."""
        made = await self._call(
            names.OP_MKDIRS, lambda: self.inner.make_directory(path, parents=parents), "write", REPEATABLE
        )
        if not made:
            self.statistics.count(names.OP_MKDIR_RETURNED_FALSE)
        return made

    async def rename_file(
        self, source: StorePath, destination: StorePath, *, replace: bool = False, identity: str | None = None
    ) -> None:
        """See `Store.rename_file`; never repeated after a lost answer."""
        # The one call made for every file. What `_call` does is done here, without a second coroutine and a closure,
        # for as long as all goes well: a third less CPU.
        statistics, pacer = self.statistics, self.pacer
        monotonic = pacer.runtime.monotonic
        started = monotonic()
        if not pacer.take("write", started, self._costs):
            await self._call(
                names.COMMIT_FILE_RENAME, self._renamed(source, destination, replace, identity), "write", ONCE
            )
            return
        statistics.count(names.STORE_IO_REQUEST)
        try:
            await self.inner.rename_file(source, destination, replace=replace, identity=identity)
        except BaseException as error:
            again = self._renamed(source, destination, replace, identity)
            await self._call_failed(names.COMMIT_FILE_RENAME, again, "write", ONCE, started, error)
            return
        pacer.give_back(started, None)
        statistics.done(names.COMMIT_FILE_RENAME, monotonic() - started)

    @property
    def renames_in_batches(self) -> bool:
        """The inner store's."""
        return isinstance(self.inner, SupportsBatchRename) and self.inner.renames_in_batches

    async def rename_files(self, renames: Sequence[tuple[StorePath, StorePath]]) -> dict[int, StoreError]:
        """See `SupportsBatchRename.rename_files`; one permit, and as many tokens and counts as there are files."""
        statistics, many = self.statistics, len(renames)
        async with self.pacer.permit("write", many * self._costs["write"]) as permit:
            if permit.waited_s > 0.0:
                statistics.duration(names.STORE_IO_RATE_LIMITED, permit.waited_s)
            statistics.count(names.STORE_IO_REQUEST, many)
            started = self.pacer.runtime.monotonic()
            try:
                errors = await cast("SupportsBatchRename", self.inner).rename_files(renames)
            except MemoryError as error:
                # Some were renamed, or all, or none.
                errors = dict.fromkeys(range(many), out_of_memory(error))
        each = (self.pacer.runtime.monotonic() - started) / max(1, many)
        for _renamed in range(many - len(errors)):
            statistics.done(names.COMMIT_FILE_RENAME, each)
        if errors:
            statistics.count(names.COMMIT_FILE_RENAME, len(errors))
            statistics.count(names.COMMIT_FILE_RENAME + names.FAILURES, len(errors))
        return errors

    def _renamed(
        self, source: StorePath, destination: StorePath, replace: bool, identity: str | None
    ) -> Callable[[], Awaitable[None]]:
        return lambda: self.inner.rename_file(source, destination, replace=replace, identity=identity)

    async def rename_directory(self, source: StorePath, destination: StorePath) -> None:
        """See `Store.rename_directory`; never repeated after a lost answer."""
        await self._call(names.OP_RENAME, lambda: self.inner.rename_directory(source, destination), "write", ONCE)

    async def delete_file(self, path: StorePath) -> bool:
        """See `Store.delete_file`; False may be wrong after an answer was lost."""
        return await self._call(names.OP_DELETE, lambda: self.inner.delete_file(path), "delete", REPEATABLE)

    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        """See `Store.delete_directory`; False may be wrong after an answer was lost."""
        return await self._call(
            names.OP_DELETE_DIR if recursive else names.OP_DELETE,
            lambda: self.inner.delete_directory(path, recursive=recursive),
            "delete",
            REPEATABLE,
        )

    async def link_file(self, source: StorePath, destination: StorePath) -> None:
        """See `SupportsHardLinks.link_file`; never repeated after a lost answer.

        Raises:
            UnsupportedError: The inner store has no hard links.
        """
        inner = self.inner
        if not isinstance(inner, SupportsHardLinks):
            raise self._lacks("hard links", "link_file")
        await self._call(names.OP_LINK, lambda: inner.link_file(source, destination), "write", ONCE)

    async def find_link(self, root: StorePath, directories: Collection[str]) -> str | None:
        """See `SupportsLinks.find_link`.

        Raises:
            UnsupportedError: The inner store has no symbolic links.
        """
        # Asked once: what a protocol is compared with costs 10 microseconds, and this is called for every record.
        if not self._finds_links:
            if not isinstance(self.inner, SupportsLinks):
                raise self._lacks("symbolic links", "find_link")
            self._finds_links = True
        inner = cast("SupportsLinks", self.inner)
        return await self._call(
            names.OP_GET_FILE_STATUS, lambda: inner.find_link(root, directories), "read", CHANGES_NOTHING
        )

    def local_path(self, path: StorePath) -> str:
        """See `SupportsLocalPaths.local_path`; no call.

        Raises:
            UnsupportedError: Files of the inner store have no local paths.
        """
        if not isinstance(self.inner, SupportsLocalPaths):
            raise self._lacks("local paths", "local_path")
        return self.inner.local_path(path)

    async def sync(self, path: StorePath, *, kind: Literal["file", "directory"]) -> None:
        """See `SupportsSync.sync`.

        Raises:
            UnsupportedError: The inner store cannot force anything to the disk.
        """
        inner = self.inner
        if not isinstance(inner, SupportsSync):
            raise self._lacks("syncing to the disk", "sync")
        await self._call(names.OP_HSYNC, lambda: inner.sync(path, kind=kind), "write", REPEATABLE)

    async def delete_file_if(self, path: StorePath, *, identity: str) -> bool:
        """See `SupportsConditionalDelete.delete_file_if`; False may be wrong after an answer was lost.

        Raises:
            UnsupportedError: The inner store deletes nothing on a condition.
        """
        inner = self.inner
        if not isinstance(inner, SupportsConditionalDelete):
            raise self._lacks("conditional deletes", "delete_file_if")
        return await self._call(
            names.OP_DELETE, lambda: inner.delete_file_if(path, identity=identity), "delete", REPEATABLE
        )

    async def delete_files(self, paths: Sequence[StorePath]) -> Mapping[StorePath, StoreError]:
        """See `SupportsBatchDelete.delete_files`; names that alone were refused are sent again.

        A permit costs the weight of a delete for each name, as in Hadoop's S3 client (`S3AStoreImpl.deleteObjects`):
        the service counts names, not calls.

        Raises:
            UnsupportedError: The inner store deletes one file at a time.
        """
        inner = self.inner
        if not isinstance(inner, SupportsBatchDelete):
            raise self._lacks("batch deletes", "delete_files")
        left = list(paths)
        failed: dict[StorePath, StoreError] = {}
        refused: dict[StorePath, StoreError] = {}

        async def attempt() -> None:
            nonlocal refused
            found = await inner.delete_files(left)
            refused = {path: error for path, error in found.items() if nothing_was_done(error)}
            failed.update((path, error) for path, error in found.items() if path not in refused)
            left[:] = refused
            for error in refused.values():
                raise error

        try:
            if left:
                with self.statistics.timed(names.OBJECT_BULK_DELETE_REQUEST):
                    await self._attempts(attempt, "delete", REPEATABLE, of=left)
        except StoreError as error:
            # Of one name, and not of the call.
            if not any(error is one for one in refused.values()):
                raise
        return failed | refused

    async def create_upload(self, path: StorePath, *, stamp: str) -> str:
        """See `SupportsUploads.create_upload`; never repeated after a lost answer, which would hide an upload.

        Raises:
            UnsupportedError: The inner store has no uploads; so below.
        """
        inner = self._uploads("create_upload")
        return await self._call(
            names.OBJECT_MULTIPART_INITIATED, lambda: inner.create_upload(path, stamp=stamp), "write", ONCE
        )

    async def put_part(
        self, path: StorePath, upload_id: str, number: int, data: bytes | bytearray | memoryview
    ) -> UploadPart:
        """See `SupportsUploads.put_part`."""
        inner = self._uploads("put_part")
        return await self._call(
            names.MULTIPART_UPLOAD_PART_PUT,
            lambda: inner.put_part(path, upload_id, number, data),
            "write",
            REPEATABLE,
        )

    async def complete_upload(
        self, path: StorePath, upload_id: str, parts: Sequence[UploadPart], *, exclusive: bool = False
    ) -> str | None:
        """See `SupportsUploads.complete_upload`; never repeated after a lost answer."""
        inner = self._uploads("complete_upload")
        return await self._call(
            names.COMMITTER_MATERIALIZE_FILE,
            lambda: inner.complete_upload(path, upload_id, parts, exclusive=exclusive),
            "write",
            ONCE,
        )

    async def abort_upload(self, path: StorePath, upload_id: str) -> bool:
        """See `SupportsUploads.abort_upload`; False may be wrong after an answer was lost."""
        inner = self._uploads("abort_upload")
        return await self._call(
            names.OBJECT_MULTIPART_ABORTED, lambda: inner.abort_upload(path, upload_id), "delete", REPEATABLE
        )

    def list_uploads(self, directory: StorePath) -> AsyncIterator[PendingUpload]:
        """See `SupportsUploads.list_uploads`; no permit is held between entries."""
        inner = self._uploads("list_uploads")
        return self._stream(names.OBJECT_MULTIPART_LIST, lambda: inner.list_uploads(directory))

    def list_parts(self, path: StorePath, upload_id: str) -> AsyncIterator[UploadPart]:
        """See `SupportsUploads.list_parts`; no permit is held between entries."""
        inner = self._uploads("list_parts")
        return self._stream(names.OBJECT_MULTIPART_LIST_PARTS, lambda: inner.list_parts(path, upload_id))

    async def put_block(self, path: StorePath, block_id: str, data: bytes | bytearray | memoryview) -> None:
        """See `SupportsBlockLists.put_block`.

        Raises:
            UnsupportedError: The inner store has no block lists; so below.
        """
        inner = self._block_lists("put_block")
        await self._call(
            names.MULTIPART_UPLOAD_PART_PUT, lambda: inner.put_block(path, block_id, data), "write", REPEATABLE
        )

    async def put_block_list(
        self,
        path: StorePath,
        block_ids: Sequence[str],
        *,
        stamp: str,
        exclusive: bool = False,
        identity: str | None = None,
    ) -> str | None:
        """See `SupportsBlockLists.put_block_list`; never repeated after a lost answer."""
        inner = self._block_lists("put_block_list")
        return await self._call(
            names.COMMITTER_MATERIALIZE_FILE,
            lambda: inner.put_block_list(path, block_ids, stamp=stamp, exclusive=exclusive, identity=identity),
            "write",
            ONCE,
        )

    async def list_uncommitted_blocks(self, path: StorePath) -> Sequence[UncommittedBlock]:
        """See `SupportsBlockLists.list_uncommitted_blocks`."""
        inner = self._block_lists("list_uncommitted_blocks")
        return await self._call(
            names.OBJECT_MULTIPART_LIST_PARTS,
            lambda: inner.list_uncommitted_blocks(path),
            "read",
            CHANGES_NOTHING,
        )

    async def close(self) -> None:
        """Closes the inner store where it is owned, and asks nothing more of the endpoint's limits; takes no permit."""
        if self.claim is not None:
            self.claim.release()
        if self.owned:
            await self.inner.close()

    def _uploads(self, operation: str) -> SupportsUploads:
        uploads = uploads_of(self.inner)
        if uploads is None:
            raise self._lacks("uploads", operation)
        return uploads

    def _block_lists(self, operation: str) -> SupportsBlockLists:
        if not isinstance(self.inner, SupportsBlockLists):
            raise self._lacks("block lists", operation)
        return self.inner

    def _lacks(self, ability: str, operation: str) -> UnsupportedError:
        return UnsupportedError(
            f"the store {self.scheme}: has no {ability}",
            operation=operation,
            next_step="ask the store's capabilities before calling this",
        )


class PacedWriter(FileWriter):
    """A file being written, a permit for each call.

    A refused `write` or `close` is made again, so a writer that raises `StoreThrottledError` or `StoreUnavailableError`
    must be as it was before the call.
    """

    def __init__(self, store: PacedStore, inner: FileWriter) -> None:
        self._store = store
        self._inner = inner

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `FileWriter.write`."""
        await self._store._attempts(lambda: self._inner.write(data), "write", ONCE)

    async def close(self) -> FileStatus:
        """See `FileWriter.close`."""
        return await self._store._attempts(self._inner.close, "write", ONCE)

    async def abort(self) -> None:
        """See `FileWriter.abort`."""
        await self._store._attempts(self._inner.abort, "write", REPEATABLE)


def without_retries(store: Store) -> Store:
    """The same store, limits and counts, each call sent once: for who counts attempts itself."""
    if not isinstance(store, PacedStore):
        return store
    return PacedStore(
        store.inner,
        pacer=store.pacer,
        statistics=store.statistics,
        retry_policy=RetryPolicy(attempts=1),
        owned=store.owned,
        weights=store.weights,
        claim=store.claim,
    )
