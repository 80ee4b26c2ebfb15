"""Interface of the file formats of the data source."""

from __future__ import annotations

import contextlib
import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Self

from committer.errors import ConfigurationError, UnsupportedError

if TYPE_CHECKING:
    import pyarrow as pa


# Names of Spark's types (`DataType.typeName`).
NUMBERS: Final = frozenset({"boolean", "byte", "short", "integer", "long", "float", "double", "decimal"})
TEXT: Final = frozenset({"string", "char", "varchar"})
TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})


class RowFile(ABC):
    """One file being written.

    Args:
        file: Where its bytes go.

    Attributes:
        held: Bytes of memory that it keeps between two writes, as far as they can be told.
    """

    def __init__(self, file: io.IOBase) -> None:
        self._file = file
        self.held = 0

    @abstractmethod
    def write(self, rows: pa.Table) -> None:
        """Appends rows: a row group, a part of a stripe, or lines."""

    def close(self) -> None:
        """Finishes the file: from now on it is part of the task attempt."""
        self._finish()
        self._file.close()

    def abandon(self, error: BaseException) -> None:
        """Gives the file up because of `error`, which no other error hides."""
        with contextlib.suppress(Exception):
            # Left open, a writer would try to finish the file whenever it is collected.
            self._finish()
        give_up(self._file, error)

    @abstractmethod
    def _finish(self) -> None:
        """Writes what ends the file. A second call does nothing."""


def give_up(file: io.IOBase, error: BaseException) -> None:
    """Keeps a file out of the task attempt: leaving it with an error does, closing it would make it part of it."""
    with contextlib.suppress(Exception):
        file.__exit__(type(error), error, error.__traceback__)


class Unclosed(io.RawIOBase):
    """Hands bytes on to a file and leaves closing it to the code that opened it.

    For writers that close what they write to, though closing makes a file part of the task attempt.
    """

    def __init__(self, file: io.IOBase) -> None:
        super().__init__()
        self._file = file
        self._position = 0

    def writable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def write(self, data: object, /) -> int:
        """Hands a buffer on."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._file.write(view)
        self._position += len(view)
        return len(view)


@dataclass(frozen=True)
class FileFormat(ABC):
    """A file format with the choices of one write. Pickled into every task.

    Attributes:
        compression: A key of `compressions`.
    """

    name: ClassVar[str]
    """As Spark's option and `DataFrameReader` name it."""
    title: ClassVar[str]
    """As people name it."""
    compressions: ClassVar[Mapping[str, str]]
    """What can be written, as Spark's option names it, and what it puts into file names."""
    default_compression: ClassVar[str]
    refused_compressions: ClassVar[Mapping[str, str]] = {}
    """What Spark names and this cannot write, and what to do instead."""
    types: ClassVar[frozenset[str]]
    """Names of Spark's types that files hold so that Spark reads them back as they were."""
    nested: ClassVar[bool] = True
    """Whether arrays, maps and structs can be written."""
    string_keys: ClassVar[bool] = False
    """Whether keys of maps must be strings."""
    options: ClassVar[tuple[str, ...]] = ()
    """Format options that are honoured, as Spark spells them."""
    refused_options: ClassVar[tuple[str, ...]] = ()
    """Format options that Spark's writer knows and this one cannot honour."""

    compression: str

    @classmethod
    def of(cls, compression: str | None, options: Mapping[str, str]) -> Self:
        """Reads the format's own options.

        Args:
            compression: As given; None takes the format's default.
            options: By their spelling in `options`.

        Raises:
            ConfigurationError: A value is not one that the option takes.
            UnsupportedError: Spark takes the value, and this cannot honour it.
        """
        return cls(cls._compression(compression))

    @classmethod
    def _compression(cls, text: str | None) -> str:
        folded = cls.default_compression if text is None else text.lower()
        if folded in cls.compressions:
            return folded
        if folded in cls.refused_compressions:
            raise UnsupportedError(
                f"{cls.title} files cannot be written with compression {folded!r}",
                operation="save",
                next_step=cls.refused_compressions[folded],
            )
        raise ConfigurationError(
            f"the compression {text!r} is not known for {cls.title} files",
            operation="save",
            next_step=f"use one of {', '.join(cls.compressions)}",
        )

    @property
    @abstractmethod
    def suffix(self) -> str:
        """What ends the files' names, such as ``.snappy.parquet`` or ``.csv.gz``."""

    @abstractmethod
    def file_schema(self, schema: pa.Schema, spark_schema: str) -> pa.Schema:
        """The schema that rows are cast to before `open` files get them; casting copies nothing.

        Args:
            schema: The files' columns as they come.
            spark_schema: The same as Spark's JSON.
        """

    @abstractmethod
    def open(self, file: io.IOBase, schema: pa.Schema, spark_schema: str) -> RowFile:
        """Begins a file. On an error `file` is given up.

        Args:
            file: Where its bytes go.
            schema: What `file_schema` made.
            spark_schema: The files' columns as Spark's JSON.
        """


def one_of(options: Mapping[str, str], key: str, choices: Iterable[str], default: str) -> str:
    """An option that takes one of few values, in any case.

    Raises:
        ConfigurationError: It is none of them.
    """
    value = options.get(key, default).lower()
    if value not in choices:
        raise ConfigurationError(
            f"the option {key} cannot be {options[key]!r}", operation="save", next_step=f"use {' or '.join(choices)}"
        )
    return value


def flag(options: Mapping[str, str], key: str, *, default: bool) -> bool:
    """An option that is true or false.

    Raises:
        ConfigurationError: It is neither.
    """
    return one_of(options, key, ("true", "false"), str(default).lower()) == "true"


def only_utf8(options: Mapping[str, str]) -> None:
    """Refuses any encoding but Spark's default.

    Raises:
        UnsupportedError: The option ``encoding`` names another.
    """
    encoding = options.get("encoding", "UTF-8")
    if encoding.upper() not in {"UTF-8", "UTF8"}:
        raise UnsupportedError(
            f"files cannot be written in the encoding {encoding!r}", operation="save", next_step="use UTF-8"
        )


def nullable_schema(schema: pa.Schema) -> pa.Schema:
    """The same types, and everything may be null.

    A null struct brings nulls for its fields, which writers refuse where a field says that it never is null.
    """
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
