"""Drivers of streams that are killed: the query, started again, ends with every row exactly once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import committer
from committer.spark import foreach_batch

from .trees import data_files

SCRIPT = Path(__file__).with_name("killed_stream.py")


@pytest.mark.parametrize(
    ("how", "when"),
    [("format", "before"), ("format", "in the middle"), ("format", "after"), ("foreach_batch", "after")],
)
def test_a_query_killed_in_its_commit_goes_on(spark: SparkSession, tmp_path: Path, how: str, when: str) -> None:
    source, checkpoint, table = (tmp_path / name for name in ("source", "checkpoint", "table"))
    source.mkdir()
    for number in range(3):
        path = source / f"{number}.json"
        path.write_text("".join(json.dumps({"id": 10 * number + value}) + "\n" for value in range(6)))
        os.utime(path, (1_700_000_000 + number,) * 2)
    died = subprocess.run(
        [sys.executable, str(SCRIPT), how, when, str(source), str(checkpoint), str(table)],
        check=False,
        timeout=180,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert died.returncode == -signal.SIGKILL, died.stderr[-2000:]
    assert "should have been killed" not in died.stderr
    assert {path.name for path in (checkpoint / "offsets").glob("[0-9]*")} == {"0", "1"}
    assert {path.name for path in (checkpoint / "commits").glob("[0-9]*")} == {"0"}, died.stderr[-2000:]
    states = [job.state for job in asyncio.run(committer.list_jobs(table))]
    ended = {"before": "open", "in the middle": "committing", "after": "committed"}[when]
    assert sorted(states) == sorted(["committed", ended])
    before = {path: path.stat().st_mtime_ns for path in data_files(table)}

    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(source)).repartition(2)
    writer = rows.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    if how == "format":
        writer.format("committer").start(str(table)).awaitTermination()
    else:
        writer.foreachBatch(foreach_batch(str(table))).start().awaitTermination()
    found = sorted(row.id for row in spark.read.parquet(str(table)).collect())
    assert found == [10 * number + value for number in range(3) for value in range(6)]
    assert before.items() <= {path: path.stat().st_mtime_ns for path in data_files(table)}.items()
    assert [job.state for job in asyncio.run(committer.list_jobs(table))] == ["committed", "committed"]
