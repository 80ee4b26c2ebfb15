"""Writers of files on Azure Data Lake Storage Gen2: by append and flush, or small files in one piece."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from committer.errors import (
    CommitterError,
    StoreError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
    StoreUnavailableError,
)
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.adls.wire import AdlsWire, status_in
from committer.stores.azure.errors import code_of, error_of
from committer.stores.base import FileStatus, Store
from committer.stores.helpers import status_or_none
from committer.stores.http import Answer
from committer.stores.sending_writer import SendingWriter

CHUNK_BYTES: Final = 8 << 20
"""Size of the buffer; a smaller file takes two calls in all: create, and append with flush."""

_LARGEST_APPEND_BYTES: Final = 64 << 20
_OCTETS: Final = {"Content-Type": "application/octet-stream"}


class AdlsWriter(SendingWriter):
    """Writer that appends to a file, which is empty until closed.

    An append whose response was lost counts as refused: the same bytes at the same position, before a flush, are the
    same append (Hadoop's ABFS client sends them again, too).
    """

    def __init__(self, wire: AdlsWire, path: StorePath, created: Answer) -> None:
        super().__init__(path)
        self._wire = wire
        self._created = status_in(created.headers, path, size=0)
        self._sent = 0

    def _piece_bytes(self, waiting: int) -> int:
        return min(max(CHUNK_BYTES, waiting), _LARGEST_APPEND_BYTES)

    async def _send_piece(self, data: bytes) -> None:
        query = (("action", "append"), ("position", str(self._sent)))
        try:
            await self._wire.done("write", "PATCH", self._path, query, _OCTETS, data=data)
        except StoreOutcomeUnknownError as error:
            raise StoreUnavailableError(error.message, operation="write", path=self._path) from None
        self._sent += len(data)

    async def _abandon(self) -> None:
        answer = await self._wire.send("abort", "DELETE", self._path, (("recursive", "false"),))
        if answer.status >= 300 and answer.status != 404:
            raise error_of(answer, "abort", self._path)

    async def _finished(self) -> FileStatus:
        """Sends the last bytes with a flush, or a flush alone; if the response is lost, checks the file."""
        length = self._sent + len(self._buffer)
        if not length:
            return self._created
        data = bytes(self._buffer)
        if data:
            query = (("action", "append"), ("flush", "true"), ("position", str(self._sent)))
        else:
            query = (("action", "flush"), ("close", "true"), ("position", str(length)))
        try:
            answer = await self._wire.done("close", "PATCH", self._path, query, _OCTETS, data=data or None)
        except StoreOutcomeUnknownError as error:
            return await self._flushed(length, error)
        if answer.headers.get("ETag"):
            return status_in(answer.headers, self._path, size=length)
        return await self._flushed(length, None)

    async def _flushed(self, length: int, lost: StoreOutcomeUnknownError | None) -> FileStatus:
        """Checks whether the flush was done: only this writer made the file, so its length proves its content."""
        message, found = "the file was flushed, and cannot be looked at", None
        try:
            answer = await self._wire.done("close", "HEAD", self._path, (("action", "getStatus"),), changes=False)
            found = status_in(answer.headers, self._path)
        except CommitterError as error:
            message = error.message
        if found is not None and found.size == length:
            return found
        raise lost or StoreOutcomeUnknownError(message, operation="close", path=self._path)


async def explain_conflict(
    store: Store, operation: str, path: StorePath, *, exclusive: bool, found: FileStatus | None = None
) -> None:
    """Looks up which entry made the service refuse a write, and raises its error: the codes are ambiguous."""
    found = found or await status_or_none(store, path)
    if found is not None:
        if exclusive:
            raise StoreExistsError("something exists there", operation=operation, path=path)
        if found.is_directory:
            raise StoreIsADirectoryError("a directory is there", operation=operation, path=path)
        return
    parent = path.parent
    while parent.path != "/":
        above = await status_or_none(store, parent)
        if above is not None:
            if not above.is_directory:
                raise StoreNotADirectoryError("a file exists at one of its parents", operation=operation, path=path)
            return
        parent = parent.parent


async def check_parent(store: Store, path: StorePath) -> None:
    """Raises if the parent of a new directory is missing: the service would create it."""
    parent = await status_or_none(store, path.parent)
    if parent is None:
        await explain_conflict(store, "make_directory", path.parent, exclusive=False)
        raise StoreNotFoundError("the parent is missing", operation="make_directory", path=path)
    if not parent.is_directory:
        raise StoreNotADirectoryError("its parent is a file", operation="make_directory", path=path)


_BLOB: Final = {"Content-Type": "application/octet-stream", "x-ms-blob-type": "BlockBlob"}
_ABSENT: Final = {"If-None-Match": "*"}
# Responses of accounts whose blob endpoint is disabled, blocked or lacks the call. A missing right looks the same,
# so the rename is tried before the error is raised.
_REFUSED: Final = frozenset({400, 403, 405, 501})


class _How(NamedTuple):
    """Precondition of a put: nothing exists (`exclusive`), the file with an etag exists (`over`), or none."""

    exclusive: bool
    over: str | None

    @property
    def headers(self) -> Mapping[str, str]:
        if self.exclusive:
            return _ABSENT
        return {} if self.over is None else {"If-Match": f'"{self.over}"'}

    def unmet(self, path: StorePath) -> StorePreconditionError:
        return StorePreconditionError("another file is there, or none", operation="put", path=path)


class SmallFiles:
    """Writer of small files, by "Put Blob" or, where the account refuses that, by writing and renaming."""

    def __init__(self, wire: AdlsWire, store: Store) -> None:
        self._wire = wire
        self._store = store
        self._blob_works: bool | None = None

    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        over: str | None = None,
        temporary: StorePath | None = None,
    ) -> FileStatus:
        """Writes a file: see `Store.put`, and for `over`, an etag, `SupportsConditionalReplace.replace_file`."""
        how = _How(exclusive, over)
        if self._blob_works is False:
            return await self._put_by_rename(path, data, how, temporary=temporary)
        answer: Answer | None = None
        refusal: CommitterError | None = None
        try:
            answer = await self._wire.send("put", "PUT", path, (), {**_BLOB, **how.headers}, data=data, blob=True)
        except StoreUnavailableError as error:
            if self._blob_works:
                raise
            refusal = error
        if answer is not None:
            if answer.status < 300:
                self._blob_works = True
                return status_in(answer.headers, path, size=len(data))
            if over is not None and answer.status in (404, 412):
                raise how.unmet(path)
            if answer.status in (409, 412):
                await explain_conflict(self._store, "put", path, exclusive=exclusive)
            refusal = error_of(answer, "put", path, replaces=not exclusive)
            if self._blob_works or answer.status not in _REFUSED:
                raise refusal
        try:
            status = await self._put_by_rename(path, data, how, temporary=temporary)
        except (StoreExistsError, StorePreconditionError):
            self._blob_works = False
            raise
        except StoreError as error:
            # If both ways fail alike, the first refusal is the one to mend.
            if refusal is not None and type(error) is type(refusal):
                raise refusal from None
            raise
        self._blob_works = False
        return status

    async def _put_by_rename(
        self, path: StorePath, data: bytes, how: _How, *, temporary: StorePath | None
    ) -> FileStatus:
        if temporary is None:
            temporary = path.parent / f".{current_runtime().nonce()}.tmp"
        # Replaces a file that a dead run left there.
        answer = await self._wire.send("put", "PUT", temporary, (("resource", "file"),))
        if answer.status in (409, 412):
            await explain_conflict(self._store, "put", temporary, exclusive=False)
        if answer.status >= 300:
            raise error_of(answer, "put", temporary, replaces=True)
        writer = AdlsWriter(self._wire, temporary, answer)
        try:
            await writer.write(data)
            written = await writer.close()
            if how.over is not None:
                await self._rename_over(temporary, path, how, written.identity)
            else:
                await self._rename(temporary, path, exclusive=how.exclusive, identity=written.identity)
        except BaseException:
            with suppress(StoreError):
                await self._store.delete_file(temporary)
            raise
        return FileStatus(path, False, len(data), written.modified, written.identity)

    async def _rename_over(self, temporary: StorePath, path: StorePath, how: _How, identity: str | None) -> None:
        answer = await self._wire.rename("put", temporary, path, replace=True, identity=identity, over=how.over)
        if answer.status == 412 and not code_of(answer).startswith("Source"):
            raise how.unmet(path)
        if answer.status >= 300:
            raise error_of(answer, "put", path, replaces=True)

    async def _rename(self, temporary: StorePath, path: StorePath, *, exclusive: bool, identity: str | None) -> None:
        for made in (False, True):
            try:
                await self._store.rename_file(temporary, path, replace=not exclusive, identity=identity)
                return
            except StoreNotFoundError as error:
                if error.outcome == "unknown":
                    # The destination has the etag of the file just written, which no other client can have renamed.
                    return
                if made or error.path != str(path):
                    raise
            # "Put Blob" creates missing parents and a rename does not: both ways must behave alike.
            await self._store.make_directory(path.parent, parents=True)
