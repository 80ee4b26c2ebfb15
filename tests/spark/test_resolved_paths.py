"""A path without scheme: the one that Spark's own writers would take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import committer.spark
from committer.spark.datasource import source_with
from committer.spark.sessions import default_file_system, default_of_environment, resolved_path

from .conftest import PROTOCOL_KEY, SPARKS_OWN

SUBMIT = "org.apache.spark.deploy.SparkSubmit"
ASKS = "from committer.spark.sessions import default_of_environment as d; print(d())"
HDFS = "hdfs://127.0.0.1:8020"


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR":
        monkeypatch.delenv(name, raising=False)


def core_site(directory: Path, file_system: str) -> str:
    directory.mkdir()
    text = f"<property><name>fs.defaultFS</name><value>{file_system}</value></property>"
    (directory / "core-site.xml").write_text(f"<configuration>{text}</configuration>")
    return str(directory)


def test_what_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_of_environment() == "file:///"
    monkeypatch.setenv("YARN_CONF_DIR", core_site(tmp_path / "yarn", "hdfs://yarn"))
    assert default_of_environment() == "hdfs://yarn"
    monkeypatch.setenv("HADOOP_CONF_DIR", core_site(tmp_path / "hadoop", "hdfs://hadoop"))
    assert default_of_environment() == "hdfs://hadoop"
    (tmp_path / "home").mkdir()
    core_site(tmp_path / "home" / "conf", "hdfs://spark")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "home"))
    assert default_of_environment() == "hdfs://spark"
    (tmp_path / "home" / "conf" / "spark-defaults.conf").write_text(
        "a b\n  spark.hadoop.fs.defaultFS   hdfs://defaults\n"
    )
    assert default_of_environment() == "hdfs://defaults"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_what_the_command_line_of_the_jvm_says() -> None:
    # A shell in the place of the JVM, whose child asks.
    asks = ["bash", "-c", f'"{sys.executable}" -c "{ASKS}"; exit $?', SUBMIT]
    setting = ["--conf", f"spark.hadoop.fs.defaultFS={HDFS}", "pyspark-shell"]
    assert subprocess.run([*asks, *setting], check=True, capture_output=True, text=True).stdout.strip() == HDFS
    assert subprocess.run(asks, check=True, capture_output=True, text=True).stdout.strip() == "file:///"


def test_the_data_source_resolves_by_what_configure_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", core_site(tmp_path / "hadoop", "hdfs://hadoop"))
    for file_system, path in ("", "hdfs://hadoop/data/x"), (f"{HDFS}/", f"{HDFS}/data/x"), ("file:///", "/data/x"):
        source = source_with(None, file_system)
        assert source({"path": "/data/x"})._options()["path"] == path
        assert source({"path": "file:///data/x"})._options()["path"] == "file:///data/x"
        # Of committer.spark.write and foreach_batch, which asked the session.
        assert source({"path": "/data/x", "all_choices": "true"})._options()["path"] == "/data/x"


def test_the_session_resolves(spark: SparkSession) -> None:
    frame = spark.range(1)
    assert default_file_system(spark).startswith("file:")
    assert resolved_path(frame, "/data/a b%20") == "/data/a b%20"
    assert resolved_path(frame, Path("/data/x")) == "/data/x"
    assert resolved_path(frame, "s3://bucket/x") == "s3://bucket/x"
    spark.conf.set("fs.defaultFS", HDFS)
    try:
        assert default_file_system(spark) == HDFS
        assert resolved_path(frame, "/data/a b%20") == f"{HDFS}/data/a b%20"
        assert resolved_path(frame, "x/y").startswith(f"{HDFS}/user/")
        assert resolved_path(frame, "~/x").endswith("/~/x")
        assert resolved_path(frame, "file:/data/x") == "file:/data/x"
    finally:
        spark.conf.unset("fs.defaultFS")


def test_a_session_configured_again_takes_its_default_of_now(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("fs.defaultFS", HDFS)
    try:
        committer.spark.configure(spark)
    finally:
        spark.conf.unset("fs.defaultFS")
    committer.spark.configure(spark)
    spark.conf.set(PROTOCOL_KEY, SPARKS_OWN)
    spark.range(3).write.format("committer").mode("append").save(str(tmp_path / "table"))
    assert spark.read.parquet(str(tmp_path / "table")).count() == 3


def test_a_relative_path_is_the_sessions(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    name = f"build/{tmp_path.name}-without-scheme"
    there = Path(str(jvm.java.io.File(name).getAbsolutePath()))
    monkeypatch.chdir(tmp_path)
    frame = spark.range(3)
    try:
        committer.spark.write(frame, name, writer="python")
        committer.spark.foreach_partition(frame, name, lambda rows, task: None)
        assert spark.read.parquet(str(there)).count() == 3
        assert sorted(path.name for path in tmp_path.iterdir()) == []
    finally:
        subprocess.run(["rm", "-rf", str(there)], check=True)
