"""Files of a task attempt that wait in uploads, each told to Hadoop's committer, which may abort the attempt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from committer.committers.magic.layout import run_directory
from committer.committers.pending_sets import pending_of
from committer.errors import StoreError
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.paths import StorePath
from committer.records.pending_set import MAGIC_LENGTH, PENDING_SET_SUFFIX, PENDING_SUFFIX, encode_pending
from committer.stages.base import StageContext
from committer.stages.names import is_absolute
from committer.stages.task_output import AttemptIdentity
from committer.stages.uploaded_files import UploadedFiles
from committer.stores.base import FileStatus, FileWriter
from committer.stores.helpers import put_described
from committer.stores.upload_ends import end_upload


class PendingFiles(UploadedFiles):
    """Files that wait in uploads, as S3A's magic committer leaves them while their task attempt runs.

    Closing one costs 2 calls more: a marker, an empty object whose metadata says how long the file will be, then the
    record of its upload, which Hadoop's abort of the attempt goes by. (The order is ``S3MagicCommitTracker``'s.) Each
    run of an attempt has a directory of its own below the attempt's.

    Args:
        context: The job, with the attempt's own statistics.
        identity: Which run of which attempt.
    """

    def __init__(self, context: StageContext, identity: AttemptIdentity) -> None:
        super().__init__(context, identity)
        self._identity = identity
        attempt = context.layout.task_attempt_id(identity.task, identity.attempt)
        self._base = run_directory(context.layout, attempt, identity.nonce)

    async def open(self, destination: str, staged: str) -> FileWriter:
        """Begins the upload, lists it."""
        writer = await super().open(destination, staged)

        async def record(status: FileStatus) -> None:
            try:
                await self._record(destination, staged, status)
            except BaseException:
                # No process could finish the file any more.
                with suppress(StoreError):
                    await run_shielded(lambda: self._end(staged, status.path), bound_s=UNDO_BOUND_S)
                raise

        return _RecordedWriter(writer, record)

    def kept_at(self, staged: str) -> StorePath:
        """In an upload, of which a record tells."""
        return self._base / f"{staged}{PENDING_SUFFIX}"

    async def _record(self, destination: str, staged: str, status: FileStatus) -> None:
        store, record = self._context.store, self.kept_at(staged)
        absolute = destination if is_absolute(destination) else ""
        file = self.written(staged, status, absolute=absolute)
        marker = self._base / staged
        if not marker.name.endswith((PENDING_SUFFIX, PENDING_SET_SUFFIX)):
            # Hadoop would take one of such a name for a record.
            await put_described(store, marker, b"", metadata={MAGIC_LENGTH: str(file.size)})
        pending = pending_of(self._context, self._identity, file, attempt="")
        data = encode_pending(pending, etags=self._context.config.pending_etags)
        await store.put(record, data)

    async def _end(self, staged: str, path: StorePath) -> None:
        await end_upload(self._context.store, path, self._entries[staged].id)


class _RecordedWriter(FileWriter):
    def __init__(self, inner: FileWriter, record: Callable[[FileStatus], Awaitable[None]]) -> None:
        self._inner = inner
        self._record = record

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        await self._inner.write(data)

    async def close(self) -> FileStatus:
        status = await self._inner.close()
        await self._record(status)
        return status

    async def abort(self) -> None:
        await self._inner.abort()
