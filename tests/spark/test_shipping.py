"""The package sent along with a job, to Python processes of Spark's that have what it needs and not the package."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import committer

from .cluster import environment
from .test_sessions import python_without
from .trees import data_files

SCRIPT = """
import json, os, sys, warnings

warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
import committer.spark

how, archive, root = sys.argv[1:]
builder = SparkSession.builder.remote("local[2]") if how == "connect" else SparkSession.builder.master(how)
spark = (
    builder.config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.executor.memory", "512m")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
if how == "connect":
    spark.addArtifacts(archive, pyfile=True)
else:
    spark.sparkContext.setLogLevel("OFF")
    spark.sparkContext.addPyFile(archive)
frame = spark.range(0, 6, 1, 2).selectExpr("id v", "id % 2 a")


def write_lines(rows, task):
    with task.open(f"part-{task.task}.txt") as file:
        file.writelines(f"{row.v}\\n".encode() for row in rows)


try:
    frame.write.format("committer").mode("append").save(root + "/undiscovered")
except Exception as error:
    print(json.dumps("DATA_SOURCE_NOT_FOUND" in str(error)))
print(json.dumps(committer.spark.write(frame, root + "/write", partition_by=["a"]).files_committed))
print(json.dumps(committer.spark.foreach_partition(frame, root + "/own", write_lines).files_committed))
spark.dataSource.register(committer.spark.CommitterDataSource)
frame.write.format("committer").mode("append").save(root + "/registered")
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.java
@pytest.mark.xdist_group("connect")
@pytest.mark.parametrize("how", ["local-cluster[1,1,1024]", "connect"])
def test_a_package_that_is_sent_along(tmp_path: Path, how: str) -> None:
    if how == "connect" and importlib.util.find_spec("grpc") is None:
        pytest.skip("Spark Connect needs grpcio")
    home = Path(committer.__file__).parent
    archive = tmp_path / "lake_committer.zip"
    with zipfile.ZipFile(archive, "w") as into:
        for path in [*home.rglob("*.py"), *(home.parent / "pyspark_committer").rglob("*.py")]:
            into.write(path, path.relative_to(home.parent))
    python = python_without("committer", tmp_path / "python")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how, str(archive), str(tmp_path)],
        env={
            **environment(tmp_path / "scratch"),
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # Spark looks for data sources before anything is sent.
    assert [json.loads(line) for line in done.stdout.splitlines()] == [True, 4, 2]
    assert len(data_files(tmp_path / "write")) == 4
    assert len(list((tmp_path / "own").glob("part-*"))) == 2
    assert len(data_files(tmp_path / "registered")) == 2
