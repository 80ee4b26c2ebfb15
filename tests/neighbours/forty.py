"""A process with several jobs at once: `python forty.py URI FIRST JOBS OPTIONS`, the last the JSON of storage options.

Each id is used three times. A cleanup removes the first job of an id before its driver commits, which must fail; the second is
set up at once, beside that driver, and the third as soon as the second has ended. Prints `ready`, and when
all is over `done`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import committer
from committer.errors import JobNotFoundError, JobStateError

TASKS, FILES = 2, 5


def files_of(job_id: str, turn: int) -> dict[str, bytes]:
    """What the job writes that is the `turn`th of its id."""
    return {f"p={number % 5}/{job_id}-{turn}-{number}": b"%d" % turn for number in range(TASKS * FILES)}


async def main(uri: str, job_ids: list[str], options: dict[str, Any]) -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await asyncio.gather(*[run(uri, job_id, options) for job_id in job_ids])
    print("done", flush=True)


async def run(uri: str, job_id: str, options: dict[str, Any]) -> None:
    """Uses one id three times."""
    first = await written(uri, job_id, 0, options)
    await committer.cleanup(uri, job_id=job_id, storage_options=options)
    second = await written(uri, job_id, 1, options)
    try:
        await first.commit(tasks=TASKS)
    except (JobNotFoundError, JobStateError):
        pass
    else:
        raise AssertionError(f"{job_id} was cleaned up and then committed")
    await committed(second)
    third = await written(uri, job_id, 2, options)
    await committed(third)
    for job in (first, second, third):
        await job.close()


async def committed(job: committer.Job) -> None:
    report = await job.commit(tasks=TASKS)
    assert report.files_committed == TASKS * FILES


async def written(uri: str, job_id: str, turn: int, options: dict[str, Any]) -> committer.Job:
    """A job whose tasks committed."""
    job = await committer.open_job(uri, job_id=job_id, storage_options=options)
    files = list(files_of(job_id, turn).items())
    for task in range(TASKS):
        async with job.task_attempt(task) as attempt:
            for name, data in files[task * FILES : (task + 1) * FILES]:
                async with attempt.open(name) as file:
                    await file.write(data)
    return job


if __name__ == "__main__":
    first, jobs = int(sys.argv[2]), int(sys.argv[3])
    asyncio.run(main(sys.argv[1], [f"job-{number}" for number in range(first, first + jobs)], json.loads(sys.argv[4])))
