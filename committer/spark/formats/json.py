"""JSON lines, byte for byte as Spark's writer makes them, a column at a time."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Self

from committer.spark.formats.base import NUMBERS, TEXT, TIMES, flag, only_utf8
from committer.spark.formats.spelling import SPARK_SPELLING, Spelling, TimestampStyle, compute, timestamp_style
from committer.spark.formats.text import TextFormat, joined_with

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

_CONTROL: Final = r"[\x00-\x1f]"
_SHORT: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPES: Final = {chr(code): _SHORT.get(chr(code), f"\\u{code:04X}") for code in range(0x20)}
_UNQUOTED: Final = NUMBERS - {"float", "double"}


@dataclass(frozen=True)
class JsonFormat(TextFormat):
    """``format=json``: one object a line.

    Attributes:
        ignore_null_fields: Whether null fields are left out.
        spelling: How values are spelled.
    """

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
        """Reads the format's own options."""
        only_utf8(options)
        return cls(
            compression=cls._compression(compression),
            ignore_null_fields=flag(options, "ignoreNullFields", default=True),
            spelling=spelling_of(options),
        )

    def lines(self, rows: pa.RecordBatch, columns: StructType) -> pa.Array:
        """One object a row."""
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
        # The first comma gives way to the brace. (Arrow's own skipping of nulls drops rows in which all are null.)
        return joined_with("", pc.binary_replace_slice(joined_with("", *members), 0, 1, "{"), "}")

    def _values(self, values: pa.Array, kind: DataType) -> pa.Array:
        """JSON's text of each value; null stays null."""
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
    """Reads the options ``timestampFormat`` and ``timestampNTZFormat``.

    Raises:
        UnsupportedError: A pattern cannot be honoured.
    """
    styles: dict[str, TimestampStyle] = {}
    for option, field, zoned in (
        ("timestampFormat", "timestamps", True),
        ("timestampNTZFormat", "local_timestamps", False),
    ):
        if option in options:
            styles[field] = timestamp_style(option, options[option], zoned=zoned)
    return Spelling(**styles)


def _entries(values: pa.Array, children: pa.Array) -> pa.Array:
    """The children of lists or maps that belong to these values, which may be a slice."""
    offsets = values.offsets
    return children.slice(offsets[0].as_py(), offsets[len(values)].as_py() - offsets[0].as_py())


def _lists(values: pa.Array, texts: pa.Array) -> pa.Array:
    """Joins the texts of children with commas, by value; null stays null."""
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
