"""Working over many things that need no call, without keeping the event loop from all else for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")

_PORTION: Final = 1_000


async def portions(items: Iterable[T]) -> AsyncIterator[list[T]]:
    """The items, a thousand at a time; whatever else waits for the event loop runs between them.

    Args:
        items: All of them; a collection must not change meanwhile.
    """
    pulled = iter(items)
    while portion := list(islice(pulled, _PORTION)):
        yield portion
        await asyncio.sleep(0)
