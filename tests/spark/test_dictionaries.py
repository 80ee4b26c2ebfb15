"""Which columns of a Parquet file get a dictionary: those whose values come again often enough."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from committer.spark.formats.parquet import dictionary_columns

ROWS = 200_000
_random = random.Random(7)


# Made by the tests that look at them: at import every worker of every run would make them.
@functools.cache
def column(name: str) -> pa.Array:
    return {**WITH, **WITHOUT}[name]()


def numbers(make: Callable[[int], int | None]) -> pa.Array:
    return pa.array([make(number) for number in range(ROWS)], pa.int64())


def texts(make: Callable[[int], str]) -> pa.Array:
    return pa.array([make(number) for number in range(ROWS)])


WITH = {
    "few values": lambda: numbers(lambda n: n % 100),
    "one value": lambda: numbers(lambda n: 1),
    "sorted, each value a hundred times": lambda: numbers(lambda n: n // 100),
    "a few thousand values": lambda: numbers(lambda n: _random.randrange(5_000)),
    "few names": lambda: texts(lambda n: f"name-{n % 1000}"),
    "long names, many": lambda: texts(lambda n: f"customer-{_random.randrange(5_000):020d}"),
}
WITHOUT = {
    "counts up": lambda: numbers(lambda n: n),
    "counts up, shuffled": lambda: numbers(lambda n: n * 7919 % 1_000_003),
    "counts up, half of it null": lambda: numbers(lambda n: n if n % 2 else None),
    "counts up, nearly all null": lambda: numbers(lambda n: None if n % 50 else n),
    "more values than rows": lambda: numbers(lambda n: _random.randrange(10 * ROWS)),
    "names that never repeat": lambda: texts(lambda n: f"{_random.getrandbits(128):032x}"),
    "names that never repeat, or are missing": lambda: texts(
        lambda n: f"{_random.getrandbits(128):032x}" if n % 2 else "-"
    ),
}


def size(column: pa.Array, *, dictionary: bool) -> int:
    table, file = pa.table({"v": column}), pa.BufferOutputStream()
    pq.write_table(table, file, use_dictionary=dictionary, compression="snappy", row_group_size=ROWS)
    return file.getvalue().size


@pytest.mark.parametrize("name", WITH)
def test_values_that_come_again_get_a_dictionary_and_the_file_is_smaller(name: str) -> None:
    assert dictionary_columns(pa.table({"v": column(name)})) is True
    assert size(column(name), dictionary=True) < size(column(name), dictionary=False)


@pytest.mark.parametrize("name", WITHOUT)
def test_values_that_do_not_come_again_get_none_and_the_file_is_smaller(name: str) -> None:
    assert dictionary_columns(pa.table({"v": column(name)})) == []
    assert size(column(name), dictionary=False) < size(column(name), dictionary=True)


def test_a_column_of_nulls_is_no_trouble() -> None:
    assert dictionary_columns(pa.table({"v": numbers(lambda n: None)})) is True


def test_nested_columns_keep_theirs_under_the_names_that_parquet_gives_them() -> None:
    table = pa.table(
        {
            "n": column("counts up"),
            "l": pa.array([[n % 7] for n in range(ROWS)]),
            "s": pa.array([{"a.b": n % 7} for n in range(ROWS)]),
            "few": column("few values"),
        }
    )
    columns = dictionary_columns(table)
    assert columns == ["l.list.element", "s.a.b", "few"]
    file = pa.BufferOutputStream()
    pq.write_table(table, file, use_dictionary=columns)
    group = pq.ParquetFile(pa.BufferReader(file.getvalue())).metadata.row_group(0)
    encoded = {group.column(n).path_in_schema: group.column(n).has_dictionary_page for n in range(group.num_columns)}
    assert encoded == {"n": False, "l.list.element": True, "s.a.b": True, "few": True}


def test_few_rows_are_not_looked_at() -> None:
    assert dictionary_columns(pa.table({"v": range(4096)})) is True
