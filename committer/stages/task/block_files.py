"""Files of a task attempt whose bytes wait as blocks of the names that they will have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from committer.errors import StorePartsError, TaskError
from committer.paths import StorePath
from committer.records.pending_uploads import UploadEntry
from committer.stages.base import StageContext
from committer.stages.state.job_stands import check_job_stands
from committer.stages.task.sent_files import PartWriter, Sending, SentFiles
from committer.stores.base import FileWriter, Store
from committer.stores.uploads import BLOCK_LISTS

MARK: Final = "blocks"
"""What stands in the directory of a run that began to send blocks, until it is aborted."""

_TOKEN_BYTES: Final = 16


class BlockFiles(SentFiles["_BlockWriter"]):
    """Files that are sent as blocks to where they go, and made files of when the job is committed.

    Opening one costs a call, which looks at the job, the first one another: it leaves a mark in the directory of the
    run. An abort deletes that, and can delete nothing else; a job commit looks for the mark of each run (`MARK`). All
    writers of a name share its blocks, so every file draws a token that its blocks' ids begin with: no other writer
    sends anything under those, another run of the same attempt neither. They are dropped when a file is made under
    their name, or by the service a week after the last of them was sent.

    Args:
        context: The job, with the attempt's own statistics.
        directory: The directory of the run.
    """

    def __init__(self, context: StageContext, directory: StorePath) -> None:
        super().__init__(context, directory)
        self._mark = directory / MARK
        self._marking = asyncio.Lock()
        self._marked = False
        self._begun: list[tuple[StorePath, str]] = []

    async def open(self, destination: str, staged: str) -> FileWriter:
        """Leaves the mark of the run, looks whether the job stands."""
        context = self._context
        async with self._marking:
            if not self._marked:
                await context.store.put(self._mark, b"")
                self._marked = True
        await check_job_stands(context, operation="open")
        path, token = context.layout.target(destination), context.runtime.nonce(_TOKEN_BYTES)
        self._begun.append((path, token))

        def finished(ids: Sequence[str]) -> None:
            self._sent(staged, UploadEntry(id=token, etags=tuple(ids)))

        writer = self._open[staged] = _BlockWriter(context.store, path, token, self._sending, finished)
        return writer

    def uploads(self) -> Sequence[tuple[StorePath, str]]:
        """Every file that was begun, by path and token."""
        return self._begun


class _BlockWriter(PartWriter[str]):
    """Sends blocks, several at a time. Giving the file up leaves them: no call drops what was sent."""

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
        """No block: the list of an empty file names none."""

    async def _drop(self) -> None:
        """Nothing: the service drops them."""
