"""The files of a task attempt for libraries that block, and know nothing else."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Self

from committer.errors import TaskError
from committer.flow.one_process import OneProcess
from committer.paths import StorePath
from committer.stores.helpers import bytes_of
from committer.task_files import IN_ANOTHER_PROCESS, TaskFile, is_closed

_BLOCK = 1 << 20


class BlockingTaskFile(OneProcess, io.RawIOBase):
    """A file object for pyarrow, pandas and the like, on every store.

    To be used from a thread other than the event loop's (``asyncio.to_thread``, or `committer.sync`). Each megabyte is
    handed to the loop and waited for, so at most that much is held however fast the caller writes. Many libraries leave
    a file open that they were given: it is closed by ``async with`` on the loop, or ``with`` in the thread.
    """

    _refused = TaskError
    _instead = IN_ANOTHER_PROCESS

    def __init__(self, file: TaskFile, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._file = file
        self._loop = loop
        self._buffer = bytearray()
        self._position = 0
        self._failed = False
        self._loop_thread = threading.get_ident()

    @property
    def name(self) -> str:
        """The file's name, relative to the destination."""
        return self._file.name

    def writable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: object, /) -> NoReturn:
        """Raises: the file is only written.

        Raises:
            io.UnsupportedOperation: Always.
        """
        raise io.UnsupportedOperation(f"the file {self.name} is only written")

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def write(self, data: object, /) -> int:
        """Appends a buffer.

        Raises:
            TaskError: Called on the event loop's own thread, which it would block for ever.
            TypeError: `data` is no bytes, a text for example.
        """
        self._check_open()
        view = bytes_of(data)
        self._buffer += view
        self._position += len(view)
        if len(self._buffer) >= _BLOCK:
            self._hand_over()
        return len(view)

    def flush(self) -> None:
        """Hands over what is buffered."""
        if not self.closed and self._buffer:
            self._hand_over()

    def close(self) -> None:
        """Finishes the file: from now on it is part of the attempt. A second call does nothing.

        Raises:
            TaskError: An earlier write failed, whatever the caller made of its error: the file is given up.
        """
        if self.closed:
            return
        try:
            if self._failed:
                lost = self._file._lost_a_part()
                self._wait(partial(self._file._abort_after, lost))
                raise lost
            if self._buffer:
                self._hand_over()
            self._wait(self._file.close)
        finally:
            self._end()

    def abort(self) -> None:
        """Removes the file; the attempt can commit without it."""
        if self.closed:
            return
        try:
            self._wait(self._file.abort)
        finally:
            self._end()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_inherited:
            self._end()
        elif error is None:
            self.close()
        elif not self.closed:
            try:
                self._wait(partial(self._file._abort_after, error))
            finally:
                self._end()

    async def __aenter__(self) -> Self:
        self._check_open()
        if asyncio.get_running_loop() is not self._loop:
            raise TaskError(
                f"the blocking file {self.name} belongs to another event loop",
                operation="open_blocking",
                path=self.name,
                next_step="use `with` in a thread, or open it in the loop that uses it",
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_inherited:
            self._end()
            return
        data = None if error is not None or self.closed else bytes(self._buffer)
        try:
            if error is None and self._failed and not self.closed:
                raise self._file._lost_a_part()
            if data:
                await self._file.write(data)
        except BaseException as failure:
            await self._file.__aexit__(type(failure), failure, failure.__traceback__)
            raise
        else:
            await self._file.__aexit__(kind, error, trace)
        finally:
            self._end()

    def __del__(self) -> None:
        # IOBase would close, and so finish, a file that was forgotten half way.
        if not self.closed:
            self._end()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "being written"
        return f"<{type(self).__name__} {self.name!r}: {state}, bytes written: {self._position}>"

    def _end(self) -> None:
        # IOBase flushes when it is closed, and what is left now belongs to a file that was given up.
        self._buffer.clear()
        super().close()

    def _hand_over(self) -> None:
        data, self._buffer = self._buffer, bytearray()
        try:
            self._wait(lambda: self._file.write(data))
        except BaseException:
            self._failed = True
            raise

    def _told_as(self) -> str:
        return f"the file {self.name}"

    def _wait(self, call: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._check_process("write")
        if threading.get_ident() == self._loop_thread and self._loop.is_running():
            raise TaskError(
                f"the blocking file {self.name} was used on the event loop's thread, which would wait for itself",
                operation="open_blocking",
                path=self.name,
                next_step="write in another thread: await asyncio.to_thread(...); or open the job with committer.sync, "
                "or write bytes with task.open",
            )

        async def made_on_the_loop() -> object:
            return await call()

        future = asyncio.run_coroutine_threadsafe(made_on_the_loop(), self._loop)
        try:
            future.result()
        except BaseException:
            future.cancel()
            raise

    def _check_open(self) -> None:
        self._check_process("write")
        if self.closed:
            raise is_closed(self.name)


def opened_on_loop(
    loop: asyncio.AbstractEventLoop, claim: Callable[[], TaskFile], directory: StorePath
) -> BlockingTaskFile:
    """A blocking file, claimed here where a loop runs, else, in a thread of `asyncio.to_thread`, on the attempt's loop.

    Names are claimed without awaiting: a step of its own on a loop, and not among threads.

    Args:
        loop: The loop that the task attempt was opened on.
        claim: Gives the file, and its name to it.
        directory: The task attempt directory, for errors.

    Raises:
        TaskError: No loop runs.
    """
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if here is not None:
        return BlockingTaskFile(claim(), here)
    if not loop.is_running():
        raise TaskError(
            "a file was opened where no event loop runs, and the loop of its task attempt does not run either",
            operation="open_blocking",
            path=directory,
            next_step="open it on the loop, or in a thread that the loop awaits: await asyncio.to_thread(...); "
            "a program without a loop uses committer.sync",
        )

    async def claimed() -> BlockingTaskFile:
        return BlockingTaskFile(claim(), loop)

    return asyncio.run_coroutine_threadsafe(claimed(), loop).result()
