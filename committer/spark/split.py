"""Rows by partition: one gathering of a task's rows becomes one slice for each directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from committer.partition_names import partition_directory
from committer.spark.partition_text import partition_texts

if TYPE_CHECKING:
    import pyarrow as pa


class PartitionSlice(msgspec.Struct, frozen=True):
    """The rows of one directory.

    Attributes:
        directory: Relative to the destination, as Hive spells it; empty when nothing is partitioned.
        rows: Its rows without the partition columns, in the order in which they came.
    """

    directory: str
    rows: pa.Table


def split_by_partition(
    rows: pa.Table,
    keys: pa.Table,
    names: Sequence[str],
    spark_types: Sequence[str] = (),
) -> Iterator[PartitionSlice]:
    """Sorts rows by partition and yields each partition's rows once, by ascending first appearance of their values.

    Rows whose partitions are spelled alike (null and the empty string, one hour told twice when daylight saving time
    ends) go into one directory. Memory: one sorted copy of `rows`; time: a sort of one integer a row.

    Args:
        rows: What goes into files.
        keys: The partition columns of the same rows, outermost first; none of them means one slice.
        names: Their names in directories.
        spark_types: Spark's names of the partition columns' types, which only intervals need.

    Raises:
        UnsupportedError: The values of a partition column cannot name partitions.
    """
    import pyarrow as pa

    pc = _compute()
    if not names:
        yield PartitionSlice("", rows)
        return
    codes, directories = _directory_codes(keys, names, spark_types or [""] * len(names))
    if len(directories) == 1:
        yield PartitionSlice(directories[0], rows)
        return
    order = pc.sort_indices(codes)  # stable: rows keep their order within a partition
    rows = rows.take(order)
    runs = pc.run_end_encode(codes.take(order), run_end_type=pa.int64())
    start = 0
    for code, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield PartitionSlice(directories[code], rows.slice(start, end - start))
        start = end


def _directory_codes(keys: pa.Table, names: Sequence[str], spark_types: Sequence[str]) -> tuple[pa.Array, list[str]]:
    """For each row the number of its directory, and the directories by number."""
    columns = [_column_codes(*column) for column in zip(names, keys.columns, spark_types, strict=True)]
    codes, directories = columns[0]
    for more, texts in columns[1:]:
        codes, directories = _combined(codes, directories, more, texts)
    return codes, directories


def _column_codes(name: str, values: pa.ChunkedArray, spark_type: str) -> tuple[pa.Array, list[str]]:
    import pyarrow as pa

    column = values.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # what combine_chunks makes of no rows, or of more than 2 GiB of text
        column = pa.concat_arrays(column.chunks)
    encoded = column.dictionary_encode(null_encoding="encode")
    directories = [partition_directory([(name, text)]) for text in partition_texts(encoded.dictionary, spark_type)]
    numbers: dict[str, int] = {}
    for directory in directories:
        numbers.setdefault(directory, len(numbers))
    if len(numbers) == len(directories):
        return encoded.indices.cast(pa.int64()), directories
    by_value = pa.array([numbers[directory] for directory in directories], pa.int64())
    return by_value.take(encoded.indices), list(numbers)


def _combined(
    outer: pa.Array, outer_names: list[str], inner: pa.Array, inner_names: list[str]
) -> tuple[pa.Array, list[str]]:
    import pyarrow as pa

    pc = _compute()
    pairs = pc.add(pc.multiply(outer, len(inner_names)), inner)
    # Numbered anew at each column: at most one number a row, so that the product never overflows.
    encoded = pairs.dictionary_encode()
    names = []
    for pair in encoded.dictionary.to_pylist():
        first, second = divmod(pair, len(inner_names))
        names.append(f"{outer_names[first]}/{inner_names[second]}")
    return encoded.indices.cast(pa.int64()), names


def _compute() -> Any:
    # Its functions are made at run time, so type checkers do not know them.
    import pyarrow.compute

    return pyarrow.compute
