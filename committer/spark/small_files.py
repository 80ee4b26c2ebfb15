"""Small files of a Spark task, handed to the event loop many at a time.

Rows are encoded in the thread that Spark's iterator belongs to, files are written by the loop's. Each hand-over costs
two switches of threads, 0.2 ms, and a file of its own needs three: to be opened, written, closed. Parquet needs 0.05 ms
for a file of a hundred rows. So a file that ends before it has `SMALL_BYTES` is kept in memory, and 64 of them
go over at once, where the store takes their calls together. Meanwhile the next ones are encoded.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import Future, wait
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from committer.errors import MultipleError
from committer.flow.workers import run_workers

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from committer.task import TaskAttempt

SMALL_BYTES: Final = 1 << 20
"""What a file may have and still be small: as much as one that is written at once holds back."""
GROUP_FILES: Final = 64
GROUP_BYTES: Final = 4 << 20


class SmallFiles:
    """Opens the files of one task attempt, and writes the small ones in groups; used as a context manager.

    Memory: one group that is being filled and one that is being written, at most `group_bytes` and a file each.

    A file is part of the attempt once its group is written: at the latest when the block is left. Leaving it with an
    error gives up what is not written yet.

    Args:
        portal: Where the attempt's loop runs.
        attempt: What the files become part of.
        small_bytes: Files that grow beyond it are written as they come.
        group_files: How many files make a group.
        group_bytes: How many bytes make one.
    """

    def __init__(
        self,
        portal: BlockingPortal,
        attempt: TaskAttempt,
        *,
        small_bytes: int = SMALL_BYTES,
        group_files: int = GROUP_FILES,
        group_bytes: int = GROUP_BYTES,
    ) -> None:
        self._portal = portal
        self._attempt = attempt
        self._small_bytes = small_bytes
        self._group_files = group_files
        self._group_bytes = group_bytes
        self._group: list[tuple[str, bytes]] = []
        self._bytes = 0
        self._writing: Future[None] | None = None

    def open(self, name: str) -> SmallFile:
        """A file object for pyarrow and the like. Nothing is opened on the store before it has something to write."""
        return SmallFile(name, self._small_bytes, self._add, self._open)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._hand_over()
            self._wait()
            return
        self._group.clear()
        if self._writing is not None:
            # What it began must have ended before the attempt is aborted.
            self._writing.cancel()
            wait([self._writing])

    def _open(self, name: str) -> io.IOBase:
        return self._portal.call(self._attempt.open_blocking, name)

    def _add(self, name: str, data: bytes) -> None:
        self._group.append((name, data))
        self._bytes += len(data)
        if len(self._group) >= self._group_files or self._bytes >= self._group_bytes:
            self._hand_over()

    def _hand_over(self) -> None:
        self._wait()
        group, self._group, self._bytes = self._group, [], 0
        if group:
            self._writing = self._portal.start_task_soon(_write_all, self._attempt, group)

    def _wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            try:
                writing.result()
            except BaseException:
                # Interrupted, it must be waited for by the code that leaves the block.
                self._writing = writing
                raise


class SmallFile(io.RawIOBase):
    """A file being written: in memory, and on the store once it has grown.

    Args:
        name: Its name, relative to the destination.
        limit: How many bytes are kept in memory.
        add: Takes the name and bytes of one that ended small.
        begin: Opens it on the store.
    """

    def __init__(
        self, name: str, limit: int, add: Callable[[str, bytes], None], begin: Callable[[str], io.IOBase]
    ) -> None:
        super().__init__()
        self._name = name
        self._limit = limit
        self._add = add
        self._begin = begin
        self._kept = io.BytesIO()
        self._file: Any = None
        self._position = 0

    def writable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def write(self, data: object, /) -> int:
        """Appends a buffer."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._position += len(view)
        if self._file is None:
            if self._position <= self._limit:
                return self._kept.write(view)
            self._file = self._begin(self._name)
            self._file.write(self._kept.getbuffer())
            self._kept = io.BytesIO()
        self._file.write(view)
        return len(view)

    def close(self) -> None:
        """Finishes the file. A second call does nothing."""
        if self.closed:
            return
        try:
            if self._file is not None:
                self._file.close()
            else:
                self._add(self._name, self._kept.getvalue())
        finally:
            super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            if self._file is not None:
                self._file.__exit__(kind, error, trace)
        finally:
            super().close()

    def __del__(self) -> None:
        # IOBase would close, and so finish, a file that was forgotten half way.
        if not self.closed:
            super().close()


async def _write_all(attempt: TaskAttempt, files: list[tuple[str, bytes]]) -> None:
    async def write(file: tuple[str, bytes]) -> None:
        name, data = file
        async with attempt.open(name) as opened:
            await opened.write(data)

    try:
        # All at once: calls that wait together go to the store together, and its limits bound them.
        await run_workers(files, write, workers=len(files), operation="write")
    except MultipleError as error:
        # A vanished job, or a full disk, fails all of them alike: the first tells what each would have told alone.
        raise error.causes[0] from error
