"""Meeting every system call of the local store: to refuse it, or to die at it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from committer.stores.local import kernel_rename

LOOKS = ("scandir", "lstat", "stat", "fstat", "access")
CHANGES = ("open", "pwrite", "mkdir", "rename", "link", "unlink", "rmdir", "fsync")


@contextmanager
def met(
    before: Callable[[str, tuple[Any, ...]], None], after: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Calls `before` and `after` around each system call that the local store makes in its threads."""

    def meeting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def met_call(*args: Any, **kwargs: Any) -> Any:
            if not threading.current_thread().name.startswith("committer-local"):
                return call(*args, **kwargs)
            before(name, args)
            try:
                return call(*args, **kwargs)
            finally:
                after(name)

        return met_call

    real = {name: getattr(os, name) for name in (*LOOKS, *CHANGES)}
    real_rename = kernel_rename.rename_no_replace
    for name, call in real.items():
        setattr(os, name, meeting(name, call))
    kernel_rename.rename_no_replace = meeting("rename_no_replace", real_rename)
    try:
        yield
    finally:
        for name, call in real.items():
            setattr(os, name, call)
        kernel_rename.rename_no_replace = real_rename


def killed_at(number: int, run: Callable[[], Coroutine[Any, Any, object]]) -> bool:
    """Runs something in a child that gets SIGKILL at its `number`th event: before or after a system call.

    Returns:
        Whether it came so far.
    """
    with warnings.catch_warnings():
        # The threads of the test's runner take no part.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            _run_and_die(number, run)
        finally:
            os._exit(3)
    _pid, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def _run_and_die(number: int, run: Callable[[], Coroutine[Any, Any, object]]) -> None:
    events = 0

    def event(*_args: object) -> None:
        nonlocal events
        events += 1
        if events == number:
            os.kill(os.getpid(), signal.SIGKILL)

    with met(event, event):
        asyncio.run(run())
    os._exit(0)
