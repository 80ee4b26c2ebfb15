"""Lists on the driver's disk, for more items than fit in memory. Their files have no name, so none is left behind."""

from __future__ import annotations

import asyncio
import os
import struct
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, BinaryIO, Final, Generic, NamedTuple, NoReturn, Self, TypeVar, cast

import msgspec

from committer.advice import AND_RUN_IT_AGAIN
from committer.errors import CommitterError, RecordError
from committer.flow.runtime import current_runtime
from committer.logs import job_logger

T = TypeVar("T")
R = TypeVar("R")

BLOCK_BYTES: Final = 1 << 20

# A block is one msgpack array: this header, filled in when the length is known, and the items.
_ARRAY_HEADER = struct.Struct(">BI")
_ARRAY_32 = 0xDD


class _Block(NamedTuple):
    offset: int
    length: int


class Closable(ABC):
    """Base of asynchronous context managers that are closed at the end of their block."""

    @abstractmethod
    async def close(self) -> None:
        """Frees the file and the memory. May be called twice."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_failure: object) -> None:
        await self.close()


class SpillFile(Closable, Generic[T]):
    """List with at most a block in memory, appended to first and then read, any number of times. A context manager.

    A list shorter than a block never touches the disk. Items are of a `kind` that msgspec can encode; the file is in
    the system's directory for temporary files. `count` is the number of items.
    """

    def __init__(self, kind: type[T], *, block_bytes: int = BLOCK_BYTES) -> None:
        self.count: int = 0
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(list[kind])  # type: ignore[valid-type]
        self._block_bytes = block_bytes
        self._runtime = current_runtime()
        self._buffer = _new_buffer()
        self._buffered = 0
        self._blocks: list[_Block] = []
        self._size = 0
        self._file: BinaryIO | None = None
        self._disk = asyncio.Lock()
        # Cleared while a block is being written.
        self._may_append = asyncio.Event()
        self._may_append.set()
        self._broken: BaseException | None = None
        self._closed = False

    @property
    def size(self) -> int:
        """Bytes written so far, with the unfinished block."""
        return self._size + len(self._buffer)

    async def append(self, item: T) -> None:
        """Adds one item. Raises `CommitterError` if the disk fails, now or before; the list is lost."""
        await self._writable()
        self._encoder.encode_into(item, self._buffer, -1)
        self._buffered += 1
        self.count += 1
        if len(self._buffer) >= self._block_bytes:
            await self._write_block()

    async def read(self) -> AsyncIterator[T]:
        """Iterates over the items so far, a block in memory at a time.

        Raises `RecordError` if a block cannot be decoded, `CommitterError` if the disk fails.
        """
        await self._writable()
        # Copied, so that every reader sees the list as of now.
        _ARRAY_HEADER.pack_into(self._buffer, 0, _ARRAY_32, self._buffered)
        blocks, tail = tuple(self._blocks), bytes(self._buffer)
        for block in blocks:
            for item in self._decode(await self._read_block(block)):
                yield item
        for item in self._decode(tail):
            yield item

    async def close(self) -> None:
        """Frees the file and the memory. May be called twice."""
        self._closed = True
        async with self._disk:
            file, self._file = self._file, None
            self._buffer, self._buffered, self._blocks = _new_buffer(), 0, []
            if file is not None:
                await self._run_to_the_end(file.close)

    async def _writable(self) -> None:
        """Waits while a block is being written, so that only one is in memory.

        All waiting appenders continue together. If each took the lock of the disk in turn, one per turn of the loop,
        the next full block would wait behind them while later appenders filled further ones.
        """
        while not self._may_append.is_set():
            await self._may_append.wait()
        if self._closed:
            raise ValueError("the spill file is closed")
        if self._broken is not None:
            self._fail(self._broken)

    async def _write_block(self) -> None:
        _ARRAY_HEADER.pack_into(self._buffer, 0, _ARRAY_32, self._buffered)
        data = self._buffer
        self._buffer, self._buffered = _new_buffer(), 0
        self._may_append.clear()
        try:
            async with self._disk:
                offset = self._size
                await self._run_to_the_end(lambda: self._write(data, offset))
                self._size += len(data)
                self._blocks.append(_Block(offset, len(data)))
        except BaseException as error:
            self._broken = error
            if isinstance(error, OSError):
                self._fail(error)
            raise
        finally:
            self._may_append.set()

    def _write(self, data: bytearray, offset: int) -> None:
        if self._file is None:
            self._file = cast("BinaryIO", tempfile.TemporaryFile(buffering=0))  # noqa: SIM115
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._file.fileno(), rest, offset)
            rest, offset = rest[written:], offset + written

    async def _read_block(self, block: _Block) -> bytes:
        async with self._disk:
            file = self._file
            if file is None:
                raise ValueError("the spill file was closed while it was read")
            try:
                return await self._run_to_the_end(lambda: os.pread(file.fileno(), block.length, block.offset))
            except OSError as error:
                self._fail(error)

    async def _run_to_the_end(self, call: Callable[[], R]) -> R:
        """Runs a call in a thread and waits for its end even when cancelled, since it uses the descriptor."""
        hop = asyncio.ensure_future(self._runtime.run_blocking(call))
        try:
            return await asyncio.shield(hop)
        except asyncio.CancelledError:
            while not hop.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([hop])
            if not hop.cancelled():
                hop.exception()
            raise

    def _decode(self, data: bytes) -> list[T]:
        try:
            return cast("list[T]", self._decoder.decode(data))
        except msgspec.DecodeError as error:
            raise RecordError(
                f"a temporary file was changed: a block does not decode: {error}", operation="spill"
            ) from error

    def _fail(self, error: BaseException) -> NoReturn:
        try:
            directory = tempfile.gettempdir()
        except OSError:
            # No temporary directory is usable.
            directory = os.environ.get("TMPDIR", "the system's directory for temporary files")
        raise CommitterError(
            f"a temporary file in {directory} failed: {error}",
            operation="spill",
            path=directory,
            next_step=f"make room there, or set TMPDIR to a directory with room,{AND_RUN_IT_AGAIN}",
        ) from error


def _new_buffer() -> bytearray:
    return bytearray(_ARRAY_HEADER.size)


_log = job_logger("committer.flow")


# A decoded block takes about five times as much memory.
_BLOCK_BYTES: Final = 1 << 18

MOST_AHEAD: Final = 4 << 20
"""Weight of the items that a reader holds until their turn."""


class NumberedSpill(Closable, Generic[T]):
    """Cache on disk of items that its user can get again at a higher cost. A context manager.

    So it never fails: if the disk fails, it ends with a warning, and drops
    items; also items beyond `most_bytes` on the disk, which may be memory. First added to, then read repeatedly.
    """

    def __init__(self, kind: Any, *, most_bytes: int, block_bytes: int | None = None) -> None:
        of_item: Any = tuple[int, int, kind]
        self._most_bytes = most_bytes
        self._spill: SpillFile[tuple[int, int, T]] | None = SpillFile(of_item, block_bytes=block_bytes or _BLOCK_BYTES)

    @property
    def takes_more(self) -> bool:
        """Whether an item added now is kept."""
        return self._spill is not None and self._spill.size < self._most_bytes

    async def add(self, number: int, item: T, *, weight: int) -> None:
        """Adds an item with its turn's `number`, and the bytes that a reader needs for it."""
        spill = self._spill
        if spill is None or spill.size >= self._most_bytes:
            return
        try:
            await spill.append((number, weight, item))
        except CommitterError as error:
            await self._give_up(spill, error)
        except ValueError:
            # Closed while this waited for the disk.
            if self._spill is spill:
                raise

    def in_turn(self, *, most_ahead: int = MOST_AHEAD) -> SpillReader[T]:
        """Returns a reader of the items so far, which holds at most `most_ahead` of weight until their turn."""
        return SpillReader(self._read(), most_ahead)

    async def close(self) -> None:
        """Frees the file and the memory. May be called twice."""
        spill, self._spill = self._spill, None
        if spill is not None:
            await spill.close()

    async def _read(self) -> AsyncIterator[tuple[int, int, T]]:
        spill = self._spill
        if spill is None:
            return
        try:
            async for item in spill.read():
                yield item
        except CommitterError as error:
            await self._give_up(spill, error)
        except ValueError:
            # Another reader closed it meanwhile.
            if self._spill is spill:
                raise

    async def _give_up(self, spill: SpillFile[tuple[int, int, T]], error: CommitterError) -> None:
        """Frees the space, for users that cannot do without it."""
        if self._spill is spill:
            _log.warning("what records say is not kept on the driver's disk, so they are read again: %s", error)
            await self.close()


class SpillReader(Generic[T]):
    """Sequential reader of a `NumberedSpill`; may miss an item written long after higher numbers, to bound memory."""

    def __init__(self, items: AsyncIterator[tuple[int, int, T]], most_ahead: int) -> None:
        self._items = items
        self._most_ahead = most_ahead
        self._waiting: dict[int, tuple[int, T]] = {}
        self._ahead = 0

    async def take(self, numbers: range) -> dict[int, T]:
        """Returns the items of some numbers, as far as found. Numbers must be asked for in rising order."""
        found: dict[int, T] = {}
        waiting = self._waiting
        for number in numbers if waiting else ():
            if number in waiting:
                weight, found[number] = waiting.pop(number)
                self._ahead -= weight
        first, end, wanted = numbers.start, numbers.stop, len(numbers)
        while len(found) < wanted and self._ahead < self._most_ahead:
            added = await anext(self._items, None)
            if added is None:
                break
            number, weight, item = added
            if number >= end:
                waiting[number] = weight, item
                self._ahead += weight
            elif number >= first:
                found[number] = item
        return found
