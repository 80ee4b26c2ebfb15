"""One gathering of rows becomes one slice a directory."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from committer.file_names import partition_directory
from committer.spark.formats.spelling import partition_texts
from committer.spark.output import split_by_partition


def split(table: pa.Table, *partition_positions: int) -> dict[str, list[int]]:
    keys = table.select(list(partition_positions))
    found = {}
    for directory, rows in split_by_partition(table.select([table.num_columns - 1]), keys, keys.column_names):
        assert directory not in found
        found[directory] = rows.column(0).to_pylist()
    return found


def test_without_partition_columns_there_is_one_slice() -> None:
    table = pa.table({"v": [1, 2, 3]})
    assert split(table) == {"": [1, 2, 3]}


def test_values_that_are_spelled_alike_share_a_directory() -> None:
    table = pa.table({"s": ["x", "", None, "x", ""], "v": range(5)})
    assert split(table, 0) == {"s=x": [0, 3], "s=__HIVE_DEFAULT_PARTITION__": [1, 2, 4]}


def test_the_two_hours_at_the_end_of_summer_time_share_a_directory() -> None:
    hour = 3_600_000_000
    second_one_o_clock = 1_730_613_600_000_000  # 2024-11-03 06:00 UTC: 01:00 in New York, for the second time
    moments = pa.array([second_one_o_clock - hour, second_one_o_clock], pa.timestamp("us", "America/New_York"))
    assert split(pa.table({"t": moments, "v": [0, 1]}), 0) == {"t=2024-11-03 01%3A00%3A00": [0, 1]}


def test_zeros_of_both_signs_are_two_and_every_nan_is_one() -> None:
    odd_nan = pa.array([0x7FF8000000000001], pa.int64()).view(pa.float64())[0].as_py()
    table = pa.table({"f": [0.0, -0.0, float("nan"), odd_nan, 0.0], "v": range(5)})
    assert split(table, 0) == {"f=0.0": [0, 4], "f=-0.0": [1], "f=NaN": [2, 3]}


def test_columns_nest_in_the_order_asked_for_and_names_are_escaped() -> None:
    table = pa.table({"a b=c/d": [1, 1], "x": ["%", "é"], "v": [0, 1]})
    assert split(table, 1, 0) == {"x=%25/a b%3Dc%2Fd=1": [0], "x=é/a b%3Dc%2Fd=1": [1]}


def test_files_get_their_columns_in_order_and_no_other() -> None:
    rows, keys = pa.table({"a": [1], "b": [3]}), pa.table({"p": [2]})
    ((directory, part),) = split_by_partition(rows, keys, ["P"])
    assert part.column_names == ["a", "b"]
    assert directory == "P=2"


def test_no_row_makes_no_slice() -> None:
    table = pa.table({"p": pa.array([], pa.int32()), "v": pa.array([], pa.int32())})
    assert split(table, 0) == {}


rows = st.lists(st.tuples(st.sampled_from([None, 0, 1, -7]), st.sampled_from([None, "", "a", "=", "b"])), min_size=1)


@given(rows, st.integers(1, 4))
def test_every_row_is_in_its_directory_once_in_order(pairs: list[tuple[int | None, str | None]], chunks: int) -> None:
    table = pa.table(
        {
            "i": pa.array([pair[0] for pair in pairs], pa.int64()),
            "s": pa.array([pair[1] for pair in pairs], pa.string()),
            "v": pa.array(range(len(pairs)), pa.int64()),
        }
    )
    step = -(-len(pairs) // chunks)
    table = pa.concat_tables([table.slice(start, step) for start in range(0, len(pairs), step)])
    expected: dict[str, list[int]] = {}
    for number, (i, s) in enumerate(pairs):
        (text,) = partition_texts(pa.array([i], pa.int64()))
        expected.setdefault(partition_directory([("i", text), ("s", s)]), []).append(number)
    assert split(table, 0, 1) == expected
