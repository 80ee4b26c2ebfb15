"""A driver that commits a job with little memory to be had: `DESTINATION JOB_ID MEGABYTES`."""

from __future__ import annotations

import asyncio
import resource
import sys

import committer
from committer import CommitterError
from committer.stores import local  # noqa: F401 - loaded before memory is short, as in a driver at work


def main() -> None:
    destination, job_id, megabytes = sys.argv[1], sys.argv[2], int(sys.argv[3])

    async def commit() -> None:
        # Its thread runs before memory is short: Python waits for ever for one that cannot begin for want of memory.
        async with committer.attach_job(destination, job_id=job_id, storage_options={"threads": 1}) as job:
            await job.plan()
            with open("/proc/self/statm") as sizes:
                pages = int(sizes.read().split()[0])
            limit = pages * resource.getpagesize() + (megabytes << 20)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            await job.commit()

    try:
        asyncio.run(commit())
    except CommitterError as error:
        print(f"{type(error).__name__} {error.outcome}", flush=True)
        sys.exit(1)
    print("committed", flush=True)


if __name__ == "__main__":
    main()
