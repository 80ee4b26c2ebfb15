"""Records cross the border both ways: Java's loaders read ours, ours read Java's."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.paths import StorePath
from committer.records.manifest import TaskManifest
from committer.records.success import SuccessData

from .hadoop import SUMMARY_REPORT_DIRECTORY, Hadoop
from .python_side import FOR_JAVA_DRIVER, commit, run_task, spec_of
from .trees import AWKWARD_NAMES, contents, exists, put

JAVA_COMMITTER = "org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitter"
SUCCESS_DATA = "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1"


async def test_java_reads_success_and_summary_of_python(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest", 42)
    files = contents(*AWKWARD_NAMES)
    await job.setup()
    await run_task(spec_of(job), 0, files)
    report = await commit(
        job, CommitterConfig(summary_report_directory=str(tmp_path / "reports"), validate_output=True)
    )

    for path in (job.destination / "_SUCCESS", tmp_path / "reports" / f"summary-{job.id}.json"):
        seen = await hadoop.load_success(path)
        assert seen["name"] == SUCCESS_DATA
        assert seen["success"] is True
        assert (seen["jobId"], seen["jobIdSource"]) == ("job_202401010000_0042", "JobID")
        assert seen["hostname"]
        assert seen["date"]
        assert seen["timestamp"] > 1_600_000_000_000
        assert seen["iostatistics"]["counters"]["committer_files_committed"] == len(files) == report.files_committed
        assert seen["iostatistics"]["counters"]["committer_bytes_committed"] == report.bytes_committed
        # Java's loader drops members it does not know, among them the lengths this engine adds.
        written = json.loads(await asyncio.to_thread(path.read_bytes))
        assert sum(written["lengths"]) == report.bytes_committed
        assert "lengths" not in seen
        assert seen["filenames"] == written["filenames"]
        assert await hadoop.success_files(path) == [
            str(job.destination / name) for name in _names(written, job.destination)
        ]
        printed = await hadoop.print_success(path)
        assert f"jobId: {job.id}" in printed
        assert "succeeded: true" in printed


def _names(written: dict[str, object], destination: Path) -> list[str]:
    names = written["filenames"]
    assert isinstance(names, list)
    return [StorePath.from_uri(name).relative_to(StorePath.of(destination)) for name in names]


async def test_java_reads_the_summary_of_a_failed_python_commit(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest")
    await put(job.destination / "a.csv", b"in the way")
    await job.setup()
    await job.run_task(0, contents("a.csv"))
    with pytest.raises(committer.CommitterError) as refused:
        await commit(job, CommitterConfig(summary_report_directory=str(tmp_path / "reports")))
    seen = await hadoop.load_success(tmp_path / "reports" / f"summary-{job.id}.json")
    assert seen["success"] is False
    assert type(refused.value).__name__ in seen["diagnostics"]["exception"]
    assert not await exists(job.destination / "_SUCCESS")


async def test_python_reads_what_java_wrote(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest", 5, conf={SUMMARY_REPORT_DIRECTORY: f"file:{tmp_path / 'reports'}"})
    files = contents(*AWKWARD_NAMES)
    await job.setup()
    await job.run_task(0, files)
    manifest = await committer.load_record(job.manifest(0))
    assert isinstance(manifest, TaskManifest)
    java_manifest = await hadoop.load_manifest(job.manifest(0))
    assert sorted(StorePath.from_uri(entry.d).path for entry in manifest.files) == await hadoop.destinations(
        job.manifest(0)
    )
    assert len(manifest.files) == len(java_manifest["files"]) == len(files)
    await job.commit()
    for path in (job.destination / "_SUCCESS", tmp_path / "reports" / f"summary-{job.id}.json"):
        ours = await committer.load_record(path)
        theirs = await hadoop.load_success(path)
        assert isinstance(ours, SuccessData)
        assert (ours.jobId, ours.success, ours.committer) == (job.id, True, JAVA_COMMITTER)
        assert ours.filenames == theirs["filenames"]
        assert ours.statistics().counters == theirs["iostatistics"]["counters"]
    validation = await committer.validate(job.destination)
    assert validation.ok, validation


async def test_success_of_python_replaces_that_of_java_sidecar_included(hadoop: Hadoop, tmp_path: Path) -> None:
    first = hadoop.job(tmp_path / "dest", 1)
    await first.setup()
    await first.run_task(0, contents("a.csv"))
    await first.commit()
    assert await exists(first.destination / "._SUCCESS.crc")
    job = await committer.open_job(first.destination)
    second = hadoop.job(first.destination, 2, uuid=job.spec.unique_id)
    # An old `_SUCCESS` stands until the new job decides; Java deletes it at job setup.
    assert (await hadoop.load_success(first.destination / "_SUCCESS"))["jobId"] == first.id
    await second.run_task(0, contents("b.csv"))
    await job.commit()
    await job.close()
    assert (await hadoop.load_success(first.destination / "_SUCCESS"))["jobId"] == job.spec.job_id
    assert (await hadoop.read_files(first.destination)).keys() == {"a.csv", "b.csv", "_SUCCESS"}


async def test_success_of_java_replaces_that_of_python(hadoop: Hadoop, tmp_path: Path) -> None:
    first, second = hadoop.job(tmp_path / "dest", 1), hadoop.job(tmp_path / "dest", 2)
    await first.setup()
    await run_task(spec_of(first, FOR_JAVA_DRIVER), 0, contents("a.csv"))
    await commit(first)
    await second.setup()
    assert not await exists(first.destination / "_SUCCESS")
    await second.run_task(0, contents("b.csv"))
    await second.commit()
    marker = await committer.load_record(first.destination / "_SUCCESS")
    assert isinstance(marker, SuccessData)
    assert marker.jobId == second.id
