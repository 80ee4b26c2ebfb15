"""Clean-up that no cancellation interrupts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio

UNDO_BOUND_S: Final = 60.0
"""Seconds that undoing something may take when its work failed or was cancelled.

A call with its retries takes some seconds where a store fails, and two minutes at most where it asks to slow down
(`RetryPolicy`). A minute ends nearly all that is worth waiting for, and lets a process that was told to stop do so.
What is left by then is found by ``list_jobs``, and removed by ``cleanup``.
"""


async def run_shielded(work: Callable[[], Coroutine[Any, Any, object]], *, bound_s: float) -> bool:
    """Runs clean-up to its end, or to its bound, however often the caller is cancelled meanwhile.

    A shield of anyio keeps out the cancellations of its own scopes only: ``asyncio.timeout``, a task group or the end
    of the loop cancel the task itself, and may do so while an earlier cancellation is being handled.

    Args:
        work: What is done.
        bound_s: Seconds after which it is cancelled.

    Returns:
        Whether it ended within the bound.

    Raises:
        asyncio.CancelledError: The caller was cancelled meanwhile; raised once the work is over.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + bound_s
    task = asyncio.create_task(work())
    cancelled: asyncio.CancelledError | None = None
    in_time = True
    with anyio.CancelScope(shield=True):
        while not task.done():
            # At least one turn of the loop, so that the work begins however late it is.
            remaining = max(0.0, deadline - loop.time()) if in_time else None
            try:
                await asyncio.wait({task}, timeout=remaining)
            except asyncio.CancelledError as error:
                cancelled = error
                continue
            if in_time and not task.done() and loop.time() >= deadline:
                in_time = False
                task.cancel()
    if cancelled is not None:
        if not task.cancelled():
            # Fetched, so that the loop does not log an error that was never looked at.
            task.exception()
        raise cancelled
    if in_time:
        task.result()
    return in_time
