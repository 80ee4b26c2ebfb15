"""Rows set aside on the local disk: order, bounded memory, nothing left behind, and thousands of partitions."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from io import IOBase
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType

from committer.errors import TaskError
from committer.spark.formats import parse_format
from committer.spark.output import FileNames, Spill, TaskOutput, local_folder
from committer.spark.schema import plan_files


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "local"
    folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))
    return folder


def table(*values: int | str | None) -> pa.Table:
    return pa.table({"v": pa.array(values)})


def drained(spill: Spill) -> dict[str, list[object]]:
    return {
        directory: [value for rows in tables for value in rows.column("v").to_pylist()]
        for directory, tables in spill.drain()
    }


@given(st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 9), max_size=4), st.booleans())))
def test_every_row_comes_back_once_in_order(slices: list[tuple[str, list[int], bool]]) -> None:
    spill = Spill()
    expected: dict[str, list[int]] = {}
    for directory, values, flushed in slices:
        spill.add(directory, pa.table({"v": pa.array(values, pa.int64())}))
        expected.setdefault(directory, []).extend(values)
        if flushed:
            spill.flush()
    assert drained(spill) == expected
    assert list(expected) == [directory for directory in "abc" if directory in spill] or len(expected) > 1
    spill.close()


def test_every_type_comes_back(folder: Path) -> None:
    rows = pa.table(
        {
            "s": pa.array(["a", None, "é"]),
            "at": pa.array([0, None, -1], pa.timestamp("us", "America/New_York")),
            "n": pa.array([None, 1, 2], pa.decimal128(38, 10)),
            "l": pa.array([[1, None], None, []]),
            "m": pa.array([[("k", {"x": b"1"})], None, []], pa.map_(pa.string(), pa.struct([("x", pa.binary())]))),
        }
    )
    spill = Spill()
    spill.add("a", rows.slice(1))
    spill.add("b", rows.slice(0, 2))
    found = {directory: pa.concat_tables(tables) for directory, tables in spill.drain()}
    assert found == {"a": rows.slice(1), "b": rows.slice(0, 2)}
    spill.close()


def test_nothing_is_left_on_the_disk_not_even_of_a_killed_process(folder: Path) -> None:
    spill = Spill()
    spill.add("a", table(1))
    spill.flush()
    assert list(folder.iterdir()) == []
    spill.close()
    spill.close()


def test_nothing_set_aside_touches_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/nowhere")
    spill = Spill()
    assert drained(spill) == {}
    spill.close()


def test_tasks_spread_over_spark_s_local_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'a'},/no/such/disk,{tmp_path / 'b'}")
    assert [local_folder(task) for task in range(3)] == [str(tmp_path / name) for name in "aba"]
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert local_folder(0) is None


def test_a_full_disk_is_told_as_what_it_is() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    spill = Spill()
    spill._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    spill.add("a", table(*range(1000)))
    with pytest.raises(TaskError, match="local disk") as raised:
        spill.flush()
    assert "spark.local.dir" in raised.value.next_step
    assert raised.value.outcome == "unchanged"
    spill.close()


# --- Thousands of partitions --------------------------------------------------------------------------------------

PARTITIONS = 5_000
ROWS = 100_000
TEXT_BYTES = 400


class Disk:
    """Files in a directory; counts how many are open, and how much Arrow has allocated at most when it is used."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: list[IOBase] = []
        self.most_open = 0
        self.most_allocated = 0
        self.most_descriptors = 0

    def open(self, name: str) -> IOBase:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("xb")
        self.files = [other for other in self.files if not other.closed] + [file]
        self.look()
        return file

    def look(self) -> None:
        self.most_open = max(self.most_open, sum(not file.closed for file in self.files))
        self.most_allocated = max(self.most_allocated, pa.total_allocated_bytes())
        if os.path.isdir("/proc/self/fd"):
            self.most_descriptors = max(self.most_descriptors, len(os.listdir("/proc/self/fd")))


def test_5000_partitions_in_turn_take_bounded_memory_and_few_open_files(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "out")
    disk.root.mkdir()
    disk.look()
    before, descriptors = pa.total_allocated_bytes(), disk.most_descriptors
    step = 10_000

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, ROWS, step):
            numbers = range(start, start + step)
            yield pa.RecordBatch.from_pydict(
                {
                    "p": pa.array([str(number % PARTITIONS) for number in numbers]),
                    "v": pa.array(numbers, pa.int64()),
                    "t": pa.array([f"{number:0{TEXT_BYTES}d}" for number in numbers]),
                }
            )
            disk.look()

    schema = StructType([StructField("p", StringType()), StructField("v", LongType()), StructField("t", StringType())])
    parquet = parse_format("parquet", None, {})
    gathered = 6 << 20
    output = TaskOutput(
        plan_files(schema, ("p",)),
        parquet,
        FileNames(str(uuid.uuid4()), 0, parquet.suffix),
        disk.open,
        gathered_bytes=gathered,
    )
    assert output.write(batches()) == ROWS
    # All rows are some 40 MB. A gathering, what comes beside it, and its sorted copy are less than half of that.
    assert disk.most_allocated - before < 3 * gathered < ROWS * TEXT_BYTES / 2
    assert disk.most_open <= 8
    assert disk.most_descriptors <= descriptors + 10

    files = sorted(disk.root.rglob("*.parquet"))
    assert len(files) == len({file.parent for file in files}) == PARTITIONS
    each = ROWS // PARTITIONS
    for file in files[:: PARTITIONS // 20]:
        partition = int(file.parent.name.removeprefix("p="))
        found = pq.ParquetFile(file)
        assert found.num_row_groups == 1
        assert found.read(["v"]).column("v").to_pylist() == [partition + PARTITIONS * n for n in range(each)]
