"""A runtime in which waiting is short: what is between the tries of a store call takes no part of a test's time.

Other than with `VirtualRuntime`, threads, disks and sockets go on as they do, on any loop.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from committer.flow.runtime import Runtime

_SHORTER: Final = 1000


class ShortWaits(Runtime):
    """The machine's, but a wait of a second takes a millisecond, after which its clocks are a second further."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def monotonic(self) -> float:
        """The machine's, and what was left out of the waits."""
        return time.monotonic() + self._ahead_s

    def now(self) -> datetime:
        """The machine's, and what was left out of the waits."""
        return datetime.now(UTC) + timedelta(seconds=self._ahead_s)

    async def sleep(self, seconds: float) -> None:
        """Waits a thousandth of it. Waits at the same time move the clocks once."""
        over = self.monotonic() + seconds
        await asyncio.sleep(seconds / _SHORTER)
        self._ahead_s = max(self._ahead_s, over - time.monotonic())
