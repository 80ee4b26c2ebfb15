"""A Spark task's rows, as Parquet files in the task attempt's directory.

Memory is bounded: rows gather until they reach `GATHERED_BYTES`, then they are sorted by partition and each partition's
rows become one row group of its file. Open files are bounded too, in number (`OPEN_FILES`) and by what their
dictionaries hold (`OPEN_BYTES`): past that, the one written longest ago is finished, and its partition continues in a
next file (``.c001``) when more of its rows come. Rows that come clustered by partition
(``df.repartition("month", "day")``) hence make one file a partition, and so does any task whose rows fit into one
gathering.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from io import IOBase
from typing import TYPE_CHECKING, Final

import msgspec

from committer.spark.schema import FilePlan, arrow_schema, file_schema
from committer.spark.split import split_by_partition

if TYPE_CHECKING:
    import pyarrow as pa

GATHERED_BYTES: Final = 64 << 20
OPEN_FILES: Final = 100
OPEN_BYTES: Final = 64 << 20

COMPRESSIONS: Final = {
    "snappy": ".snappy",
    "gzip": ".gz",
    "zstd": ".zstd",
    "none": "",
    "uncompressed": "",
}
"""Compression as Spark's option names it, and what it puts into file names."""


class FileNames(msgspec.Struct, frozen=True):
    """Names files as Spark does: ``part-00003-<id>-c000.snappy.parquet``, ``a=1/part-00003-<id>.c000.snappy.parquet``.

    Attributes:
        job_id: The job's id, the same in all of its files.
        task: The task's number.
        compression: A key of `COMPRESSIONS`.
    """

    job_id: str
    task: int
    compression: str

    def name(self, directory: str, number: int) -> str:
        """The name of the `number`th file that the task writes into `directory`."""
        infix = COMPRESSIONS[self.compression]
        if directory:
            return f"{directory}/part-{self.task:05d}-{self.job_id}.c{number:03d}{infix}.parquet"
        return f"part-{self.task:05d}-{self.job_id}-c{number:03d}{infix}.parquet"


class _ParquetFile:
    """One Parquet file being written.

    Attributes:
        held: Bytes of memory it keeps between row groups: up to some 700 kB a column, for dictionaries.
    """

    def __init__(self, file: IOBase, schema: pa.Schema, compression: str) -> None:
        import pyarrow.parquet as pq

        self._file = file
        self.held = 0
        codec = "none" if compression == "uncompressed" else compression
        try:
            self._writer = pq.ParquetWriter(file, schema, compression=codec, write_page_index=True)
        except BaseException as error:
            _give_up(file, error)
            raise

    def write(self, rows: pa.Table) -> None:
        import pyarrow as pa

        before = pa.total_allocated_bytes()
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self.held += pa.total_allocated_bytes() - before

    def close(self) -> None:
        self._writer.close()
        self._file.close()

    def abandon(self, error: BaseException) -> None:
        with contextlib.suppress(Exception):
            # Left open, the writer would try to finish the file whenever it is collected.
            self._writer.close()
        _give_up(self._file, error)


def _give_up(file: IOBase, error: BaseException) -> None:
    # Leaving a task's file with an exception keeps it out of the attempt; closing it would make it part of it.
    with contextlib.suppress(Exception):
        file.__exit__(type(error), error, error.__traceback__)


class TaskFiles:
    """The files of one task attempt, by directory.

    Args:
        open_file: Opens a file of the task attempt for writing, by its name relative to the destination.
        names: Names the files.
        schema: The schema of every file; rows are cast to it, which copies nothing.
        open_files: How many may be open at once.
    """

    def __init__(
        self, open_file: Callable[[str], IOBase], names: FileNames, schema: pa.Schema, open_files: int = OPEN_FILES
    ) -> None:
        self._open_file = open_file
        self._names = names
        self._schema = schema
        self._limit = open_files
        self._open: OrderedDict[str, _ParquetFile] = OrderedDict()
        self._counts: dict[str, int] = {}

    def write(self, directory: str, rows: pa.Table | None, *, last: bool) -> None:
        """Appends a row group, if any, to the directory's file, and finishes it when this is the `last` one for it."""
        file = self._open.get(directory) or self._start(directory)
        self._open.move_to_end(directory)
        if rows is not None:
            file.write(rows.cast(self._schema))
        if last:
            self._finish(directory)
        while len(self._open) > 1 and sum(file.held for file in self._open.values()) > OPEN_BYTES:
            self._finish(next(iter(self._open)))

    def close(self) -> None:
        """Finishes every file."""
        while self._open:
            self._finish(next(iter(self._open)))

    def abandon(self, error: BaseException) -> None:
        """Gives up the files that are still open because of `error`, which no other error hides."""
        for file in self._open.values():
            file.abandon(error)
        self._open.clear()

    def _start(self, directory: str) -> _ParquetFile:
        if len(self._open) >= self._limit:
            self._finish(next(iter(self._open)))
        number = self._counts.get(directory, 0)
        self._counts[directory] = number + 1
        raw = self._open_file(self._names.name(directory, number))
        file = self._open[directory] = _ParquetFile(raw, self._schema, self._names.compression)
        return file

    def _finish(self, directory: str) -> None:
        # Out of the table only once closed: a close that fails leaves it to `abandon`.
        self._open[directory].close()
        del self._open[directory]


class TaskOutput:
    """Gathers a task's rows and writes them.

    Files are opened and written from the thread that calls.

    Args:
        plan: What goes where.
        names: Names the files.
        open_file: Opens a file of the task attempt for writing, by its name relative to the destination.
        gathered_bytes: How many bytes of rows are held before they are written.
        open_files: How many files may be open at once.
    """

    def __init__(
        self,
        plan: FilePlan,
        names: FileNames,
        open_file: Callable[[str], IOBase],
        *,
        gathered_bytes: int = GATHERED_BYTES,
        open_files: int = OPEN_FILES,
    ) -> None:
        self._plan = plan
        self._names = names
        self._open_file = open_file
        self._gathered_bytes = gathered_bytes
        self._open_files = open_files
        self._files: TaskFiles | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._size = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Writes all rows and finishes every file; on any error gives up the files still open.

        As with Spark, task 0 of an unpartitioned write makes a file even when no row comes.

        Returns:
            The number of rows.
        """
        rows = 0
        try:
            for batch in batches:
                rows += batch.num_rows
                if batch.num_rows:
                    self._gather(batch)
            if self._gathered:
                self._flush(last=True)
            elif self._files is None and self._names.task == 0 and not self._plan.partitions:
                self._files_for(arrow_schema(self._plan)).write("", None, last=True)
            if self._files is not None:
                self._files.close()
        except BaseException as error:
            if self._files is not None:
                self._files.abandon(error)
            raise
        return rows

    def _gather(self, batch: pa.RecordBatch) -> None:
        # Before, not after: rows are held back until it is known whether they are the last ones.
        if self._size >= self._gathered_bytes:
            self._flush(last=False)
        self._gathered.append(batch)
        self._size += batch.nbytes

    def _flush(self, *, last: bool) -> None:
        import pyarrow as pa

        table = pa.Table.from_batches(self._gathered)
        self._gathered.clear()
        self._size = 0
        for part in split_by_partition(table, self._plan.partitions, self._plan.columns):
            files = self._files or self._files_for(part.rows.schema)
            files.write(part.directory, part.rows, last=last)

    def _files_for(self, schema: pa.Schema) -> TaskFiles:
        self._files = TaskFiles(self._open_file, self._names, file_schema(schema, self._plan), self._open_files)
        return self._files
