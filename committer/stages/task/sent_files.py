"""Files of a task attempt that are sent to the store as pending uploads, or as blocks, under their final names."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from committer.errors import StoreError, StorePartsError, TaskError
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.paths import StorePath
from committer.records.pending_uploads import ListedUpload, UploadEntry, UploadList, encode_upload_list
from committer.stages.base import AttemptIdentity, StageContext, WrittenFile
from committer.stages.state.job_liveness import check_job_is_live
from committer.stages.task.attempt_files import AttemptFiles
from committer.stores.base import FileStatus, FileWriter, Store
from committer.stores.helpers import bytes_of, end_upload
from committer.stores.uploads import BLOCK_LISTS, UPLOADS, UploadPart

Part = TypeVar("Part")


class Sending(NamedTuple):
    """Settings for sending files: their stamp, the length of all parts but the last, and the most under way."""

    stamp: str
    part_bytes: int
    in_flight: int


Finished: TypeAlias = Callable[[Sequence[Part], FileStatus], Awaitable[None]]
"""Callback of a writer with the parts of a file that was sent whole; if it fails, the file is aborted."""


class PartWriter(FileWriter, Generic[Part]):
    """Base class of writers that send a file in parts and make nothing visible. Memory: (2 + `in_flight`) parts."""

    def __init__(self, store: Store, path: StorePath, sending: Sending, finished: Finished[Part]) -> None:
        self._store = store
        self._path = path
        self._stamp = sending.stamp
        self._part_bytes = sending.part_bytes
        self._in_flight = sending.in_flight
        self._most = store.capabilities.max_parts
        self._finished = finished
        self._buffer = bytearray()
        self._size = 0
        self._begun = 0
        self._parts: dict[int, Part] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._ended = False

    @abstractmethod
    async def _put(self, number: int, data: bytearray) -> Part:
        """Sends a part; numbers start at 1."""

    @abstractmethod
    async def _drop(self) -> None:
        """Drops what was sent, where the store can."""

    @abstractmethod
    async def _close_empty(self) -> None:
        """Sends what an empty file consists of."""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Buffers data, sends every full part, waits while `in_flight` are under way. `TaskError`: too many parts."""
        self._check_usable()
        view = memoryview(bytes_of(data))
        while view:
            room = self._part_bytes - len(self._buffer)
            self._buffer += view[:room]
            self._size += len(view[:room])
            view = view[room:]
            if len(self._buffer) == self._part_bytes:
                await self._send()

    async def close(self) -> FileStatus:
        """Sends the rest and waits for every part. Any failure aborts the file: no process could finish it."""
        try:
            return await self._finish()
        except BaseException:
            with suppress(StoreError):
                await run_shielded(self.abort, bound_s=UNDO_BOUND_S)
            raise

    async def _finish(self) -> FileStatus:
        self._check_usable()
        if self._buffer:
            await self._send()
        elif not self._begun:
            await self._close_empty()
        while self._sending:
            await self._wait_for_one()
        self._check_usable()
        status = FileStatus(self._path, False, self._size, stamp=self._stamp)
        await self._finished([self._parts[number] for number in range(1, self._begun + 1)], status)
        self._ended = True
        return status

    async def abort(self) -> None:
        """Stops requests in flight and drops sent data; no effect on a closed file."""
        if self._ended:
            return
        await self.stop()
        await self._drop()

    async def stop(self) -> None:
        """Stops requests in flight: nothing is sent once this returns. Sent data stays; no call."""
        self._ended = True
        self._buffer = bytearray()
        for task in self._sending:
            task.cancel()
        while self._sending:
            await self._wait_for_one()

    async def _send(self) -> None:
        if self._most is not None and self._begun == self._most:
            raise TaskError(
                f"the file has more than {self._most} parts of {self._part_bytes} bytes, which is as many as the store "
                "takes",
                operation="write",
                path=self._path,
                next_step="write smaller files, or raise multipart_size (fs.s3a.multipart.size)",
            )
        while len(self._sending) >= self._in_flight:
            await self._wait_for_one()
        self._check_usable()
        self._begun += 1
        data, self._buffer = self._buffer, bytearray()
        self._sending.add(asyncio.create_task(self._sent(self._begun, data)))

    async def _sent(self, number: int, data: bytearray) -> None:
        self._parts[number] = await self._put(number, data)

    async def _wait_for_one(self) -> None:
        done, self._sending = await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            self._failure = self._failure or error

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._ended:
            raise TaskError(
                "the file is closed, or was given up",
                operation="write",
                path=self._path,
                next_step="open another file, under another name",
            )


W = TypeVar("W", bound=PartWriter[Any])


class SentFiles(AttemptFiles, Generic[W]):
    """Base class of files that wait in the store under their final names until the job is committed."""

    def __init__(self, context: StageContext, directory: StorePath) -> None:
        super().__init__(context)
        self._entries: dict[str, UploadEntry] = {}
        self._open: dict[str, W] = {}
        # Parts as long as the job wants, within the store's limits.
        can, config = context.store.capabilities, context.config
        part_bytes = max(config.multipart_size, can.min_part_bytes)
        self._sending = Sending(
            context.layout.stamp(directory.name),
            min(part_bytes, can.max_part_bytes or part_bytes),
            config.multipart_in_flight,
        )

    def _sent(self, staged: str, entry: UploadEntry) -> None:
        self._entries[staged] = entry
        del self._open[staged]

    def written(self, staged: str, status: FileStatus, *, absolute: str) -> WrittenFile:
        """Returns the name, the size and the upload."""
        return WrittenFile(staged, status.size, None, absolute=absolute, upload=self._entries[staged])

    async def stop(self) -> None:
        """Stops sending files that were not closed."""
        for writer in tuple(self._open.values()):
            await writer.stop()


class UploadWriter(PartWriter[UploadPart]):
    """A writer that sends the parts of an upload and never completes it; `abort` aborts the upload."""

    def __init__(
        self, store: Store, path: StorePath, upload_id: str, sending: Sending, finished: Finished[UploadPart]
    ) -> None:
        super().__init__(store, path, sending, finished)
        self._uploads = UPLOADS.required(store, "open_writer", path)
        self._upload_id = upload_id

    async def _put(self, number: int, data: bytearray) -> UploadPart:
        return await self._uploads.put_part(self._path, self._upload_id, number, data)

    async def _close_empty(self) -> None:
        # One part without content: a completion names at least one.
        await self._send()

    async def _drop(self) -> None:
        await end_upload(self._store, self._path, self._upload_id)


class UploadedFiles(SentFiles[UploadWriter]):
    """Files whose bytes go to uploads to their destinations, completed when the job is committed.

    Opening one costs 3 calls before anything is sent: the upload is created, then listed in the job's
    directory, then the job is checked. Concurrent opens share all but the first. The lists are read once a job
    is decided. So either an upload is found listed, or its task attempt finds the job decided or gone: an
    executor that outlives its job, and is killed then, leaves no part behind.
    """

    def __init__(self, context: StageContext, identity: AttemptIdentity) -> None:
        layout = context.layout
        directory = layout.task_attempt_directory(*identity)
        super().__init__(context, directory)
        attempt_id = layout.task_attempt_id(identity.task, identity.attempt)
        self._list = ListBeingWritten(context, layout.uploads / directory.name, attempt_id)
        self._begun: dict[str, StorePath] = {}

    async def open(self, destination: str, staged: str) -> FileWriter:
        """Creates the upload and lists it."""
        context = self._context
        path = context.layout.target(destination)
        uploads = UPLOADS.required(context.store, "create_upload", path)
        # After a lost response the upload has no part, and is found by its name if that contains the job's token.
        upload_id = await uploads.create_upload(path, stamp=self._sending.stamp)
        self._begun[upload_id] = path

        async def finished(parts: Sequence[UploadPart], status: FileStatus) -> None:
            self._sent(staged, entry_of(upload_id, parts))
            await self._record(destination, staged, status)

        writer = self._open[staged] = UploadWriter(context.store, path, upload_id, self._sending, finished)
        try:
            await self._list.add(ListedUpload(destination, upload_id))
        except BaseException:
            with suppress(StoreError):
                await run_shielded(writer.abort, bound_s=UNDO_BOUND_S)
            raise
        return writer

    async def _record(self, destination: str, staged: str, status: FileStatus) -> None:
        """Records a file that is closed, beside the list; by default does nothing."""

    def uploads(self) -> Sequence[tuple[StorePath, str]]:
        """Returns every upload that this run began, those of aborted files included."""
        return [(path, upload_id) for upload_id, path in self._begun.items()]


class ListBeingWritten:
    """The list of uploads of one run: each put writes what was added since the last one, under a new name."""

    def __init__(self, context: StageContext, directory: StorePath, attempt_id: str) -> None:
        self._context = context
        self._directory = directory
        self._attempt_id = attempt_id
        self._waiting: list[ListedUpload] = []
        self._put = 0
        self._turn = asyncio.Lock()

    async def add(self, upload: ListedUpload) -> None:
        """Lists the upload in the store, then checks that the job is undecided; raises as `check_job_is_live`."""
        self._waiting.append(upload)
        async with self._turn:
            if upload not in self._waiting:
                return
            # Uploads of a failed put stay in the queue: the next list names them again, which is harmless.
            taken = tuple(self._waiting)
            layout = self._context.layout
            record = UploadList(job_id=layout.job_id, task_attempt=self._attempt_id, uploads=taken)
            self._put += 1
            if self._context.spec.hadoop:
                # The job has no setup record: the list could create its directory again.
                await check_job_is_live(self._context, operation="open")
            await self._context.store.put(self._directory / f"{self._put:05d}", encode_upload_list(record))
            await check_job_is_live(self._context, operation="open")
            del self._waiting[: len(taken)]


def entry_of(upload_id: str, parts: Sequence[UploadPart]) -> UploadEntry:
    """Returns the record entry of an upload with these parts, numbered from 1 without gaps."""
    checksums = tuple(part.checksum for part in parts if part.checksum is not None)
    whole = len(checksums) == len(parts)
    return UploadEntry(
        id=upload_id,
        etags=tuple(part.etag for part in parts),
        checksums=checksums if whole else (),
        algorithm=parts[0].checksum_algorithm if whole else None,
    )


MARK: Final = "blocks"
"""Name of the mark in the directory of a run that began to send blocks; an abort deletes it."""

_TOKEN_BYTES: Final = 16


class BlockFiles(SentFiles["_BlockWriter"]):
    """Files that are sent as blocks to their destinations; the job commit makes files of them.

    Opening one costs a call to check the job, the first one another to create the mark. An abort deletes the mark and
    can delete nothing else; a job commit looks for it. All writers of a name share its blocks, so each file has a
    random token as prefix of its block ids, which no other writer uses, not even another run of the attempt. The
    service drops blocks when a file is created under their name, or a week after the last of them was sent.
    """

    def __init__(self, context: StageContext, directory: StorePath) -> None:
        super().__init__(context, directory)
        self._mark = directory / MARK
        self._marking = asyncio.Lock()
        self._marked = False
        self._begun: list[tuple[StorePath, str]] = []

    async def open(self, destination: str, staged: str) -> FileWriter:
        """Creates the mark of the run, then checks the job."""
        context = self._context
        async with self._marking:
            if not self._marked:
                await context.store.put(self._mark, b"")
                self._marked = True
        await check_job_is_live(context, operation="open")
        path, token = context.layout.target(destination), context.runtime.nonce(_TOKEN_BYTES)
        self._begun.append((path, token))

        async def finished(ids: Sequence[str], _status: FileStatus) -> None:
            self._sent(staged, UploadEntry(id=token, etags=tuple(ids)))

        writer = self._open[staged] = _BlockWriter(context.store, path, token, self._sending, finished)
        return writer

    def uploads(self) -> Sequence[tuple[StorePath, str]]:
        """Returns every file that was begun, by path and token."""
        return self._begun


class _BlockWriter(PartWriter[str]):
    """A writer that sends blocks concurrently; `abort` leaves them, since no call drops blocks."""

    def __init__(self, store: Store, path: StorePath, token: str, sending: Sending, finished: Finished[str]) -> None:
        super().__init__(store, path, sending, finished)
        self._blocks = BLOCK_LISTS.required(store, "open_writer", path)
        self._token = token

    async def _put(self, number: int, data: bytearray) -> str:
        block_id = f"{self._token}-{number:05d}"
        try:
            await self._blocks.put_block(self._path, block_id, data)
        except StorePartsError as error:
            raise TaskError(
                f"{self._path} cannot be written: {error.message}",
                operation="write",
                path=self._path,
                next_step="another program left blocks under that name, which the service drops a week after the last "
                "of them was sent: give the file another name (unique_names=True gives each file one)",
            ) from error
        return block_id

    async def _close_empty(self) -> None:
        """Sends nothing: the list of an empty file names no block."""

    async def _drop(self) -> None:
        """Does nothing: the service drops the blocks."""
