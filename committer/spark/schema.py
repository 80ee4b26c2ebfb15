"""What of a Spark schema can be written: the partition columns, and the types that Parquet and Spark agree on."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import msgspec

from committer.errors import ConfigurationError, UnsupportedError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

# Names of Spark's types (`DataType.typeName`).
_NUMBERS = {"boolean", "byte", "short", "integer", "long", "float", "double", "decimal"}
_TEXT = {"string", "char", "varchar"}
_PARTITION_TYPES = _NUMBERS | _TEXT | {"date", "timestamp", "timestamp_ntz"}
_FILE_TYPES = _PARTITION_TYPES | {"binary", "daytimeinterval"}


class FilePlan(msgspec.Struct, frozen=True):
    """What goes into directory names, and what into files.

    Attributes:
        schema: The schema of the files as Spark's JSON, partition columns left out.
        columns: Positions of the files' columns among the columns that Spark hands over.
        partitions: Each partition column, outermost first: its name as the user spelled it, which is what Spark puts
            into directory names too, and its position among the columns that Spark hands over.
    """

    schema: str
    columns: tuple[int, ...]
    partitions: tuple[tuple[str, int], ...]


def plan_files(schema: StructType, partition_by: tuple[str, ...]) -> FilePlan:
    """Decides which columns name partitions; the others go into the files, in their order.

    Args:
        schema: Everything that Spark hands over.
        partition_by: Partition columns, outermost first; where no column is spelled exactly so, case is ignored.

    Raises:
        ConfigurationError: A partition column is unknown, ambiguous or named twice, no other column is left, or two
            columns share a name.
        UnsupportedError: A column's type cannot be written, or cannot name partitions.
    """
    from pyspark.sql.types import StructType

    names = schema.fieldNames()
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(f"several columns are named {', '.join(map(repr, twice))}", operation="save")
    positions = tuple(_position(name, names) for name in partition_by)
    for position in positions:
        if positions.count(position) > 1:
            raise ConfigurationError(f"partitionBy names the column {names[position]!r} twice", operation="save")
        _check_partition_type(schema[position].dataType, names[position])
    columns = tuple(position for position in range(len(names)) if position not in positions)
    if not columns:
        raise ConfigurationError(
            "every column is a partition column, so that nothing is left to write into files"
            if names
            else "there is no column to write",
            operation="save",
        )
    for position in columns:
        _check_file_type(schema[position].dataType, names[position])
    return FilePlan(
        schema=StructType([schema[position] for position in columns]).json(),
        columns=columns,
        partitions=tuple(zip(partition_by, positions, strict=True)),
    )


def arrow_schema(plan: FilePlan) -> pa.Schema:
    """The files' columns in Arrow's types, for a file that gets no row."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    return to_arrow_schema(StructType.fromJson(msgspec.json.decode(plan.schema)), timezone="UTC")


def file_schema(schema: pa.Schema, plan: FilePlan) -> pa.Schema:
    """The schema of files whose columns come as `schema`: the same types, and everything may be null.

    Spark takes every column of a file for nullable anyway, and a null struct brings nulls for its fields, which are
    refused where a field says that it never is null. The footer gets what Spark itself writes there: its own schema, so
    that it reads every type back as it was, and its version, by which readers know that old dates are Gregorian.
    """
    import pyarrow as pa
    from pyspark import __version__ as version

    return pa.schema(
        [_nullable(field) for field in schema],
        metadata={"org.apache.spark.version": version, "org.apache.spark.sql.parquet.row.metadata": plan.schema},
    )


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


def _position(name: str, names: list[str]) -> int:
    if name in names:
        return names.index(name)
    found = [position for position, other in enumerate(names) if other.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigurationError(f"the partition column {name!r} may be any of several columns", operation="save")
    close = difflib.get_close_matches(name, names, n=1)
    raise ConfigurationError(
        f"there is no column {name!r} to partition by",
        operation="save",
        next_step=f"did you mean {close[0]!r}?" if close else f"the columns are {', '.join(names)}",
    )


def _check_partition_type(kind: DataType, name: str) -> None:
    # In a collation unlike values may be equal, and one directory each would tell them apart.
    if kind.typeName() not in _PARTITION_TYPES or " collate " in kind.simpleString():
        raise UnsupportedError(
            f"the column {name!r} of type {kind.simpleString()} cannot name partitions",
            operation="save",
            next_step="partition by a number, string, boolean, date or timestamp",
        )


def _check_file_type(kind: DataType, name: str) -> None:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        _check_file_type(kind.elementType, name)
    elif isinstance(kind, MapType):
        _check_file_type(kind.keyType, name)
        _check_file_type(kind.valueType, name)
    elif isinstance(kind, StructType) and kind.fields:
        for field in kind.fields:
            _check_file_type(field.dataType, f"{name}.{field.name}")
    elif kind.typeName() not in _FILE_TYPES:
        raise UnsupportedError(
            f"the column {name!r} of type {kind.simpleString()} cannot be written as Parquet by this data source",
            operation="save",
            next_step="cast it to another type, a string for example",
        )
