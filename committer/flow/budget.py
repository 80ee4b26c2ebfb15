"""Limit on an amount that is held for a while, such as bytes in memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Budget:
    """Limit on the amount held at once; callers beyond it wait in order. For one event loop.

    A caller that asks for more than `most` gets it alone.
    """

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError(f"most must be at least 1, not {most}")
        self._most = most
        self._held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def held(self) -> int:
        """The amount held now."""
        return self._held

    @asynccontextmanager
    async def hold(self, amount: int) -> AsyncIterator[None]:
        """Holds an amount for the duration of a block."""
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
                # Granted at the same moment.
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
