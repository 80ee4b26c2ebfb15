"""Jobs that append to one destination and end at once, each stopped where a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

import pytest

import committer
from committer import CommitterConfig
from committer.records.success import decode_success
from committer.testing.faults import Call, Fault, FaultKind, SimulatedCrash
from tests.neighbours.meeting import Connection, Party, Table

_UNMARKED = CommitterConfig(io_concurrency=1, conflict_mode="replace", mark_successful_jobs=False)


def puts(call: Call) -> bool:
    return call.operation == "put" and call.path.name == "_SUCCESS"


def moves(call: Call) -> bool:
    return call.operation == "rename_file" and call.path.name == "_SUCCESS"


def reads(call: Call) -> bool:
    return call.operation == "read" and call.path.name == "_SUCCESS"


def gives_back(call: Call) -> bool:
    return call.operation == "rename_file" and call.path.name.startswith("taken-")


def lists_moved(call: Call) -> bool:
    """Where drivers of a job keep what they moved away."""
    return call.operation == "list" and call.path.name.startswith("drivers-")


def reads_moved(call: Call) -> bool:
    return call.operation == "read" and call.path.name.startswith("taken-")


LOOKS_AT_MOVED = [(lists_moved, 1), (reads_moved, 1), (reads_moved, 2)]
"""The calls with which a recovery finds a newer marker that was moved: which kind, and which of them."""


def taken(table: Table) -> list[str]:
    """Where markers lie that were taken away, the first one first."""
    return [name for name in table.all_files() if "/taken-" in name]


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
        assert self._until is None, "no such call"
        return self

    async def to_the_end(self) -> None:
        await self._go()
        assert self._running is not None
        await self._running
        if self.party.error is not None:
            raise self.party.error

    async def dies(self) -> None:
        """Where it stands."""
        self.party.store.faults.append(Fault(kind="crash_before"))
        with pytest.raises(SimulatedCrash):
            await self.to_the_end()

    async def _go(self) -> None:
        self._stops.clear()
        self._goes.set()
        if self._running is None:
            self._running = asyncio.create_task(self.party.commit())
            self._running.add_done_callback(lambda _done: self._stops.set())
        if self._until is not None:
            await self._stops.wait()


def stop_before(store: Connection, what: Callable[[Call], bool]) -> tuple[asyncio.Event, asyncio.Event]:
    """Has the first such call of a store wait: the first event says that it does, the second one lets it go on."""
    stands, goes = asyncio.Event(), asyncio.Event()

    async def before(call: Call) -> None:
        if what(call) and not stands.is_set():
            stands.set()
            await goes.wait()

    store.before_call = before
    return stands, goes


def fails_from(store: Connection, kind: FaultKind, what: Callable[[Call], bool], number: int) -> None:
    """Has that call of its kind fail, and each try of it."""
    seen = 0

    async def before(call: Call) -> None:
        nonlocal seen
        seen += what(call)
        if what(call) and seen == number:
            store.faults.append(Fault(kind=kind, operation=call.operation, path=str(call.path), times=None))

    store.before_call = before


async def job(table: Table, name: str, partition: int = 1) -> Steps:
    return Steps(await table.job(name, {f"p={partition}/{name}": name.encode()}, CommitterConfig(io_concurrency=1)))


def marked(table: Table) -> str | None:
    found = table.all_files().get("_SUCCESS")
    return decode_success(found, source="").jobId if found else None


async def three(profile: str, *, newest_in: int = 1) -> tuple[Table, Steps, Steps]:
    """The middle and the newest job, about to put their `_SUCCESS`, which that of the oldest one refuses.

    All write into one partition; the newest one may write into another.
    """
    table = Table(profile)
    # All are set up and decided before one of them writes it: else the decision names the one to set aside.
    oldest, middle, newest = [
        await job(table, name, partition) for name, partition in (("oldest", 1), ("middle", 1), ("newest", newest_in))
    ]
    for each in (oldest, middle, newest):
        await each.until(puts)
    await oldest.to_the_end()
    assert marked(table) == "oldest"
    return table, middle, newest


async def finish_and_die(table: Table, name: str) -> None:
    """A recovery of a job that dies when it has marked it as finished: nothing is cleaned up."""
    dying = Connection(table.space)
    dying.faults += [Fault(kind="crash_after", operation=how, path="outcome") for how in ("put", "replace_file")]
    with pytest.raises(SimulatedCrash):
        await committer.recover(table.dest, name, storage_options={"store": dying})


async def replace_unmarked(table: Table, partition: int = 1) -> None:
    """A job replaces a partition, with the file `later`, and leaves no `_SUCCESS`."""
    later = await table.job("later", {f"p={partition}/later": b"later"}, _UNMARKED)
    await later.commit()
    assert later.error is None


async def end_when_replaced(table: Table, goes: asyncio.Event, running: asyncio.Task[committer.JobReport]) -> None:
    """A job without `_SUCCESS` replaces partition 2, then a recovery that stood still goes on to its end."""
    await replace_unmarked(table, 2)
    goes.set()
    await running
