"""Rows set aside on the local disk until all of a task's rows have come, and then read back a directory at a time.

They lie uncompressed in one Arrow file without a name, so that nothing is left of it however the process ends, and are
read through a memory map: the system's page cache holds them, not this process. In memory there are 32 bytes for each
slice of rows.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from array import array
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import IO, TYPE_CHECKING, Final

from committer.errors import TaskError

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_BYTES: Final = 4 << 20
_OPEN_BATCHES: Final = 1024


class Spill:
    """Slices of rows, by directory.

    Args:
        task: The task's number, which chooses among several local disks.
    """

    def __init__(self, task: int = 0) -> None:
        self._folder = local_folder(task)
        self._file: IO[bytes] | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._codes: dict[str, int] = {}
        # A slice: its directory's code, its batch, where it starts there, how many rows it has.
        self._slices = tuple(array("q") for _ in range(4))
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._batches = 0

    def __contains__(self, directory: str) -> bool:
        """Whether rows of the directory were set aside."""
        return directory in self._codes

    def add(self, directory: str, rows: pa.Table) -> None:
        """Sets rows aside, after those of the same directory that came before.

        Raises:
            TaskError: The local disk did not take them.
        """
        code = self._codes.setdefault(directory, len(self._codes))
        for column, value in zip(self._slices, (code, self._batches, self._pending_rows, rows.num_rows), strict=True):
            column.append(value)
        self._pending.append(rows)
        self._pending_rows += rows.num_rows
        self._pending_bytes += rows.nbytes
        if self._pending_bytes >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what is still held, so that nothing keeps the rows that it was cut from.

        Raises:
            TaskError: The local disk did not take it.
        """
        import pyarrow as pa

        if not self._pending:
            return
        rows = pa.concat_tables(self._pending)
        columns = [pa.concat_arrays(column.chunks) for column in rows.columns]
        self._pending.clear()
        self._pending_rows = self._pending_bytes = 0
        self._batches += 1
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, prefix="committer-")  # noqa: SIM115
            if self._writer is None:
                self._writer = pa.ipc.new_file(pa.PythonFile(self._file, mode="w"), rows.schema)
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=rows.schema))
        except OSError as error:
            raise self._disk_error(error) from error

    def drain(self) -> Iterator[tuple[str, Iterator[pa.Table]]]:
        """Every directory once, by first appearance, with its rows in the order in which they came.

        The rows of one must be taken before the next is asked for.

        Raises:
            TaskError: The local disk did not take the last of them.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        self.flush()
        if self._file is None or self._writer is None:
            return
        try:
            self._writer.close()
            self._file.flush()
        except OSError as error:
            raise self._disk_error(error) from error
        codes, batches, starts, counts = self._slices
        # Not closed: buffers may still refer to it, and it goes with the last of them.
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapped)))
        batch = lru_cache(_OPEN_BATCHES)(reader.get_batch)
        order = pc.array_sort_indices(pa.array(codes, pa.int64()))
        directories = list(self._codes)

        def rows(slices: Iterator[int]) -> Iterator[pa.Table]:
            for at in slices:
                yield pa.Table.from_batches([batch(batches[at]).slice(starts[at], counts[at])])

        # The sort is stable, so slices of one directory stay in their order.
        places = (place.as_py() for place in order)
        for code, slices in groupby(places, codes.__getitem__):
            yield directories[code], rows(slices)

    def close(self) -> None:
        """Gives the disk space back. A second call does nothing."""
        self._pending.clear()
        self._writer = None
        if self._file is not None:
            self._file.close()

    def _disk_error(self, error: OSError) -> TaskError:
        return TaskError(
            f"rows could not be set aside on the local disk until all have come: {error.strerror or error}",
            operation="write",
            path=self._folder or tempfile.gettempdir(),
            next_step="give spark.local.dir more space, or bring the rows of a partition together before the write"
            " with df.repartition(<partition columns>)",
        )


def local_folder(task: int) -> str | None:
    """Where Spark's executor keeps its own temporary files; None where it does not say, for the system's choice.

    Args:
        task: The task's number, which spreads tasks over several disks.
    """
    named = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    folders = [folder for folder in named if folder and os.access(folder, os.W_OK)]
    return folders[task % len(folders)] if folders else None
