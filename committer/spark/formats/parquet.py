"""Parquet files, as pyarrow writes them and with what Spark puts into their footers."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from committer.spark.formats.base import NUMBERS, TEXT, TIMES, FileFormat, RowFile
from committer.spark.formats.dictionaries import dictionary_columns
from committer.spark.formats.nullable import nullable_schema

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


class ParquetFormat(FileFormat):
    """``format=parquet``, the default. ``brotli`` is for readers that have it: Spark's own distribution does not."""

    name: ClassVar[str] = "parquet"
    title: ClassVar[str] = "Parquet"
    compressions: ClassVar[Mapping[str, str]] = {
        "snappy": ".snappy",
        "gzip": ".gz",
        "zstd": ".zstd",
        "lz4_raw": ".lz4raw",
        "brotli": ".br",
        "none": "",
        "uncompressed": "",
    }
    default_compression: ClassVar[str] = "snappy"
    refused_compressions: ClassVar[Mapping[str, str]] = {
        "lz4": "use lz4_raw: lz4 is Hadoop's framing of it, which the Parquet format has given up",
        "lzo": "use zstd or snappy",
    }
    types: ClassVar[frozenset[str]] = NUMBERS | TEXT | TIMES | {"binary", "daytimeinterval"}

    @property
    def suffix(self) -> str:
        """Such as ``.snappy.parquet``."""
        return f"{self.compressions[self.compression]}.parquet"

    def file_schema(self, schema: pa.Schema, spark_schema: str) -> pa.Schema:
        """The same types, everything nullable, and the footer that Spark itself writes.

        That is its own schema, so that it reads every type back as it was, and its version, by which readers know that
        old dates are Gregorian.
        """
        from pyspark import __version__ as version

        return nullable_schema(schema).with_metadata(
            {"org.apache.spark.version": version, "org.apache.spark.sql.parquet.row.metadata": spark_schema}
        )

    def open(self, file: io.IOBase, schema: pa.Schema, spark_schema: str) -> RowFile:
        """Begins a file; each write makes one row group."""
        codec = {"uncompressed": "none", "lz4_raw": "lz4"}.get(self.compression, self.compression)
        return _ParquetFile(file, schema, codec)


SNAPPY_PARQUET: Final = ParquetFormat("snappy")
"""What is written where nothing is asked for."""


class _ParquetFile(RowFile):
    """One Parquet file. It holds up to some 700 kB a column between row groups, for dictionaries."""

    def __init__(self, file: io.IOBase, schema: pa.Schema, codec: str) -> None:
        super().__init__(file)
        self._schema = schema
        self._codec = codec
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table) -> None:
        import pyarrow as pa

        before = pa.total_allocated_bytes()
        self._begun(rows).write_table(rows, row_group_size=max(1, rows.num_rows))
        self.held += pa.total_allocated_bytes() - before

    def _finish(self) -> None:
        self._begun(None).close()

    def _begun(self, rows: pa.Table | None) -> pq.ParquetWriter:
        """The writer, made by what its first rows are like."""
        import pyarrow.parquet as pq

        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._file,
                self._schema,
                compression=self._codec,
                use_dictionary=True if rows is None else dictionary_columns(rows),
                write_page_index=True,
            )
        return self._writer
