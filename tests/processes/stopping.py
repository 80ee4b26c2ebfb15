"""Drivers that stop themselves between two system calls: `python stopping.py`, told by lines of JSON what to run.

Imports once and forks for each run. A run does to one job what it is told and stops (SIGSTOP) before its nth system call
on one name, or on what fits a pattern; answers are `stopped` and `ended`. The line `"go on"` continues it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from fnmatch import fnmatch
from typing import Any

import committer
from committer import CommitterConfig
from committer.errors import CommitterError
from committer.stores.local import LocalStore, kernel_rename
from committer.stores.local.calls import Entries
from committer.testing.faults import Fault, FaultyStore, SimulatedCrash

CALLS = ("link", "rename", "unlink", "lstat", "rmdir")


def without_flag(source: str, destination: str, **_at: int | None) -> None:
    """As a file system answers that does not know the flag, NFS for one."""
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), source, None, destination)


def stop_before(name: str, number: int) -> None:
    """Stops this process before its `number`th call from now on that names `name`, which may be a pattern."""
    left = number

    def names_it(args: tuple[Any, ...]) -> bool:
        return name in args or ("*" in name and any(isinstance(arg, str) and fnmatch(arg, name) for arg in args))

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def look(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if names_it(args):
                left -= 1
                if left == 0:
                    # To this thread: of a signal to the process another one may take note, a moment later.
                    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            return call(*args, **kwargs)

        return look

    for call in CALLS:
        setattr(os, call, watched(getattr(os, call)))
    Entries.__init__ = watched(Entries.__init__)  # type: ignore[method-assign]
    kernel_rename.rename_no_replace = watched(kernel_rename.rename_no_replace)  # type: ignore[assignment]


async def write(
    destination: str, job_id: str, files: dict[str, str], store: object, config: CommitterConfig
) -> committer.Job:
    """A job whose one task wrote these files."""
    job = await committer.open_job(destination, job_id=job_id, config=config, storage_options={"store": store})
    async with job.task_attempt(0) as task:
        for name, text in files.items():
            async with task.open(name) as file:
                await file.write(text.encode())
    return job


async def run(
    destination: str, job_id: str, files: dict[str, str], do: str, config: dict[str, Any], flag: bool, stop: list[Any]
) -> None:
    """Commits, or rolls back what a driver that died had published, and stops on the way."""
    if not flag:
        kernel_rename.rename_no_replace = without_flag
    options = CommitterConfig(io_concurrency=1, **config)
    store = FaultyStore(LocalStore(threads=1))
    job = await write(destination, job_id, files, store, options)
    if do == "roll back":
        store.faults.append(Fault(kind="crash_before", operation="put", path="outcome"))
        with contextlib.suppress(SimulatedCrash):
            await job.commit(tasks=1)
        store = FaultyStore(LocalStore(threads=1))
    stop_before(*stop)
    with contextlib.suppress(CommitterError):
        if do == "roll back":
            await committer.recover(destination, job_id, rollback=True, force=True, storage_options={"store": store})
        else:
            await job.commit(tasks=1)


def main() -> None:
    child = 0
    for line in sys.stdin:
        told = json.loads(line)
        if told == "go on":
            os.kill(child, signal.SIGCONT)
        else:
            child = os.fork()
            if child == 0:
                asyncio.run(run(**told))
                os._exit(0)
        _pid, status = os.waitpid(child, os.WUNTRACED)
        print("stopped" if os.WIFSTOPPED(status) else f"ended {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main()
