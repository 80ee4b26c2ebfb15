"""The file formats that the data source writes, so that Spark's own readers get the rows back: see `FORMATS`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from committer.errors import ConfigurationError, UnsupportedError
from committer.spark.formats.base import FileFormat, RowFile
from committer.spark.formats.orc import OrcFormat
from committer.spark.formats.parquet import ParquetFormat
from committer.spark.formats.text import CsvFormat, JsonFormat

__all__ = ["FORMATS", "FORMAT_OPTIONS", "FileFormat", "RowFile", "parse_format"]

FORMATS: Final[Mapping[str, type[FileFormat]]] = {
    kind.name: kind for kind in (ParquetFormat, OrcFormat, CsvFormat, JsonFormat)
}
"""Formats, as the option ``format`` names them."""

FORMAT_OPTIONS: Final[Mapping[str, str]] = {
    option.lower(): option for kind in FORMATS.values() for option in (*kind.options, *kind.refused_options)
}
"""Every format option that Spark knows, honoured or refused, by its name in lower case."""


def parse_format(name: str, compression: str | None, options: Mapping[str, str]) -> FileFormat:
    """Reads the options that say what files look like.

    Args:
        name: The format, in any case.
        compression: As given; None takes the format's default.
        options: Format options, by Spark's spelling (`FORMAT_OPTIONS`).

    Raises:
        ConfigurationError: An option belongs to another format, or a value is not one that it takes.
        UnsupportedError: The format, an option or a value is one that cannot be honoured.
    """
    kind = FORMATS.get(name.lower())
    if kind is None:
        raise UnsupportedError(
            f"the format {name!r} cannot be written", operation="save", next_step=f"use one of {', '.join(FORMATS)}"
        )
    for option in options:
        if option in kind.options:
            continue
        if option in kind.refused_options:
            raise UnsupportedError(
                f"the option {option} cannot be honoured when {kind.title} files are written",
                operation="save",
                next_step="leave it out",
            )
        raise ConfigurationError(
            f"the option {option} means nothing for {kind.title} files", operation="save", next_step="leave it out"
        )
    return kind.of(compression, options)
