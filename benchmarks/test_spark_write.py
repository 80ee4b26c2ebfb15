"""Spark's own Parquet writer and this engine's; benchmarks/spark_write.py alternates them and gives ratios."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.spark_write import (
    BARE,
    DROPPED,
    NEED_JAVAC,
    STOCK,
    WRITERS,
    add_bare_file_system,
    add_dropping_source,
    check,
    directories_table,
    rows_table,
    start_session,
    write_with,
)
from benchmarks.suite import Sized
from committer.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.java,
    # Under xdist the whole suite shares one session instead of starting one a worker.
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
    pytest.mark.skipif(
        importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None,
        reason="PySpark is not installed",
    ),
]


@pytest.fixture(scope="module")
def own_spark(tmp_path_factory: pytest.TempPathFactory, sized: Sized) -> Iterator[SparkSession]:
    from pyspark import SparkContext

    # Where another test's session runs in this process, its settings hold; it stays.
    running = SparkContext._active_spark_context is not None
    with pytest.MonkeyPatch.context() as environment:
        # What starting the session sets is taken back afterwards.
        environment.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
        environment.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        # Workers that may not keep compiled code spend seconds on importing pyarrow.
        environment.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        if "PYTHONPYCACHEPREFIX" not in os.environ:
            environment.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("pycache")))
        if not sized(1, 0):
            # In small, compiling thoroughly takes longer than what is compiled.
            environment.setenv("JAVA_TOOL_OPTIONS", QUICK_JAVA)
        try:
            session = start_session()
        except UnsupportedError as error:
            pytest.skip(str(error))
        add_dropping_source(session)
        yield session
        if not running:
            session.stop()


@pytest.fixture(scope="module")
def has_bare(own_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> bool:
    return add_bare_file_system(own_spark, tmp_path_factory.mktemp("classes"))


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("shape", ["rows", "directories"])
def test_spark_write(
    benchmark: BenchmarkFixture,
    own_spark: SparkSession,
    has_bare: bool,
    tmp_path: Path,
    sized: Sized,
    shape: str,
    writer: str,
) -> None:
    if writer in NEED_JAVAC and not has_bare:
        pytest.skip("there is no Java compiler for the bare file system")
    if shape == "rows":
        table = rows_table(own_spark, sized(5_000_000, 100))
    else:
        table = directories_table(own_spark, sized(200_000, 40), sized(2_000, 4))
    target = benchmark.pedantic(
        lambda: write_with(writer, table, tmp_path), rounds=sized(3, 1), warmup_rounds=sized(1, 0)
    )
    benchmark.extra_info["rows"] = table.rows
    if writer == DROPPED:
        assert not target.exists()
    else:
        check(own_spark, table, target)
        # Proves which file system wrote where Spark committed: only Hadoop's own makes checksums. This engine renames
        # the files alone; checksums come along only with a whole directory of one attempt, of which there is none here.
        assert any(target.rglob(".*.crc")) == (writer == STOCK)
        # Proves who committed: Spark's marker is empty.
        assert ((target / "_SUCCESS").stat().st_size == 0) == (writer in (STOCK, BARE))
    table.frame.unpersist()
    shutil.rmtree(tmp_path)
