"""What errors advise where Spark runs this library: its users make blocking calls, so that no advice says ``await``."""

from __future__ import annotations

import logging
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import committer
from committer.errors import DestinationBusyError
from committer.spark import foreach_batch, foreach_partition, write
from committer.spark.micro_batches import batch_job_id, enter_batch
from committer.spark.stream_writer import BatchMessage, stream_writer
from tests.job_paths import entry_of

from .test_failures import KILLED_IN_COMMIT, run_task, writer_for

SCHEMA = StructType([StructField("v", LongType())])


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    """A destination that a replacing driver holds, which died."""
    job = committer.sync.open_job(tmp_path / "t", job_id="owner", config={"conflict_mode": "replace"})
    job.close()
    name, data = entry_of("owner", job.spec.setup)
    (tmp_path / "t" / name).parent.mkdir()
    (tmp_path / "t" / name).write_bytes(data)
    return tmp_path / "t"


def check(text: str) -> list[str]:
    """Checks what an error says; the calls that it advises."""
    assert "`await " not in text
    assert "await committer." not in text
    calls = re.findall(r"`(committer\.sync\.\w+\([^`]*\))`", text)
    assert calls, text
    return calls


def test_a_commit_that_spark_asks_for(dest: Path) -> None:
    writer = writer_for(dest)
    messages = [run_task(writer, 0)]
    with pytest.raises(DestinationBusyError) as caught:
        writer.commit(messages)
    _finish, take_back = check(caught.value.next_step)
    eval(take_back, {"committer": committer})
    writer.commit(messages)


def test_an_abort_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = writer_for(tmp_path / "t", job_id="j")
    messages = [run_task(writer, task) for task in range(3)]
    subprocess.run([sys.executable, "-c", KILLED_IN_COMMIT], input=pickle.dumps((writer, messages)), timeout=300)
    with caplog.at_level(logging.WARNING, logger="committer.spark"):
        writer.abort(messages)
    [finish, *_others] = check(caplog.text)
    report = eval(finish, {"committer": committer})
    assert report.files_committed == 3


async def test_the_job_of_a_batch(dest: Path) -> None:
    """Made here, committed as Spark does: in a thread without a loop."""
    import asyncio

    writer = stream_writer({"path": str(dest), "busy_timeout": "0"}, SCHEMA, False)
    spec = await enter_batch(writer.options, batch_job_id("q", 7))
    assert spec is not None
    async with committer.open_task(spec, task=0) as task, task.open("part-0") as file:
        await file.write(b"0")
    with pytest.raises(DestinationBusyError) as caught:
        await asyncio.to_thread(writer.commit, [BatchMessage(task.task_commit.encode(), "q")], 7)
    check(caught.value.next_step)


def test_writes_of_a_session(spark: SparkSession, dest: Path) -> None:
    def lines(rows, task):  # type: ignore[no-untyped-def]
        with task.open(f"part-{task.task}") as file:
            file.write(b"".join(b"." for _row in rows))

    frame = spark.range(3)
    for call in (
        lambda: write(frame, dest, mode="append"),
        lambda: foreach_batch(dest, query="q", options={"busy_timeout": 0})(frame, 0),
        lambda: foreach_partition(frame, dest, lines),
    ):
        with pytest.raises(DestinationBusyError, match="committer\\.sync") as busy:
            call()
        assert busy.value.owners == ("owner",)
        check(busy.value.next_step)
    with pytest.raises(PySparkException, match="committer\\.sync") as told:
        frame.write.format("committer").mode("append").save(str(dest))
    check(str(told.value))
