"""ORC files, written by pyarrow, without values that Spark would read back differently.

pyarrow cannot attach Spark's type names to ORC columns, so types that ORC itself lacks (``timestamp_ntz``,
intervals) are refused in advance. Two kinds of values are refused while writing: dates before 1582-10-15, because
the files do not say that dates are Gregorian and Spark would shift them; and fractions of seconds before 1970,
because pyarrow writes negative nanoseconds, which Spark cannot read.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, ClassVar, Final

from committer.errors import UnsupportedError
from committer.spark.formats.base import NUMBERS, TEXT, FileFormat, RowFile, Unclosed, compute, give_up

if TYPE_CHECKING:
    import pyarrow as pa

STRIPE_BYTES: Final = 64 << 20
_GREGORIAN_DAY: Final = (date(1582, 10, 15) - date(1970, 1, 1)).days
# One day later, because a timestamp may be shown in zones on either side of UTC.
_GREGORIAN_US: Final = (datetime(1582, 10, 16, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days * 86_400_000_000


class OrcFormat(FileFormat):
    """``format=orc``."""

    name: ClassVar[str] = "orc"
    title: ClassVar[str] = "ORC"
    compressions: ClassVar[Mapping[str, str]] = {
        "zstd": ".zstd",
        "snappy": ".snappy",
        "zlib": ".zlib",
        "lz4": ".lz4",
        "none": "",
        "uncompressed": "",
    }
    default_compression: ClassVar[str] = "zstd"
    refused_compressions: ClassVar[Mapping[str, str]] = {"lzo": "use zstd or lz4", "brotli": "use zstd or zlib"}
    types: ClassVar[frozenset[str]] = NUMBERS | TEXT | {"date", "timestamp", "binary"}

    def open(self, file: io.IOBase, schema: pa.Schema, spark_schema: str) -> RowFile:
        """Opens a file; writes gather into stripes of up to `STRIPE_BYTES`."""
        return _OrcFile(file, schema, "uncompressed" if self.compression == "none" else self.compression)


class _OrcFile(RowFile):
    """ORC file; holds the unfinished stripe in memory that Arrow does not count as allocated."""

    def __init__(self, file: io.IOBase, schema: pa.Schema, codec: str) -> None:
        import pyarrow.orc

        super().__init__(file)
        self._schema = schema
        self._empty = True
        try:
            self._writer = pyarrow.orc.ORCWriter(Unclosed(file), compression=codec, stripe_size=STRIPE_BYTES)
        except BaseException as error:
            give_up(file, error)
            raise

    def write(self, rows: pa.Table) -> None:
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            for chunk in column.chunks:
                _check(chunk, name)
        self._writer.write(rows)
        self._empty = False
        self.held = min(self.held + rows.nbytes, STRIPE_BYTES)

    def _finish(self) -> None:
        if self._empty:
            # The writer learns the schema from the first table.
            self._empty = False
            self._writer.write(self._schema.empty_table())
        self._writer.close()


def _check(values: pa.Array, name: str) -> None:
    """Refuses values, nested ones too, that Spark would read back differently."""
    import pyarrow as pa
    from pyarrow import types

    kind = values.type
    if types.is_struct(kind):
        for field, child in zip(kind, values.flatten(), strict=True):
            _check(child, f"{name}.{field.name}")
    elif types.is_map(kind):
        _check(values.keys, name)
        _check(values.items, name)
    elif types.is_list(kind) or types.is_large_list(kind):
        _check(values.flatten(), name)
    elif types.is_date32(kind):
        least = compute().min(values.cast(pa.int32())).as_py()
        if least is not None and least < _GREGORIAN_DAY:
            raise _unreadable(name, "dates before 1582-10-15")
    elif types.is_timestamp(kind):
        _check_timestamps(values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()), name)


def _check_timestamps(micros: pa.Array, name: str) -> None:
    pc = compute()
    least = pc.min(micros).as_py()
    if least is None or least >= 0:
        return
    if least < _GREGORIAN_US:
        raise _unreadable(name, "timestamps before 1582-10-16")
    old = micros.filter(pc.less(micros, 0))
    whole = pc.multiply(pc.divide(old, 1_000_000), 1_000_000)
    if not pc.all(pc.equal(whole, old)).as_py():
        raise _unreadable(name, "timestamps with a fraction of a second before 1970")


def _unreadable(name: str, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"the column {name!r} holds {what}, which Spark would not read back from these ORC files as they were",
        operation="write",
        next_step='use format "parquet", or cast the column to a string',
    )
