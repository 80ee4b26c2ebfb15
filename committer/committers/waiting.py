"""Waiting for the jobs that are in the way of a commit, then another try of the same driver process."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from committer.committers.job_call import JobCall
from committer.committers.look import Position
from committer.errors import DestinationBusyError, StoreError
from committer.logs import job_logger
from committer.stages.entries import layout_of_owner, owners_of_entries
from committer.stages.intent import DeclareIntent, withdraw

_log = job_logger("committer.committers")

_SHORTEST_S: Final = 0.25
_LONGEST_S: Final = 5.0


class Turn:
    """The tries of one commit to get its turn among other jobs, within `CommitterConfig.busy_timeout`.

    Args:
        call: The commit.
    """

    def __init__(self, call: JobCall) -> None:
        self._call = call
        self._began: float | None = None
        self._pause = _SHORTEST_S

    async def wait(self, busy: DestinationBusyError) -> Position:
        """Waits until the owners have no entry of a live job, then begins anew; returns where the job stands.

        The driver's entry is deleted by then, so that it keeps no job out. An intent says meanwhile that it is at work,
        which is that of the next try: each try has another name, since a delayed delete must not hit the next one. Each
        look costs one listing, and up to 3 calls an entry.

        Raises:
            DestinationBusyError: The time is over, counted from the first try; or the driver withdrew only in part.
        """
        context = self._call.context
        runtime, limit = context.runtime, context.config.busy_timeout or 0.0
        if busy.outcome != "unchanged" or not limit:
            raise busy
        if self._began is None:
            self._began = runtime.monotonic()
        self._call.context = context = replace(context, driver=runtime.nonce())
        await DeclareIntent(context).run(self._call.deciding.intent_for(context))
        free = False
        while not free:
            left = self._began + limit - runtime.monotonic()
            if left <= 0:
                busy.message = f"{busy.message}, after a wait of {limit:g} s"
                await withdraw(context)
                raise busy
            _log.info("job %s waits for %s", context.layout.job_id, ", ".join(busy.owners))
            await runtime.sleep(min(left, self._pause * (0.5 + runtime.random())))
            self._pause = min(2 * self._pause, _LONGEST_S)
            with suppress(StoreError):
                live = await owners_of_entries(context.store, partial(layout_of_owner, context))
                free = not any(live.get(owner) for owner in busy.owners)
        return await self._call.look()
