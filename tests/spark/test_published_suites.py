"""Spark's own published test suites, with this engine as the commit protocol of every write.

Maven has the compiled suites of Spark. Each suite runs in a JVM of its own, in a session whose only differences are the
protocol's class and the interpreter of its driver's side.
"""

from __future__ import annotations

import faulthandler
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

import committer.spark
from tests.interop.jvm import NoJavaError
from tests.interop.maven import dependency, fetched_jars

from .conftest import wrapper

ROOT = Path(__file__).parents[2]


class Release(NamedTuple):
    """A release of Spark, and what its suites are compiled against."""

    spark: str
    scala: str
    scalatest: str
    extras: tuple[str, ...]


RELEASES = (
    Release("3.5.7", "2.12", "3.2.16", ("scalacheck-1-17", "mockito-4-11")),
    Release("4.0.1", "2.13", "3.2.19", ("scalacheck-1-18", "mockito-5-12")),
)
SUITES = (
    "sources.PartitionedWriteSuite",
    "sources.InsertSuite",
    "sources.CreateTableAsSelectSuite",
    "sources.SaveLoadSuite",
    "sources.BucketedWriteWithoutHiveSupportSuite",
    "test.DataFrameReaderWriterSuite",
    "FileSourceSQLInsertTestSuite",
    "execution.datasources.FileFormatWriterSuite",
    "execution.datasources.parquet.ParquetIOSuite",
    "execution.datasources.parquet.ParquetV1PartitionDiscoverySuite",
    "execution.datasources.orc.OrcV1PartitionDiscoverySuite",
)
_RENAMES = "this engine's own client renames, not the JVM's file system, which the test makes fail"
_ROOT = "root may write everywhere, and this test leaves a table to the next one"
DIFFERENCES = {
    "SPARK-35106: Throw exception when rename custom partition paths returns false": _RENAMES,
    "SPARK-35106: Throw exception when rename dynamic partition paths returns false": _RENAMES,
    "CREATE TABLE USING AS SELECT based on the file without write permission": _ROOT,
    "create a table, drop it and create another one with the same name": _ROOT,
}
"""Tests that may fail, and why."""

# What Spark's launcher gives to Java 17: JavaModuleOptions.
_OPENED = (
    "lang",
    "lang.invoke",
    "lang.reflect",
    "io",
    "net",
    "nio",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
)
_MODULES = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED),
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("jdk.internal.ref", "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar")
    ),
)
_FAILED = re.compile(r"^- (.*) \*\*\* FAILED \*\*\*", re.MULTILINE)
_RAN = re.compile(r"^Total number of tests run: (\d+)$", re.MULTILINE)

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.java]


def jars_of(release: Release) -> list[Path]:
    spark = [
        dependency(f"org.apache.spark:spark-{module}_{release.scala}", release.spark, classifier=kind)
        for module in ("sql", "catalyst", "core")
        for kind in ("", "tests")
    ]
    if not release.spark.startswith("3."):
        spark.append(
            dependency(f"org.apache.spark:spark-common-utils_{release.scala}", release.spark, classifier="tests")
        )
    tools = [dependency(f"org.scalatest:scalatest_{release.scala}", release.scalatest)]
    tools += [
        dependency(f"org.scalatestplus:{extra}_{release.scala}", f"{release.scalatest}.0") for extra in release.extras
    ]
    try:
        return fetched_jars(f"spark-suites-{release.spark}_{release.scala}", [*spark, *tools])
    except NoJavaError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.spark)
def test_suite_passes_but_for_documented_differences(release: Release, suite: str, tmp_path: Path) -> None:
    java = shutil.which("java")
    if java is None:
        pytest.skip("there is no Java")
    # A suite may take longer than the time after which a test counts as hanging (tests/hangs.py).
    faulthandler.cancel_dump_traceback_later()
    jars = jars_of(release)
    interpreter = wrapper(tmp_path / "python", f'PYTHONPATH="{ROOT}" exec "{sys.executable}" "$@"')
    tests = next(jar for jar in jars if re.match(r"spark-sql_.*-tests", jar.name))
    with zipfile.ZipFile(tests) as archive:
        # What tests read by its path is no file inside a jar.
        archive.extractall(tmp_path / "data", [name for name in archive.namelist() if not name.endswith(".class")])
    elsewhere = tmp_path / "tmp"
    elsewhere.mkdir()
    command = [
        java, *_MODULES, "-Xmx3g", "-Xss4m", f"-Djava.io.tmpdir={elsewhere}", "-Dspark.testing=1",
        "-Dspark.ui.enabled=false", f"-Dspark.test.home={tmp_path}",
        "-Dspark.sql.sources.commitProtocolClass=io.github.lakecommitter.spark.CommitProtocol",
        f"-Dspark.committer.python={interpreter}",
        # Where the suites put partitions that have a location of their own (docs/spark.md).
        f"-Dspark.hadoop.committer.absolute_roots={elsewhere.as_uri()}",
        "-cp", os.pathsep.join([str(tmp_path / "data"), committer.spark.jar_path(), *map(str, jars)]),
        "org.scalatest.tools.Runner", "-R", str(tests),
        "-s", f"org.apache.spark.sql.{suite}", "-oW", "-fW", str(tmp_path / "report"),
    ]  # fmt: skip
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    report = (tmp_path / "report").read_text(encoding="utf-8")
    ran = _RAN.search(report)
    assert ran is not None, done.stdout[-3000:] + done.stderr[-3000:]
    assert int(ran[1]) > 0
    assert ", aborted 0" in report, report[-3000:]
    assert not {*_FAILED.findall(report)} - DIFFERENCES.keys(), report[-5000:]
