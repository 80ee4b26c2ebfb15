"""Complete list of a job's committed files, in parts: JSON lines, or Parquet."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from committer.errors import ConfigurationError, RecordError
from committer.file_names import HIVE_DEFAULT_PARTITION, unescape_path_name
from committer.options.config import FileListFormat
from committer.readable import UNDECODABLE

F = TypeVar("F", "CommittedFile", "ListedFile")

ENTRIES_IN_A_PART: Final = 100_000
"""Files per part. A job whose files are kept in memory has at most one full part, so drivers that enumerate its
files in different orders never write parts that do not fit together."""


class CommittedFile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A file that a job committed.

    Attributes:
        path: Its URI.
        size: Bytes.
        partition: Values by column, from its directories `column=value`, outermost first; None is null.
    """

    path: str
    size: int
    partition: dict[str, str | None]


class ListedFile(msgspec.Struct, frozen=True, gc=False):
    """Path (a URI) and size of a committed file, for comparison: half the memory of `CommittedFile`."""

    path: str
    size: int


_LINE: Final = msgspec.json.Encoder()


def encode_part(files: list[CommittedFile], form: FileListFormat) -> bytes:
    """Encodes one part of a list; raises ConfigurationError for Parquet without pyarrow."""
    return _LINE.encode_lines(files) if form == "jsonl" else _encode_parquet(files)


def decode_part(data: bytes, form: FileListFormat, kind: type[F], source: str) -> list[F]:
    """Decodes one part of a list; raises RecordError for other data, ConfigurationError for Parquet
    without pyarrow.
    """
    if form == "parquet":
        return _decode_parquet(data, kind, source)
    try:
        return msgspec.json.Decoder(kind).decode_lines(data)
    except UNDECODABLE as error:
        raise _undecodable(error, source) from error


def _undecodable(error: Exception, source: str) -> RecordError:
    return RecordError(f"a list of committed files does not decode: {error}", path=source)


def check_format(form: FileListFormat) -> None:
    """Checks before the commit that a list can be written; raises ConfigurationError for Parquet without pyarrow."""
    if form == "parquet":
        _arrow()


@lru_cache(maxsize=1024)
def partition_of(directory: str) -> dict[str, str | None]:
    """Returns columns and values of a name's directories `column=value`. The result is cached: do not change it."""
    found: dict[str, str | None] = {}
    for segment in directory.split("/"):
        column, equals, value = segment.partition("=")
        if equals and column:
            found[unescape_path_name(column)] = None if value == HIVE_DEFAULT_PARTITION else unescape_path_name(value)
    return found


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ConfigurationError(
            "file_list_format='parquet' needs pyarrow, which is not installed",
            operation="file_list",
            next_step="pip install pyarrow, or choose file_list_format='jsonl'",
        ) from error
    return pa, pq


def _encode_parquet(files: list[CommittedFile]) -> bytes:
    pa, pq = _arrow()
    partition = pa.map_(pa.string(), pa.string())
    schema = pa.schema([("path", pa.string()), ("size", pa.int64()), ("partition", partition)])
    columns = [
        pa.array([file.path for file in files], pa.string()),
        pa.array([file.size for file in files], pa.int64()),
        pa.array([list(file.partition.items()) for file in files], partition),
    ]
    out = io.BytesIO()
    pq.write_table(pa.table(columns, schema=schema), out)
    return out.getvalue()


def _decode_parquet(data: bytes, kind: type[F], source: str) -> list[F]:
    pa, pq = _arrow()
    try:
        table = pq.read_table(pa.BufferReader(data), columns=list(kind.__struct_fields__))
        columns = {name: table[name].to_pylist() for name in table.column_names}
        if "partition" in columns:
            columns["partition"] = list(map(dict, columns["partition"]))
        rows = zip(*columns.values(), strict=True)
        return [msgspec.convert(dict(zip(columns, row, strict=True)), kind) for row in rows]
    except (pa.ArrowException, KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise _undecodable(error, source) from error
