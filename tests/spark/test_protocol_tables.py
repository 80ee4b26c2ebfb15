"""Tables of Spark's catalog: after a commit whose answer was lost, and with two drivers at once."""

from __future__ import annotations

import os
import re
import shlex
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from committer import sync

from .conftest import Use, wrapper
from .trees import data_files, rows_by_directory

# The first driver's commit says where it is, and waits, at one moment of it.
WAITS = """
from committer.spark import job_side
def wait(event):
    if not waited and event.stage == {stage!r}:
        waited.append(event)
        open({begun!r}, "w").close()
        open({go_on!r}).read()
waited = []
job_side.log_event = wait
job_side.main()
"""


@contextmanager
def first_driver(
    spark: SparkSession, use_python: Use, tmp_path: Path, statement: str, stage: str
) -> Iterator[list[BaseException]]:
    """A driver that stands in its commit while the block runs, and goes on afterwards; how it failed, if it did."""
    begun, go_on = tmp_path / "begun", tmp_path / "go_on"
    os.mkfifo(begun)
    os.mkfifo(go_on)
    code = shlex.quote(WAITS.format(stage=stage, begun=str(begun), go_on=str(go_on)))
    waiting = f'[ "$4" = commit ] && exec {sys.executable} -c {code} commit\nexec {sys.executable} "$@"'
    use_python(wrapper(tmp_path / "waits", waiting))
    failed: list[BaseException] = []

    def run() -> None:
        try:
            spark.sql(statement)
        except BaseException as error:
            failed.append(error)
            if begun.exists():
                begun.write_text("")

    thread = threading.Thread(target=run)
    thread.start()
    begun.read_text()
    begun.unlink()
    use_python(sys.executable)
    try:
        yield failed
    finally:
        go_on.write_text("")
        thread.join()


@pytest.fixture
def table(committing: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A table of six rows in two partitions."""
    committing.sql("drop table if exists shared")
    committing.sql(
        f"create table shared (id bigint, p int) using parquet partitioned by (p) location '{tmp_path / 'table'}'"
    )
    committing.sql("insert into shared select id, id % 2 from range(6)")
    yield "shared"
    committing.sql("drop table shared")


@pytest.mark.allow_blocking("it waits for the process that commits")
@pytest.mark.parametrize("second", ["into", "overwrite"])
def test_a_driver_that_writes_while_another_overwrites(
    committing: SparkSession, table: str, use_python: Use, tmp_path: Path, second: str
) -> None:
    statement = f"insert overwrite {table} select 100 + id, id % 2 from range(4)"
    with first_driver(committing, use_python, tmp_path, statement, "job_stage_rename_files") as failed:
        with pytest.raises(Exception, match=r"DestinationBusyError: .* now: job (\S+) .*outcome: unchanged") as caught:
            committing.sql(f"insert {second} {table} select 200, 1")
        assert re.search(
            r"next step: write again once job \S+ has ended \(with busy_timeout .*\); if its driver is dead",
            str(caught.value),
        )
    assert failed == []
    assert rows_by_directory(tmp_path / "table", "id") == {"p=0": [100, 102], "p=1": [101, 103]}
    committing.sql(f"insert {second} {table} select 200, 1")
    added = [101, 103, 200] if second == "into" else [200]
    assert rows_by_directory(tmp_path / "table", "id")["p=1"] == added


@pytest.mark.allow_blocking("it waits for the process that commits")
def test_two_drivers_that_add_to_a_table(committing: SparkSession, table: str, use_python: Use, tmp_path: Path) -> None:
    statement = f"insert into {table} select 100 + id, id % 2 from range(4)"
    with first_driver(committing, use_python, tmp_path, statement, "job_stage_rename_files") as failed:
        committing.sql(f"insert into {table} select 200, 1")
    assert failed == []
    assert rows_by_directory(tmp_path / "table", "id") == {"p=0": [0, 2, 4, 100, 102], "p=1": [1, 3, 5, 101, 103, 200]}


def test_partitions_of_a_commit_whose_answer_was_lost(
    committing: SparkSession, table: str, use_python: Use, tmp_path: Path
) -> None:
    """The catalog learns of new partitions after the commit: MSCK REPAIR TABLE tells it of what is there."""
    use_python(losing_answers(tmp_path))
    with pytest.raises(Exception, match=r"outcome: unknown; next step: `committer jobs"):
        committing.sql(f"insert into {table} select 100, 7")
    assert sync.list_jobs(tmp_path / "table") == []
    assert len(data_files(tmp_path / "table" / "p=7")) == 1
    committing.sql(f"refresh table {table}")
    assert committing.table(table).where("p = 7").count() == 0
    committing.sql(f"msck repair table {table}")
    assert committing.table(table).where("p = 7").count() == 1


def test_a_table_made_by_a_query_whose_answer_was_lost(
    committing: SparkSession, use_python: Use, tmp_path: Path
) -> None:
    """The catalog has no table yet, and its files stand: a table is made on them."""
    committing.sql("drop table if exists made")
    statement = (
        f"create table made using parquet partitioned by (p) location '{tmp_path / 'made'}'"
        " as select id, id % 2 p from range(6)"
    )
    use_python(losing_answers(tmp_path))
    with pytest.raises(Exception, match="outcome: unknown"):
        committing.sql(statement)
    use_python(sys.executable)
    assert sync.validate(tmp_path / "made").ok
    assert not committing.catalog.tableExists("made")
    with pytest.raises(AnalysisException, match="cannot create table with location to a non-empty directory"):
        committing.sql(statement)
    committing.sql(f"create table made using parquet location '{tmp_path / 'made'}'")
    committing.sql("msck repair table made")
    assert committing.table("made").count() == 6
    assert committing.table("made").where("p = 1").count() == 3
    committing.sql("drop table made")


def losing_answers(tmp_path: Path) -> str:
    """An interpreter that is killed when it has committed."""
    return wrapper(
        tmp_path / "loses",
        f'[ "$4" = commit ] && {{ {sys.executable} "$@" >/dev/null; kill -9 $$; }}\nexec {sys.executable} "$@"',
    )


def test_an_overwrite_of_what_the_query_reads(committing: SparkSession, table: str, tmp_path: Path) -> None:
    """docs/spark.md: a path, and a table with dynamic overwrite; any other overwrite of a table Spark refuses."""
    path = str(tmp_path / "path")
    committing.range(4).write.parquet(path)
    committing.read.parquet(path).write.mode("overwrite").parquet(path)
    assert committing.read.parquet(path).count() == 4
    rows = committing.table(table).count()
    with pytest.raises(AnalysisException, match=r"UNSUPPORTED_OVERWRITE\.TABLE"):
        committing.sql(f"INSERT OVERWRITE TABLE {table} SELECT * FROM {table}")
    committing.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    committing.sql(f"INSERT OVERWRITE TABLE {table} SELECT * FROM {table}")
    assert committing.table(table).count() == rows
