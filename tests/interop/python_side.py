"""This engine's half of a job, through its public API alone, and its comparison with Java's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import committer
from committer import CommitterConfig, JobReport, JobSpec

from .hadoop import Hadoop, JavaJob
from .trees import on_disk, without_sidecars

FOR_JAVA_DRIVER = CommitterConfig(hadoop_driver=True)
REPLACE = CommitterConfig(existing_target="replace")


def spec_of(job: JavaJob, config: CommitterConfig | None = None) -> JobSpec:
    """The spec by which Python joins, or commits, a job that Java set up."""
    return JobSpec.for_hadoop(job.destination, job.id, job_attempt=job.attempt, config=config)


async def run_task(
    spec: JobSpec,
    task: int,
    files: Mapping[str, bytes],
    storage_options: Mapping[str, object] | None = None,
    *,
    attempt: int = 0,
) -> None:
    """A whole task: opened, files written through `task.open`, committed."""
    async with committer.open_task(spec, task=task, attempt=attempt, storage_options=storage_options) as running:
        for name, data in files.items():
            async with running.open(name) as file:
                await file.write(data)


async def run_scanned_task(
    spec: JobSpec, task: int, files: Mapping[str, bytes], *, directories: tuple[str, ...] = (), attempt: int = 0
) -> None:
    """A whole task whose files some other program writes, to be found by a scan at task commit."""

    def write(work: Path) -> None:
        for name in directories:
            (work / name).mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_bytes(data)

    async with committer.open_task(spec, task=task, attempt=attempt) as running:
        await asyncio.to_thread(write, Path(running.work_path()))


async def commit(job: JavaJob, config: CommitterConfig | None = None, *, tasks: int | None = None) -> JobReport:
    """Python commits a job that Java set up."""
    async with committer.attach_job(spec_of(job, config)) as attached:
        return await attached.commit(tasks=tasks)


async def assert_same_trees(hadoop: Hadoop, python: JavaJob, java: JavaJob) -> None:
    """Both destinations hold the same files and directories."""
    python_files, python_directories = await on_disk(python.destination)
    java_files, java_directories = await on_disk(java.destination)
    assert without_sidecars(python_files) == without_sidecars(java_files)
    assert python_directories == java_directories
    # Java reads what Python published, with checksums where there are any.
    read_back = await hadoop.read_files(python.destination)
    read_back.pop("_SUCCESS")
    assert read_back == without_sidecars(java_files)


async def assert_same_result(hadoop: Hadoop, python: JavaJob, java: JavaJob) -> None:
    """Both destinations hold the same, and their `_SUCCESS` counts the same."""
    await assert_same_trees(hadoop, python, java)
    assert await success_facts(hadoop, python) == await success_facts(hadoop, java)


async def success_facts(hadoop: Hadoop, job: JavaJob) -> dict[str, object]:
    """What two `_SUCCESS` of twin jobs must agree in, as Java reads it."""
    success = await hadoop.load_success(job.destination / "_SUCCESS")
    counters = success["iostatistics"]["counters"]
    root = f"file:{job.destination}/"
    return {
        "success": success["success"],
        "jobId": success["jobId"],
        "jobIdSource": success["jobIdSource"],
        "files": counters.get("committer_files_committed", 0),
        "bytes": counters.get("committer_bytes_committed", 0),
        # At most a hundred, in the order of completion.
        "filenames": sorted(name.removeprefix(root) for name in success["filenames"]),
    }
