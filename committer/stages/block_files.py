"""Files of a task attempt whose bytes wait as blocks of the names that they will have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from committer.errors import StorePartsError, TaskError
from committer.paths import StorePath
from committer.records.pending_uploads import UploadEntry
from committer.stages.attempt_files import AttemptFiles
from committer.stages.base import StageContext
from committer.stages.job_stands import check_job_stands
from committer.stages.part_writer import PartWriter
from committer.stages.staged_files import no_local_paths
from committer.stages.task_output import WrittenFile
from committer.stores.base import FileStatus, FileWriter, Store
from committer.stores.uploads import BLOCK_LISTS

MARK: Final = "blocks"
"""What stands in the directory of a run that began to send blocks, until it is aborted."""

_TOKEN_BYTES: Final = 16


class BlockFiles(AttemptFiles):
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
        self._context = context
        self._mark = directory / MARK
        self._marking = asyncio.Lock()
        self._marked = False
        self._stamp = context.layout.stamp(directory.name)
        self._begun: list[tuple[StorePath, str]] = []
        self._entries: dict[str, UploadEntry] = {}
        self._open: dict[str, _BlockWriter] = {}

    async def open(self, destination: str, staged: str) -> FileWriter:
        """Leaves the mark of the run, looks whether the job stands."""
        context = self._context
        async with self._marking:
            if not self._marked:
                await context.store.put(self._mark, b"")
                self._marked = True
        await check_job_stands(context, operation="open")
        store, config, can = context.store, context.config, context.store.capabilities
        path, token = context.layout.target(destination), context.runtime.nonce(_TOKEN_BYTES)
        self._begun.append((path, token))

        def finished(ids: list[str]) -> None:
            self._entries[staged] = UploadEntry(id=token, etags=tuple(ids))
            del self._open[staged]

        part_bytes = max(config.multipart_size, can.min_part_bytes)
        writer = self._open[staged] = _BlockWriter(
            store,
            path,
            token,
            stamp=self._stamp,
            part_bytes=min(part_bytes, can.max_part_bytes or part_bytes),
            in_flight=config.multipart_in_flight,
            told=finished,
        )
        return writer

    def written(self, staged: str, status: FileStatus, *, absolute: str) -> WrittenFile:
        """Its name, size and blocks."""
        return WrittenFile(staged, status.size, None, absolute=absolute, upload=self._entries[staged])

    def kept_at(self, staged: str) -> StorePath | None:
        """As blocks of the name that the file will have."""
        return None

    def local_directory(self, name: str) -> str:
        """There is none: every byte goes to the store.

        Raises:
            UnsupportedError: Always.
        """
        raise no_local_paths(self._context.store, name)

    async def scan(self) -> tuple[list[WrittenFile], list[str]]:
        """Nothing: no program wrote anything by a path."""
        return [], []

    async def settle(self, files: Sequence[WrittenFile]) -> Sequence[WrittenFile]:
        """Nothing: they wait as blocks."""
        return files

    async def stop(self) -> None:
        """Stops sending files that were not closed."""
        for writer in tuple(self._open.values()):
            await writer.stop()

    def uploads(self) -> Sequence[tuple[StorePath, str]]:
        """Every file that was begun, by path and token."""
        return self._begun

    async def close(self) -> None:
        """Nothing: all is in the store."""


class _BlockWriter(PartWriter[str]):
    """Sends blocks, several at a time. Giving the file up leaves them: no call drops what was sent."""

    def __init__(
        self,
        store: Store,
        path: StorePath,
        token: str,
        *,
        stamp: str,
        part_bytes: int,
        in_flight: int,
        told: Callable[[list[str]], None],
    ) -> None:
        most = store.capabilities.max_parts
        super().__init__(path, stamp=stamp, most=most, part_bytes=part_bytes, in_flight=in_flight)
        self._blocks = BLOCK_LISTS.required(store, "open_writer", path)
        self._token = token
        self._told = told

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

    def _finished(self, parts: list[str]) -> None:
        self._told(parts)
