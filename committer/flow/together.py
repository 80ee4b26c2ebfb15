"""A few different calls in one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

A = TypeVar("A")
B = TypeVar("B")


async def both(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """The results of two different calls, made at once; fails as `together` does."""
    results = await together(first, second)
    return cast("A", results[0]), cast("B", results[1])


async def both_in_full(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """As `both`, but where one fails the other is awaited to its end: of two errors the first call's is raised.

    For calls that change something. A request that is cut short may be under way, and arrive when what follows the
    error is done.
    """
    one, other = await both(settled(first), settled(second))
    if isinstance(one, Exception):
        raise one
    if isinstance(other, Exception):
        raise other
    return one, other


async def settled(call: Coroutine[Any, Any, A]) -> A | Exception:
    """A call's result, or its error: no call beside it is cut short, and the caller says which error counts."""
    try:
        return await call
    except Exception as error:
        return error


async def together(*calls: Coroutine[Any, Any, object]) -> list[object]:
    """The results of a handful of calls, made at once; the first failure cancels the others and is raised as it is.

    For two or three different calls; many alike go through `run_workers`. A single one is awaited as it is. Whatever
    happens, every call has ended when this returns. Cancelling the caller cancels all of them, and is what is raised
    then, whatever they end with: `asyncio.TaskGroup` of Python 3.11 and 3.12 forgets it where one of them fails.
    """
    if len(calls) == 1:
        return [await calls[0]]
    tasks = [asyncio.create_task(call) for call in calls]
    pending: set[asyncio.Task[object]] = set(tasks)
    cancellation: asyncio.CancelledError | None = None
    failed: list[asyncio.Task[object]] = []
    while pending:
        stopping = cancellation is not None or bool(failed)
        try:
            _done, pending = await asyncio.wait(
                pending, return_when=asyncio.ALL_COMPLETED if stopping else asyncio.FIRST_EXCEPTION
            )
        except asyncio.CancelledError as error:
            cancellation = cancellation or error
        # Asked of every task, each time: an error that is never asked for is logged.
        found = [task for task in tasks if _has_failed(task)]
        failed = failed or found[:1]
        if not stopping:
            for task in pending:
                task.cancel()
    try:
        if cancellation is not None:
            raise cancellation from (failed[0].exception() if failed else None)
        if failed:
            raise cast("BaseException", failed[0].exception())
        return [task.result() for task in tasks]
    finally:
        # A raised error refers to this frame; it must not be referred to by it.
        del tasks, failed, cancellation


def _has_failed(task: asyncio.Task[object]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None
