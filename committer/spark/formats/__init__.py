"""File formats of the data source, which Spark's own readers read: see `FORMATS`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from committer.spark.formats.base import FileFormat, RowFile
from committer.spark.formats.orc import OrcFormat
from committer.spark.formats.parquet import ParquetFormat
from committer.spark.formats.text import CsvFormat, JsonFormat
from committer.spark.refusals import bad_write, unsupported_write

__all__ = ["FORMATS", "FORMAT_OPTIONS", "FileFormat", "RowFile", "parse_format"]

FORMATS: Final[Mapping[str, type[FileFormat]]] = {
    kind.name: kind for kind in (ParquetFormat, OrcFormat, CsvFormat, JsonFormat)
}
"""Formats by the value of the option ``format``."""

FORMAT_OPTIONS: Final[Mapping[str, str]] = {
    option.lower(): option for kind in FORMATS.values() for option in (*kind.options, *kind.refused_options)
}
"""All format options of Spark, supported or refused, by lower-case name."""


def parse_format(name: str, compression: str | None, options: Mapping[str, str]) -> FileFormat:
    """Parses the format (in any case) and its options, which are in Spark's spelling."""
    kind = FORMATS.get(name.lower())
    if kind is None:
        raise unsupported_write(f"the format {name!r} cannot be written", f"use one of {', '.join(FORMATS)}")
    for option in options:
        if option in kind.options:
            continue
        if option in kind.refused_options:
            raise unsupported_write(
                f"the option {option} cannot be honoured when {kind.title} files are written", "leave it out"
            )
        raise bad_write(f"the option {option} means nothing for {kind.title} files", "leave it out")
    return kind.of(compression, options)
