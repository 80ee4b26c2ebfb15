"""CSV and JSON formats, byte for byte like Spark's writers.

pyarrow's CSV writer is not used: it always doubles quotes, which Spark does not read by default.
"""

from __future__ import annotations

import base64
import bz2
import io
import re
import zlib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import msgspec

from committer.spark.formats.base import (
    NUMBERS,
    TEXT,
    TIMES,
    FileFormat,
    RowFile,
    Unclosed,
    compute,
    flag,
    give_up,
    only_utf8,
)
from committer.spark.formats.spelling import SPARK_SPELLING, Spelling, TimestampStyle, timestamp_style
from committer.spark.refusals import unsupported_write

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType


_SLICE_ROWS: Final = 1 << 16
_SLICE_BYTES: Final = 16 << 20
_GZIP: Final = 31
"""zlib's number for a gzip header; the default is zlib's own header, which Hadoop calls deflate."""


class TextFormat(FileFormat):
    """Format of lines. Spark reads ``zstd`` only where Hadoop's native library is installed."""

    compressions: ClassVar[Mapping[str, str]] = {
        "none": "",
        "uncompressed": "",
        "gzip": ".gz",
        "bzip2": ".bz2",
        "deflate": ".deflate",
        "zstd": ".zst",
    }
    default_compression: ClassVar[str] = "none"
    refused_compressions: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("lz4", "snappy"), "use gzip: lz4 and snappy text files have a framing of Hadoop's own"
    )

    @property
    def suffix(self) -> str:
        """Ending of file names, such as ``.csv.gz``."""
        return f".{self.name}{self.compressions[self.compression]}"

    def open(self, file: io.IOBase, schema: pa.Schema, spark_schema: str) -> RowFile:
        """Opens a file; rows become lines at once."""
        from pyspark.sql.types import StructType

        columns = StructType.fromJson(msgspec.json.decode(spark_schema))
        return LineFile(file, self.compression, self.first_line(columns), lambda rows: self.lines(rows, columns))

    def first_line(self, columns: StructType) -> str:
        """Returns the first line of a file, if any."""
        return ""

    @abstractmethod
    def lines(self, rows: pa.RecordBatch, columns: StructType) -> pa.Array:
        """Returns one text per row, with line end."""


class LineFile(RowFile):
    """Open file of lines; `lines` makes one text per row."""

    def __init__(
        self, file: io.IOBase, compression: str, first_line: str, lines: Callable[[pa.RecordBatch], pa.Array]
    ) -> None:
        super().__init__(file)
        self._lines = lines
        self._finished = False
        try:
            self._out = _compressing(file, compression)
            if first_line:
                self._out.write(first_line.encode())
        except BaseException as error:
            give_up(file, error)
            raise

    def write(self, rows: pa.Table) -> None:
        """Appends rows in slices, so that little more than one slice is held as text."""
        each = min(_SLICE_ROWS, max(1, rows.num_rows * _SLICE_BYTES // max(1, rows.nbytes)))
        for batch in rows.to_batches(max_chunksize=each):
            if batch.num_rows:
                self._out.write(joined(self._lines(batch)))

    def _finish(self) -> None:
        if not self._finished:
            self._finished = True
            self._out.close()


def joined(texts: pa.Array) -> pa.Buffer:
    """Returns all texts as one buffer without a copy; none may be null."""
    import pyarrow as pa

    whole = pa.concat_arrays([texts.cast(pa.large_string())])
    _, offsets, data = whole.buffers()
    if data is None:
        return pa.py_buffer(b"")
    ends = pa.Array.from_buffers(pa.int64(), len(whole) + 1, [None, offsets], offset=whole.offset)
    first, last = ends[0].as_py(), ends[len(whole)].as_py()
    return data.slice(first, last - first)


def joined_with(separator: str, *parts: Any) -> pa.Array:
    """Joins columns of text and constants row by row; null if a part is null."""
    return compute().binary_join_element_wise(*parts, separator)


class _Compressed:
    """Writes what a compressor of the standard library makes."""

    def __init__(self, file: io.IOBase, compressor: Any) -> None:
        self._file: Any = file
        self._compressor = compressor

    def write(self, data: bytes | pa.Buffer) -> None:
        packed = self._compressor.compress(data)
        if packed:
            self._file.write(packed)

    def close(self) -> None:
        self._file.write(self._compressor.flush())


def _compressing(file: io.IOBase, compression: str) -> Any:
    """Returns an object that writes to a file; its `close` ends the compressed data and leaves the file open."""
    import pyarrow as pa

    match compression:
        case "gzip":
            return _Compressed(file, zlib.compressobj(wbits=_GZIP))
        case "deflate":
            return _Compressed(file, zlib.compressobj())
        case "bzip2":
            return _Compressed(file, bz2.BZ2Compressor())
        case "zstd":
            return pa.CompressedOutputStream(pa.PythonFile(Unclosed(file), mode="w"), "zstd")
        case _:
            return Unclosed(file)


_CONTROL: Final = r"[\x00-\x1f]"
_SHORT: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPES: Final = {chr(code): _SHORT.get(chr(code), f"\\u{code:04X}") for code in range(0x20)}
_UNQUOTED: Final = NUMBERS - {"float", "double"}


@dataclass(frozen=True)
class JsonFormat(TextFormat):
    """``format=json``: one object per line."""

    name: ClassVar[str] = "json"
    title: ClassVar[str] = "JSON"
    types: ClassVar[frozenset[str]] = NUMBERS | TEXT | TIMES | {"binary", "daytimeinterval", "void"}
    string_keys: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ("ignoreNullFields", "timestampFormat", "timestampNTZFormat", "encoding")
    refused_options: ClassVar[tuple[str, ...]] = (
        "dateFormat",
        "lineSep",
        "locale",
        "pretty",
        "timeZone",
        "writeNonAsciiCharacterAsCodePoint",
    )

    ignore_null_fields: bool = True
    spelling: Spelling = SPARK_SPELLING

    @classmethod
    def of(cls, compression: str | None, options: Mapping[str, str]) -> Self:
        """Parses the format's options."""
        only_utf8(options)
        return cls(
            compression=cls._compression(compression),
            ignore_null_fields=flag(options, "ignoreNullFields", default=True),
            spelling=spelling_of(options),
        )

    def lines(self, rows: pa.RecordBatch, columns: StructType) -> pa.Array:
        """Returns one JSON object per row."""
        fields = [(field.name, field.dataType) for field in columns.fields]
        return joined_with("", self._objects(rows.columns, fields), "\n")

    def _objects(self, values: list[pa.Array], fields: list[tuple[str, DataType]]) -> pa.Array:
        pc = compute()
        members = []
        for column, (name, kind) in zip(values, fields, strict=True):
            text = self._values(column, kind)
            if not self.ignore_null_fields:
                text = text.fill_null("null")
            members.append(joined_with("", f",{_quoted_name(name)}:", text).fill_null(""))
        # The brace replaces the first comma. (Arrow's own skipping of nulls drops rows whose fields are all null.)
        return joined_with("", pc.binary_replace_slice(joined_with("", *members), 0, 1, "{"), "}")

    def _values(self, values: pa.Array, kind: DataType) -> pa.Array:
        import pyarrow as pa
        from pyspark.sql.types import ArrayType, MapType, StructType

        pc = compute()
        if isinstance(kind, StructType):
            objects = self._objects(values.flatten(), [(field.name, field.dataType) for field in kind.fields])
            return pc.if_else(values.is_valid(), objects, pa.scalar(None, pa.string()))
        if isinstance(kind, ArrayType):
            elements = self._values(_entries(values, values.values), kind.elementType).fill_null("null")
            return _enclosed("[", _lists(values, elements), "]")
        if isinstance(kind, MapType):
            keys = self._values(_entries(values, values.keys), kind.keyType)
            items = self._values(_entries(values, values.items), kind.valueType).fill_null("null")
            return _enclosed("{", _lists(values, joined_with(":", keys, items)), "}")
        name = kind.typeName()
        if name == "binary":
            data = values.to_pylist()
            texts = pa.array(
                [None if value is None else base64.b64encode(value).decode() for value in data], pa.string()
            )
            return _quoted(texts)
        texts = self.spelling.texts(values, kind)
        if name in _UNQUOTED or name == "void":
            return texts
        if name in {"float", "double"}:
            return pc.if_else(pc.is_finite(values), texts, _quoted(texts))
        return _quoted(_escaped(texts) if name in TEXT else texts)


def spelling_of(options: Mapping[str, str]) -> Spelling:
    """Parses the options ``timestampFormat`` and ``timestampNTZFormat``."""
    styles: dict[str, TimestampStyle] = {}
    for option, field, zoned in (
        ("timestampFormat", "timestamps", True),
        ("timestampNTZFormat", "local_timestamps", False),
    ):
        if option in options:
            styles[field] = timestamp_style(option, options[option], zoned=zoned)
    return Spelling(**styles)


def _entries(values: pa.Array, children: pa.Array) -> pa.Array:
    """Returns the children of lists or maps, which may be a slice."""
    offsets = values.offsets
    return children.slice(offsets[0].as_py(), offsets[len(values)].as_py() - offsets[0].as_py())


def _lists(values: pa.Array, texts: pa.Array) -> pa.Array:
    """Joins the texts of each value's children with commas; null stays null."""
    import pyarrow as pa

    pc = compute()
    offsets = pc.subtract(values.offsets, values.offsets[0])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")
    return pc.if_else(values.is_valid(), joined, pa.scalar(None, pa.string()))


def _enclosed(opening: str, texts: pa.Array, closing: str) -> pa.Array:
    return joined_with("", opening, texts, closing)


def _quoted(texts: pa.Array) -> pa.Array:
    return joined_with("", '"', texts, '"')


def _escaped(texts: pa.Array) -> pa.Array:
    pc = compute()
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, _CONTROL)).as_py():
        for character, escape in _ESCAPES.items():
            texts = pc.replace_substring(texts, character, escape)
    return texts


def _quoted_name(name: str) -> str:
    import pyarrow as pa

    (text,) = _quoted(_escaped(pa.array([name], pa.string()))).to_pylist()
    return str(text)


_COMMENT: Final = "#"
_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""Characters that Spark's CSV writer trims as white space."""


@dataclass(frozen=True)
class CsvFormat(TextFormat):
    """``format=csv``; `escape` comes before a quote within quotes, and before itself if it is not the quote."""

    name: ClassVar[str] = "csv"
    title: ClassVar[str] = "CSV"
    types: ClassVar[frozenset[str]] = NUMBERS | TEXT | TIMES | {"daytimeinterval"}
    nested: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = (
        "header",
        "sep",
        "delimiter",
        "quote",
        "escape",
        "quoteAll",
        "nullValue",
        "emptyValue",
        "ignoreLeadingWhiteSpace",
        "ignoreTrailingWhiteSpace",
        "timestampFormat",
        "timestampNTZFormat",
        "encoding",
    )
    refused_options: ClassVar[tuple[str, ...]] = (
        "charToEscapeQuoteEscaping",
        "charset",
        "comment",
        "dateFormat",
        "escapeQuotes",
        "lineSep",
        "locale",
    )

    header: bool = False
    sep: str = ","
    quote: str = '"'
    escape: str = "\\"
    quote_all: bool = False
    null_value: str = ""
    empty_value: str = '""'
    trim_leading: bool = True
    trim_trailing: bool = True
    spelling: Spelling = SPARK_SPELLING

    @classmethod
    def of(cls, compression: str | None, options: Mapping[str, str]) -> Self:
        """Parses the format's options."""
        only_utf8(options)
        made = cls(
            compression=cls._compression(compression),
            header=flag(options, "header", default=False),
            sep=_character("sep", options.get("sep", options.get("delimiter", ","))),
            quote=_character("quote", options.get("quote", '"')),
            escape=_character("escape", options.get("escape", "\\")),
            quote_all=flag(options, "quoteAll", default=False),
            null_value=options.get("nullValue", ""),
            empty_value=options.get("emptyValue", '""'),
            trim_leading=flag(options, "ignoreLeadingWhiteSpace", default=True),
            trim_trailing=flag(options, "ignoreTrailingWhiteSpace", default=True),
            spelling=spelling_of(options),
        )
        made._check()
        return made

    def _check(self) -> None:
        if self.sep in {self.quote, self.escape}:
            raise unsupported_write(
                "the option sep cannot be the quote or the escape character too", "give another sep, quote or escape"
            )
        for option, value in (("nullValue", self.null_value), ("emptyValue", self.empty_value)):
            plain = option == "emptyValue" and value == '""'
            if not plain and (
                re.search(self._special(), value) or value.strip(_TRIMMED) != value or value[:1] == _COMMENT
            ):
                raise unsupported_write(
                    f"the option {option} cannot be {value!r}",
                    "use a text without separator, quotes, line ends and blanks around it",
                )

    def first_line(self, columns: StructType) -> str:
        """Returns the columns' names if a header is asked for."""
        import pyarrow as pa

        if not self.header:
            return ""
        names = [pa.array([name], pa.string()) for name in columns.names]
        return str(joined(self._line(names)).to_pybytes(), "utf-8")

    def lines(self, rows: pa.RecordBatch, columns: StructType) -> pa.Array:
        """Returns one line per row."""
        kinds = [field.dataType for field in columns.fields]
        texts = [self.spelling.texts(values, kind) for values, kind in zip(rows.columns, kinds, strict=True)]
        return self._line(texts)

    def _line(self, texts: list[pa.Array]) -> pa.Array:
        fields = [self._field(text, first=position == 0) for position, text in enumerate(texts)]
        lines = joined_with("", joined_with(self.sep, *fields), "\n")
        # Spark writes no line for a null that is the only field, and reads none.
        return compute().if_else(compute().equal(lines, "\n"), "", lines) if len(fields) == 1 else lines

    def _field(self, texts: pa.Array, *, first: bool) -> pa.Array:
        pc = compute()
        # Spark tests for a comment before it trims.
        comment = pc.starts_with(texts, _COMMENT) if first else None
        if self.trim_leading:
            texts = pc.utf8_ltrim(texts, _TRIMMED)
        # Spark tests for characters that need quotes before it trims the end.
        special: Any = pc.match_substring_regex(texts, self._special())
        if self.trim_trailing:
            texts = pc.utf8_rtrim(texts, _TRIMMED)
        empty = pc.equal(texts, "")
        if self.quote_all:
            return pc.if_else(empty.fill_null(False), self.empty_value, self._quoted(texts.fill_null(self.null_value)))
        if comment is not None:
            special = pc.or_(special, comment)
        if pc.any(special).as_py():
            texts = pc.if_else(special, self._quoted(texts), texts)
        return pc.if_else(empty, self.empty_value, texts).fill_null(self.null_value)

    def _quoted(self, texts: pa.Array) -> pa.Array:
        pc = compute()
        if self.escape != self.quote:
            texts = pc.replace_substring(texts, self.escape, self.escape * 2)
        texts = pc.replace_substring(texts, self.quote, self.escape + self.quote)
        return joined_with("", self.quote, texts, self.quote)

    def _special(self) -> str:
        return f"[{re.escape(self.sep)}{re.escape(self.quote)}\\r\\n]"


def _character(option: str, value: str) -> str:
    character = {"\\t": "\t", "\\\\": "\\"}.get(value, value)
    if len(character) != 1 or character in "\0\r\n" or not character.isascii():
        raise unsupported_write(f"the option {option} cannot be {value!r}", "use one ASCII character")
    return character
