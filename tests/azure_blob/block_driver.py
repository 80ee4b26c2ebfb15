"""A driver that commits to a container and kills itself: `python block_driver.py URI ENDPOINT JOB_ID FILES CALL [--replace]`.

`CALL` is the number of the store call of its commit before which it dies, others of its calls being under way.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import committer
from committer import CommitterConfig
from committer.paths import StorePath
from committer.stores.azure_blob import AzureBlobStore
from committer.testing.faults import Call, FaultyStore
from tests.azure_blob.azurite import ACCOUNT, KEY_IS_IN

FILES_A_TASK = 10


def content(number: int) -> bytes:
    return b"%d" % number * (number % 3)


def name(number: int) -> str:
    return f"p={number % 7}/part-{number:05d}"


async def main(uri: str, endpoint: str, job_id: str, files: int, dies_at: int, *, replace: bool) -> None:
    options = {"account_name": ACCOUNT, "endpoint": endpoint, "account_key": f"env:{KEY_IS_IN}"}
    store = FaultyStore(AzureBlobStore.open_for(StorePath.of(uri), options))
    config = CommitterConfig(io_concurrency=4, conflict_mode="replace" if replace else "append")
    job = await committer.open_job(uri, job_id=job_id, config=config, storage_options={"store": store})
    for task in range(files // FILES_A_TASK):
        async with job.task_attempt(task) as attempt:
            for number in range(task * FILES_A_TASK, (task + 1) * FILES_A_TASK):
                async with attempt.open(name(number)) as file:
                    await file.write(content(number))
    last = len(store.calls) + dies_at

    async def die(call: Call) -> None:
        if call.number >= last:
            os.kill(os.getpid(), signal.SIGKILL)

    store.before_call = die
    await job.commit(tasks=files // FILES_A_TASK)
    await job.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]), replace="--replace" in sys.argv))
