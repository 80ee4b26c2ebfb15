"""A driver that commits to an emulated account: `python adls_driver.py URI ENDPOINT JOB_ID FILES`; the key is in ADLS_KEY.

Prints `ready` before it commits.
"""

from __future__ import annotations

import asyncio
import sys

import committer
from committer import CommitterConfig

FILES_A_TASK = 50


def content(number: int) -> bytes:
    return b"%d" % number


def name(number: int) -> str:
    return f"p={number % 7}/part-{number:05d}"


async def main(uri: str, endpoint: str, job_id: str, files: int) -> None:
    options = {"endpoint": endpoint, "account_key": "env:ADLS_KEY"}
    # Few calls at a time stretch the commit, so that a moment drawn at random falls anywhere in it.
    config = CommitterConfig(io_concurrency=4)
    job = await committer.open_job(uri, job_id=job_id, config=config, storage_options=options)
    for task in range(files // FILES_A_TASK):
        async with job.task_attempt(task) as attempt:
            for number in range(task * FILES_A_TASK, (task + 1) * FILES_A_TASK):
                async with attempt.open(name(number)) as file:
                    await file.write(content(number))
    print("ready", flush=True)
    await job.commit(tasks=files // FILES_A_TASK)
    await job.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], int(sys.argv[4])))
