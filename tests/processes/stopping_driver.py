"""A driver that stops itself: `python stopping_driver.py DESTINATION JOB_ID CALL`.

It commits one file and stops (SIGSTOP) in the store, right before the system call that CALL names: `success`, the rename of
`_SUCCESS` into place, or `finished`, that of the outcome which says that nothing but cleaning is left. Prints `committed`
when it went on and is done.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import committer
from committer.stores.local import disk


def stop_before(name: str, call: str) -> None:
    """Stops this process before a file of that name is renamed into place, or replaced; the first time only."""
    original: Callable[..., Any] = disk.Disk.put
    seen: list[str] = []

    def put(self: Any, path: Any, data: bytes, temporary: Any, exclusive: bool, durable: bool) -> Any:
        if path.name != name or (call == "finished" and exclusive) or seen:
            return original(self, path, data, temporary, exclusive, durable)
        seen.append(name)
        rename, exclusively = disk.rename, self._rename_exclusively

        def stopped(source: Any, destination: Any) -> None:
            # To this thread: one that is sent to the process may find another thread, and this one goes on for a while.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            (exclusively if exclusive else rename)(source, destination)

        self._rename_exclusively, disk.rename = stopped, stopped  # type: ignore[method-assign]
        try:
            return original(self, path, data, temporary, exclusive, durable)
        finally:
            self._rename_exclusively, disk.rename = exclusively, rename  # type: ignore[method-assign]

    disk.Disk.put = put  # type: ignore[method-assign]


async def main(destination: str, job_id: str) -> None:
    async with committer.open_job(destination, job_id=job_id) as job:
        async with job.task_attempt(0) as attempt, attempt.open("p=1/of-the-past") as file:
            await file.write(b"past")
    print("committed", flush=True)


if __name__ == "__main__":
    stop_before("_SUCCESS" if sys.argv[3] == "success" else "outcome", sys.argv[3])
    asyncio.run(main(sys.argv[1], sys.argv[2]))
