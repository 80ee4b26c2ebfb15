"""A few different calls in one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


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
