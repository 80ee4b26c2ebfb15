"""Repeats a commit that other jobs exclude, until they have ended or `busy_timeout` is over."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from committer.committers.after_failure import after_failure
from committer.committers.job_call import JobCall, Led
from committer.committers.look import Position
from committer.committers.standing import Step
from committer.errors import DestinationBusyError, StoreError
from committer.logs import job_logger
from committer.stages.base import StageContext
from committer.stages.entries import layout_of_owner, owners_of_entries
from committer.stages.intent import DeclareIntent

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

    async def wait(self, busy: DestinationBusyError, step: Step, position: Position) -> Led:
        """Waits until no owner has the entry of a live job; returns where this job is then.

        The driver has deleted its entry, so it excludes no other job meanwhile. It writes the intent of its next try,
        so that it does not look dead. Each try has a new driver name: a delayed delete of an entry or intent must not
        hit the next one. Each look costs one listing, and up to 3 calls an entry.

        Args:
            busy: The error of the last try.
            step: Its step.
            position: Where the job was before it.

        Raises:
            DestinationBusyError: `busy_timeout` is over, counted from the first try; or the driver withdrew in part.
        """
        context = self._call.context
        limit = context.config.busy_timeout or 0.0
        if busy.outcome != "unchanged" or not limit:
            raise busy
        if self._began is None:
            self._began = context.runtime.monotonic()
        self._call.context = context = replace(context, driver=context.runtime.nonce())
        try:
            await DeclareIntent(context).run(self._call.deciding.intent_for(context))
            await self._until_free(context, busy, self._began + limit)
            return await self._call.look()
        except Exception as error:
            if error is busy:
                busy.message = f"{busy.message}, after a wait of {limit:g} s"
            return await after_failure(self._call, step, position, error)

    async def _until_free(self, context: StageContext, busy: DestinationBusyError, end: float) -> None:
        runtime = context.runtime
        free = False
        while not free:
            left = end - runtime.monotonic()
            if left <= 0:
                raise busy
            _log.info("job %s waits for %s", context.layout.job_id, ", ".join(busy.owners))
            await runtime.sleep(min(left, self._pause * (0.5 + runtime.random())))
            self._pause = min(2 * self._pause, _LONGEST_S)
            with suppress(StoreError):
                live = await owners_of_entries(context.store, partial(layout_of_owner, context))
                free = not any(live.get(owner) for owner in busy.owners)
