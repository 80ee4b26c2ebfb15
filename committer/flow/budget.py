"""A bound on something that is held for a while: bytes in memory, above all."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Budget:
    """Lets so much be held at once; who asks for more waits, first in, first out.

    More than all of it may be asked for: then it is given alone. Used by one event loop.

    Args:
        most: How much may be held at once.
    """

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError(f"most must be at least 1, not {most}")
        self._most = most
        self._held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def held(self) -> int:
        """How much is held now."""
        return self._held

    @asynccontextmanager
    async def hold(self, amount: int) -> AsyncIterator[None]:
        """Holds an amount for the length of a block."""
        await self._take(amount)
        try:
            yield
        finally:
            self._held -= amount
            self._serve()

    async def _take(self, amount: int) -> None:
        if not self._waiting and self._fits(amount):
            self._held += amount
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # Given in the same moment.
                self._held -= amount
            self._serve()
            raise

    def _serve(self) -> None:
        while self._waiting:
            amount, turn = self._waiting[0]
            if turn.cancelled():
                self._waiting.popleft()
                continue
            if not self._fits(amount):
                return
            self._waiting.popleft()
            self._held += amount
            turn.set_result(None)

    def _fits(self, amount: int) -> bool:
        return not self._held or self._held + amount <= self._most
