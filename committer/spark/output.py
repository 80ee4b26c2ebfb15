"""A Spark task's rows, as files in the task attempt's directory: one file for each directory.

Memory is bounded: rows gather until they reach `GATHERED_BYTES`, then they are sorted by partition. What is enough for
a row group is written at once, to a file that stays open until the end; of these there are few (`OPEN_FILES`), and what
they hold in memory is bounded too (`OPEN_BYTES`). All else is set aside on the local disk (`committer.spark.spill`) and
written when every row has come, one directory at a time, in large row groups. So each directory gets one file from each
task, however many partitions there are and in whatever order their rows come, and rows keep their order within it. A
task whose rows fit into one gathering sets nothing aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from io import IOBase
from typing import TYPE_CHECKING, Final

import msgspec

from committer.spark.formats.base import FileFormat, RowFile
from committer.spark.schema import FilePlan, arrow_schema
from committer.spark.spill import Spill
from committer.spark.split import split_by_partition

if TYPE_CHECKING:
    import pyarrow as pa

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
