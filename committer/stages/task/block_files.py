"""Files of a task attempt that wait as blocks under their final names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from committer.errors import StorePartsError, TaskError
from committer.paths import StorePath
from committer.records.pending_uploads import UploadEntry
from committer.stages.base import StageContext
from committer.stages.state.job_liveness import check_job_is_live
from committer.stages.task.sent_files import PartWriter, Sending, SentFiles
from committer.stores.base import FileWriter, Store
from committer.stores.uploads import BLOCK_LISTS

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

        def finished(ids: Sequence[str]) -> None:
            self._sent(staged, UploadEntry(id=token, etags=tuple(ids)))

        writer = self._open[staged] = _BlockWriter(context.store, path, token, self._sending, finished)
        return writer

    def uploads(self) -> Sequence[tuple[StorePath, str]]:
        """Returns every file that was begun, by path and token."""
        return self._begun


class _BlockWriter(PartWriter[str]):
    """A writer that sends blocks concurrently; `abort` leaves them, since no call drops blocks."""

    def __init__(
        self, store: Store, path: StorePath, token: str, sending: Sending, finished: Callable[[Sequence[str]], None]
    ) -> None:
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
