"""What a job of Spark's own writers is asked for, and refused, before a task runs; no Spark is started."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import committer
from committer import CommitterConfig
from committer.errors import ConfigurationError, UnsupportedError
from committer.events import JobEvent
from committer.spark.commit_log import DriverLog, _threads
from committer.spark.job_side import CALL, SetupRequest, running, set_up
from committer.spark.jvm import building
from committer.spark.protocol_session import JobSide, last_report


def request(tmp_path: Path, **fields: object) -> SetupRequest:
    given = {
        "job_id": "j",
        "destination": f"file:{tmp_path}/t",
        "dynamic": False,
        "superseded": (),
        "options": {},
        "release": "",
    }
    return SetupRequest(**{**given, **fields})  # type: ignore[arg-type]


async def test_an_overwrite_of_a_table_with_a_partition_at_a_hidden_name_is_refused(tmp_path: Path) -> None:
    """Its old rows would stay: names at the top that begin with _ or . are not superseded."""
    table = f"file:{tmp_path}/t"
    with pytest.raises(UnsupportedError, match="_old/p=9 is to be replaced"):
        await set_up(request(tmp_path, superseded=(table, f"{table}/_old/p=9")))
    assert not (tmp_path / "t" / "_temporary").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"committer.conflict_mode": "fail"},
        {"committer.superseded_scope": "destination"},
        {"committer.superseded_directories": "p=1"},
    ],
)
async def test_choices_that_are_the_save_mode_s_are_refused_and_not_ignored(
    tmp_path: Path, options: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationError, match="what Spark's save mode chooses"):
        await set_up(request(tmp_path, options=options))
    assert not (tmp_path / "t" / "_temporary").exists()


@pytest.mark.parametrize("choices", [{"durability": "fsync"}, {"unique_names": True}])
async def test_choices_that_spark_s_files_cannot_be_given_are_refused(tmp_path: Path, choices: dict[str, Any]) -> None:
    config = CommitterConfig(**choices)
    replacing = config.replace(conflict_mode="replace", superseded_scope="destination")
    for decided in None, replacing:
        with pytest.raises(ConfigurationError, match=r"cannot be had with files .* own writers write"):
            await set_up(request(tmp_path), config, decided=decided)
    assert not (tmp_path / "t" / "_temporary").exists()


async def test_a_setup_that_cannot_be_answered_leaves_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*names: str) -> str:
        raise MemoryError

    monkeypatch.setattr("committer.spark.job_side._template", fail)
    with pytest.raises(MemoryError):
        await set_up(request(tmp_path))
    assert await committer.list_jobs(tmp_path / "t") == []


def test_a_log_that_cannot_be_written_changes_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the interpreter ends, no thread takes a line any more; the commit is answered all the same."""
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    monkeypatch.setattr("committer.spark.commit_log._threads", closed)
    side = JobSide(None, None)
    side.driver = SimpleNamespace(note=lambda line: None)
    with running(CommitterConfig()) as call:
        release = {"release": building.release(), "spark": "4.3.0"}
        setup = request(tmp_path, options={CALL: call.name}, **release)
        answer = json.loads(side.call("setup", msgspec.json.encode(setup).decode()))
        asked = {"spec": answer["spec"], "task_commits": [], **release}
        assert json.loads(side.call("commit", json.dumps(asked))) == {"committed": "j"}
        assert call.report is not None
    report = last_report()
    assert report is not None
    assert report.job_id == "j"


async def test_spark_s_log_gets_a_line_every_few_seconds() -> None:
    lines: list[str] = []
    log = DriverLog(lines.append)
    for at_s in (0.1, 4.9, 5.0, 5.1, 9.9, 10.0):
        log(JobEvent("advanced", "j", "job_stage_rename_files", done=int(at_s), total=20, bytes_done=7, at_s=at_s))
    log(JobEvent("message", "j", at_s=10.1, message="slowed down"))
    DriverLog(lambda line: 1 / 0).say("a JVM that is gone")
    await asyncio.to_thread(_threads.submit(lambda: None).result)
    assert lines == [
        "job j: job_stage_rename_files 5 of 20, 7 bytes, after 5.0 s",
        "job j: job_stage_rename_files 10 of 20, 7 bytes, after 10.0 s",
        "job j:  0 of ?, 0 bytes, after 10.1 s slowed down",
    ]
