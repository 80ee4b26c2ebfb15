"""Files of lines: compression as Spark names it, and lines handed on a block at a time."""

from __future__ import annotations

import bz2
import io
import zlib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import msgspec

from committer.spark.formats.base import FileFormat, RowFile, give_up
from committer.spark.formats.nullable import nullable_schema
from committer.spark.formats.spelling import compute

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

COMPRESSIONS: Final = {
    "none": "",
    "uncompressed": "",
    "gzip": ".gz",
    "bzip2": ".bz2",
    "deflate": ".deflate",
    "zstd": ".zst",
}
REFUSED_COMPRESSIONS: Final = {
    "lz4": "use gzip: lz4 and snappy text files have a framing of Hadoop's own",
    "snappy": "use gzip: lz4 and snappy text files have a framing of Hadoop's own",
}
_SLICE_ROWS: Final = 1 << 16
_SLICE_BYTES: Final = 16 << 20
_GZIP: Final = 31
"""zlib's number for a gzip header; that for its own, which Hadoop calls deflate, is the default."""


class TextFormat(FileFormat):
    """Files of lines. ``zstd`` is for readers that have it: Spark does where Hadoop's native library is installed."""

    compressions: ClassVar[Mapping[str, str]] = COMPRESSIONS
    default_compression: ClassVar[str] = "none"
    refused_compressions: ClassVar[Mapping[str, str]] = REFUSED_COMPRESSIONS

    @property
    def suffix(self) -> str:
        """Such as ``.csv.gz``."""
        return f".{self.name}{self.compressions[self.compression]}"

    def file_schema(self, schema: pa.Schema, spark_schema: str) -> pa.Schema:
        """The same types, everything nullable."""
        return nullable_schema(schema)

    def open(self, file: io.IOBase, schema: pa.Schema, spark_schema: str) -> RowFile:
        """Begins a file; rows become lines at once."""
        from pyspark.sql.types import StructType

        columns = StructType.fromJson(msgspec.json.decode(spark_schema))
        return LineFile(file, self.compression, self.first_line(columns), lambda rows: self.lines(rows, columns))

    def first_line(self, columns: StructType) -> str:
        """What a file begins with."""
        return ""

    @abstractmethod
    def lines(self, rows: pa.RecordBatch, columns: StructType) -> pa.Array:
        """One text a row, line ends included."""


class LineFile(RowFile):
    """One file of lines.

    Args:
        file: Where its bytes go.
        compression: A key of `COMPRESSIONS`.
        first_line: What the file begins with.
        lines: Makes one text a row.
    """

    def __init__(
        self, file: io.IOBase, compression: str, first_line: str, lines: Callable[[pa.RecordBatch], pa.Array]
    ) -> None:
        super().__init__(file)
        self._lines = lines
        self._compressor = _compressor(compression)
        self._finished = False
        try:
            self._put(first_line.encode())
        except BaseException as error:
            give_up(file, error)
            raise

    def write(self, rows: pa.Table) -> None:
        """Appends lines, spelled in slices, so that not much more than one of them is held as text."""
        each = min(_SLICE_ROWS, max(1, rows.num_rows * _SLICE_BYTES // max(1, rows.nbytes)))
        for batch in rows.to_batches(max_chunksize=each):
            if batch.num_rows:
                self._put(joined(self._lines(batch)))

    def _put(self, data: bytes | pa.Buffer) -> None:
        packed = self._compressor.compress(data)
        if len(packed):
            self._file.write(packed)

    def _finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        rest = self._compressor.flush()
        if rest:
            self._file.write(rest)


def joined(texts: pa.Array) -> pa.Buffer:
    """All texts one after the other, none of them null: they stand so in memory already."""
    import pyarrow as pa

    whole = pa.concat_arrays([texts.cast(pa.large_string())])
    _, offsets, data = whole.buffers()
    if data is None:
        return pa.py_buffer(b"")
    ends = pa.Array.from_buffers(pa.int64(), len(whole) + 1, [None, offsets], offset=whole.offset)
    first, last = ends[0].as_py(), ends[len(whole)].as_py()
    return data.slice(first, last - first)


def joined_with(separator: str, *parts: Any) -> pa.Array:
    """Joins columns of text, and constants, row by row; null where one of them is."""
    return compute().binary_join_element_wise(*parts, separator)


class _Compressor(Protocol):
    def compress(self, data: Any, /) -> Any: ...

    def flush(self) -> bytes: ...


class _Plain:
    def compress(self, data: Any, /) -> Any:
        return data

    def flush(self) -> bytes:
        return b""


class _Zstd:
    """One frame, through Arrow's stream."""

    def __init__(self) -> None:
        import pyarrow as pa

        self._packed = bytearray()
        self._stream = pa.CompressedOutputStream(pa.PythonFile(_Collected(self._packed), mode="w"), "zstd")

    def compress(self, data: Any, /) -> bytes:
        self._stream.write(data)
        return self._taken()

    def flush(self) -> bytes:
        self._stream.close()
        return self._taken()

    def _taken(self) -> bytes:
        packed = bytes(self._packed)
        self._packed.clear()
        return packed


class _Collected(io.RawIOBase):
    """Puts bytes into an array that outlives it."""

    def __init__(self, into: bytearray) -> None:
        super().__init__()
        self._into = into

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._into += data
        return len(data)


def _compressor(compression: str) -> _Compressor:
    match compression:
        case "gzip":
            return zlib.compressobj(wbits=_GZIP)
        case "deflate":
            return zlib.compressobj()
        case "bzip2":
            return bz2.BZ2Compressor()
        case "zstd":
            return _Zstd()
        case _:
            return _Plain()
