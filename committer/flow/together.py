"""A few different calls in one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


async def both(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """The results of two different calls, made at once; fails as `together` does."""
    results: list[Any] = [None, None]

    async def keep(place: int, call: Coroutine[Any, Any, object]) -> None:
        results[place] = await call

    await together(keep(0, first), keep(1, second))
    return results[0], results[1]


async def together(*calls: Coroutine[Any, Any, object]) -> None:
    """Awaits a handful of calls at once; the first that fails cancels the others, and its error is raised as it is.

    For two or three different calls; many alike go through `run_workers`. A single one is awaited as it is.
    """
    if len(calls) == 1:
        await calls[0]
        return
    try:
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(call)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
