"""Writers that send a file to a service in parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import ClassVar, Generic, TypeAlias, TypeVar

from committer.errors import StoreOutcomeUnknownError, StoreThrottledError, StoreUnavailableError
from committer.paths import StorePath
from committer.stores.base import FileStatus, FileWriter, Store
from committer.stores.helpers import bytes_of, unusable_writer
from committer.stores.http import Body
from committer.stores.object_store import written_file

Part = TypeVar("Part")

PutFile: TypeAlias = Callable[[StorePath, bytes, str], Awaitable[FileStatus]]
"""Function that writes a file whole where none exists: path, content, stamp."""


class SendingWriter(FileWriter):
    """Writer that collects bytes in memory and sends them by the piece.

    A refused `write` or `close` can be repeated with the same arguments: it goes on after the last piece that was
    sent. Anything else is refused then, since it would make a file that is neither. After a failure that is no clear
    refusal, nothing more can be written.
    """

    def __init__(self, path: StorePath) -> None:
        self._path = path
        self._buffer = bytearray()
        self._open = True
        # True after a call that ended early, except by a clear refusal: the state of the file is unknown.
        self._broken = False
        self._closing = False
        # A write that was refused midway: its data, and how much of it is in the buffer or was sent.
        self._begun: tuple[bytes, int] | None = None

    @abstractmethod
    def _piece_bytes(self, waiting: int) -> int:
        """Returns the length of the next piece, where so many bytes wait."""

    @abstractmethod
    async def _send_piece(self, data: bytes) -> None:
        """Sends the next piece of the file; called again with the same data after a refusal.

        Raises:
            StoreUnavailableError: The piece was refused, or its response was lost.
            StoreThrottledError: The piece was refused.
        """

    @abstractmethod
    async def _finished(self) -> FileStatus:
        """Sends the rest and makes the file visible."""

    async def _abandon(self) -> None:
        """Drops at the service what was sent; does nothing by default."""

    async def write(self, data: Body) -> None:
        """Buffers the data, and sends every full piece."""
        self._check_usable("write")
        data = bytes_of(data)
        waiting = len(self._buffer) + len(data)
        if self._begun is None and not self._closing and waiting < self._piece_bytes(waiting):
            # The usual small write.
            self._buffer += data
            return
        with memoryview(data) as view:
            start = 0
            if self._begun is not None:
                begun, start = self._begun
                self._broken = view != begun
            self._broken = self._broken or self._closing
            self._check_usable("write")
            self._broken = True
            try:
                while True:
                    waiting = len(self._buffer) + len(view) - start
                    length = self._piece_bytes(waiting)
                    if waiting < length:
                        break
                    taken = length - len(self._buffer)
                    self._buffer += view[start : start + taken]
                    start += taken
                    await self._send_piece(bytes(self._buffer))
                    self._buffer = bytearray()
            except (StoreThrottledError, StoreUnavailableError):
                self._begun = bytes(view), start
                self._broken = False
                raise
            self._buffer += view[start:]
        self._begun = None
        self._broken = False

    async def close(self) -> FileStatus:
        """Sends the rest and makes the file visible; raises `StoreExistsError` if another one exists by now."""
        self._broken = self._broken or self._begun is not None
        self._check_usable("close")
        self._broken = self._closing = True
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

    A part whose response was lost counts as refused: it is sent again under another number and the first is not
    named, so no delayed request can exchange content.
    """

    shortest_part_bytes: ClassVar[int] = 8 << 20
    """Bytes buffered before they are sent; a shorter file is one put."""
    parts_of_one_length: ClassVar[int]
    """Number of parts after which their length doubles, within the service's limit of parts."""

    def __init__(self, store: Store, path: StorePath, stamp: str, put_file: PutFile) -> None:
        super().__init__(path)
        self._store = store
        self._stamp = stamp
        self._put_file = put_file
        self._parts: list[Part] = []
        self._size = 0
        self._next = 1

    @abstractmethod
    async def _send(self, number: int, data: bytes) -> Part:
        """Sends a part under a number of its own."""

    async def _begin(self) -> None:
        """Prepares the first part; called before each."""

    @abstractmethod
    def _has_begun(self) -> bool:
        """Whether anything was sent or begun."""

    @abstractmethod
    async def _made_of_parts(self) -> str | None:
        """Makes the file of its parts if none exists, and returns its identity."""

    def _piece_bytes(self, waiting: int) -> int:
        return self.shortest_part_bytes << (self._next // self.parts_of_one_length)

    async def _send_piece(self, data: bytes) -> None:
        await self._begin()
        number, self._next = self._next, self._next + 1
        try:
            self._parts.append(await self._send(number, data))
        except StoreOutcomeUnknownError as error:
            raise StoreUnavailableError(error.message, operation="write", path=self._path) from None
        self._size += len(data)

    async def _finished(self) -> FileStatus:
        if not self._has_begun():
            try:
                return await self._put_file(self._path, bytes(self._buffer), self._stamp)
            except StoreOutcomeUnknownError as lost:
                return await written_file(self._store, self._path, len(self._buffer), self._stamp, lost)
        if self._buffer:
            await self._send_piece(bytes(self._buffer))
            self._buffer = bytearray()
        identity = await self._made_of_parts()
        return FileStatus(self._path, False, self._size, None, identity, stamp=self._stamp)
