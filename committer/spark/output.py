"""Writes a Spark task's rows to files, one per partition directory.

`TaskOutput` gathers rows up to `GATHERED_BYTES` and sorts them by partition. A partition with enough rows for a
row group is written at once; its file stays open until the end (at most `OPEN_FILES` files and `OPEN_BYTES` of
memory). Other rows go to a `Spill` on the local disk and are written after the last row, one directory at a time.
So each directory gets one file per task, its rows keep their order, and memory stays bounded.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from io import IOBase
from typing import IO, TYPE_CHECKING, Final

import msgspec

from committer.errors import TaskError
from committer.file_names import partition_directory
from committer.spark.formats.base import FileFormat, RowFile, compute
from committer.spark.formats.spelling import partition_texts
from committer.spark.schema import FilePlan, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa


def split_by_partition(
    rows: pa.Table, keys: pa.Table, names: Sequence[str], spark_types: Sequence[str] = ()
) -> Iterator[tuple[str, pa.Table]]:
    """Sorts rows by partition and yields each partition's directory and rows once, by first appearance of its values.

    The directory is empty for an unpartitioned write. Values with the same spelling share a directory: null and the
    empty string, or an hour that daylight saving time repeats. Only intervals need `spark_types`. Memory: a sorted
    copy of `rows`; time: a sort of one integer per row.
    """
    import pyarrow as pa

    pc = compute()
    if not names:
        yield "", rows
        return
    codes, directories = _directory_codes(keys, names, spark_types or [""] * len(names))
    if len(directories) == 1:
        yield directories[0], rows
        return
    order = pc.sort_indices(codes)  # stable: rows keep their order within a partition
    rows = rows.take(order)
    runs = pc.run_end_encode(codes.take(order), run_end_type=pa.int64())
    start = 0
    for code, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield directories[code], rows.slice(start, end - start)
        start = end


def _directory_codes(keys: pa.Table, names: Sequence[str], spark_types: Sequence[str]) -> tuple[pa.Array, list[str]]:
    columns = [_column_codes(*column) for column in zip(names, keys.columns, spark_types, strict=True)]
    codes, directories = columns[0]
    for more, texts in columns[1:]:
        codes, directories = _combined(codes, directories, more, texts)
    return codes, directories


def _column_codes(name: str, values: pa.ChunkedArray, spark_type: str) -> tuple[pa.Array, list[str]]:
    import pyarrow as pa

    column = values.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # what combine_chunks makes of no rows, or of more than 2 GiB of text
        column = pa.concat_arrays(column.chunks)
    encoded = column.dictionary_encode(null_encoding="encode")
    directories = [partition_directory([(name, text)]) for text in partition_texts(encoded.dictionary, spark_type)]
    numbers: dict[str, int] = {}
    for directory in directories:
        numbers.setdefault(directory, len(numbers))
    if len(numbers) == len(directories):
        return encoded.indices.cast(pa.int64()), directories
    by_value = pa.array([numbers[directory] for directory in directories], pa.int64())
    return by_value.take(encoded.indices), list(numbers)


def _combined(
    outer: pa.Array, outer_names: list[str], inner: pa.Array, inner_names: list[str]
) -> tuple[pa.Array, list[str]]:
    import pyarrow as pa

    pc = compute()
    pairs = pc.add(pc.multiply(outer, len(inner_names)), inner)
    # Renumbered at each column: at most one number per row, so the product never overflows.
    encoded = pairs.dictionary_encode()
    names = []
    for pair in encoded.dictionary.to_pylist():
        first, second = divmod(pair, len(inner_names))
        names.append(f"{outer_names[first]}/{inner_names[second]}")
    return encoded.indices.cast(pa.int64()), names


_BATCH_BYTES: Final = 4 << 20
_OPEN_BATCHES: Final = 1024


class Spill:
    """Local disk file that holds rows by directory until they are written.

    It is one uncompressed Arrow file without a name, so the system removes it however the process ends. It is read
    through a memory map, so its bytes are in the page cache. Memory: 24 bytes per added slice, some 100 per directory.
    """

    def __init__(self, task: int = 0) -> None:
        self._folder = local_folder(task)
        self._file: IO[bytes] | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        # Per slice of a directory three numbers: the batch's, the first row in the batch, and that of the rows.
        self._slices: dict[str, array[int]] = {}
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._batches = 0

    def __contains__(self, directory: str) -> bool:
        return directory in self._slices

    def add(self, directory: str, rows: pa.Table) -> None:
        """Appends rows to those of the directory."""
        slices = self._slices.setdefault(directory, array("q"))
        slices.extend((self._batches, self._pending_rows, rows.num_rows))
        self._pending.append(rows)
        self._pending_rows += rows.num_rows
        self._pending_bytes += rows.nbytes
        if self._pending_bytes >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes pending rows, so that they no longer keep the tables alive that they are slices of."""
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
        """Yields each directory once, by first appearance, with its rows in order; consume them before the next
        directory.
        """
        import pyarrow as pa

        self.flush()
        if self._file is None or self._writer is None:
            return
        try:
            self._writer.close()
            self._file.flush()
        except OSError as error:
            raise self._disk_error(error) from error
        # Not closed: buffers may still refer to the map, and it is freed with the last of them.
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapped)))
        batch = lru_cache(_OPEN_BATCHES)(reader.get_batch)

        def rows(slices: array[int]) -> Iterator[pa.Table]:
            for number, start, count in zip(slices[::3], slices[1::3], slices[2::3], strict=True):
                yield pa.Table.from_batches([batch(number).slice(start, count)])

        for directory, slices in self._slices.items():
            yield directory, rows(slices)

    def close(self) -> None:
        """Frees the disk space; idempotent."""
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
    """Returns a directory for temporary files of Spark's executor, spread by task; None if Spark names none."""
    named = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    folders = [folder for folder in named if folder and os.access(folder, os.W_OK)]
    return folders[task % len(folders)] if folders else None


GATHERED_BYTES: Final = 64 << 20
OPEN_FILES: Final = 8
OPEN_BYTES: Final = 64 << 20
_DIRECT_SHARE: Final = 8
"""Rows of a directory are written before the end if they fill this fraction of a gathering."""
_ARRAY_BYTES: Final = 512
"""Overhead per column of a batch, which matters where batches have few rows."""


class FileNames(msgspec.Struct, frozen=True):
    """Spark's names of files: ``part-00003-<id>-c000.snappy.parquet``, ``a=1/part-00003-<id>.c000.snappy.parquet``."""

    job_id: str
    task: int
    suffix: str

    def name(self, directory: str, number: int) -> str:
        """Returns the name of the task's `number`th file in `directory`."""
        if directory:
            return f"{directory}/part-{self.task:05d}-{self.job_id}.c{number:03d}{self.suffix}"
        return f"part-{self.task:05d}-{self.job_id}-c{number:03d}{self.suffix}"


class DirectoryFiles:
    """Files of one task attempt in one directory: one, or several of at most `limit` rows (0 for no limit)."""

    def __init__(self, begin: Callable[[int], RowFile], limit: int) -> None:
        self._begin = begin
        self._limit = limit
        self._number = 0
        self._rows = 0
        self._file: RowFile | None = None

    @property
    def held(self) -> int:
        """Bytes of memory held by the open file."""
        return self._file.held if self._file is not None else 0

    def write(self, rows: pa.Table) -> None:
        """Appends rows. As in Spark, the next file starts only when there is a row for it."""
        start = 0
        while start < rows.num_rows:
            if self._limit and self._rows == self._limit:
                self.close()
            count = min(rows.num_rows - start, self._limit - self._rows) if self._limit else rows.num_rows
            self.begin().write(rows.slice(start, count))
            self._rows += count
            start += count

    def begin(self) -> RowFile:
        """Returns the open file; opens one if there is none."""
        if self._file is None:
            self._file = self._begin(self._number)
            self._number += 1
            self._rows = 0
        return self._file

    def close(self) -> None:
        """Finishes the open file, if any."""
        if self._file is not None:
            # Cleared after the close: a file whose close fails is left to `abandon`.
            self._file.close()
            self._file = None

    def abandon(self, error: BaseException) -> None:
        """Discards the open file because of `error`, which stays the error that is raised."""
        if self._file is not None:
            self._file.abandon(error)
            self._file = None


class TaskOutput:
    """Writer of a task's rows; opens files from the calling thread by their names relative to the destination.

    Args:
        open_bytes: Memory of open files above which rows go to the spill.
    """

    def __init__(
        self,
        plan: FilePlan,
        file_format: FileFormat,
        names: FileNames,
        open_file: Callable[[str], IOBase],
        *,
        max_records_per_file: int = 0,
        gathered_bytes: int = GATHERED_BYTES,
        open_files: int = OPEN_FILES,
        open_bytes: int = OPEN_BYTES,
    ) -> None:
        self._plan = plan
        self._format = file_format
        self._names = names
        self._open_file = open_file
        self._limit = max_records_per_file
        self._gathered_bytes = gathered_bytes
        # One is kept for the directory that is written at the end.
        self._open_files = max(1, open_files - 1)
        self._open_bytes = open_bytes
        self._schema: pa.Schema | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._size = 0
        self._spill = Spill(names.task)
        self._open: dict[str, DirectoryFiles] = {}

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Writes all rows, finishes every file and returns the number of rows; discards open files on an error.

        As in Spark, task 0 of an unpartitioned write creates a file even without rows.
        """
        rows = 0
        try:
            for batch in batches:
                rows += batch.num_rows
                if batch.num_rows:
                    self._gather(batch)
            if self._gathered:
                self._flush(last=True)
            elif self._names.task == 0 and not self._plan.partitions:
                self._files("").begin()
            self._close_all()
        except BaseException as error:
            for files in self._open.values():
                files.abandon(error)
            raise
        finally:
            self._spill.close()
        return rows

    def _gather(self, batch: pa.RecordBatch) -> None:
        # Flushed before this batch: the last gathering must stay until it is known to be the last.
        if self._size >= self._gathered_bytes:
            self._flush(last=False)
        self._gathered.append(batch)
        self._size += batch.nbytes + _ARRAY_BYTES * (1 + batch.num_columns)

    def _flush(self, *, last: bool) -> None:
        import pyarrow as pa

        table = pa.Table.from_batches(self._gathered)
        self._gathered.clear()
        self._size = 0
        plan = self._plan
        rows = table.select(list(plan.columns))
        if self._schema is None:
            self._schema = self._format.file_schema(rows.schema, plan.schema)
        keys = table.select([position for _name, position in plan.partitions])
        names = [name for name, _position in plan.partitions]
        for directory, part in split_by_partition(rows.cast(self._schema), keys, names, plan.partition_types):
            self._put(directory, part, last=last)
        # Pending rows of the spill are slices that would keep the whole gathering alive.
        self._spill.flush()

    def _put(self, directory: str, rows: pa.Table, *, last: bool) -> None:
        """Writes rows or adds them to the spill; `last` means that no more rows follow for this directory."""
        # Later rows of a spilled directory are spilled too, which keeps their order.
        if directory in self._spill or not (last or self._may_write(directory, rows)):
            self._spill.add(directory, rows)
            return
        self._files(directory).write(rows)
        if last:
            self._close(directory)

    def _may_write(self, directory: str, rows: pa.Table) -> bool:
        if not directory:
            return True
        if rows.nbytes < self._gathered_bytes // _DIRECT_SHARE:
            return False
        if sum(files.held for files in self._open.values()) > self._open_bytes:
            return False
        return directory in self._open or len(self._open) < self._open_files

    def _close_all(self) -> None:
        """Writes spilled rows, one directory at a time, in tables like a gathering, and finishes every file."""
        for directory in [directory for directory in self._open if directory not in self._spill]:
            self._close(directory)
        for directory, tables in self._spill.drain():
            files = self._files(directory)
            for rows in _gathered(tables, self._gathered_bytes):
                files.write(rows)
            self._close(directory)

    def _files(self, directory: str) -> DirectoryFiles:
        files = self._open.get(directory)
        if files is None:
            files = DirectoryFiles(lambda number: self._begin(directory, number), self._limit)
            self._open[directory] = files
        return files

    def _close(self, directory: str) -> None:
        self._open[directory].close()
        del self._open[directory]

    def _begin(self, directory: str, number: int) -> RowFile:
        schema = self._schema
        if schema is None:  # no row came
            schema = self._format.file_schema(arrow_schema(self._plan), self._plan.schema)
        return self._format.open(self._open_file(self._names.name(directory, number)), schema, self._plan.schema)


def _gathered(tables: Iterable[pa.Table], size: int) -> Iterable[pa.Table]:
    """Merges tables into tables of at least `size` bytes; the last may be smaller."""
    import pyarrow as pa

    pending: list[pa.Table] = []
    held = 0
    for table in tables:
        pending.append(table)
        held += table.nbytes
        if held >= size:
            yield pa.concat_tables(pending)
            pending.clear()
            held = 0
    if pending:
        yield pa.concat_tables(pending)
