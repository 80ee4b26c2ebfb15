"""A process that runs a job and its tasks and kills itself: `python staging_driver.py URI ENDPOINT DISK CALL`.

`CALL` is the number of its store call before which it dies, others of its calls being under way.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import committer
from committer import CommitterConfig
from committer.paths import StorePath
from committer.stores.s3 import S3Store
from committer.testing.faults import Call, FaultyStore
from tests.s3.bucket import KEY_ID_IS_IN, KEY_IS_IN

FILES_A_TASK = 5
FILES = 15


def content(number: int) -> bytes:
    return b"%d" % number * (number % 3)


def name(number: int) -> str:
    return f"p={number % 4}/part-{number:05d}"


async def main(uri: str, endpoint: str, disk: str, dies_at: int) -> None:
    options = {
        "endpoint_url": endpoint,
        "region": "us-east-1",
        "access_key_id": f"env:{KEY_ID_IS_IN}",
        "secret_access_key": f"env:{KEY_IS_IN}",
    }
    store = FaultyStore(S3Store.open_for(StorePath.of(uri), options))

    async def die(call: Call) -> None:
        if call.number >= dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    store.before_call = die
    config = CommitterConfig(io_concurrency=4, staging_directories=(disk,))
    job = await committer.open_job(
        uri, job_id="J", committer="directory", config=config, storage_options={"store": store}
    )
    async with asyncio.TaskGroup() as tasks:
        for task in range(FILES // FILES_A_TASK):
            tasks.create_task(_run(job, task))
    await job.commit(tasks=FILES // FILES_A_TASK)
    await job.close()


async def _run(job: committer.Job, task: int) -> None:
    async with job.task_attempt(task) as attempt:
        for number in range(task * FILES_A_TASK, (task + 1) * FILES_A_TASK):
            async with attempt.open(name(number)) as file:
                await file.write(content(number))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], int(sys.argv[4])))
