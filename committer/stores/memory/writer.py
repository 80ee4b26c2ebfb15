"""A file of the memory store, while it is written."""

from __future__ import annotations

import asyncio

from committer.errors import StoreIsADirectoryError, StoreNotFoundError, TaskError
from committer.paths import StorePath
from committer.stores.base import FileStatus, FileWriter
from committer.stores.helpers import bytes_of
from committer.stores.memory.tree import File, Tree, describe


class MemoryWriter(FileWriter):
    """Keeps what is written until it is closed.

    Args:
        tree: Where it goes.
        path: Under which name.
        file: What stands there since it was opened, where directories are real.
    """

    def __init__(self, tree: Tree, path: StorePath, file: File) -> None:
        self._tree = tree
        self._path = path
        self._file = file
        self._buffer = bytearray()
        self._open = True

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `FileWriter.write`."""
        self._check_open("write")
        self._buffer += bytes_of(data)
        await asyncio.sleep(0)

    async def close(self) -> FileStatus:
        """See `FileWriter.close`."""
        self._check_open("close")
        await asyncio.sleep(0)
        self._open = False
        file = self._tree.new_file(bytes(self._buffer))
        if self._tree.capabilities.directories:
            if not self._stands():
                raise StoreNotFoundError(
                    "the file was deleted while it was written", operation="close", path=self._path
                )
            # In place, since a hard link made meanwhile is the same file.
            self._tree.fill(self._file, file)
        else:
            self._tree.put(self._path, file, "close", replace=False)
        return describe(self._path, file)

    async def abort(self) -> None:
        """See `FileWriter.abort`."""
        await asyncio.sleep(0)
        if self._open and self._stands():
            self._tree.delete_file(self._path)
        self._open = False

    def _stands(self) -> bool:
        try:
            return self._tree.file(self._path, "close") is self._file
        except (StoreNotFoundError, StoreIsADirectoryError):
            return False

    def _check_open(self, operation: str) -> None:
        if not self._open:
            raise TaskError(
                "a file cannot be written any more: it was closed or aborted", operation=operation, path=self._path
            )
