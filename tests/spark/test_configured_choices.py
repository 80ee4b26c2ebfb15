"""The choices that `configure` was given: every way to write takes them, and what a write says itself wins."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import committer.spark
from committer import CommitterConfig, sync
from committer.errors import ConfigurationError
from committer.records.job_state import Decision
from committer.spark.job_side import SetupRequest, set_up
from committer.spec import JobSpec

from .cluster import environment
from .conftest import HERE

Way = Callable[[DataFrame, Path, dict[str, str]], None]

VALIDATE = "mapreduce.manifest.committer.validate.output"


def decided_at(root: Path) -> CommitterConfig:
    """The choices that the first job at a destination was decided with, and that it left behind."""
    record = sync.load_record(min(root.rglob("decision")))
    assert isinstance(record, Decision)
    return record.config


def by_spark(frame: DataFrame, root: Path, options: dict[str, str]) -> None:
    named = {VALIDATE: options["validate_output"]} if options else {}
    frame.write.options(**named).parquet(str(root))


def by_data_source(frame: DataFrame, root: Path, options: dict[str, str]) -> None:
    frame.write.format("committer").options(**options).mode("append").save(str(root))


def by_call(frame: DataFrame, root: Path, options: dict[str, str]) -> None:
    committer.spark.write(frame, root, options=options, writer="python")


def by_partition(frame: DataFrame, root: Path, options: dict[str, str]) -> None:
    def write(rows: Any, task: Any) -> None:
        with task.open(f"{task.task}.txt") as file:
            file.write(f"{list(rows)}".encode())

    config = CommitterConfig.from_text(options).to_record()
    committer.spark.foreach_partition(frame, root, write, config={key: config[key] for key in options})


def streamed(frame: DataFrame, root: Path) -> Any:
    source = root.with_name(f"{root.name}-source")
    frame.write.format("json").save(str(source))
    stream = frame.sparkSession.readStream.schema(frame.schema).json(str(source))
    checkpoint = str(root.with_name(f"{root.name}-checkpoint"))
    return stream.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)


def by_stream(frame: DataFrame, root: Path, options: dict[str, str]) -> None:
    streamed(frame, root).format("committer").options(**options).start(str(root)).awaitTermination()


def by_batch(frame: DataFrame, root: Path, options: dict[str, str]) -> None:
    sink = committer.spark.foreach_batch(root, options=options)
    streamed(frame, root).foreachBatch(sink).start().awaitTermination()


WAYS: tuple[Way, ...] = (by_spark, by_data_source, by_call, by_partition, by_stream, by_batch)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_takes_the_choices_and_what_a_write_says_wins(
    committing: SparkSession, tmp_path: Path, way: Way
) -> None:
    frame = committing.range(0, 2, 1, 1)
    committer.spark.configure(
        committing, config={"validate_output": True, "io_concurrency": 5, "cleanup_skipped": True}
    )
    way(frame, tmp_path / "all", {})
    found = decided_at(tmp_path / "all")
    assert (found.validate_output, found.io_concurrency) == (True, 5)
    way(frame, tmp_path / "one", {"validate_output": "false"})
    found = decided_at(tmp_path / "one")
    assert (found.validate_output, found.io_concurrency) == (False, 5)
    committer.spark.configure(committing)
    way(frame, tmp_path / "none", {})
    assert not list((tmp_path / "none").rglob("decision"))


def test_hadoop_s_name_of_a_choice_wins_too(committing: SparkSession, tmp_path: Path) -> None:
    committer.spark.configure(committing, config={"validate_output": True, "cleanup_skipped": True})
    by_data_source(committing.range(2), tmp_path / "t", {VALIDATE: "false"})
    assert not decided_at(tmp_path / "t").validate_output


def test_all_choices_of_a_call_are_all(committing: SparkSession, tmp_path: Path) -> None:
    committer.spark.configure(committing, config={"cleanup_skipped": True})
    committer.spark.write(committing.range(2), tmp_path / "t", config=CommitterConfig(), writer="python")
    assert not list((tmp_path / "t").rglob("decision"))


@pytest.mark.parametrize(
    "config", [{"conflict_mode": "replace"}, {"superseded_scope": "destination"}, {"superseded_directories": ("p",)}]
)
def test_configure_refuses_what_the_save_mode_chooses(committing: SparkSession, config: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"what Spark's save mode chooses; .*leave conflict_mode"):
        committer.spark.configure(committing, config=config)


@pytest.mark.parametrize("of_write", [(), (VALIDATE,), (VALIDATE, "fs.s3a.multipart.size")])
async def test_only_what_the_write_says_wins_over_the_process(tmp_path: Path, of_write: tuple[str, ...]) -> None:
    request = SetupRequest(
        "j",
        f"file:{tmp_path}/t",
        False,
        (),
        {VALIDATE: "false", "mapreduce.manifest.committer.io.threads": "7"},
        "",
        storage={"fs.s3a.multipart.size": "32m", "fs.s3a.committer.staging.conflict-mode": "fail"},
        of_write=of_write,
    )
    config = CommitterConfig(validate_output=True, io_concurrency=5)
    chosen = JobSpec.decode((await set_up(request, config))["spec"]).config
    assert (chosen.validate_output, chosen.io_concurrency) == (not of_write, 5)
    assert chosen.multipart_size == (32 << 20 if len(of_write) > 1 else CommitterConfig().multipart_size)


SCRIPT = """
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import committer.spark
from tests.spark.test_configured_choices import VALIDATE, decided_at

def builder():
    return SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")

root = Path(sys.argv[1])
config = {"io_concurrency": 5, "cleanup_skipped": True}
spark = committer.spark.configure(
    builder().config(f"spark.hadoop.{VALIDATE}", "true").config("spark.hadoop.committer.io_concurrency", "6"),
    config=config,
).getOrCreate()
frame = spark.range(0, 2, 1, 1)
frame.write.parquet(str(root / "session"))
found = decided_at(root / "session")
assert (found.validate_output, found.io_concurrency) == (False, 5), found
spark.conf.set(VALIDATE, "true")
frame.write.parquet(str(root / "set"))
found = decided_at(root / "set")
assert (found.validate_output, found.io_concurrency) == (True, 5), found
spark.stop()
spark = builder().getOrCreate()
for writer in "python", "auto":
    committer.spark.write(spark.range(2), root / writer, writer=writer)
    assert not list((root / writer).rglob("decision"))
"""


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.skipif(shutil.which("javac") is None, reason="there is no JDK to build the jar with")
@pytest.mark.allow_blocking("it runs Spark in a process of its own")
def test_spark_hadoop_keys_give_way_and_another_session_is_its_own(compiled_code: None, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env=environment(tmp_path / "scratch"),
        cwd=HERE.parents[1],
    )
    assert done.returncode == 0, done.stderr
