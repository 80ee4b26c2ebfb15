"""Checks a Spark schema: its partition columns, and types that Spark reads back unchanged."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Final

import msgspec

from committer.errors import UnsupportedError
from committer.spark.formats.base import NUMBERS, TEXT, TIMES, FileFormat
from committer.spark.formats.parquet import SNAPPY_PARQUET
from committer.spark.refusals import bad_write, unsupported_write

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

_PARTITION_TYPES: Final = NUMBERS | TEXT | TIMES | {"time", "daytimeinterval"}


class FilePlan(msgspec.Struct, frozen=True):
    """Columns of directory names and of files.

    `schema` is the files' schema as Spark's JSON; positions are those among Spark's columns. `partitions` are
    outermost first, with names as the user spelled them, which Spark also puts into directory names.
    """

    schema: str
    columns: tuple[int, ...]
    partitions: tuple[tuple[str, int], ...]
    partition_types: tuple[str, ...] = ()


def plan_files(
    schema: StructType,
    partition_by: tuple[str, ...],
    file_format: FileFormat = SNAPPY_PARQUET,
    case_sensitive: bool = False,
) -> FilePlan:
    """Splits columns into partition columns and file columns, and checks their names and types.

    Case in `partition_by` is ignored if no column matches exactly. With `case_sensitive`, names may differ in case
    only: Spark reads such files only with ``spark.sql.caseSensitive=true``.
    """
    from pyspark.sql.types import StructType

    names = schema.fieldNames()
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise bad_write(f"several columns are named {', '.join(map(repr, twice))}", "rename all but one of them")
    if not case_sensitive:
        _refuse_case_only(names)
    positions = tuple(_position(name, names) for name in partition_by)
    for position in positions:
        if positions.count(position) > 1:
            raise bad_write(f"partitionBy names the column {names[position]!r} twice", "name each column once")
        _check_partition_type(schema[position].dataType, names[position])
    columns = tuple(position for position in range(len(names)) if position not in positions)
    if not columns:
        raise bad_write(
            "every column is a partition column, so that nothing is left to write into files"
            if names
            else "there is no column to write",
            "leave a column out of partitionBy, or select one to write",
        )
    for position in columns:
        _check_file_type(schema[position].dataType, names[position], file_format)
    return FilePlan(
        schema=StructType([schema[position] for position in columns]).json(),
        columns=columns,
        partitions=tuple(zip(partition_by, positions, strict=True)),
        partition_types=tuple(schema[position].dataType.simpleString() for position in positions),
    )


def _refuse_case_only(names: list[str]) -> None:
    folded = [name.lower() for name in names]
    alike = sorted((name for name in names if folded.count(name.lower()) > 1), key=lambda name: (name.lower(), name))
    if alike:
        raise bad_write(
            f"the columns {' and '.join(map(repr, alike))} differ in case only, and Spark would not read them back",
            "rename all but one of them; or, where all readers tell them apart, set"
            " spark.sql.caseSensitive=true for committer.spark.write and foreach_batch, and"
            ' .option("caseSensitive", "true") for df.write and writeStream',
        )


def arrow_schema(plan: FilePlan) -> pa.Schema:
    """Returns the files' columns in Arrow's types, for a file without rows."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    return to_arrow_schema(StructType.fromJson(msgspec.json.decode(plan.schema)), timezone="UTC")


def _position(name: str, names: list[str]) -> int:
    if name in names:
        return names.index(name)
    found = [position for position, other in enumerate(names) if other.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    if found:
        raise bad_write(
            f"the partition column {name!r} may be any of several columns",
            "spell it as the column is, or set spark.sql.caseSensitive=true",
        )
    raise bad_write(f"there is no column {name!r} to partition by", _meant(name, names))


def _meant(name: str, names: list[str]) -> str:
    folded = {other.lower() for other in names}
    parts = [part.strip() for part in name.split(",")]
    if len(parts) > 1 and all(part.lower() in folded for part in parts):
        return f"that is one name; several are given as a list: {json.dumps(parts)}"
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"the columns are {', '.join(names)}"


def _check_partition_type(kind: DataType, name: str) -> None:
    # In a collation, different values may be equal, but would get separate directories.
    if kind.typeName() not in _PARTITION_TYPES or " collate " in kind.simpleString():
        raise unsupported_write(
            f"the column {name!r} of type {kind.simpleString()} cannot name partitions",
            "partition by a number, string, boolean, date, time, timestamp or day-time interval",
        )


def _check_file_type(kind: DataType, name: str, file_format: FileFormat) -> None:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if file_format.nested and isinstance(kind, ArrayType):
        _check_file_type(kind.elementType, name, file_format)
    elif file_format.nested and isinstance(kind, MapType):
        if file_format.string_keys and kind.keyType.typeName() not in TEXT:
            raise _not_in_files(kind, name, file_format, "make its keys strings")
        _check_file_type(kind.keyType, name, file_format)
        _check_file_type(kind.valueType, name, file_format)
    elif file_format.nested and isinstance(kind, StructType) and kind.fields:
        for field in kind.fields:
            _check_file_type(field.dataType, f"{name}.{field.name}", file_format)
    elif kind.typeName() not in file_format.types:
        raise _not_in_files(kind, name, file_format, "cast it to another type, a string for example")


def _not_in_files(kind: DataType, name: str, file_format: FileFormat, next_step: str) -> UnsupportedError:
    return unsupported_write(
        f"the column {name!r} of type {kind.simpleString()} cannot be written as {file_format.title} by this data"
        " source",
        next_step,
    )
