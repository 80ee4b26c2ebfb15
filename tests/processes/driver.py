"""A driver as a process of its own: `python driver.py DESTINATION JOB_ID FILES [--replace] [--file-v1] [--wait]`.

Prints `ready` before it commits, with `--wait` goes on when its standard input ends, and prints `committed N` after;
what it raises goes to its standard error, its type last.
"""

from __future__ import annotations

import asyncio
import sys

import committer
from committer import CommitterConfig

FILES_A_TASK = 100


def content(task: int, number: int) -> bytes:
    return b"%d-%d" % (task, number)


def name(task: int, number: int) -> str:
    return f"p={number % 7}/part-{task:03d}-{number:03d}"


async def main(destination: str, job_id: str, files: int, *, replace: bool, name_of_committer: str | None) -> None:
    # Few calls at a time stretch the commit, so that a moment drawn at random falls anywhere in it.
    config = CommitterConfig(io_concurrency=2, conflict_mode="replace" if replace else "append")
    tasks = files // FILES_A_TASK
    job = await committer.open_job(destination, job_id=job_id, committer=name_of_committer, config=config)
    for task in range(tasks):
        async with job.task_attempt(task) as attempt:
            for number in range(FILES_A_TASK):
                async with attempt.open(name(task, number)) as file:
                    await file.write(content(task, number))
    print("ready", flush=True)
    if "--wait" in sys.argv:
        sys.stdin.read()
    report = await job.commit(tasks=tasks)
    print("committed", report.files_committed, flush=True)
    await job.close()


if __name__ == "__main__":
    chosen = "file-v1" if "--file-v1" in sys.argv else None
    replacing = "--replace" in sys.argv
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), replace=replacing, name_of_committer=chosen))
