"""Writes a Spark task's rows to files, one for each partition directory.

They lie uncompressed in one Arrow file without a name, so that nothing is left of it however the process ends, and are
read through a memory map: the system's page cache holds them, not this process. In memory there are 32 bytes for each
slice of rows.

Memory is bounded: rows gather until they reach `GATHERED_BYTES`, then they are sorted by partition. What is enough for
a row group is written at once, to a file that stays open until the end; of these there are few (`OPEN_FILES`), and what
they hold in memory is bounded too (`OPEN_BYTES`). All else is set aside on the local disk and
written when every row has come, one directory at a time, in large row groups. So each directory gets one file from each
task, however many partitions there are and in whatever order their rows come, and rows keep their order within it. A
task whose rows fit into one gathering sets nothing aside.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from io import IOBase
from itertools import groupby
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from committer.errors import TaskError
from committer.file_names import partition_directory
from committer.spark.formats.base import FileFormat, RowFile
from committer.spark.partition_text import partition_texts
from committer.spark.schema import FilePlan, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa


class PartitionSlice(msgspec.Struct, frozen=True):
    """The rows of one directory.

    Attributes:
        directory: Relative to the destination, as Hive spells it; empty when nothing is partitioned.
        rows: Its rows without the partition columns, in the order in which they came.
    """

    directory: str
    rows: pa.Table


def split_by_partition(
    rows: pa.Table,
    keys: pa.Table,
    names: Sequence[str],
    spark_types: Sequence[str] = (),
) -> Iterator[PartitionSlice]:
    """Sorts rows by partition and yields each partition's rows once, by ascending first appearance of their values.

    Rows whose partitions are spelled alike (null and the empty string, one hour told twice when daylight saving time
    ends) go into one directory. Memory: one sorted copy of `rows`; time: a sort of one integer a row.

    Args:
        rows: What goes into files.
        keys: The partition columns of the same rows, outermost first; none of them means one slice.
        names: Their names in directories.
        spark_types: Spark's names of the partition columns' types, which only intervals need.

    Raises:
        UnsupportedError: The values of a partition column cannot name partitions.
    """
    import pyarrow as pa

    pc = _compute()
    if not names:
        yield PartitionSlice("", rows)
        return
    codes, directories = _directory_codes(keys, names, spark_types or [""] * len(names))
    if len(directories) == 1:
        yield PartitionSlice(directories[0], rows)
        return
    order = pc.sort_indices(codes)  # stable: rows keep their order within a partition
    rows = rows.take(order)
    runs = pc.run_end_encode(codes.take(order), run_end_type=pa.int64())
    start = 0
    for code, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield PartitionSlice(directories[code], rows.slice(start, end - start))
        start = end


def _directory_codes(keys: pa.Table, names: Sequence[str], spark_types: Sequence[str]) -> tuple[pa.Array, list[str]]:
    """For each row the number of its directory, and the directories by number."""
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

    pc = _compute()
    pairs = pc.add(pc.multiply(outer, len(inner_names)), inner)
    # Numbered anew at each column: at most one number a row, so that the product never overflows.
    encoded = pairs.dictionary_encode()
    names = []
    for pair in encoded.dictionary.to_pylist():
        first, second = divmod(pair, len(inner_names))
        names.append(f"{outer_names[first]}/{inner_names[second]}")
    return encoded.indices.cast(pa.int64()), names


def _compute() -> Any:
    # Its functions are made at run time, so type checkers do not know them.
    import pyarrow.compute

    return pyarrow.compute


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


GATHERED_BYTES: Final = 64 << 20
OPEN_FILES: Final = 8
OPEN_BYTES: Final = 64 << 20
_DIRECT_SHARE: Final = 8
"""What makes a row group while rows are still coming: this part of a gathering, or more."""
_ARRAY_BYTES: Final = 512
"""What a column of a batch costs beside its values, which counts where batches have few rows."""


class FileNames(msgspec.Struct, frozen=True):
    """Names files as Spark does: ``part-00003-<id>-c000.snappy.parquet``, ``a=1/part-00003-<id>.c000.snappy.parquet``.

    Attributes:
        job_id: The job's id, the same in all of its files.
        task: The task's number.
        suffix: What the format ends names with: ``.snappy.parquet``.
    """

    job_id: str
    task: int
    suffix: str

    def name(self, directory: str, number: int) -> str:
        """The name of the `number`th file that the task writes into `directory`."""
        if directory:
            return f"{directory}/part-{self.task:05d}-{self.job_id}.c{number:03d}{self.suffix}"
        return f"part-{self.task:05d}-{self.job_id}-c{number:03d}{self.suffix}"


class DirectoryFiles:
    """The files of one task attempt in one directory: one, or as many as ``maxRecordsPerFile`` asks for.

    Args:
        begin: Begins the file of this number.
        limit: How many rows a file may hold; 0 for any number.
    """

    def __init__(self, begin: Callable[[int], RowFile], limit: int) -> None:
        self._begin = begin
        self._limit = limit
        self._number = 0
        self._rows = 0
        self._file: RowFile | None = None

    @property
    def held(self) -> int:
        """Bytes of memory that the file being written keeps."""
        return self._file.held if self._file is not None else 0

    def write(self, rows: pa.Table) -> None:
        """Appends rows. As with Spark, the next file begins only when there is a row for it."""
        start = 0
        while start < rows.num_rows:
            if self._limit and self._rows == self._limit:
                self.close()
            count = min(rows.num_rows - start, self._limit - self._rows) if self._limit else rows.num_rows
            self.begin().write(rows.slice(start, count))
            self._rows += count
            start += count

    def begin(self) -> RowFile:
        """The file being written, begun if there is none."""
        if self._file is None:
            self._file = self._begin(self._number)
            self._number += 1
            self._rows = 0
        return self._file

    def close(self) -> None:
        """Finishes the file being written, if any."""
        if self._file is not None:
            # Forgotten only once closed: a close that fails leaves it to `abandon`.
            self._file.close()
            self._file = None

    def abandon(self, error: BaseException) -> None:
        """Gives up the file being written because of `error`, which no other error hides."""
        if self._file is not None:
            self._file.abandon(error)
            self._file = None


class TaskFiles:
    """The files of one task attempt.

    Args:
        begin: Begins the file of this directory and number.
        spill: Where rows wait.
        direct_bytes: What makes a row group while rows are still coming.
        open_files: How many files may be open at once.
        open_bytes: How many bytes of memory these may keep before no more is written to them.
        max_records_per_file: How many rows a file may hold; 0 for any number.
    """

    def __init__(
        self,
        begin: Callable[[str, int], RowFile],
        spill: Spill,
        *,
        direct_bytes: int,
        open_files: int,
        open_bytes: int,
        max_records_per_file: int,
    ) -> None:
        self._begin = begin
        self._spill = spill
        self._direct_bytes = direct_bytes
        self._open_files = open_files
        self._open_bytes = open_bytes
        self._limit = max_records_per_file
        self._open: dict[str, DirectoryFiles] = {}

    def write(self, directory: str, rows: pa.Table, *, last: bool) -> None:
        """Writes rows or sets them aside.

        Args:
            directory: Where they belong.
            rows: The rows, in order.
            last: Whether no more rows come for this directory.
        """
        if directory in self._spill:
            # Whatever follows must follow there too, so that rows keep their order.
            self._spill.add(directory, rows)
        elif last:
            self._files(directory).write(rows)
            self._close(directory)
        elif self._may_write(directory, rows):
            self._files(directory).write(rows)
        else:
            self._spill.add(directory, rows)

    def touch(self, directory: str) -> None:
        """Makes a file without rows."""
        self._files(directory).begin()

    def close(self, row_group_bytes: int) -> None:
        """Writes what was set aside, a directory at a time, and finishes every file.

        Args:
            row_group_bytes: How many bytes of rows are held before they are written.
        """
        for directory in [directory for directory in self._open if directory not in self._spill]:
            self._close(directory)
        for directory, tables in self._spill.drain():
            files = self._files(directory)
            for rows in _gathered(tables, row_group_bytes):
                files.write(rows)
            self._close(directory)

    def abandon(self, error: BaseException) -> None:
        """Gives up the files that are still open because of `error`, which no other error hides."""
        for files in self._open.values():
            files.abandon(error)
        self._open.clear()

    def _may_write(self, directory: str, rows: pa.Table) -> bool:
        if not directory:
            return True
        if rows.nbytes < self._direct_bytes or sum(files.held for files in self._open.values()) > self._open_bytes:
            return False
        return directory in self._open or len(self._open) < self._open_files

    def _files(self, directory: str) -> DirectoryFiles:
        files = self._open.get(directory)
        if files is None:
            files = DirectoryFiles(lambda number: self._begin(directory, number), self._limit)
            self._open[directory] = files
        return files

    def _close(self, directory: str) -> None:
        self._open[directory].close()
        del self._open[directory]


class TaskOutput:
    """Gathers a task's rows and writes them.

    Files are opened and written from the thread that calls.

    Args:
        plan: What goes where.
        file_format: What files are written, and how.
        names: Names the files.
        open_file: Opens a file of the task attempt for writing, by its name relative to the destination.
        max_records_per_file: How many rows a file may hold; 0 for any number.
        gathered_bytes: How many bytes of rows are held before they are written or set aside.
        open_files: How many files stay open while rows are coming.
        open_bytes: How many bytes of memory these may keep before no more is written to them.
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
        self._gathered_bytes = gathered_bytes
        self._schema: pa.Schema | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._size = 0
        self._spill = Spill(names.task)
        self._files = TaskFiles(
            self._begin,
            self._spill,
            direct_bytes=gathered_bytes // _DIRECT_SHARE,
            # The one that is written at the end counts too.
            open_files=max(1, open_files - 1),
            open_bytes=open_bytes,
            max_records_per_file=max_records_per_file,
        )

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Writes all rows and finishes every file; on any error gives up the files still open.

        As with Spark, task 0 of an unpartitioned write makes a file even when no row comes.

        Returns:
            The number of rows.

        Raises:
            UnsupportedError: A value is one that its file, or a directory's name, cannot hold.
            TaskError: The local disk did not take the rows that were set aside.
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
                self._files.touch("")
            self._files.close(self._gathered_bytes)
        except BaseException as error:
            self._files.abandon(error)
            raise
        finally:
            self._spill.close()
        return rows

    def _gather(self, batch: pa.RecordBatch) -> None:
        # Before, not after: rows are held back until it is known whether they are the last ones.
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
        for part in split_by_partition(rows.cast(self._schema), keys, names, plan.partition_types):
            self._files.write(part.directory, part.rows, last=last)
        # What waits to be set aside would keep all of this gathering.
        self._spill.flush()

    def _begin(self, directory: str, number: int) -> RowFile:
        schema = self._schema
        if schema is None:  # no row came
            schema = self._format.file_schema(arrow_schema(self._plan), self._plan.schema)
        return self._format.open(self._open_file(self._names.name(directory, number)), schema, self._plan.schema)


def _gathered(tables: Iterable[pa.Table], size: int) -> Iterable[pa.Table]:
    """The same rows in tables of at least `size` bytes, the last one apart."""
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
