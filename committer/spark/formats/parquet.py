"""Parquet files, with the footers that Spark writes.

A dictionary larger than the values it replaces costs time and space: hashing unique values took a third of the
time of a table of numbers. Parquet's Java library drops a useless dictionary after a column's first page; Arrow
keeps it up to a megabyte. So columns are sampled.
"""

from __future__ import annotations

import io
import math
import random
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

from committer.spark.formats.base import NUMBERS, TEXT, TIMES, FileFormat, RowFile, compute, nullable_schema

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


DICTIONARY_BYTES: Final = 1 << 20
"""Size at which Arrow, and Spark, give up a dictionary."""
_SAMPLE_ROWS: Final = 4096


def dictionary_columns(rows: pa.Table) -> bool | list[str]:
    """Returns ``use_dictionary`` for a Parquet writer by a file's first row group: True, or paths of columns.

    Costs about 0.2 ms per column, and nothing up to 4,096 rows, where all columns get one. Nested columns always do.
    """
    import pyarrow as pa

    count = rows.num_rows
    if count <= _SAMPLE_ROWS:
        return True
    # Rows from everywhere show the number of values if these are unordered. In ordered values each sampled one
    # is new, and only neighbours show how often one repeats.
    flat = rows.select([place for place, kind in enumerate(rows.schema.types) if _has_values(kind)])
    spread = flat.take(compute().floor(compute().multiply(_places(), float(count))).cast(pa.int64()))
    neighbours = flat.slice((count - _SAMPLE_ROWS) // 2, _SAMPLE_ROWS)
    without = {
        name
        for name, some, near in zip(flat.column_names, spread.columns, neighbours.columns, strict=True)
        if not _pays(some, near, count)
    }
    if not without:
        return True
    return [path for path in _leaves(rows.schema) if path not in without]


@lru_cache(1)
def _places() -> pa.Array:
    """Returns one pseudorandom, fixed place in each of equal parts of 0 to 1."""
    import pyarrow as pa

    # At equal distances, a sample of alternating values might hold only one of them.
    chance = random.Random(_SAMPLE_ROWS).random
    return pa.array([(part + chance()) / _SAMPLE_ROWS for part in range(_SAMPLE_ROWS)], pa.float64())


def _has_values(kind: pa.DataType) -> bool:
    from pyarrow import types

    return not (types.is_nested(kind) or types.is_null(kind) or types.is_boolean(kind))


def _pays(spread: pa.ChunkedArray, neighbours: pa.ChunkedArray, count: int) -> bool:
    """Reports whether a dictionary is small enough, and with its indices smaller than `count` plain values."""
    count = count * (len(spread) - spread.null_count) // len(spread)
    spread, neighbours = spread.drop_null(), neighbours.drop_null()
    if not len(spread) or not len(neighbours):
        return True
    values = max(1.0, min(_values_at_random(spread), len(neighbours.unique()) / len(neighbours) * count, float(count)))
    width = spread.nbytes / len(spread)
    dictionary: float = values * width
    return dictionary <= DICTIONARY_BYTES and dictionary + count * math.log2(values) / 8 < count * width


def _values_at_random(sample: pa.ChunkedArray) -> float:
    """Estimates the number of distinct values from those that a sample has once and twice (Chao 1984).

    A value that fills half of the column does not distort this estimate.
    """
    times: list[int] = sample.value_counts().field("counts").to_pylist()
    once, twice = times.count(1), times.count(2)
    return len(times) + once * (once - 1) / (2 * (twice + 1))


def _leaves(schema: pa.Schema) -> list[str]:
    """Returns the paths of a file's columns in Parquet's form, such as ``a.list.element``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pa.BufferOutputStream()
    pq.ParquetWriter(file, schema).close()
    found = pq.ParquetFile(pa.BufferReader(file.getvalue())).schema
    return [found.column(number).path for number in range(len(found.names))]


class ParquetFormat(FileFormat):
    """``format=parquet``, the default. Spark's own distribution cannot read ``brotli``."""

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

    def file_schema(self, schema: pa.Schema, spark_schema: str) -> pa.Schema:
        """Returns the same types, all nullable, with Spark's footer.

        The footer holds Spark's schema, so that Spark reads every type back unchanged, and its version, by which
        readers know that old dates are Gregorian.
        """
        from pyspark import __version__ as version

        return nullable_schema(schema).with_metadata(
            {"org.apache.spark.version": version, "org.apache.spark.sql.parquet.row.metadata": spark_schema}
        )

    def open(self, file: io.IOBase, schema: pa.Schema, spark_schema: str) -> RowFile:
        """Opens a file; each write makes one row group."""
        codec = {"uncompressed": "none", "lz4_raw": "lz4"}.get(self.compression, self.compression)
        return _ParquetFile(file, schema, codec)


SNAPPY_PARQUET: Final = ParquetFormat("snappy")
"""The default format of a write."""


class _ParquetFile(RowFile):
    """Parquet file; holds up to about 700 kB per column between row groups, for dictionaries."""

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
        """Returns the writer; creates it by its first rows."""
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
