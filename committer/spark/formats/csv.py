"""CSV, byte for byte as Spark's writer makes it, a column at a time.

pyarrow's own CSV writer doubles quotes, which Spark does not read by default, and cannot be told otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from committer.errors import UnsupportedError
from committer.spark.formats.base import NUMBERS, TEXT, TIMES, flag, only_utf8
from committer.spark.formats.json import spelling_of
from committer.spark.formats.spelling import SPARK_SPELLING, Spelling, compute
from committer.spark.formats.text import TextFormat, joined, joined_with

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_COMMENT: Final = "#"
_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""What Spark's writer takes for white space."""


@dataclass(frozen=True)
class CsvFormat(TextFormat):
    """``format=csv``.

    Attributes:
        header: Whether files begin with the columns' names.
        sep: Between fields; one character.
        quote: Around fields that need it.
        escape: Before a quote within quotes, and before itself where it is not the quote.
        quote_all: Whether every field that is not null is quoted.
        null_value: What null is written as.
        empty_value: What the empty string is written as.
        trim_leading: Whether white space at the front of values is cut off, as Spark does by default.
        trim_trailing: The same for their end.
        spelling: How values are spelled.
    """

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
        """Reads the format's own options."""
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
            raise UnsupportedError(
                "the option sep cannot be the quote or the escape character too",
                operation="save",
                next_step="give another sep, quote or escape",
            )
        for option, value in (("nullValue", self.null_value), ("emptyValue", self.empty_value)):
            plain = option == "emptyValue" and value == '""'
            if not plain and (
                re.search(self._special(), value) or value.strip(_TRIMMED) != value or value[:1] == _COMMENT
            ):
                raise UnsupportedError(
                    f"the option {option} cannot be {value!r}",
                    operation="save",
                    next_step="use a text without separator, quotes, line ends and blanks around it",
                )

    def first_line(self, columns: StructType) -> str:
        """The columns' names, where they are asked for."""
        import pyarrow as pa

        if not self.header:
            return ""
        names = [pa.array([name], pa.string()) for name in columns.names]
        return str(joined(self._line(names)).to_pybytes(), "utf-8")

    def lines(self, rows: pa.RecordBatch, columns: StructType) -> pa.Array:
        """One line a row."""
        kinds = [field.dataType for field in columns.fields]
        texts = [self.spelling.texts(values, kind) for values, kind in zip(rows.columns, kinds, strict=True)]
        return self._line(texts)

    def _line(self, texts: list[pa.Array]) -> pa.Array:
        fields = [self._field(text, first=position == 0) for position, text in enumerate(texts)]
        lines = joined_with("", joined_with(self.sep, *fields), "\n")
        # Spark writes no empty line for a null that is the only field, nor would it read one.
        return compute().if_else(compute().equal(lines, "\n"), "", lines) if len(fields) == 1 else lines

    def _field(self, texts: pa.Array, *, first: bool) -> pa.Array:
        pc = compute()
        # Spark looks for it before it trims.
        comment = pc.starts_with(texts, _COMMENT) if first else None
        if self.trim_leading:
            texts = pc.utf8_ltrim(texts, _TRIMMED)
        # And for what makes quotes before it trims the end.
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
        raise UnsupportedError(
            f"the option {option} cannot be {value!r}", operation="save", next_step="use one ASCII character"
        )
    return character
