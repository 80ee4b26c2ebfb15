"""Schemas of files: Spark takes every column of a file for nullable, and so must the files say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


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
