"""What a user gets back, as values, JSON, one short line, and a table in a notebook."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

import committer
from committer import CommitPlan, JobInfo, JobReport, UploadInfo, ValidationReport
from committer.api.cleanup import CleanupReport
from committer.api.uploads import UploadsReport
from committer.cli.output import builtins_of
from committer.paths import StorePath
from committer.readable import Shown
from committer.records.statistics import IOStatistics, MeanStatistic

MARKUP = "file:/t/<script>alert(1)</script>"
MANY = [f"file:/t/part-{number:05}" for number in range(10_000)]
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
UPLOAD = UploadInfo(path=StorePath.of("s3://bucket/a b"), upload_id="u-1", initiated=NOON)

SHOWN: list[Shown] = [
    JobReport(
        success=True,
        job_id="job-1",
        committer="manifest",
        files_committed=10_000,
        statistics=IOStatistics(counters={"op_rename": 3}, meanstatistics={"op_rename.mean": MeanStatistic(3, 5)}),
        filenames=[MARKUP, *MANY],
    ),
    CommitPlan(files=0, bytes=0, directories=["p=\udcff", MARKUP, *MANY], conflicts=[]),
    ValidationReport(ok=False, missing=MANY, wrong=[MARKUP], extra=[]),
    JobInfo(job_id="job-1", state="open", started=NOON),
    CleanupReport(removed=MANY, kept={"job-1": "it is <b>open</b>", **dict.fromkeys(MANY, "open")}),
    UPLOAD,
    UploadsReport(aborted=[UPLOAD] * 100, gone=[], failed={"u-2": "refused"}),
]


class Tags(HTMLParser):
    """Which tags a text has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: type(shown).__name__)
def test_each_way_of_showing(shown: Shown) -> None:
    values = shown.to_dict()
    assert list(values) == [field.name for field in msgspec.structs.fields(shown)]
    assert json.loads(shown.to_json()) == values
    assert json.loads(shown.to_json(indent=2)) == values
    assert shown.to_json().isascii()
    line = repr(shown)
    assert line.startswith(f"{type(shown).__name__}(")
    assert (len(line) < 1500, "\n" in line) == (True, False)
    table = shown._repr_html_()
    assert len(table.encode()) < 10_000
    assert {"table", "tr", "th", "td"} <= Tags(table).tags <= {"table", "caption", "tbody", "tr", "th", "td", "br"}


def test_values_hold_everything() -> None:
    report = SHOWN[0].to_dict()
    assert len(report["filenames"]) == 10_001
    assert report["statistics"]["meanstatistics"] == {"op_rename.mean": {"samples": 3, "sum": 5}}
    assert SHOWN[3].to_dict()["started"] == "2026-11-22T12:00:00Z"
    assert SHOWN[5].to_dict()["path"] == "s3://bucket/a b"
    for shown in SHOWN[:5]:
        assert builtins_of(shown) == shown.to_dict()


def test_the_line_says_what_matters() -> None:
    report = JobReport(success=True, job_id="job-1", committer="manifest", files_committed=3)
    assert repr(report) == (
        "JobReport(success=True, job_id='job-1', committer='manifest', files_committed=3, bytes_committed=0, "
        "directories_created=0, renames_recovered=0, duration_s=0.0)"
    )
    assert repr(ValidationReport(ok=False, missing=MANY, wrong=[], extra=[])) == (
        "ValidationReport(ok=False, missing=['file:/t/part-00000', 'file:/t/part-00001', 'file:/t/part-00002', "
        "… 9,997 more], wrong=[], extra=[], files=0, committed=0, complete=True, missing_count=0, wrong_count=0, "
        "extra_count=0)"
    )
    assert "duration_s=8.621" in repr(
        JobReport(success=True, job_id="j", committer="manifest", duration_s=8.62059170700013)
    )
    assert "… 9,990 more" in SHOWN[2]._repr_html_()
    assert "&lt;b&gt;open&lt;/b&gt;" in SHOWN[4]._repr_html_()


def test_a_report_is_as_good_as_before_in_all_else() -> None:
    report = SHOWN[0]
    assert report == msgspec.json.decode(msgspec.json.encode(report), type=JobReport)
    assert report == msgspec.structs.replace(report)  # type: ignore[type-var]


async def test_job_and_task_attempt_say_what_they_are(tmp_path: Path) -> None:
    dest = tmp_path / "table"
    async with committer.open_job(dest, job_id="job-1") as job:
        where = f"at {StorePath.of(dest).uri}: committer manifest, delivery by listing"
        assert repr(job) == f"<Job job-1 {where}, open in this process>"
        async with job.task_attempt(task=3, attempt=1) as task:
            async with task.open("a") as file:
                await file.write(b"x")
                assert repr(task).endswith(": open, files written: 0, still open: 1>")
            assert repr(task) == (
                f"<TaskAttempt task 3, attempt 1 of job job-1 at {StorePath.of(dest)}: "
                "open, files written: 1, still open: 0>"
            )
        assert ": committed, files written: 1" in repr(task)
        attached = await committer.attach_job(job.spec)
        assert "attached in this process" in repr(attached)
        await attached.close()
        await job.commit()
        assert "committed in this process" in repr(job)
    async with committer.open_job(dest, job_id="job-2") as job:
        await job.abort()
        assert "aborted in this process" in repr(job)


def test_the_blocking_ones_say_the_same(tmp_path: Path) -> None:
    with committer.sync.open_job(tmp_path / "table", job_id="job-1") as job:
        assert repr(job).startswith("<Job job-1 at ")
        assert job.is_recovery_supported is True
        with job.task_attempt(task=0) as task:
            assert repr(task).startswith("<TaskAttempt task 0, attempt 0 of job job-1")
