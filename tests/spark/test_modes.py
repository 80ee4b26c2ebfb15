"""Save modes through the data source: Spark's own two, and the option `existing` for the two that Spark keeps back."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

import committer
from committer.errors import ConfigurationError, DestinationBusyError, TargetExistsError, UnsupportedError
from committer.options.config import CommitterConfig
from committer.paths import StorePath
from committer.spark.batch_writer import CommitterWriter, IgnoringWriter
from committer.spark.datasource import CommitterDataSource
from committer.spark.destination import look_at_destination
from committer.spark.modes import commit_config, mode_of_write, partition_overwrite_mode, save_mode
from committer.spark.options import parse_options

from .test_failures import KILLED_IN_COMMIT, SCHEMA, contents, run_task, writer_for
from .trees import everything, rows_by_directory

OLD = ["p=1/old", "p=1/q=1/old", "p=2/old", "old", "_a=1/old", "p=1/_hidden", "_meta", ".hidden", "_dir/old"]
KEPT_BY_STATIC = {"_meta", ".hidden", "_dir/old"}


def fill(dest: Path, names: list[str] = OLD) -> None:
    for name in names:
        path = dest / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("old")


def files(dest: Path) -> set[str]:
    """Every file but the new ones' names, which are random, and what Hadoop's local file system puts beside files."""
    return {name for name in everything(dest) if (dest / name).is_file() and "part-" not in name and name != "_SUCCESS"}


# --- Through Spark -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kept", "directories"),
    [
        ({"partitionBy": "p", "partitionOverwriteMode": "STATIC"}, KEPT_BY_STATIC, {"_dir", "p=1", "p=3"}),
        (
            {"partitionBy": "p", "partitionOverwriteMode": "dynamic"},
            {*OLD} - {"p=1/old", "p=1/q=1/old", "p=1/_hidden"},
            {"_dir", "_a=1", "p=1", "p=2", "p=3"},
        ),
        ({}, KEPT_BY_STATIC, {"_dir"}),
        ({"partitionOverwriteMode": "dynamic"}, KEPT_BY_STATIC, {"_dir"}),
    ],
)
def test_overwrite(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], kept: set[str], directories: set[str]
) -> None:
    fill(tmp_path)
    frame = spark.range(0, 8, 1, 2).selectExpr("id v", "if(id % 2 = 0, 1, 3) p")
    frame.write.format("committer").options(**options).mode("overwrite").save(str(tmp_path))
    assert files(tmp_path) == kept
    assert {name for name in everything(tmp_path) if (tmp_path / name).is_dir()} == directories
    expected = {"p=1": [0, 2, 4, 6], "p=3": [1, 3, 5, 7]} if "partitionBy" in options else {".": list(range(8))}
    assert rows_by_directory(tmp_path, "v") == expected


@pytest.mark.parametrize("mode", ["STATIC", "dynamic"])
@pytest.mark.parametrize(
    "columns", [("k", "_temporary_id"), ("_temporary_id", "k"), ("_k",), ("_temporary",), ("__magic",)]
)
def test_overwrite_replaces_partitions_named_almost_as_what_jobs_keep(
    spark: SparkSession, tmp_path: Path, mode: str, columns: tuple[str, ...]
) -> None:
    """What a reader takes for data goes with an overwrite: a directory with `=` in its name is a partition."""
    destination = str(tmp_path / "table")
    for number, how in enumerate(["append", "overwrite", "overwrite"]):
        frame = spark.range(number, number + 1, 1, 1).selectExpr("id v", *(f"'a' `{column}`" for column in columns))
        writer = frame.write.format("committer").option("partitionBy", ",".join(columns))
        writer.option("partitionOverwriteMode", mode).mode(how).save(destination)
        seen = [row.v for row in spark.read.parquet(destination).collect()]
        assert seen == [number]
        assert committer.sync.validate(destination).ok


def test_dynamic_overwrite_takes_leaf_partitions_whole_and_no_sibling(spark: SparkSession, tmp_path: Path) -> None:
    siblings = ["p=1/q=2/old", "p=1/q=10/old", "p=10/q=1/old", "p=1/loose", "p=1/q=1x/old"]
    fill(tmp_path, ["p=1/q=1/old", "p=1/q=1/r=1/s=1/old", "p=1/q=1/.hidden", *siblings])
    frame = spark.range(0, 2, 1, 1).selectExpr("id v", "1 p", "1 q")
    frame.write.format("committer").options(partitionBy="p,q", partitionOverwriteMode="dynamic").mode("overwrite").save(
        str(tmp_path)
    )
    assert files(tmp_path) == set(siblings)
    assert rows_by_directory(tmp_path, "v") == {"p=1/q=1": [0, 1]}


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_overwriting_with_no_rows(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """As with Spark: static replaces everything with nothing, dynamic replaces nothing."""
    fill(tmp_path / "ours")
    fill(tmp_path / "spark", ["p=1/old"])
    frame = spark.range(0, 4, 1, 2).where("id < 0").selectExpr("id v", "1 p")
    frame.write.format("committer").options(partitionBy="p", partitionOverwriteMode=mode).mode("overwrite").save(
        str(tmp_path / "ours")
    )
    frame.write.partitionBy("p").option("partitionOverwriteMode", mode).mode("overwrite").parquet(
        str(tmp_path / "spark")
    )
    assert files(tmp_path / "ours") == (KEPT_BY_STATIC if mode == "static" else {*OLD})
    assert ("p=1/old" in everything(tmp_path / "spark")) == (mode == "dynamic")


def test_a_failing_overwrite_leaves_what_was_there(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path)
    before = everything(tmp_path)
    frame = spark.range(0, 8, 1, 2).selectExpr("if(id = 7, raise_error('bad row'), id) v", "1 p")
    with pytest.raises(PySparkException, match="bad row"):
        frame.write.format("committer").options(partitionBy="p", partitionOverwriteMode="static").mode(
            "overwrite"
        ).save(str(tmp_path))
    assert everything(tmp_path) == before


def test_existing_error_and_ignore(spark: SparkSession, tmp_path: Path) -> None:
    def save(existing: str) -> None:
        frame = spark.range(0, 4, 1, 2)
        frame.write.format("committer").option("existing", existing).mode("append").save(str(tmp_path / "t"))

    save("error")
    before = everything(tmp_path / "t"), (tmp_path / "t" / "_SUCCESS").read_bytes()
    save("ignore")
    with pytest.raises(AnalysisException, match="TargetExistsError: the destination holds data already"):
        save("ERRORIFEXISTS")
    assert (everything(tmp_path / "t"), (tmp_path / "t" / "_SUCCESS").read_bytes()) == before
    save("overwrite")
    assert spark.read.parquet(str(tmp_path / "t")).count() == 4


# --- The writer, called as Spark calls it --------------------------------------------------------------------------


def overwriting(dest: Path, **options: str) -> CommitterWriter:
    return writer_for(dest, existing="overwrite", **options)


@pytest.mark.parametrize("rollback", [False, True])
def test_an_overwrite_killed_half_way_is_finished_or_taken_back(tmp_path: Path, rollback: bool) -> None:
    fill(tmp_path)
    before = everything(tmp_path)
    writer = overwriting(tmp_path, job_id="j")
    messages = [run_task(writer, task) for task in range(3)]
    assert {name for name in everything(tmp_path) if "_temporary" not in name} == before
    died = subprocess.run(
        [sys.executable, "-c", KILLED_IN_COMMIT], input=pickle.dumps((writer, messages)), check=False, timeout=300
    )
    assert died.returncode == 9
    assert files(tmp_path) >= {*OLD}  # the new come before the old go
    writer.abort(messages)
    asyncio.run(committer.recover(tmp_path, "j", rollback=rollback, force=rollback))
    if rollback:
        assert everything(tmp_path) == before
    else:
        assert files(tmp_path) == KEPT_BY_STATIC
        assert {name for name in contents(tmp_path) if name.startswith("part")} == {f"part-{task}" for task in range(3)}


def test_two_writes_that_expect_an_empty_destination(tmp_path: Path) -> None:
    first, second = (writer_for(tmp_path / "t", existing="error", job_id=name) for name in "ab")
    messages = [[run_task(writer, 0)] for writer in (first, second)]
    second.commit(messages[1])
    with pytest.raises(TargetExistsError, match="already holds data"):
        first.commit(messages[0])
    first.abort(messages[0])
    assert contents(tmp_path / "t") == {"part-0": "0 0"}
    assert not (tmp_path / "t" / "_temporary").exists()


def test_what_came_since_no_mode_was_needed_refuses_the_overwrite(tmp_path: Path) -> None:
    data_source = CommitterDataSource({"path": str(tmp_path / "t"), "partitionBy": "v"})
    schema = SCHEMA.add("p", "integer")
    writer = data_source.writer(schema, True)
    assert isinstance(writer, CommitterWriter)
    message = run_task(writer, 0)
    fill(tmp_path / "t", ["v=1/came-since"])
    with pytest.raises(TargetExistsError, match="already holds data"):
        writer.commit([message])
    writer.abort([message])
    assert everything(tmp_path / "t") == {"v=1", "v=1/came-since"}
    with pytest.raises(ConfigurationError, match="it is not said whether") as raised:
        data_source.writer(schema, True)
    assert "static (all) or dynamic" in raised.value.next_step


def test_an_overwrite_beside_a_commit_withdraws(tmp_path: Path) -> None:
    other = writer_for(tmp_path, job_id="other")
    messages = [run_task(other, 0)]
    died = subprocess.run(
        [sys.executable, "-c", KILLED_IN_COMMIT], input=pickle.dumps((other, messages)), check=False, timeout=300
    )
    assert died.returncode == 9
    writer = overwriting(tmp_path)
    mine = [run_task(writer, 0)]
    with pytest.raises(DestinationBusyError) as raised:
        writer.commit(mine)
    assert raised.value.owner == "other"
    writer.abort(mine)
    assert asyncio.run(committer.recover(tmp_path, "other")).files_committed == 1


def test_ignoring_writes_nothing(tmp_path: Path) -> None:
    fill(tmp_path, ["old"])
    writer = CommitterDataSource({"path": str(tmp_path), "existing": "ignore"}).writer(SCHEMA, False)
    assert isinstance(writer, IgnoringWriter)

    def rows():
        raise AssertionError("a row was asked for")
        yield

    writer = pickle.loads(pickle.dumps(writer))
    writer.commit([writer.write(rows())])
    writer.abort([None])
    assert everything(tmp_path) == {"old"}


# --- What may exist at a destination -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [("_delta_log/00000000000000000000.json", "Delta Lake"), ("metadata/version-hint.text", "Iceberg")],
)
@pytest.mark.parametrize("mode", ["append", "overwrite", "error", "ignore"])
def test_a_table_format_keeps_its_destination(tmp_path: Path, name: str, kind: str, mode: str) -> None:
    fill(tmp_path, [name, "part-0.parquet"])
    before = everything(tmp_path)
    with pytest.raises(UnsupportedError, match=f"is a table of {kind}") as raised:
        CommitterDataSource({"path": str(tmp_path), "existing": mode}).writer(SCHEMA, mode == "overwrite")
    assert raised.value.outcome == "unchanged"
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    ("overwrite", "more"),
    [(False, {}), (True, {"partitionBy": "p", "partitionOverwriteMode": "dynamic"})],
    ids=["append", "dynamic"],
)
def test_a_sink_log_refuses_what_it_would_hide(tmp_path: Path, overwrite: bool, more: dict[str, str]) -> None:
    fill(tmp_path, ["_spark_metadata/0", "part-0.parquet"])
    before = everything(tmp_path)
    with pytest.raises(UnsupportedError, match="_spark_metadata") as raised:
        CommitterDataSource({"path": str(tmp_path), **more}).writer(SCHEMA, overwrite)
    assert raised.value.outcome == "unchanged"
    assert everything(tmp_path) == before
    assert isinstance(CommitterDataSource({"path": str(tmp_path)}).writer(SCHEMA, True), CommitterWriter)


@pytest.mark.parametrize("names", [["metadata/notes.txt"], ["metadata"], ["p=1/_delta_log"]])
def test_other_names_are_no_table_format(tmp_path: Path, names: list[str]) -> None:
    fill(tmp_path, names)
    assert look(tmp_path) is True


def look(dest: Path | str, mode: str = "append") -> bool:
    return asyncio.run(look_at_destination(parse_options({"path": str(dest)}), save_mode(mode))).used


def test_an_empty_directory_and_other_jobs_are_no_data(tmp_path: Path) -> None:
    assert look(tmp_path / "absent") is False
    assert look(tmp_path) is False
    fill(tmp_path, ["_temporary/job/setup", "__magic_job-1/x"])
    assert look(tmp_path) is False
    for name in ("_SUCCESS", ".hidden", "p=1/x"):
        fill(tmp_path / name.partition("/")[0].strip("_."), [name])
        assert look(tmp_path / name.partition("/")[0].strip("_.")) is True
    assert look(tmp_path / "SUCCESS" / "_SUCCESS") is True  # a file


@pytest.mark.parametrize("root", ["/", "file:///", "file:/", "memory://bucket", "memory://bucket/", "/tmp/.."])
def test_a_root_is_never_overwritten(root: str) -> None:
    with pytest.raises(ConfigurationError, match="root of a disk or bucket") as raised:
        CommitterDataSource({"path": root}).writer(SCHEMA, True)
    assert raised.value.path == str(StorePath.of(root))


# --- What modes amount to ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("Error", "error"),
        ("errorifexists", "error"),
        ("default", "error"),
        (" append ", "append"),
        ("IGNORE", "ignore"),
    ],
)
def test_modes_are_spelled_as_with_spark(text: str, mode: str) -> None:
    assert save_mode(text) == mode


@pytest.mark.parametrize("text", ["", "replace", "upsert"])
def test_other_modes_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"mode cannot be .*append"):
        save_mode(text)
    with pytest.raises(ConfigurationError, match=r"partitionOverwriteMode cannot be .*static"):
        partition_overwrite_mode(text)


def test_spark_and_the_option_may_not_contradict_each_other() -> None:
    assert mode_of_write(False, None) == "append"
    assert mode_of_write(True, None) == mode_of_write(True, "overwrite") == mode_of_write(False, "overwrite")
    for existing in ("error", "ignore", "append"):
        with pytest.raises(ConfigurationError, match="contradict"):
            mode_of_write(True, save_mode(existing))


@pytest.mark.parametrize(
    ("chosen", "mode", "problem"),
    [
        (CommitterConfig(conflict_mode="replace"), "append", "what the save mode chooses"),
        (CommitterConfig(superseded_scope="destination"), "overwrite", "what the save mode chooses"),
        (CommitterConfig(superseded_directories=("p=1",)), "overwrite", "what the save mode chooses"),
        (CommitterConfig(conflict_mode="fail"), "overwrite", "goes with appending only"),
    ],
)
def test_choices_that_contradict_the_mode(chosen: CommitterConfig, mode: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        commit_config(chosen, save_mode(mode), partition_by=(), overwrite_mode=None, used=False)


def test_appending_may_still_refuse_partitions_that_hold_files(tmp_path: Path) -> None:
    fill(tmp_path, ["old"])
    writer = writer_for(tmp_path, conflict_mode="fail")
    message = run_task(writer, 0)
    with pytest.raises(TargetExistsError, match="already holds files"):
        writer.commit([message])
    writer.abort([message])
    assert os.listdir(tmp_path) == ["old"]
