"""Files of a task attempt that wait on a disk of its machine, and are sent when it commits."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from committer.committers.staging.disk import (
    BLOCK_BYTES,
    DiskState,
    DiskWriter,
    VanishedError,
    blocks_of,
    state_of,
    vanished,
)
from committer.committers.staging.places import FILES, OPENED, make_run, remove_run, stands
from committer.errors import StoreError, TaskError
from committer.file_names import unique_name
from committer.flow.budget import Budget
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stages.attempt_files import AttemptFiles
from committer.stages.base import StageContext
from committer.stages.job_stands import check_job_stands
from committer.stages.scan_task import ScanTask
from committer.stages.task_output import AttemptIdentity, WrittenFile
from committer.stages.uploaded_files import UploadedFiles
from committer.stores.abilities import LOCAL_PATHS
from committer.stores.base import FileStatus, FileWriter
from committer.stores.registry import find_store


class LocalFiles(AttemptFiles):
    """Files that are written to a disk of this machine. Opening one costs a call, which looks at the job.

    A task commit sends them, each to an upload that stays open: of a small file an upload that is begun, and a part;
    uploads that are begun together share the list that tells of them. So nothing of an attempt that fails while it
    writes was ever sent.

    Args:
        context: The job, with the attempt's own statistics.
        identity: Which run of which attempt.
    """

    def __init__(self, context: StageContext, identity: AttemptIdentity) -> None:
        layout = context.layout
        self._context = context
        self._run = layout.task_attempt_directory(identity.task, identity.attempt, identity.nonce).name
        self._place = ""
        self._making = threading.Lock()
        self._uploaded = UploadedFiles(context, identity)
        self._kept: dict[str, str] = {}
        self._opened = 0
        self._sent: dict[str, tuple[DiskState, WrittenFile]] = {}
        self._closed = False
        self._scanned = False

    async def open(self, destination: str, staged: str) -> FileWriter:
        """Looks whether the job stands, makes the directory of the run with its first file."""
        context = self._context
        await check_job_stands(context, operation="open")
        place = await context.runtime.run_blocking(self._made)
        # A number: what a destination can be called, a disk may not take.
        self._opened += 1
        path = self._kept[staged] = os.path.join(place, OPENED, str(self._opened))
        return DiskWriter(path, context.layout.target(destination), context.runtime)

    def written(self, staged: str, status: FileStatus, *, absolute: str) -> WrittenFile:
        """Its name and size: its upload is yet to be begun."""
        return WrittenFile(staged, status.size, None, absolute=absolute)

    def kept_at(self, staged: str) -> StorePath | None:
        """On the disk, under a number; in an upload, which has the path that the file will have."""
        return None

    def local_directory(self, name: str) -> str:
        """A directory of this machine, made when it is first asked for."""
        return os.path.join(self._made(), FILES)

    async def scan(self) -> tuple[list[WrittenFile], list[str]]:
        """`ScanTask`, on the disk. No directories: where files wait in uploads there are none."""
        self._scanned = True
        root = StorePath.of(os.path.join(self._made(), FILES))
        disk = await find_store(root)
        try:
            found, _directories = await ScanTask(replace(self._context, store=disk)).run(root)
            files: dict[str, WrittenFile] = {}
            for status in found:
                name = self._published(status.path.relative_to(root))
                path = LOCAL_PATHS.required(disk, "work_path", name).local_path(status.path)
                if self._kept.setdefault(name, path) != path:
                    raise TaskError(
                        f"{name} was written twice by this task attempt: as {status.path}, and otherwise",
                        operation="commit_task",
                        path=name,
                        next_step="give each file a name of its own; then run the task again as a new attempt",
                    )
                files[name] = WrittenFile(name, status.size, None)
        finally:
            await disk.close()
        return list(files.values()), []

    async def settle(self, files: Sequence[WrittenFile]) -> Sequence[WrittenFile]:
        """Sends them, many at once, as far as their parts fit into the memory that one long file takes."""
        context = self._context
        part_bytes = max(context.config.multipart_size, context.store.capabilities.min_part_bytes)
        most = (2 + context.config.multipart_in_flight) * part_bytes + BLOCK_BYTES
        memory, settled = Budget(most), dict[str, WrittenFile]()

        async def send(file: WrittenFile) -> None:
            async with memory.hold(min(file.size + BLOCK_BYTES, most)):
                try:
                    settled[file.name] = await self._send(file)
                except VanishedError:
                    # Most likely because the job is over, and what its attempts kept here went with it.
                    await check_job_stands(context, operation="commit_task")
                    raise

        await run_workers(files, send, workers=context.config.io_concurrency, operation="send_files")
        if self._scanned and not await context.runtime.run_blocking(partial(stands, self._place)):
            # Removed while it was scanned, so files may have been missed; or made anew by a program.
            await check_job_stands(context, operation="commit_task")
            raise vanished(context.layout.destination, None)
        return [settled[file.name] for file in files]

    async def stop(self) -> None:
        """Stops sending files; their uploads end with the attempt."""
        await self._uploaded.stop()

    def uploads(self) -> Sequence[tuple[StorePath, str]]:
        """Every upload that this run began: none before it commits."""
        return self._uploaded.uploads()

    async def close(self) -> None:
        """Removes what it kept on the disk."""
        if self._made_or_being_made():
            await run_shielded(partial(self._context.runtime.run_blocking, self._removed), bound_s=UNDO_BOUND_S)
        self._closed = True

    def _made(self) -> str:
        # By files that are opened at once, in threads; a second directory would lose what the first one holds.
        with self._making:
            if self._closed:
                raise VanishedError(
                    "the task attempt is over",
                    operation="open",
                    path=self._run,
                    next_step="run the task again as a new attempt",
                )
            if not self._place:
                self._place = make_run(self._context.config, self._context.layout, self._run)
            return self._place

    def _made_or_being_made(self) -> bool:
        return bool(self._place) or self._making.locked()

    def _removed(self) -> None:
        # A thread that outlasts its cancelled caller may be making it.
        with self._making:
            self._closed = True
            place, self._place = self._place, ""
            if place:
                remove_run(place)

    def _published(self, name: str) -> str:
        """The name of what a program wrote by a path, with the job's token where each file is to have it."""
        config, job_id = self._context.config, self._context.layout.job_id
        return unique_name(name, job_id) if config.unique_names and job_id not in name else name

    async def _send(self, file: WrittenFile) -> WrittenFile:
        context, path = self._context, self._kept[file.name]
        target = context.layout.target(file.destination)
        state = await state_of(path, target, context.runtime)
        if file.size != state.size:
            raise TaskError(
                f"{file.name} has {state.size} bytes on the disk, {file.size} were written",
                operation="commit_task",
                path=path,
                next_step="close every file before its attempt commits; then run the task again as a new attempt",
            )
        before = self._sent.get(file.name)
        if before is not None and before[0] == state:
            return before[1]
        # An upload of a commit before stays: a record that names it may have been saved, and count. It is listed, so
        # the job's cleanup aborts it.
        writer = await self._uploaded.open(file.destination, file.name)
        try:
            async for block in blocks_of(path, state, target, context.runtime):
                await writer.write(block)
            status = await writer.close()
        except BaseException:
            with suppress(StoreError):
                await run_shielded(writer.abort, bound_s=UNDO_BOUND_S)
            raise
        sent = self._uploaded.written(file.name, status, absolute=file.absolute)
        self._sent[file.name] = state, sent
        return sent
