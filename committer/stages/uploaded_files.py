"""Files of a task attempt that wait in uploads, each listed in the job's directory before its first byte is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from committer.errors import StoreError
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.paths import StorePath
from committer.records.pending_uploads import ListedUpload, UploadEntry, UploadList, encode_upload_list
from committer.stages.base import StageContext
from committer.stages.job_stands import check_job_stands
from committer.stages.origin import is_told_by_directory
from committer.stages.sent_files import SentFiles
from committer.stages.task_output import AttemptIdentity
from committer.stages.upload_writer import UploadWriter
from committer.stores.base import FileWriter
from committer.stores.uploads import UPLOADS, UploadPart


class UploadedFiles(SentFiles[UploadWriter]):
    """Files whose bytes go to uploads to their destinations, completed when the job is committed.

    Opening one costs 3 calls, before anything is sent: its upload is begun, then listed in the job's directory, then
    the job is looked at. Uploads that are opened at the same time share all but the first.

    The lists are read once a job is decided. So either an upload is found listed, or the task attempt that began
    it finds the job decided, or gone: no executor that outlives its job, and is killed then, leaves a part behind.

    Args:
        context: The job, with the attempt's own statistics.
        identity: Which run of which attempt.
    """

    def __init__(self, context: StageContext, identity: AttemptIdentity) -> None:
        layout = context.layout
        directory = layout.task_attempt_directory(identity.task, identity.attempt, identity.nonce)
        super().__init__(context, directory)
        attempt_id = layout.task_attempt_id(identity.task, identity.attempt)
        self._list = ListBeingWritten(context, layout.uploads / directory.name, attempt_id)
        self._begun: dict[str, StorePath] = {}

    async def open(self, destination: str, staged: str) -> FileWriter:
        """Begins the upload, lists it."""
        context = self._context
        path = context.layout.target(destination)
        uploads = UPLOADS.required(context.store, "create_upload", path)
        # What a lost answer leaves has no part, and is found by its name where that holds the job's token.
        upload_id = await uploads.create_upload(path, stamp=self._sending.stamp)
        self._begun[upload_id] = path

        def finished(parts: Sequence[UploadPart]) -> None:
            self._sent(staged, entry_of(upload_id, parts))

        writer = self._open[staged] = UploadWriter(context.store, path, upload_id, self._sending, finished)
        try:
            await self._list.add(ListedUpload(destination, upload_id))
        except BaseException:
            with suppress(StoreError):
                await run_shielded(writer.abort, bound_s=UNDO_BOUND_S)
            raise
        return writer

    def uploads(self) -> Sequence[tuple[StorePath, str]]:
        """Every upload that this run began, those of files that were given up too."""
        return [(path, upload_id) for upload_id, path in self._begun.items()]


class ListBeingWritten:
    """The list of one run: each put holds what came since the last one began, under a name of its own."""

    def __init__(self, context: StageContext, directory: StorePath, attempt_id: str) -> None:
        self._context = context
        self._directory = directory
        self._attempt_id = attempt_id
        self._waiting: list[ListedUpload] = []
        self._put = 0
        self._turn = asyncio.Lock()

    async def add(self, upload: ListedUpload) -> None:
        """Returns once the list that stands in the store names the upload, and the job stood after that.

        Raises:
            JobNotFoundError, JobDecidedError: It does not stand any more: nothing written now can become part of it.
        """
        self._waiting.append(upload)
        async with self._turn:
            if upload not in self._waiting:
                return
            # One that fails stays among those that wait: the next list names it too, which does no harm.
            taken = tuple(self._waiting)
            layout = self._context.layout
            record = UploadList(job_id=layout.job_id, task_attempt=self._attempt_id, uploads=taken)
            self._put += 1
            if is_told_by_directory(self._context):
                # The list would make it anew.
                await check_job_stands(self._context, operation="open")
            await self._context.store.put(self._directory / f"{self._put:05d}", encode_upload_list(record))
            await check_job_stands(self._context, operation="open")
            del self._waiting[: len(taken)]


def entry_of(upload_id: str, parts: Sequence[UploadPart]) -> UploadEntry:
    """What a record says of an upload with these parts, which are numbered from 1 without a gap."""
    checksums = tuple(part.checksum for part in parts if part.checksum is not None)
    whole = len(checksums) == len(parts)
    return UploadEntry(
        id=upload_id,
        etags=tuple(part.etag for part in parts),
        checksums=checksums if whole else (),
        algorithm=parts[0].checksum_algorithm if whole else None,
    )
