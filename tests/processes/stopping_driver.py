"""A driver that stops itself: `python stopping_driver.py DESTINATION JOB_ID`.

It commits one file and stops (SIGSTOP) in the store, right before the system call that renames `_SUCCESS` into place. Prints
`committed` when it went on and is done.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import committer
from committer.stores.local import renames


def stop() -> None:
    """Stops this thread: a signal to the process may find another thread, and this one goes on for a while."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def stop_before_success() -> None:
    """Stops this process before `_SUCCESS` is renamed into place."""
    rename: Callable[..., Any] = renames.rename

    def stopped(source: Any, destination: Any) -> None:
        if source.name.rpartition("/")[2].startswith("_SUCCESS-"):
            stop()
        rename(source, destination)

    renames.rename = stopped


async def main(destination: str, job_id: str) -> None:
    async with committer.open_job(destination, job_id=job_id) as job:
        async with job.task_attempt(0) as attempt, attempt.open("p=1/of-the-past") as file:
            await file.write(b"past")
    print("committed", flush=True)


if __name__ == "__main__":
    stop_before_success()
    asyncio.run(main(sys.argv[1], sys.argv[2]))
