"""Files of a task attempt: asynchronous ones, and file objects for libraries that block."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from committer.errors import CommitterError, StoreNotFoundError, TaskError
from committer.flow.misuse import Calls, OneProcess, noted
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.paths import StorePath
from committer.stores.base import FileStatus, FileWriter
from committer.stores.helpers import bytes_of

OpenWriter = Callable[[], Awaitable[FileWriter]]
Finished = Callable[[FileStatus | None, bool], None]
WhyGone = Callable[[StoreNotFoundError], Awaitable[CommitterError]]

IN_ANOTHER_PROCESS: Final = (
    "give job.spec to the other process, which opens an attempt of a task of its own: "
    "committer.open_task(job.spec, task=...)"
)


class TaskFile(OneProcess):
    """A file being written by a task attempt: ``async with task.open(name) as f: await f.write(b"...")``.

    Closing the file makes it part of the attempt. After an exception in the block, or any failed write, the
    file is removed and the attempt can no longer commit; ``await f.abort()`` removes only the file. Without a
    block, ``f = await task.open(name)`` opens it, and ``await f.close()`` or ``await f.abort()`` ends it: an
    open file keeps its attempt from being committed.

    Attributes:
        name: Its name, relative to the destination; outside the destination the absolute path.
    """

    _refused = TaskError
    _instead = IN_ANOTHER_PROCESS

    def __init__(self, name: str, open_writer: OpenWriter, finished: Finished, why_gone: WhyGone, calls: Calls) -> None:
        super().__init__()
        self.name = name
        self._why_gone = why_gone
        self._calls = calls
        self._open_writer = open_writer
        self._finished = finished
        self._writer: FileWriter | None = None
        self._opened: asyncio.Event | None = None
        self._closed = False
        self._broken = False
        self._written = 0

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        try:
            await self._ready()
        except BaseException:
            # The caller has no file to close, so it must not keep the attempt from being committed.
            self._closed = True
            self._finished(None, False)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_inherited:
            return
        if error is None:
            await self.close()
        else:
            self._calls.forget(self)
            await self._abort_after(error)

    @noted
    async def write(self, data: bytes | bytearray | memoryview) -> int:
        """Appends `data`, whose buffer may be reused afterwards; returns its length in bytes.

        Raises:
            TaskError: The file is closed, or the task attempt was aborted.
            JobNotFoundError, JobDecidedError: The job is over.
            TypeError: `data` is no bytes, but a text for example.
        """
        data = bytes_of(data)
        writer = await self._ready()
        if self._broken:
            raise self._lost_a_part()
        # A failed write leaves a hole, whatever the caller makes of the error.
        self._broken = True
        try:
            await writer.write(data)
        except StoreNotFoundError as error:
            raise await self._why_gone(error) from error
        self._broken = False
        self._written += len(data)
        return len(data)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "being written"
        return f"<{type(self).__name__} {self.name!r}: {state}, bytes written: {self._written}>"

    def tell(self) -> int:
        """Returns the number of bytes written so far."""
        return self._written

    @property
    def closed(self) -> bool:
        """Whether nothing more can be written."""
        return self._closed

    @noted
    async def close(self) -> None:
        """Finishes the file, which becomes part of the attempt. A second call does nothing.

        Raises:
            TaskError: A part could not be written or was never awaited, or the file could not be finished: it
                is no part of the attempt. Or the task attempt was aborted.
            JobNotFoundError, JobDecidedError: The job is over.
        """
        self._check_process("close")
        if self._closed and not self._broken:
            return
        lost = never_awaited(self, self._calls) or (self._lost_a_part() if self._broken else None)
        if lost is not None:
            await self._abort_after(lost)
            raise lost
        writer = await self._ready()
        self._closed = self._broken = True
        try:
            status = await writer.close()
        except BaseException as error:
            self._finished(None, False)
            if isinstance(error, StoreNotFoundError):
                raise await self._why_gone(error) from error
            raise
        self._broken = False
        self._finished(status, False)

    @noted
    async def abort(self) -> None:
        """Removes the file; the attempt can commit without it."""
        self._check_process("abort")
        self._calls.forget(self)
        await self._give_up(on_demand=True)

    async def _give_up(self, *, on_demand: bool = False) -> None:
        if self._closed:
            return
        self._closed = True
        if self._opened is not None:
            # The attempt cannot be committed before: a file that is created later is in no record.
            await self._opened.wait()
        self._finished(None, on_demand)
        if self._writer is not None:
            await self._writer.abort()

    async def _let_go(self) -> None:
        """Closes the file's descriptors for an attempt that is aborted, before its directory is removed."""
        if self._writer is not None and not self._closed:
            await self._writer.abort()

    async def _abort_after(self, error: BaseException) -> None:
        """Abandons the file because of `error`, which a failure to do so must not hide."""
        try:
            await run_shielded(self._give_up, bound_s=UNDO_BOUND_S)
        except CommitterError as failure:
            error.add_note(f"what was sent of {self.name} could not be removed, which its task attempt does: {failure}")

    if not TYPE_CHECKING:  # a type checker knows what is not there

        def __getattr__(self, name: str) -> object:
            hint = (
                f": it is written with await; libraries that block take task.open_blocking({self.name!r})"
                if hasattr(io.RawIOBase, name) and not name.startswith("_")
                else ""
            )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

        def __enter__(self) -> None:
            raise TypeError("use `async with task.open(name)`; plain `with` goes with task.open_blocking(name)")

        def __exit__(self, *of: object) -> None: ...

    def _told_as(self) -> str:
        return f"the file {self.name}"

    def _lost_a_part(self) -> TaskError:
        return TaskError(
            f"{self.name} could not be written or finished, so it cannot become part of the attempt",
            operation="write",
            path=self.name,
            next_step="run the task again as a new attempt",
        )

    async def _ready(self) -> FileWriter:
        self._check_process("write")
        self._check_not_closed()
        if self._writer is None:
            opened = self._opened = asyncio.Event()
            try:
                self._writer = await self._open_writer()
            finally:
                opened.set()
            # The file may have been aborted meanwhile.
            self._check_not_closed()
        return self._writer

    def _check_not_closed(self) -> None:
        if self._closed:
            raise is_closed(self.name)


def is_closed(name: str) -> TaskError:
    """Builds the error of a write to a closed file."""
    return TaskError(
        f"the file {name} is closed",
        operation="write",
        path=name,
        next_step="write all of it before it is closed, inside its block; more goes into a file of another name",
    )


def never_awaited(file: TaskFile, calls: Calls) -> TaskError | None:
    """Returns the error of a file's first call that was never awaited; None if there is none."""
    call = next(iter(calls.of(file)), None)
    if call is None:
        return None
    return TaskError(
        f"{call} of the file {file.name} was called without await, so it did nothing",
        operation=call.partition("(")[0],
        path=file.name,
        next_step=f"write `await f.{call}`, or give a library that blocks, such as pyarrow or pandas, the file of "
        "task.open_blocking(name) in another thread; then run the task again as a new attempt",
    )


def check_awaited(calls: Calls, attempt: str, directory: StorePath) -> None:
    """Refuses to continue if a call of a task attempt or of its files was never awaited."""
    first = calls.first()
    if first is None:
        return
    caller, call = first
    error = never_awaited(caller, calls) if isinstance(caller, TaskFile) else None
    raise error or TaskError(
        f"{call} of {attempt} was called without await, so it did nothing",
        operation="commit_task",
        path=str(directory),
        next_step=f"write `await task.{call}`; then run the task again as a new attempt",
    )


_BLOCK = 1 << 20


class BlockingTaskFile(OneProcess, io.RawIOBase):
    """A file object for pyarrow, pandas and the like, on every store.

    To be used from a thread other than the event loop's (``asyncio.to_thread``, or `committer.sync`). Each
    megabyte is handed to the loop and waited for, so no more than that is held in memory. Many libraries leave
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
        """Returns True."""
        return True

    def readinto(self, buffer: object, /) -> NoReturn:
        """Raises `io.UnsupportedOperation`: the file is only written."""
        raise io.UnsupportedOperation(f"the file {self.name} is only written")

    def tell(self) -> int:
        """Returns the number of bytes written so far."""
        return self._position

    def write(self, data: object, /) -> int:
        """Appends a buffer; returns its length in bytes.

        Raises:
            TaskError: Called on the event loop's own thread, which it would block for ever.
            TypeError: `data` is no bytes, but a text for example.
        """
        self._check_open()
        view = bytes_of(data)
        self._buffer += view
        self._position += len(view)
        if len(self._buffer) >= _BLOCK:
            self._hand_over()
        return len(view)

    def flush(self) -> None:
        """Writes buffered data."""
        if not self.closed and self._buffer:
            self._hand_over()

    def close(self) -> None:
        """Finishes the file, which becomes part of the attempt. A second call does nothing.

        Raises:
            TaskError: An earlier write failed, whatever the caller made of its error: the file is removed.
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
        # IOBase flushes when it is closed, and the buffer now belongs to a file that was aborted.
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
    """Opens a blocking file on the running loop, or, from a thread of `asyncio.to_thread`, on the attempt's loop.

    The name is reserved on a loop, without awaiting: so no two threads reserve one at once.
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
