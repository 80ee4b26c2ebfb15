"""What is done with a job of very many files besides its commit: the engine's own work, and whether memory stays flat.

    uv run benchmarks/large_jobs.py [--files 1000000,3000000] [--works validate,recover] [--task-files 1000]
                                    [--rounds 3] [--json FILE]

Validated, listed, cleaned up, recovered, and rolled back are jobs whose files a store only tells of; and jobs of ten
files are committed where a directory with so many files makes way for one of them. Each is prepared by one process and
measured in a fresh one: CPU seconds, and the peak of the resident set over an idle interpreter in which `committer` is
imported and every public name was used once. The records of a million files take 250 MB of /dev/shm. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

import committer
from benchmarks import commit_worker
from benchmarks.commit_worker import JOB, Shape, memory
from benchmarks.kept import ROUNDS, aligned, keep, machine, scratch
from benchmarks.scale import idle_rss_bytes
from benchmarks.slow_store import described_file
from benchmarks.told_files import WAY, ToldFilesStore
from committer import CommitterConfig
from committer.events import names
from committer.paths import StorePath
from committer.records.file_list import ENTRIES_IN_A_PART, CommittedFile, encode_part
from committer.records.statistics import IOStatistics
from committer.records.success import SuccessData, encode_success
from committer.stages.finish.file_list import FILE_LIST
from committer.stages.state.success_content import WAS_EMPTY
from committer.stores.local import LocalStore
from committer.stores.memory import MemoryStore

NAME: Final = "large-jobs"
AIM_BYTES: Final = 120_000_000
_UNLIMITED: Final = CommitterConfig(io_rate=0)
_LIST: Final = "_lists"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is prepared, and measured.

    Attributes:
        work: One of `WORKS`.
        destination: A directory that is not there yet.
        files: How many files the job has, or the directory that makes way.
        task_files: Files of a task.
        directories: Over how many directories.
    """

    work: str
    destination: str
    files: int
    task_files: int
    directories: int

    def store(self, *, published: bool) -> ToldFilesStore:
        """A disk that tells of the job's files, at their destinations or where their tasks wrote them."""
        return ToldFilesStore(
            LocalStore(),
            self.destination,
            files=self.files,
            task_files=self.task_files,
            directories=self.directories,
            published=published,
        )

    def shape(self) -> Shape:
        """The same for `benchmarks/commit_worker.py`."""
        tasks = self.files // self.task_files
        return Shape(
            destination=self.destination, tasks=tasks, files=self.task_files, directories=self.directories, no_op=True
        )


def _prepare_validate(case: Case) -> None:
    """Writes the `_SUCCESS` of a job, and the complete list of its files."""
    shape, destination = case.shape(), StorePath.of(case.destination)
    first = Path(case.destination, _LIST, f"{JOB}-{'0' * 12}.jsonl")
    first.parent.mkdir(parents=True)
    above, size = destination.uri, 0
    for part in range(case.files // ENTRIES_IN_A_PART + 1):
        files = []
        for number in range(part * ENTRIES_IN_A_PART, min(case.files, (part + 1) * ENTRIES_IN_A_PART)):
            task, file = divmod(number, case.task_files)
            place, length = shape.partition(task, file), described_file(task, file)[0]
            uri = f"{above}/{place}/part-{task:05d}-{file:05d}.parquet"
            files.append(CommittedFile(path=uri, size=length, partition={"p": place[2:]}))
            size += length
        name = f"{first.stem}~{part:05d}.jsonl" if part else first.name
        (first.parent / name).write_bytes(encode_part(files, "jsonl"))
    totals = {names.COMMITTER_FILES_COMMITTED: case.files, names.COMMITTER_BYTES_COMMITTED: size}
    marker = SuccessData(
        jobId=JOB,
        committer="manifest",
        diagnostics={WAS_EMPTY: "true", FILE_LIST: StorePath.of(str(first)).uri},
        iostatistics=IOStatistics(counters=totals),
    )
    Path(case.destination, "_SUCCESS").write_bytes(encode_success(marker))


async def _validate(case: Case, *, published: bool = True) -> None:
    options = {"store": case.store(published=published)}
    config = _UNLIMITED.replace(file_list_directory=str(Path(case.destination, _LIST)))
    report = await committer.validate(case.destination, storage_options=options, config=config)
    assert report.file_list, report.remark
    assert report.ok == published, report


async def _validate_missing(case: Case) -> None:
    await _validate(case, published=False)


def _prepare_open(case: Case) -> None:
    """Sets a job up, with the records of its tasks, and their directories."""
    asyncio.run(commit_worker.prepare(case.shape()))
    [directory] = Path(case.destination, "_temporary").glob(f"{JOB}~*")
    tasks = directory / "00" / "tasks"
    for task in range(case.files // case.task_files):
        attempt = tasks / f"task_{JOB}_m_{task:06d}_0-{'0' * 12}"
        for directory in range(min(10, case.directories)):
            (attempt / f"p={directory}").mkdir(parents=True)


async def _list_jobs(case: Case) -> None:
    found = await committer.list_jobs(case.destination, storage_options={"store": case.store(published=False)})
    assert [job.state for job in found] == ["open"]


async def _cleanup(case: Case) -> None:
    options = {"store": case.store(published=False)}
    report = await committer.cleanup(case.destination, older_than=0, storage_options=options, config=_UNLIMITED)
    assert report.removed == [JOB]


class _Dies(ToldFilesStore):
    """The store of a driver that dies when it renames the first file."""

    async def rename_file(self, *arguments: Any, **named: Any) -> None:
        os._exit(0)


def _prepare_decided(case: Case) -> None:
    """Sets a job up, and commits it in a process that dies after its decision."""
    shape = case.shape()
    asyncio.run(commit_worker.prepare(shape))
    child = os.fork()
    if not child:
        store = _Dies(LocalStore(), shape.destination, files=case.files, task_files=case.task_files)
        asyncio.run(_commit(shape, store))
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


async def _commit(shape: Shape, store: ToldFilesStore) -> None:
    async with committer.attach_job(shape.destination, job_id=JOB, storage_options={"store": store}) as job:
        await job.commit(tasks=shape.tasks)


async def _recover(case: Case) -> None:
    options = {"store": case.store(published=False)}
    report = await committer.recover(case.destination, JOB, storage_options=options, config=_UNLIMITED)
    assert report.files_committed == case.files


async def _roll_back(case: Case) -> None:
    options = {"store": case.store(published=True)}
    report = await committer.recover(case.destination, JOB, rollback=True, storage_options=options, config=_UNLIMITED)
    assert not report.success


def _prepare_directory(case: Case) -> None:
    Path(case.destination, WAY).mkdir(parents=True)


async def _replace_directory(case: Case) -> None:
    await _make_way(case.destination, ToldFilesStore(LocalStore(), case.destination, below=case.files))


async def _replace_objects(case: Case) -> None:
    space = MemoryStore.space("large", "gcs")
    destination = f"memory://{space.name}/table"
    side_files = Path(case.destination, WAY)
    await _make_way(destination, ToldFilesStore(space.store(), destination, below=case.files, side_files=side_files))


async def _make_way(destination: str, store: ToldFilesStore) -> None:
    """Commits ten files, one of them to the name of the directory."""
    config = _UNLIMITED.replace(existing_target="replace")
    async with committer.open_job(destination, config=config, storage_options={"store": store}) as job:
        async with job.task_attempt(0) as attempt:
            for name in (WAY, *(f"new/file-{number}" for number in range(9))):
                async with attempt.open(name) as file:
                    await file.write(b"x")
        report = await job.commit()
    assert report.files_committed == 10


class _Work(NamedTuple):
    """What a table calls a work, how it is prepared, and what is measured."""

    told: str
    prepare: Callable[[Case], None]
    measured: Callable[[Case], Awaitable[None]]


WORKS: Final[dict[str, _Work]] = {
    "validate": _Work("validate", _prepare_validate, _validate),
    "validate-missing": _Work("validate where no file is left", _prepare_validate, _validate_missing),
    "list-jobs": _Work("list_jobs", _prepare_open, _list_jobs),
    "cleanup": _Work("cleanup", _prepare_open, _cleanup),
    "recover": _Work("recover", _prepare_decided, _recover),
    "roll-back": _Work("recover with rollback", _prepare_decided, _roll_back),
    "replace-directory": _Work("ten files, one over a directory", _prepare_directory, _replace_directory),
    "replace-objects": _Work("the same, where directories are not real", _prepare_directory, _replace_objects),
}
"""Each work by its name."""


def _child(step: str, case: Case) -> str:
    command = [sys.executable, "-m", "benchmarks.large_jobs", "--step", step]
    done = subprocess.run(command, input=msgspec.json.encode(case), stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


def _in_child(step: str) -> None:
    """Prepares or measures, in this process."""
    case = msgspec.json.decode(sys.stdin.buffer.read(), type=Case)
    work = WORKS[case.work]
    if step == "prepare":
        work.prepare(case)
        return
    for name in committer.__all__:
        getattr(committer, name)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # see proc(5): forgets the peak
    cpu, began = time.process_time(), time.perf_counter()
    asyncio.run(_awaited(work.measured(case)))
    found = {"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - cpu, "peak": memory("VmHWM")}
    print(msgspec.json.encode(found).decode())


async def _awaited(work: Awaitable[None]) -> None:
    await work


def measure(case: Case) -> dict[str, float]:
    """One work in a process of its own."""
    _child("prepare", case)
    return dict(msgspec.json.decode(_child("measure", case)))


def rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """A table of what was kept; the first row is the heading."""
    table: list[tuple[str, ...]] = [("work", "files", "CPU us/file", "peak over idle MB", "CPU a file/first")]
    firsts: dict[str, float] = {}
    for one in found["works"]:
        cpu_us = one["cpu_s"] / one["files"] * 1e6
        first = firsts.setdefault(one["work"], cpu_us)
        grown = "" if first is cpu_us else f"{cpu_us / first:.2f}"
        over = f"{one['over_idle'] / 1e6:.0f}"
        table.append((WORKS[one["work"]].told, f"{one['files']:,}", f"{cpu_us:.2f}", over, grown))
    return table


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", default="1000000,3000000", help="several by comma")
    parser.add_argument("--works", default=",".join(WORKS), help="by comma")
    parser.add_argument("--task-files", type=int, default=1000, help="files of a task")
    parser.add_argument("--directories", type=int, default=1000, help="over the whole job")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--root", help="where the records go; /dev/shm when it is there")
    parser.add_argument("--json", type=Path, help="writes every measurement there, not into benchmarks/results")
    parser.add_argument("--step", choices=("prepare", "measure"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.step:
        _in_child(given.step)
        return
    about = machine()
    idle: list[int] = []
    measured: dict[tuple[str, int], list[dict[str, float]]] = {}
    for number in range(given.rounds):
        for work in given.works.split(","):
            for files in map(int, given.files.split(",")):
                print(f"round {number + 1} of {given.rounds}: {work}, {files:,}", file=sys.stderr, flush=True)
                idle.append(idle_rss_bytes())
                with scratch(given.root) as root:
                    case = Case(
                        work=work,
                        destination=str(root / "table"),
                        files=files,
                        task_files=given.task_files,
                        directories=given.directories,
                    )
                    measured.setdefault((work, files), []).append(measure(case))
    resting = int(statistics.median(idle))
    works = [
        {
            "work": work,
            "files": files,
            "cpu_s": statistics.median(one["cpu_s"] for one in found),
            "wall_s": statistics.median(one["wall_s"] for one in found),
            "over_idle": max(int(one["peak"]) for one in found) - resting,
        }
        for (work, files), found in measured.items()
    ]
    kept = {"machine": about, "rounds": given.rounds, "works": works}
    print(aligned(rows(kept)))
    if given.json or given.rounds >= ROUNDS:
        keep(NAME, kept, file=given.json)


if __name__ == "__main__":
    main()
