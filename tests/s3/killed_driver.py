"""A process that runs a job and its tasks and kills itself: `python killed_driver.py URI ENDPOINT COMMITTER ORDERS`.

`ORDERS` is the JSON of `Orders`. When it dies, others of its store calls are under way; else it prints how many its commit made.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import msgspec

import committer
from committer import CommitterConfig
from committer.paths import StorePath
from committer.stores.s3 import S3Store
from committer.testing.faults import Call, FaultyStore
from tests.s3.bucket import KEY_ID_IS_IN, KEY_IS_IN

JOB = "J"


class Orders(msgspec.Struct, frozen=True):
    """What the process does.

    Args:
        tasks: How many tasks it has. They run side by side.
        files: How many files each of them writes.
        dies_at: The number of the store call before which it dies.
        counts_from_commit: That number is counted from the beginning of the job commit, else from the first call.
        config: Of its job.
    """

    tasks: int
    files: int
    dies_at: int
    counts_from_commit: bool
    config: CommitterConfig

    def content(self) -> dict[str, bytes]:
        """All files that it writes."""
        return {_name(number): _content(number) for number in range(self.tasks * self.files)}


def _content(number: int) -> bytes:
    return b"%d" % number * (number % 3)


def _name(number: int) -> str:
    return f"p={number % 7}/part-{number:05d}"


async def main(uri: str, endpoint: str, kind: str, orders: Orders) -> None:
    options = {
        "endpoint_url": endpoint,
        "region": "us-east-1",
        "access_key_id": f"env:{KEY_ID_IS_IN}",
        "secret_access_key": f"env:{KEY_IS_IN}",
    }
    store = FaultyStore(S3Store.open_for(StorePath.of(uri), options))
    before_commit = 0

    async def die(call: Call) -> None:
        if call.number >= before_commit + orders.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    if not orders.counts_from_commit:
        store.before_call = die
    job = await committer.open_job(
        uri, job_id=JOB, committer=kind, config=orders.config, storage_options={"store": store}
    )
    async with asyncio.TaskGroup() as tasks:
        for task in range(orders.tasks):
            tasks.create_task(_run(job, task, orders.files))
    if orders.counts_from_commit:
        before_commit = len(store.calls)
        store.before_call = die
    await job.commit(tasks=orders.tasks)
    print(len(store.calls) - before_commit)
    await job.close()


async def _run(job: committer.Job, task: int, files: int) -> None:
    async with job.task_attempt(task) as attempt:
        for number in range(task * files, (task + 1) * files):
            async with attempt.open(_name(number)) as file:
                await file.write(_content(number))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], msgspec.json.decode(sys.argv[4], type=Orders)))
