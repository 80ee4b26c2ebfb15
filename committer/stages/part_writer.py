"""A file that is sent part by part, several at a time, and appears when its job is committed."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from committer.errors import StoreError, TaskError
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.paths import StorePath
from committer.stores.base import FileStatus, FileWriter, Store
from committer.stores.helpers import bytes_of

Part = TypeVar("Part")


class Sending(NamedTuple):
    """How the files of a task attempt are sent.

    Attributes:
        stamp: What they will be stamped with.
        part_bytes: Length of every part but the last of a file.
        in_flight: Parts of a file that are under way at most.
    """

    stamp: str
    part_bytes: int
    in_flight: int


class PartWriter(FileWriter, Generic[Part]):
    """Cuts what is written into parts and sends them. A subclass says how one is sent, and makes nothing visible.

    Memory: the part that is filled, those under way, and what the caller hands over: (2 + `in_flight`) parts.

    Args:
        store: Where the parts go.
        path: Where the file will stand.
        sending: How its parts are sent.
        finished: Told the parts once the file is closed.
    """

    def __init__(
        self, store: Store, path: StorePath, sending: Sending, finished: Callable[[Sequence[Part]], None]
    ) -> None:
        self._store = store
        self._path = path
        self._stamp = sending.stamp
        self._part_bytes = sending.part_bytes
        self._in_flight = sending.in_flight
        self._most = store.capabilities.max_parts
        self._finished = finished
        self._buffer = bytearray()
        self._size = 0
        self._begun = 0
        self._parts: dict[int, Part] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._ended = False

    @abstractmethod
    async def _put(self, number: int, data: bytearray) -> Part:
        """Sends a part, by its number from 1."""

    @abstractmethod
    async def _drop(self) -> None:
        """Drops what was sent, where the store can."""

    @abstractmethod
    async def _close_empty(self) -> None:
        """Sends what a file without content is made of."""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keeps it, and sends every part that is full; waits while as many as allowed are under way.

        Raises:
            TaskError: The file would have more parts than the store takes, or is closed.
        """
        self._check_usable()
        view = memoryview(bytes_of(data))
        while view:
            room = self._part_bytes - len(self._buffer)
            self._buffer += view[:room]
            self._size += len(view[:room])
            view = view[room:]
            if len(self._buffer) == self._part_bytes:
                await self._send()

    async def close(self) -> FileStatus:
        """Sends what is left, waits for every part. Whatever fails gives the file up: no process could finish it."""
        try:
            return await self._finish()
        except BaseException:
            with suppress(StoreError):
                await run_shielded(self.abort, bound_s=UNDO_BOUND_S)
            raise

    async def _finish(self) -> FileStatus:
        self._check_usable()
        if self._buffer:
            await self._send()
        elif not self._begun:
            await self._close_empty()
        while self._sending:
            await self._wait_for_one()
        self._check_usable()
        self._ended = True
        self._finished([self._parts[number] for number in range(1, self._begun + 1)])
        return FileStatus(self._path, False, self._size, stamp=self._stamp)

    async def abort(self) -> None:
        """Stops what is under way and drops what was sent; does nothing for a file that is closed."""
        if self._ended:
            return
        await self.stop()
        await self._drop()

    async def stop(self) -> None:
        """Stops what is under way: nothing is sent any more once this returns. What was sent stays; no call."""
        self._ended = True
        self._buffer = bytearray()
        for task in self._sending:
            task.cancel()
        while self._sending:
            await self._wait_for_one()

    async def _send(self) -> None:
        if self._most is not None and self._begun == self._most:
            raise TaskError(
                f"the file has more than {self._most} parts of {self._part_bytes} bytes, which is as many as the store "
                "takes",
                operation="write",
                path=self._path,
                next_step="write smaller files, or raise multipart_size (fs.s3a.multipart.size)",
            )
        while len(self._sending) >= self._in_flight:
            await self._wait_for_one()
        self._check_usable()
        self._begun += 1
        data, self._buffer = self._buffer, bytearray()
        self._sending.add(asyncio.create_task(self._sent(self._begun, data)))

    async def _sent(self, number: int, data: bytearray) -> None:
        self._parts[number] = await self._put(number, data)

    async def _wait_for_one(self) -> None:
        done, self._sending = await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            self._failure = self._failure or error

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._ended:
            raise TaskError(
                "the file is closed, or was given up",
                operation="write",
                path=self._path,
                next_step="open another file, under another name",
            )
