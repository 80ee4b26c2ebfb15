"""A driver that commits to an emulated store: `python emulated_driver.py URI JOB_ID FILES [promote] [OPTION=VALUE]...`.

The options are those of the store; a secret is a reference. With `promote` each task writes into directories of its own,
which are renamed as a whole. Prints `ready` before it commits.
"""

from __future__ import annotations

import asyncio
import sys

import committer
from committer import CommitterConfig

FILES_A_TASK = 50
PROMOTE = "promote"


def content(number: int) -> bytes:
    return b"%d" % number


def name(number: int, *, promote: bool = False) -> str:
    above = f"t={number // FILES_A_TASK}/" if promote else ""
    return f"{above}p={number % 7}/part-{number:05d}"


async def main(uri: str, job_id: str, files: int, options: dict[str, str], *, promote: bool) -> None:
    # Few calls at a time stretch the commit, so that a moment drawn at random falls anywhere in it.
    config = CommitterConfig(io_concurrency=4, promote_directories=promote or None)
    job = await committer.open_job(uri, job_id=job_id, config=config, storage_options=options)
    for task in range(files // FILES_A_TASK):
        async with job.task_attempt(task) as attempt:
            for number in range(task * FILES_A_TASK, (task + 1) * FILES_A_TASK):
                async with attempt.open(name(number, promote=promote)) as file:
                    await file.write(content(number))
    print("ready", flush=True)
    await job.commit(tasks=files // FILES_A_TASK)
    await job.close()


if __name__ == "__main__":
    words = sys.argv[4:]
    given = dict(word.split("=", 1) for word in words if word != PROMOTE)
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), given, promote=PROMOTE in words))
