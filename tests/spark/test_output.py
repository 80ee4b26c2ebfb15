"""A task's rows as Parquet files: names, row groups, bounded memory and open files, empty output, errors."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from io import IOBase
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from committer.spark.formats import parse_format
from committer.spark.output import FileNames, TaskOutput
from committer.spark.schema import plan_files

JOB = str(uuid.uuid4())
SCHEMA = StructType([StructField("p", StringType()), StructField("v", LongType())])


class Disk:
    """Files in a directory, counting how many are open."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.opened: list[IOBase] = []
        self.most_open = 0

    def open(self, name: str) -> IOBase:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self.opened.append(path.open("xb"))
        self.most_open = max(self.most_open, sum(not file.closed for file in self.opened))
        return self.opened[-1]

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*.parquet"))

    def rows(self) -> dict[str, list[int]]:
        return {name: pq.ParquetFile(self.root / name).read().column("v").to_pylist() for name in self.names()}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    assert all(file.closed for file in disk.opened)


def output(
    disk: Disk,
    *partition_by: str,
    schema: StructType = SCHEMA,
    task: int = 7,
    compression: str | None = None,
    gathered_bytes: int = 1 << 20,
    open_files: int = 10,
    open_bytes: int = 64 << 20,
    max_records_per_file: int = 0,
    file_format: str = "parquet",
    open_file: Callable[[str], IOBase] | None = None,
) -> TaskOutput:
    choice = parse_format(file_format, compression, {})
    return TaskOutput(
        plan_files(schema, partition_by, choice),
        choice,
        FileNames(JOB, task, choice.suffix),
        open_file or disk.open,
        max_records_per_file=max_records_per_file,
        gathered_bytes=gathered_bytes,
        open_files=open_files,
        open_bytes=open_bytes,
    )


def batch(*rows: tuple[str, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"p": [row[0] for row in rows], "v": [row[1] for row in rows]})


def test_names_are_spark_s(disk: Disk) -> None:
    assert output(disk, "p").write([batch(("a", 1), ("b", 2), ("a", 3))]) == 3
    assert disk.rows() == {
        f"p=a/part-00007-{JOB}.c000.snappy.parquet": [1, 3],
        f"p=b/part-00007-{JOB}.c000.snappy.parquet": [2],
    }


@pytest.mark.parametrize(
    ("compression", "infix", "codec"),
    [
        ("snappy", ".snappy", "SNAPPY"),
        ("gzip", ".gz", "GZIP"),
        ("zstd", ".zstd", "ZSTD"),
        ("lz4_raw", ".lz4raw", "LZ4"),
        ("brotli", ".br", "BROTLI"),
        ("none", "", "UNCOMPRESSED"),
        ("uncompressed", "", "UNCOMPRESSED"),
    ],
)
def test_names_without_partitions_and_codecs(disk: Disk, compression: str, infix: str, codec: str) -> None:
    output(disk, compression=compression).write([batch(("a", 1))])
    assert disk.names() == [f"part-00007-{JOB}-c000{infix}.parquet"]
    metadata = pq.ParquetFile(disk.root / disk.names()[0]).metadata
    assert metadata.row_group(0).column(0).compression == codec


def test_small_batches_gather_into_one_row_group(disk: Disk) -> None:
    output(disk).write(batch(("a", number)) for number in range(500))
    (name,) = disk.names()
    assert pq.ParquetFile(disk.root / name).num_row_groups == 1
    assert disk.rows() == {name: list(range(500))}


def test_memory_is_bounded_by_flushing_row_groups(disk: Disk) -> None:
    held: list[int] = []
    rows = 20_000

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(48):
            numbers = pa.array(range(number * rows, (number + 1) * rows), pa.int64())
            yield pa.RecordBatch.from_arrays([pa.array(["a"] * rows), numbers], names=["p", "v"])
            held.append(pa.total_allocated_bytes())

    size = next(batches()).nbytes
    output(disk, gathered_bytes=4 * size).write(batches())
    # Once the first row groups are out, nothing grows.
    assert max(held[8:]) <= max(held[:8]) + size
    (name,) = disk.names()
    assert pq.ParquetFile(disk.root / name).num_row_groups == 12
    assert disk.rows() == {name: list(range(48 * rows))}


def test_what_open_files_hold_is_bounded(disk: Disk) -> None:
    held: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(30):
            numbers = pa.array(range(number * 50_000, (number + 1) * 50_000), pa.int64())
            yield pa.RecordBatch.from_arrays([pa.array([str(number)] * 50_000), numbers], names=["p", "v"])
            held.append(pa.total_allocated_bytes())

    output(disk, "p", gathered_bytes=1, open_files=100, open_bytes=1 << 20).write(batches())
    assert max(held[8:]) <= max(held[:8]) + (1 << 20)
    assert len(disk.names()) == 30
    assert disk.most_open <= 4


@pytest.mark.parametrize("order", ["clustered", "in turn", "large and small"])
def test_each_directory_gets_one_file_whatever_the_order_of_rows(disk: Disk, order: str) -> None:
    rows = [(letter, number) for letter in "abcdefgh" for number in range(50)]
    if order == "in turn":
        rows.sort(key=lambda row: row[1])
    elif order == "large and small":
        rows = [row for row in rows if row[0] != "a"] + [("a", number) for number in range(50)]
        rows.sort(key=lambda row: (row[1] // 10 if row[0] != "a" else 2, row[0]))
    batches = [batch(*rows[start : start + 20]) for start in range(0, len(rows), 20)]
    output(disk, "p", gathered_bytes=1500, open_files=3).write(batches)
    assert disk.most_open <= 3
    assert disk.rows() == {f"p={letter}/part-00007-{JOB}.c000.snappy.parquet": list(range(50)) for letter in "abcdefgh"}


def test_one_gathering_needs_one_open_file_whatever_the_partitions(disk: Disk) -> None:
    output(disk, "p", open_files=10).write([batch(*((str(number), number) for number in range(300)))])
    assert disk.most_open == 1
    assert len(disk.names()) == 300


def test_no_row(disk: Disk) -> None:
    schema = StructType([StructField("t", TimestampType()), StructField("v", IntegerType())])
    assert output(disk, schema=schema, task=1).write([]) == 0
    assert output(disk, "t", schema=schema, task=0).write([]) == 0
    assert disk.names() == []
    assert output(disk, schema=schema, task=0).write([]) == 0
    assert disk.rows() == {f"part-00000-{JOB}-c000.snappy.parquet": []}


def test_empty_batches_are_no_rows(disk: Disk) -> None:
    output(disk, task=1).write([batch()])
    assert disk.names() == []


def test_the_footer_tells_spark_s_schema_and_version(disk: Disk) -> None:
    output(disk, "p").write([batch(("a", 1))])
    metadata = pq.ParquetFile(disk.root / disk.names()[0]).metadata.metadata
    spark_schema = json.loads(metadata[b"org.apache.spark.sql.parquet.row.metadata"])
    assert StructType.fromJson(spark_schema) == StructType([StructField("v", LongType())])
    assert int(metadata[b"org.apache.spark.version"].split(b".")[0]) >= 4


def test_an_error_in_the_rows_gives_up_every_open_file(disk: Disk) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(("a", 1), ("b", 2))
        yield batch(("c", 3))
        raise ValueError("no more rows")

    given_up = output(disk, "p", gathered_bytes=1)
    with pytest.raises(ValueError, match="no more rows"):
        given_up.write(batches())


def test_an_error_of_the_store_is_the_one_that_shows(disk: Disk) -> None:
    class Full:
        """A file on a full disk."""

        closed = False
        ended_by: BaseException | None = None

        def write(self, data: bytes) -> int:
            raise OSError("disk full")

        def flush(self) -> None: ...

        def tell(self) -> int:
            return 0

        def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
            self.ended_by = error
            self.closed = True

    full = Full()
    with pytest.raises(OSError, match="disk full") as raised:
        output(disk, open_file=lambda name: full).write([batch(("a", 1))])  # type: ignore[arg-type,return-value]
    assert full.ended_by is raised.value


# --- Rows a file --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "sizes"), [(10, [3, 3, 3, 1]), (9, [3, 3, 3]), (1, [1])])
@pytest.mark.parametrize("gathered_bytes", [1, 1 << 20])
def test_files_hold_as_many_rows_as_they_may(disk: Disk, rows: int, sizes: list[int], gathered_bytes: int) -> None:
    batches = [batch(*((letter, number) for letter in "ab")) for number in range(rows)]
    output(disk, "p", max_records_per_file=3, gathered_bytes=gathered_bytes).write(batches)
    for letter in "ab":
        files = {name: found for name, found in disk.rows().items() if name.startswith(f"p={letter}/")}
        assert list(files) == [
            f"p={letter}/part-00007-{JOB}.c{number:03d}.snappy.parquet" for number in range(len(sizes))
        ]
        assert [len(found) for found in files.values()] == sizes
        assert [row for found in files.values() for row in found] == list(range(rows))


def test_unpartitioned_files_hold_as_many_rows_as_they_may(disk: Disk) -> None:
    output(disk, max_records_per_file=4, gathered_bytes=1).write([batch(*(("a", n) for n in range(10)))])
    assert list(disk.rows().values()) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
