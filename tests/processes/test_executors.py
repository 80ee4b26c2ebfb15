"""Executors that die while they write, or come back as zombies when their job is over: they change nothing."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from pathlib import Path

import pytest

import committer
from committer import Job, JobSpec, TaskCommit
from tests.processes import executor as executor_module
from tests.processes import recoverer as recoverer_module
from tests.processes.harness import TIMEOUT_S, driver, expected, published, script, visible

pytestmark = pytest.mark.xdist_group("processes")


def executor(spec: JobSpec, task: int, attempt: int, how: str):
    return script(executor_module.__file__, spec.encode().decode(), str(task), str(attempt), how)


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr and process.stderr.read()
    return line.strip()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def good_attempt(spec: JobSpec, task: int, attempt: int) -> TaskCommit:
    async def work() -> TaskCommit:
        async with committer.open_task(spec, task=task, attempt=attempt) as writer:
            async with writer.open(f"p=1/part-{task}") as file:
                await file.write(b"attempt %d" % attempt)
        return writer.task_commit

    return asyncio.run(work())


def set_up(destination: Path, delivery: str) -> JobSpec:
    async def work() -> JobSpec:
        job: Job = await committer.open_job(destination, job_id="J", delivery=delivery)  # type: ignore[arg-type]
        await job.close()
        return job.spec

    return asyncio.run(work())


def commit(spec: JobSpec, messages: list[TaskCommit] | None, tasks: int) -> committer.JobReport:
    async def work() -> committer.JobReport:
        async with committer.attach_job(spec) as job:
            return await job.commit(messages, tasks=tasks)

    return asyncio.run(work())


@pytest.mark.parametrize("delivery", ["listing", "message"])
def test_executor_killed_while_it_writes(tmp_path: Path, delivery: str) -> None:
    destination = tmp_path / "table"
    spec = set_up(destination, delivery)
    with executor(spec, 0, 0, "write") as process:
        assert says(process) == "writing"
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT_S)
    assert visible(destination) == {}
    message = good_attempt(spec, 0, 1)
    report = commit(spec, [message] if delivery == "message" else None, 1)
    assert report.files_committed == 1
    assert visible(destination) == {"p=1/part-0": b"attempt 1"}
    assert not (destination / "_temporary").exists()


@pytest.mark.parametrize("delivery", ["listing", "message"])
def test_zombie_that_commits_after_the_job_committed(tmp_path: Path, delivery: str) -> None:
    destination = tmp_path / "table"
    spec = set_up(destination, delivery)
    with executor(spec, 0, 0, "commit") as zombie:
        assert says(zombie) == "written"
        zombie.send_signal(signal.SIGSTOP)
        message = good_attempt(spec, 0, 1)
        commit(spec, [message] if delivery == "message" else None, 1)
        before = visible(destination)
        tell(zombie)
        zombie.send_signal(signal.SIGCONT)
        assert says(zombie) == "error JobNotFoundError unchanged"
    assert visible(destination) == before == {"p=1/part-0": b"attempt 1"}
    assert not (destination / "_temporary").exists()


def test_zombie_that_commits_before_the_job_does_not_count_for_messages(tmp_path: Path) -> None:
    destination = tmp_path / "table"
    spec = set_up(destination, "message")
    with executor(spec, 0, 0, "commit") as zombie:
        assert says(zombie) == "written"
        message = good_attempt(spec, 0, 1)
        tell(zombie)
        assert says(zombie) == "committed 2"
    commit(spec, [message], 1)
    assert visible(destination) == {"p=1/part-0": b"attempt 1"}


def test_two_recoverers_in_two_processes(tmp_path: Path) -> None:
    destination = tmp_path / "table"
    files = 1000
    with driver(destination, "J", files) as process:
        while published(destination) < 100:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT_S)
    path = recoverer_module.__file__
    with script(path, str(destination), "J") as one, script(path, str(destination), "J") as two:
        for recoverer in (one, two):
            assert says(recoverer) == "ready"
        for recoverer in (one, two):
            tell(recoverer)
        assert {says(one), says(two)} == {f"recovered {files}"}
    assert visible(destination) == expected(files)
    assert not (destination / "_temporary").exists()
