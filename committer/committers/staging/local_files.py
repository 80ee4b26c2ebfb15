"""Files of a task attempt on a disk of its machine, uploaded when it commits.

Below the directory of `CommitterConfig.staging_directories` with the most free space, or the system's temporary
directory::

    committer-<user>/<job id>-<digest>-<setup>/<attempt>-<nonce>/opened/<number>   files of `TaskAttempt.open`
    committer-<user>/<job id>-<digest>-<setup>/<attempt>-<nonce>/files/…           files written through `work_path`

The digest is of the destination, so that jobs of one id at two destinations share no directory. Only this user
can enter the first one: others may write to the system's temporary directory, too.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeVar

from committer.errors import StoreError, TaskError
from committer.file_names import unique_name
from committer.flow.runtime import Runtime
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.flow.workers import Budget, run_workers
from committer.layout import JobLayout
from committer.logs import job_logger
from committer.options.config import CommitterConfig
from committer.paths import StorePath
from committer.stages.base import AttemptIdentity, StageContext, WrittenFile
from committer.stages.state.job_liveness import check_job_is_live
from committer.stages.task.attempt_files import AttemptFiles, ScanTask
from committer.stages.task.sent_files import UploadedFiles
from committer.stores.abilities import LOCAL_PATHS
from committer.stores.base import FileStatus, FileWriter
from committer.stores.helpers import bytes_of
from committer.stores.registry import find_store

_log = job_logger("committer.committers")

_OPENED: Final = "opened"
_FILES: Final = "files"

# A further try follows if another process removed a directory that it found empty.
_TRIES: Final = 10


def make_run(config: CommitterConfig, layout: JobLayout, run: str) -> str:
    """Creates the directory of one run of a task attempt where there is most free space; returns its path."""
    failures: list[OSError] = []
    try:
        bases = sorted(_bases(config), key=_room_in, reverse=True)
    except OSError as error:
        # The machine has no writable temporary directory.
        bases, failures = [], [error]
    for base in bases:
        try:
            return _make(base, _of_job(layout), run)
        except OSError as error:
            failures.append(error)
    raise TaskError(
        f"no directory of this machine takes the files of a task attempt: {failures[0]}",
        operation="open",
        path=run,
        causes=failures,
        next_step="make room there, or name directories in staging_directories (fs.s3a.buffer.dir) that this user may "
        "write to",
    ) from failures[0]


def remove_run(place: str) -> None:
    """Removes the directory of one run, and parents that are empty then."""
    job, gone = os.path.dirname(place), f"{place}.gone"
    with suppress(OSError):
        # Renamed at once: a committing attempt must not take a half-deleted directory for all that it wrote.
        os.rename(place, gone)
    shutil.rmtree(gone, ignore_errors=True)
    shutil.rmtree(place, ignore_errors=True)
    _remove_empty(job, os.path.dirname(job))


def stands(place: str) -> bool:
    """Returns whether a run's directory is still the one created for it; programs know, and recreate, only `_FILES`."""
    return os.path.isdir(os.path.join(place, _OPENED))


def remove_runs(config: CommitterConfig, layout: JobLayout, attempt_id: str, nonce: str | None) -> None:
    """Removes one run's files of a task attempt from this machine; without a nonce, those of all its runs."""
    for job in _jobs(config, layout):
        for run in _names_in(job):
            if run == f"{attempt_id}-{nonce}" if nonce else run.startswith(f"{attempt_id}-"):
                remove_run(os.path.join(job, run))


def remove_job(config: CommitterConfig, layout: JobLayout) -> None:
    """Removes the files of a finished job's task attempts from this machine."""
    for job in _jobs(config, layout):
        for run in _names_in(job):
            _log.debug("removing %s, which a task attempt that never ended left", os.path.join(job, run))
        shutil.rmtree(job, ignore_errors=True)
        _remove_empty(os.path.dirname(job))


def _bases(config: CommitterConfig) -> list[str]:
    return [*config.staging_directories] or [tempfile.gettempdir()]


def _room_in(directory: str) -> int:
    while True:
        try:
            found = os.statvfs(directory)
        except FileNotFoundError:
            # Not created yet.
            directory = os.path.dirname(directory)
        except OSError:
            return -1
        else:
            return found.f_bavail * found.f_frsize


def _make(base: str, job: str, run: str) -> str:
    os.makedirs(base, exist_ok=True)
    own = os.path.join(base, _own_name())
    place = os.path.join(own, job, run)
    for tries_left in reversed(range(_TRIES)):
        try:
            os.makedirs(own, mode=0o700, exist_ok=True)
            if not _is_ours(os.lstat(own)):
                raise PermissionError(f"{own} is another user's, or others can write to it")
            os.chmod(own, 0o700)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.mkdir(place)
            os.mkdir(os.path.join(place, _OPENED))
            os.mkdir(os.path.join(place, _FILES))
        except (FileNotFoundError, FileExistsError):
            # `os.makedirs` raises it if a directory that it found vanishes at once.
            if not tries_left:
                raise
        else:
            break
    return place


def _jobs(config: CommitterConfig, layout: JobLayout) -> Iterator[str]:
    # Without a setup's name a job cannot be told from another one of its id.
    if not layout.setup_name:
        return
    try:
        bases = _bases(config)
    except OSError:
        # A machine without a temporary directory ran no task.
        return
    for base in bases:
        own = os.path.join(base, _own_name())
        if _is_own(own):
            yield os.path.join(own, _of_job(layout))


def _own_name() -> str:
    return f"committer-{os.geteuid()}"


def _of_job(layout: JobLayout) -> str:
    return f"{layout.unique_name}-{layout.setup_name}"


def _is_own(directory: str) -> bool:
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    return _is_ours(found)


def _is_ours(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _names_in(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _remove_empty(*directories: str) -> None:
    for directory in directories:
        try:
            os.rmdir(directory)
        except OSError:
            return


BLOCK_BYTES: Final = 1 << 20

# A task may have thousands of files open, each with this much unwritten data in memory.
_KEPT_BYTES: Final = 1 << 16

T = TypeVar("T")


class VanishedError(TaskError):
    """The error of a task whose files are gone from its machine's disk."""


class DiskState(NamedTuple):
    """The attributes that show whether a file on a disk was changed."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class DiskWriter(FileWriter):
    """Writer of a file on this machine's disk, open only while a block is written: a task may write thousands.

    `target` is the file's destination, for errors.
    """

    def __init__(self, path: str, target: StorePath, runtime: Runtime) -> None:
        self._path = path
        self._target = target
        self._runtime = runtime
        self._buffer = bytearray()
        self._size = 0
        self._exists = False
        self._turn = asyncio.Lock()

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Buffers data until a system call is worth it."""
        data = bytes_of(data)
        self._buffer += data
        self._size += len(data)
        if len(self._buffer) >= _KEPT_BYTES:
            await self._flush()

    async def close(self) -> FileStatus:
        """Writes the rest."""
        if self._buffer or not self._exists:
            await self._flush()
        return FileStatus(self._target, False, self._size)

    async def abort(self) -> None:
        """Removes the file."""
        self._buffer = bytearray()
        async with self._turn:
            await self._runtime.run_blocking(lambda: _remove(self._path))

    async def _flush(self) -> None:
        async with self._turn:
            data, self._buffer = self._buffer, bytearray()
            flags = os.O_APPEND if self._exists else os.O_CREAT | os.O_EXCL
            await _on_disk(self._runtime, lambda: _write(self._path, data, flags), self._target)
            self._exists = True


async def state_of(path: str, target: StorePath, runtime: Runtime) -> DiskState:
    """Returns the current state of a file; refuses a missing or irregular one."""

    def look() -> DiskState:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is no regular file")
        return _state(found)

    return await _on_disk(runtime, look, target)


async def blocks_of(path: str, state: DiskState, target: StorePath, runtime: Runtime) -> AsyncIterator[bytes]:
    """Yields the content of a file, block by block; refuses a file that changed since `state` was taken."""
    offset = 0
    while True:
        block = await _on_disk(runtime, partial(_read, path, state, offset), target)
        if block:
            yield block
        offset += len(block)
        if offset >= state.size:
            return


async def _on_disk(runtime: Runtime, call: Callable[[], T], target: StorePath) -> T:
    try:
        return await runtime.run_blocking(call)
    except FileNotFoundError as error:
        raise vanished(target, error) from error
    except OSError as error:
        raise TaskError(
            f"{target} could not be kept on a disk of this machine: {error}",
            operation="write",
            path=target,
            causes=[error],
            next_step="make room there, or name other directories in staging_directories (fs.s3a.buffer.dir); then run "
            "the task again as a new attempt",
        ) from error


def vanished(target: StorePath, error: BaseException | None) -> VanishedError:
    """Builds the error of a file that is gone."""
    return VanishedError(
        f"what the task wrote of {target} is not on the disk of this machine any more",
        operation="commit_task",
        path=target,
        causes=[error] if error is not None else [],
        next_step="if the job still runs, run the task again as a new attempt; else something removed the files of its "
        "attempts, which lie in staging_directories, or in the system's directory for temporary files",
    )


def _write(path: str, data: bytearray, flags: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
    finally:
        os.close(file)


def _read(path: str, state: DiskState, offset: int) -> bytes:
    # Opened for each block: a thread that outlasts its cancelled caller must not read from a descriptor that
    # belongs to another file by then.
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check_same(path, os.fstat(file), state)
        length = min(BLOCK_BYTES, state.size - offset)
        block = os.pread(file, length, offset)
        _check_same(path, os.fstat(file), state)
    finally:
        os.close(file)
    if length and not block:
        raise OSError(f"{path} ended early")
    return block


def _check_same(path: str, found: os.stat_result, state: DiskState) -> None:
    if _state(found) != state:
        raise OSError(f"{path} was changed while the task attempt was committed: close every file before that")


def _state(found: os.stat_result) -> DiskState:
    return DiskState(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _remove(path: str) -> None:
    # It goes with the directory of the run.
    with suppress(OSError):
        os.unlink(path)


class LocalFiles(AttemptFiles):
    """Files on this machine's disk, uploaded when the task commits. Opening one costs one call, a look at the job.

    Uploads that begin together share one list. An attempt that fails before its commit has sent nothing.
    """

    def __init__(self, context: StageContext, identity: AttemptIdentity) -> None:
        super().__init__(context)
        layout = context.layout
        self._run = layout.task_attempt_directory(*identity).name
        self._place = ""
        self._making = threading.Lock()
        self._uploaded = UploadedFiles(context, identity)
        self._kept: dict[str, str] = {}
        self._opened = 0
        self._sent: dict[str, tuple[DiskState, WrittenFile]] = {}
        self._closed = False
        self._scanned = False

    async def open(self, destination: str, staged: str) -> FileWriter:
        """Checks that the job exists, creates the run's directory with its first file."""
        context = self._context
        await check_job_is_live(context, operation="open")
        place = await context.runtime.run_blocking(self._made)
        # A number, since a disk may not accept the name of a destination.
        self._opened += 1
        path = self._kept[staged] = os.path.join(place, _OPENED, str(self._opened))
        return DiskWriter(path, context.layout.target(destination), context.runtime)

    def written(self, staged: str, status: FileStatus, *, absolute: str) -> WrittenFile:
        """Returns the file's name and size; its upload has not begun."""
        return WrittenFile(staged, status.size, None, absolute=absolute)

    def local_directory(self, name: str) -> str:
        """Returns a directory of this machine, created on the first call."""
        return os.path.join(self._made(), _FILES)

    async def scan(self) -> tuple[list[WrittenFile], list[str]]:
        """Runs `ScanTask` on the disk; returns no directories, since uploads have none."""
        self._scanned = True
        root = StorePath.of(os.path.join(self._made(), _FILES))
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
        """Sends the files, as many at once as fit into the memory that one long file takes."""
        context = self._context
        part_bytes = max(context.config.multipart_size, context.store.capabilities.min_part_bytes)
        most = (2 + context.config.multipart_in_flight) * part_bytes + BLOCK_BYTES
        memory, settled = Budget(most), dict[str, WrittenFile]()

        async def send(file: WrittenFile) -> None:
            async with memory.hold(min(file.size + BLOCK_BYTES, most)):
                try:
                    settled[file.name] = await self._send(file)
                except VanishedError:
                    # Most likely the job is over, and its attempts' files were removed.
                    await check_job_is_live(context, operation="commit_task")
                    raise

        await run_workers(files, send, workers=context.config.io_concurrency, operation="send_files")
        if self._scanned and not await context.runtime.run_blocking(partial(stands, self._place)):
            # Removed during the scan, so files may have been missed; or recreated by a program.
            await check_job_is_live(context, operation="commit_task")
            raise vanished(context.layout.destination, None)
        return [settled[file.name] for file in files]

    async def stop(self) -> None:
        """Stops sending files; their uploads end with the attempt."""
        await self._uploaded.stop()

    def uploads(self) -> Sequence[tuple[StorePath, str]]:
        """Returns every upload that this run began: none before it commits."""
        return self._uploaded.uploads()

    async def close(self) -> None:
        """Removes the files from the disk."""
        if self._place or self._making.locked():
            await run_shielded(partial(self._context.runtime.run_blocking, self._removed), bound_s=UNDO_BOUND_S)
        self._closed = True

    def _made(self) -> str:
        # Files are opened at once, in threads; a second directory would lose the files of the first.
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

    def _removed(self) -> None:
        # A thread that outlasts its cancelled caller may be creating it.
        with self._making:
            self._closed = True
            place, self._place = self._place, ""
            if place:
                remove_run(place)

    def _published(self, name: str) -> str:
        """Returns the published name of a program's file, with the job's token if the job asks for it."""
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
        # An earlier commit's upload stays: a record that names it may have been saved, and count. It is listed,
        # so the job's cleanup aborts it.
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
