"""Commits that stop where a test wants them to, and jobs that append to one destination."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from committer import CommitterConfig
from committer.records.success import decode_success
from committer.testing.faults import Call
from tests.neighbours.meeting import Party, Table


class Steps:
    """A commit that stands still right before each call that is named, until it is told to go on."""

    def __init__(self, party: Party) -> None:
        self.party = party
        self._stops, self._goes = asyncio.Event(), asyncio.Event()
        self._until: Callable[[Call], bool] | None = None
        self._running: asyncio.Task[None] | None = None
        party.store.before_call = self._before

    async def _before(self, call: Call) -> None:
        if self._until is not None and self._until(call):
            self._until = None
            self._goes.clear()
            self._stops.set()
            await self._goes.wait()

    async def until(self, what: Callable[[Call], bool]) -> Self:
        """Goes on to the next call of that kind, and stands still before it."""
        self._until = what
        await self._go()
        assert self._until is None, self.party.error or "no such call"
        return self

    async def to_the_end(self) -> None:
        """Goes on until it is over, however it ends."""
        await self._go()
        assert self._running is not None
        await self._running

    async def _go(self) -> None:
        self._stops.clear()
        self._goes.set()
        if self._running is None:
            self._running = asyncio.create_task(self.party.commit())
            self._running.add_done_callback(lambda _done: self._stops.set())
        if self._until is not None:
            await self._stops.wait()


async def job(table: Table, name: str, partition: int = 1) -> Steps:
    return Steps(await table.job(name, {f"p={partition}/{name}": name.encode()}, CommitterConfig(io_concurrency=1)))


def marked(table: Table) -> str | None:
    found = table.all_files().get("_SUCCESS")
    return decode_success(found, source="").jobId if found else None
