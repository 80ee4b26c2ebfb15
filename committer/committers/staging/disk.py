"""Files of a task attempt on a disk of its machine: written, and read to be sent, by blocks in threads."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from committer.errors import TaskError
from committer.flow.runtime import Runtime
from committer.paths import StorePath
from committer.stores.base import FileStatus, FileWriter
from committer.stores.helpers import bytes_of

BLOCK_BYTES: Final = 1 << 20

# A task may have thousands of files open, each with as much in memory as was not written yet.
_KEPT_BYTES: Final = 1 << 16

T = TypeVar("T")


class VanishedError(TaskError):
    """What a task wrote is not on the disk of its machine any more."""


class DiskState(NamedTuple):
    """What tells a file on a disk from the same file after it was changed."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class DiskWriter(FileWriter):
    """A file on a disk of this machine. It is open only while a block is written: a task may write thousands at once.

    Args:
        path: Where it is kept.
        target: Where it will stand, for errors.
        runtime: Where threads come from.
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
        """Keeps it in memory until it is worth a system call."""
        data = bytes_of(data)
        self._buffer += data
        self._size += len(data)
        if len(self._buffer) >= _KEPT_BYTES:
            await self._flush()

    async def close(self) -> FileStatus:
        """Writes what is left."""
        if self._buffer or not self._exists:
            await self._flush()
        return FileStatus(self._target, False, self._size)

    async def abort(self) -> None:
        """Removes it."""
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
    """What a file is like now.

    Raises:
        VanishedError: It is gone.
        TaskError: It is no regular file, or cannot be looked at.
    """

    def look() -> DiskState:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is no regular file")
        return _state(found)

    return await _on_disk(runtime, look, target)


async def blocks_of(path: str, state: DiskState, target: StorePath, runtime: Runtime) -> AsyncIterator[bytes]:
    """The content of a file, block by block.

    Raises:
        VanishedError: It is gone.
        TaskError: It is not what it was when `state` was taken, or cannot be read.
    """
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
    """What to raise where what a task wrote is gone."""
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
    # Opened for each block: a thread that outlasts its cancelled caller must not read from a descriptor that is
    # another file's by then.
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
    try:
        os.unlink(path)
    except OSError:
        # It goes with the directory of the run.
        return
