"""Interface of the file formats of the data source."""

from __future__ import annotations

import contextlib
import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from committer.spark.refusals import bad_write, unsupported_write

if TYPE_CHECKING:
    import pyarrow as pa


# Names of Spark's types (`DataType.typeName`).
NUMBERS: Final = frozenset({"boolean", "byte", "short", "integer", "long", "float", "double", "decimal"})
TEXT: Final = frozenset({"string", "char", "varchar"})
TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})


class RowFile(ABC):
    """File being written; `held` is the known memory that it keeps between writes, in bytes."""

    def __init__(self, file: io.IOBase) -> None:
        self._file = file
        self.held = 0

    @abstractmethod
    def write(self, rows: pa.Table) -> None:
        """Appends rows: a row group, a part of a stripe, or lines."""

    def close(self) -> None:
        """Finishes the file, which makes it part of the task attempt."""
        self._finish()
        self._file.close()

    def abandon(self, error: BaseException) -> None:
        """Discards the file because of `error`, which stays the error that is raised."""
        with contextlib.suppress(Exception):
            # An open writer would finish the file when it is garbage-collected.
            self._finish()
        give_up(self._file, error)

    @abstractmethod
    def _finish(self) -> None:
        """Writes the end of the file; idempotent."""


def give_up(file: io.IOBase, error: BaseException) -> None:
    """Keeps a file out of the task attempt, which closing it would make it part of."""
    with contextlib.suppress(Exception):
        file.__exit__(type(error), error, error.__traceback__)


class Sink(io.RawIOBase):
    """File object for writers of other libraries: counts the bytes, and hands each buffer to `_take`."""

    def __init__(self) -> None:
        super().__init__()
        self._position = 0

    def writable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def write(self, data: object, /) -> int:
        """Appends a buffer."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._take(view)
        self._position += len(view)
        return len(view)

    def _take(self, data: memoryview) -> None:
        raise NotImplementedError


class Unclosed(Sink):
    """Wrapper for writers that close their file: it keeps the file open, because closing adds it to the
    task attempt.
    """

    def __init__(self, file: io.IOBase) -> None:
        super().__init__()
        self._file = file

    def _take(self, data: memoryview) -> None:
        self._file.write(data)


@dataclass(frozen=True)
class FileFormat(ABC):
    """A file format with the options of one write; pickled into every task."""

    name: ClassVar[str]
    """Name in Spark's options and in `DataFrameReader`."""
    title: ClassVar[str]
    """Name in messages."""
    compressions: ClassVar[Mapping[str, str]]
    """Supported codecs by Spark's name, with their part of file names."""
    default_compression: ClassVar[str]
    refused_compressions: ClassVar[Mapping[str, str]] = {}
    """Spark's codecs that are not supported, with the alternative."""
    types: ClassVar[frozenset[str]]
    """Spark's type names that Spark reads back unchanged from these files."""
    nested: ClassVar[bool] = True
    """True if arrays, maps and structs can be written."""
    string_keys: ClassVar[bool] = False
    """True if keys of maps must be strings."""
    options: ClassVar[tuple[str, ...]] = ()
    """Supported format options, in Spark's spelling."""
    refused_options: ClassVar[tuple[str, ...]] = ()
    """Options of Spark's writer that are not supported."""

    compression: str

    @classmethod
    def of(cls, compression: str | None, options: Mapping[str, str]) -> Self:
        """Parses the format's options; `compression` None takes the format's default."""
        return cls(cls._compression(compression))

    @classmethod
    def _compression(cls, text: str | None) -> str:
        folded = cls.default_compression if text is None else text.lower()
        if folded in cls.compressions:
            return folded
        if folded in cls.refused_compressions:
            raise unsupported_write(
                f"{cls.title} files cannot be written with compression {folded!r}", cls.refused_compressions[folded]
            )
        raise bad_write(
            f"the compression {text!r} is not known for {cls.title} files", f"use one of {', '.join(cls.compressions)}"
        )

    @property
    def suffix(self) -> str:
        """Ending of file names, such as ``.snappy.parquet`` or ``.csv.gz``."""
        return f"{self.compressions[self.compression]}.{self.name}"

    def file_schema(self, schema: pa.Schema, spark_schema: str) -> pa.Schema:
        """Returns the schema that rows are cast to before they are written: the same types, all nullable.

        The cast copies nothing. `spark_schema` is the same schema as Spark's JSON.
        """
        return nullable_schema(schema)

    @abstractmethod
    def open(self, file: io.IOBase, schema: pa.Schema, spark_schema: str) -> RowFile:
        """Opens a file with the schema from `file_schema`; discards `file` on an error."""


def one_of(options: Mapping[str, str], key: str, choices: Iterable[str], default: str) -> str:
    """Parses an option with few values, in any case."""
    value = options.get(key, default).lower()
    if value not in choices:
        raise bad_write(f"the option {key} cannot be {options[key]!r}", f"use {' or '.join(choices)}, or leave it out")
    return value


def flag(options: Mapping[str, str], key: str, *, default: bool) -> bool:
    """Parses an option that is true or false."""
    return one_of(options, key, ("true", "false"), str(default).lower()) == "true"


def only_utf8(options: Mapping[str, str]) -> None:
    """Refuses any ``encoding`` but Spark's default."""
    encoding = options.get("encoding", "UTF-8")
    if encoding.upper() not in {"UTF-8", "UTF8"}:
        raise unsupported_write(f"files cannot be written in the encoding {encoding!r}", "use UTF-8")


def compute() -> Any:
    """Returns ``pyarrow.compute``, whose functions are created at run time and unknown to type checkers."""
    import pyarrow.compute

    return pyarrow.compute


def nullable_schema(schema: pa.Schema) -> pa.Schema:
    """Makes all fields nullable: a null struct has null fields, which writers refuse in a field that is never null."""
    import pyarrow as pa

    return pa.schema([_nullable(field) for field in schema])


def _nullable(field: pa.Field) -> pa.Field:
    return field.with_type(_nullable_within(field.type)).with_nullable(True)


def _nullable_within(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa
    from pyarrow import types

    if types.is_struct(kind):
        return pa.struct([_nullable(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(kind.key_field.with_type(_nullable_within(kind.key_type)), _nullable(kind.item_field))
    if types.is_list(kind):
        return pa.list_(_nullable(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_nullable(kind.value_field))
    return kind
