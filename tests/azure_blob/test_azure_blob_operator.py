"""What an operator sees of a container, and jobs of Spark there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import committer
from committer.cli import main
from committer.committers.block_list import BlockListAction
from committer.paths import StorePath
from committer.testing.faults import SimulatedCrash
from tests.azure_blob.azurite import ACCOUNT, KEY_IS_IN, Azurite
from tests.azure_blob.container import ContainerChannel, write_task
from tests.processes.harness import environment
from tests.spark.cluster import QUICK_JAVA


@pytest.fixture
def reached(server: Azurite, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How a command line reaches the server."""
    monkeypatch.setenv("COLUMNS", "200")
    options = {"account_name": ACCOUNT, "endpoint": server.endpoint, "account_key": f"env:{KEY_IS_IN}"}
    return [word for name, text in options.items() for word in ("--storage", f"{name}={text}")]


@pytest.mark.parametrize("command", ["doctor", "explain"])
def test_what_works_here_is_told(
    command: str, root: StorePath, reached: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(root), *reached]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "block-list" in said
    assert "the store renames nothing, and makes files of blocks" in said
    assert "failed" not in said
    if command == "doctor":
        assert "hierarchical namespace off" in said


def test_a_job_whose_driver_died_is_shown_and_recovered(
    root: StorePath,
    server: Azurite,
    reached: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def crash(*_arguments: object) -> None:
        raise SimulatedCrash

    async def die() -> None:
        job = await committer.open_job(root, job_id="j", storage_options=server.options())
        await write_task(job, {"x": b"x"})
        with monkeypatch.context() as patched, pytest.raises(SimulatedCrash):
            patched.setattr(BlockListAction, "publish", crash)
            await job.commit(tasks=1)
        await job.close()

    asyncio.run(die())
    assert main(["jobs", str(root), *reached]) == 0
    assert "committing" in capsys.readouterr().out
    assert main(["recover", str(root), "j", "--yes", *reached]) == 0
    assert "committed" in capsys.readouterr().out
    assert main(["validate", str(root), *reached]) == 0


def test_there_are_no_uploads_to_list(root: StorePath, reached: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["uploads", "list", str(root), *reached]) == 2
    assert "blocks in place of uploads" in " ".join(capsys.readouterr().err.split())


def test_a_mistyped_container_is_no_destination(reached: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("jobs", "validate", "doctor"):
        assert main([command, "az://no-such-container/t", *reached]) == 4
        told = capsys.readouterr()
        assert "there is no such container: no-such-container" in told.err
        assert told.out == ""


WRITE = """
import sys
from pyspark.sql import SparkSession
import committer.spark

uri, endpoint, account, key = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
options = {"account_name": account, "endpoint": endpoint, "account_key": key}
df = spark.range(0, 1000, numPartitions=3).selectExpr("id", "id % 4 AS day")
for mode in ("append", "overwrite"):
    report = committer.spark.write(df, uri, partition_by=["day"], mode=mode, storage_options=options, partition_overwrite_mode="static")
    assert (report.success, report.committer) == (True, "block-list"), report
writer = df.write.format("committer").option("partitionBy", "day").mode("append")
for name, text in options.items():
    writer = writer.option(f"storage.{name}", text)
writer.save(uri)
spark.stop()
"""


@pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")
async def test_spark_writes_and_replaces(
    root: StorePath, server: Azurite, channel: ContainerChannel, tmp_path: Path
) -> None:
    import pyarrow.parquet

    script = tmp_path / "write.py"
    script.write_text(WRITE)
    command = [sys.executable, str(script), root.uri, server.endpoint, ACCOUNT, f"env:{KEY_IS_IN}"]
    variables = {**environment(), "JAVA_TOOL_OPTIONS": QUICK_JAVA}
    done = await asyncio.to_thread(
        subprocess.run, command, env=variables, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = await channel.files()
    del found["_SUCCESS"]
    assert {name.partition("/")[0] for name in found} == {f"day={day}" for day in range(4)}
    ids: list[int] = []
    for number, data in enumerate(found.values()):
        (tmp_path / f"{number}.parquet").write_bytes(data)
        ids += pyarrow.parquet.read_table(tmp_path / f"{number}.parquet", partitioning=None)["id"].to_pylist()
    assert sorted(ids) == sorted([*range(1000), *range(1000)])
    assert await channel.waiting() == {}
