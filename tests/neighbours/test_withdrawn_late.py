"""A driver that is refused, and stopped while it withdraws, meanwhile its job is aborted and the id set up anew.

Its intent had the name that the new driver's has: taking it back must not take the other one away, by which replacing
jobs see that the new job commits.
"""

from __future__ import annotations

import asyncio

import pytest

import committer
from committer.errors import JobNotFoundError, PreflightError
from committer.testing.faults import Call
from tests.neighbours.meeting import Party, Table
from tests.rotation import Share

TAKEN = {"p=1/first": b"another user's"}
FIRST = {"p=1/first": b"1"}
SECOND = {"p=1/second": b"2"}


class Late:
    """A driver that is refused, stopped before one of its calls until the new driver declared its intent."""

    def __init__(self, profile: str, delivery: str, stopped_at: int) -> None:
        self.table = Table(profile, TAKEN)
        self.delivery = delivery
        self.stopped_at = stopped_at
        self.over = asyncio.Event()
        self.declared = asyncio.Event()
        self.seen: set[str] | None = None
        self.second: Party | None = None
        self.committing: asyncio.Task[None] | None = None

    async def run(self) -> Party:
        """The earlier driver to its end, then the new one to its own."""
        late = await self.table.job("job", FIRST, delivery=self.delivery)
        late.store.before_call = self._before
        await late.commit()
        if self.committing is not None:
            self.seen = self.table.temporary()
        self.over.set()
        if self.committing is not None:
            await self.committing
        return late

    async def _before(self, call: Call) -> None:
        if call.number != self.stopped_at:
            return
        try:
            async with committer.attach_job(self.table.dest, job_id="job", storage_options=self.table.options) as job:
                await job.abort()
        except JobNotFoundError:
            return
        self.second = await self.table.job("job", SECOND, delivery=self.delivery)
        self.second.store.before_call = self._stop_once_declared
        self.committing = asyncio.create_task(self.second.commit())
        await self.declared.wait()

    async def _stop_once_declared(self, call: Call) -> None:
        declares = [one for one in self.second.store.calls if one.operation == "put" and one.path.name == "intent"]
        if declares and call.number == declares[0].number + 1:
            self.declared.set()
            await self.over.wait()


@pytest.mark.parametrize("delivery", ["listing", "message"])
@pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])
async def test_driver_that_withdraws_late_leaves_the_new_drivers_intent(
    profile: str, delivery: str, share: Share
) -> None:
    """Stopped before each of its calls."""
    for stops in share.counted():
        case = Late(profile, delivery, stops)
        late = await case.run()
        if case.second is None:
            assert isinstance(late.error, PreflightError)
            break
        assert "_temporary/job/intent" in case.seen, stops
        assert case.second.error is None, (stops, case.second.error)
        assert case.table.files() == {**TAKEN, **SECOND}, stops
        assert case.table.temporary() == set(), stops
    assert stops > 5
