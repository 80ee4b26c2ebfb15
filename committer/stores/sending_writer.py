"""Writers that send a file to a service in parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import ClassVar, Generic, TypeAlias, TypeVar

from committer.errors import StoreOutcomeUnknownError, StoreThrottledError, StoreUnavailableError
from committer.paths import StorePath
from committer.stores.base import FileStatus, FileWriter
from committer.stores.helpers import bytes_of, unusable_writer
from committer.stores.http import Body

Part = TypeVar("Part")

PutFile: TypeAlias = Callable[[StorePath, bytes, str], Awaitable[FileStatus]]
"""Function that writes a file whole where none exists: path, content, stamp."""


class SendingWriter(FileWriter):
    """Writer with a buffer in memory; refuses further writes after a failure, except a clear refusal."""

    def __init__(self, path: StorePath) -> None:
        self._path = path
        self._buffer = bytearray()
        self._open = True
        # True after a call that ended early, except by a clear refusal: the state of the file is unknown.
        self._broken = False

    @abstractmethod
    async def _finished(self) -> FileStatus:
        """Sends the rest and makes the file visible."""

    async def _abandon(self) -> None:
        """Drops at the service what was sent; does nothing by default."""

    async def close(self) -> FileStatus:
        """Sends the rest and makes the file visible; raises `StoreExistsError` if another one exists by now."""
        self._check_usable("close")
        self._broken = True
        try:
            status = await self._finished()
        except (StoreThrottledError, StoreUnavailableError):
            self._broken = False
            raise
        self._open = False
        self._buffer = bytearray()
        return status

    async def abort(self) -> None:
        """Drops what was sent; a closed file stays."""
        if not self._open:
            return
        await self._abandon()
        self._open = False
        self._buffer = bytearray()

    def _check_usable(self, operation: str) -> None:
        if not self._open or self._broken:
            raise unusable_writer(self._path, operation, failed=self._open)


class PartsWriter(SendingWriter, Generic[Part]):
    """Writer that sends parts and makes a file of them if none exists by then; `put_file` writes a short file whole.

    A refused `write` or `close` leaves the writer unchanged, so that it can be repeated. A part whose response was
    lost counts as refused: it is sent again under another number and the first is not named, so no delayed request
    can exchange content.
    """

    shortest_part_bytes: ClassVar[int] = 8 << 20
    """Bytes buffered before they are sent; a shorter file is one put."""
    parts_of_one_length: ClassVar[int]
    """Number of parts after which their length doubles, within the service's limit of parts."""

    def __init__(self, path: StorePath, stamp: str, put_file: PutFile) -> None:
        super().__init__(path)
        self._stamp = stamp
        self._put_file = put_file
        self._parts: list[Part] = []
        self._size = 0
        self._next = 1

    @abstractmethod
    async def _send(self, number: int, data: bytes) -> Part:
        """Sends a part under a number of its own."""

    @abstractmethod
    async def _begin(self) -> None:
        """Prepares the first part; called before each."""

    @abstractmethod
    def _has_begun(self) -> bool:
        """Whether anything was sent or begun."""

    @abstractmethod
    async def _made_of_parts(self) -> str | None:
        """Makes the file of its parts if none exists, and returns its identity."""

    async def write(self, data: Body) -> None:
        """Buffers the data, or sends it with the buffer."""
        self._check_usable("write")
        view = bytes_of(data)
        if len(self._buffer) + len(view) < self._part_bytes:
            self._buffer += view
            return
        body = bytes(self._buffer + view)
        before = len(self._parts), self._size
        self._broken = True
        start = 0
        try:
            while len(body) - start >= self._part_bytes:
                end = start + self._part_bytes
                await self._add(body[start:end])
                start = end
        except (StoreThrottledError, StoreUnavailableError):
            self._go_back(before)
            raise
        self._buffer = bytearray(memoryview(body)[start:])
        self._broken = False

    @property
    def _part_bytes(self) -> int:
        return self.shortest_part_bytes << (self._next // self.parts_of_one_length)

    async def _finished(self) -> FileStatus:
        before = len(self._parts), self._size
        try:
            if not self._has_begun():
                return await self._put_file(self._path, bytes(self._buffer), self._stamp)
            if self._buffer:
                await self._add(bytes(self._buffer))
            identity = await self._made_of_parts()
        except (StoreThrottledError, StoreUnavailableError):
            self._go_back(before)
            raise
        return FileStatus(self._path, False, self._size, None, identity, stamp=self._stamp)

    async def _add(self, data: bytes) -> None:
        await self._begin()
        number, self._next = self._next, self._next + 1
        try:
            self._parts.append(await self._send(number, data))
        except StoreOutcomeUnknownError as error:
            raise StoreUnavailableError(error.message, operation="write", path=self._path) from None
        self._size += len(data)

    def _go_back(self, before: tuple[int, int]) -> None:
        del self._parts[before[0] :]
        self._size = before[1]
        self._broken = False
