"""What tells a file that Spark's own writers wrote from another one of its name, and who looks it up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

import committer.spark
from committer.events import JobEvent
from committer.paths import StorePath
from committer.spark import job_side

from .trees import data_files

PARTITIONS = 40


class Records:
    """The entries of a job's records, and the files that they name, as they are right before the job is decided."""

    def __init__(self, destination: Path) -> None:
        self.destination = destination
        self.named: dict[str, str | None] = {}
        self.standing: dict[str, str] = {}

    def __call__(self, event: JobEvent) -> None:
        if event.stage != "job_stage_load_manifests" or self.named:
            return
        for record in self.destination.glob("_temporary/*/00/attempts/*.json"):
            for entry in msgspec.json.decode(record.read_bytes())["files"]:
                source = StorePath.from_uri(entry["s"]).path
                found = os.stat(source)
                self.named[source] = entry.get("e")
                self.standing[source] = f"{found.st_ino}:{found.st_mtime_ns}"


@pytest.fixture
def lists() -> Any:
    return lambda: committer.spark.last_report().statistics.counters["op_list_status"]


@pytest.mark.allow_blocking("the listener takes the place of another program")
@pytest.mark.parametrize("name", ["out", "out put%20ä"])
def test_tasks_on_a_disk_name_what_their_files_are_known_by(
    committing: SparkSession, tmp_path: Path, lists: Any, name: str
) -> None:
    """So the driver lists no directory that they wrote."""
    out = tmp_path / name
    records = Records(out)
    committer.spark.configure(committing, progress=records)
    rows = committing.range(0, PARTITIONS, 1, 2).selectExpr("id", "concat('ö: ', id) p", "id % 2 q")
    rows.write.partitionBy("p", "q").parquet(str(out))
    assert len(records.named) == PARTITIONS
    assert records.named == records.standing
    assert len(data_files(out)) == PARTITIONS
    assert lists() < PARTITIONS


@pytest.mark.allow_blocking("the listener takes the place of another program")
def test_on_a_machine_that_numbers_files_otherwise_the_driver_looks(
    committing: SparkSession, tmp_path: Path, lists: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with network file systems that draw a number for each mount."""
    out = tmp_path / "out"

    async def of_another_mount(*_: object) -> str:
        return "1:1"

    monkeypatch.setattr(job_side, "_identity_of_setup", of_another_mount)
    records = Records(out)
    committer.spark.configure(committing, progress=records)
    committing.range(0, PARTITIONS, 1, 2).selectExpr("id", "id p").write.partitionBy("p").parquet(str(out))
    assert set(records.named.values()) == {None}
    assert len(data_files(out)) == PARTITIONS
    assert lists() >= PARTITIONS


@pytest.mark.allow_blocking("the listener takes the place of another program")
def test_a_file_that_is_written_again_after_its_task_committed_is_not_committed(
    committing: SparkSession, tmp_path: Path
) -> None:
    """One of the same length: only what it is known by tells that it is another."""
    out = tmp_path / "out"
    changed: list[Path] = []

    def write_again(event: JobEvent) -> None:
        if event.stage == "job_stage_load_manifests" and not changed:
            (file,) = out.glob("_temporary/*/00/tasks/*/part-*")
            data = file.read_bytes()
            file.unlink()
            (file.parent / "another").write_bytes(data[::-1])
            (file.parent / "another").rename(file)
            changed.append(file)

    committer.spark.configure(committing, progress=write_again)
    with pytest.raises(Exception, match="outcome: "):
        committing.range(0, 3, 1, 1).write.parquet(str(out))
    assert changed
    assert data_files(out) == []
