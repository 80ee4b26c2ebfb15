"""Runs a few different calls concurrently: the first failure cancels the others, or both run to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

A = TypeVar("A")
B = TypeVar("B")


async def both(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Makes two calls at once and returns both results; fails as `together` does."""
    results = await together(first, second)
    return cast("A", results[0]), cast("B", results[1])


async def both_in_full(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Makes two calls at once and awaits both to their end; of two errors raises the first call's.

    For calls that change something: a cancelled request may be under way, and arrive after the error was handled.
    """
    one, other = await both(settled(first), settled(second))
    if isinstance(one, Exception):
        raise one
    if isinstance(other, Exception):
        raise other
    return one, other


async def settled(call: Coroutine[Any, Any, A]) -> A | Exception:
    """Returns a call's result, or its error, so that concurrent calls are not cancelled."""
    try:
        return await call
    except Exception as error:
        return error


async def together(*calls: Coroutine[Any, Any, object]) -> list[object]:
    """Makes a few calls at once and returns their results; the first failure cancels the others and is raised.

    For different calls; many alike go through `run_workers`. Every call has ended when this returns. If the caller
    is cancelled, all calls are, and CancelledError is raised even if one fails; `asyncio.TaskGroup` of Python 3.11
    and 3.12 loses it then.
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
        # Of every task, each time: asyncio logs errors that were never retrieved.
        found = [task for task in tasks if task.done() and not task.cancelled() and task.exception() is not None]
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
        # The raised error refers to this frame: without `del` both are a cycle.
        del tasks, failed, cancellation
