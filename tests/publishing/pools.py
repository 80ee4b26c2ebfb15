"""Pools for tests: workers in this process, each with a connection of its own, and pools that misbehave."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import committer
from committer.api.publishing import PublishAccount, PublishChunk
from committer.testing.faults import SimulatedCrash
from tests.neighbours.meeting import Connection, Table

OnChunk = Callable[[PublishChunk], Awaitable[PublishAccount]]


@dataclass
class TablePool:
    """Workers of a table's store.

    Attributes:
        table: Where.
        number: How many.
        chunks: What the driver gave out.
        accounts: What it got back.
        instead: What happens in place of the publishing of one.
    """

    table: Table
    number: int = 2
    chunks: list[PublishChunk] = field(default_factory=list)
    accounts: list[PublishAccount] = field(default_factory=list)
    instead: OnChunk | None = None

    def workers(self) -> int:
        """As many as now."""
        return self.number

    async def publish(self, chunk: PublishChunk) -> PublishAccount:
        """As a pool of processes would: by messages."""
        chunk = pickle.loads(pickle.dumps(chunk))
        self.chunks.append(chunk)
        account = await (self.instead or self.work)(chunk)
        self.accounts.append(account)
        return account

    async def work(self, chunk: PublishChunk) -> PublishAccount:
        """Publishes it."""
        account = await committer.publish_chunk(chunk, self.table.options)
        return pickle.loads(pickle.dumps(account))


class DriverDies:
    """A pool in which the driver dies when it gives out its first chunk."""

    chunk: PublishChunk

    def workers(self) -> int:
        """One."""
        return 1

    async def publish(self, chunk: PublishChunk) -> PublishAccount:
        """Keeps the chunk."""
        self.chunk = chunk
        raise SimulatedCrash("pool")


@dataclass
class Worker:
    """A worker that can be stopped before one of its store calls, while something else happens."""

    chunk: PublishChunk
    store: Connection
    account: PublishAccount | None = None

    async def run(self, at: int = 0, what: Callable[[], Awaitable[None]] | None = None) -> None:
        """Publishes the chunk; `what` happens whole before its call number `at`, or afterwards."""
        done = asyncio.Event()

        async def before(call: object) -> None:
            if call.number == at and what is not None:  # type: ignore[attr-defined]
                done.set()
                await what()

        self.store.before_call = before
        self.account = await committer.publish_chunk(self.chunk, {"store": self.store})
        self.store.before_call = None
        if what is not None and not done.is_set():
            await what()
