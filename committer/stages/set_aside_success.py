"""`_SUCCESS` of an earlier job is set aside when publishing begins."""

from __future__ import annotations

import contextlib

from committer.errors import (
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
)
from committer.layout import SUCCESS
from committer.records.job_state import Decision
from committer.stages.base import Stage
from committer.stages.commit_state import aside_is_gone, looking_again
from committer.stages.success_content import read_success
from committer.stages.take_away import take_away
from committer.stores.helpers import create_exclusively, move_file, status_or_none

PLACE_TAKEN = b"No _SUCCESS: only that none may arrive here late.\n"
"""What takes the place of an old `_SUCCESS` that another job had set aside before."""


class SetAsideSuccess(Stage[Decision, None]):
    """Moves the `_SUCCESS` whose identity the decision recorded into the job's directory; no other one.

    It says that a destination is complete, which it no longer is once the first file is published. Hadoop deletes it
    in job setup, so a job that never commits leaves a complete destination without it.

    Preconditions: the decision stands, nothing is published yet (or the commit is being finished).
    Postconditions: the recorded `_SUCCESS` is not at the destination; rollback puts it back.
    Cost: 2 calls when there was one, else none; one more where an answer was lost.
    """

    name = "job_stage_set_aside_success"

    async def execute(self, value: Decision) -> None:
        """Looks, moves; again when an answer was lost."""
        try:
            await self._set_aside(value)
        except StoreOutcomeUnknownError:
            await looking_again(lambda: self._set_aside(value))
            await self._bar_late_move(value)

    async def _bar_late_move(self, value: Decision) -> None:
        """Takes the place that a request without answer would move `_SUCCESS` to: it could come late, for a new one.

        The old one is not at the destination any more. Needless where a rename is told what to move.
        """
        can = self.context.store.capabilities
        if can.conditional_rename or not can.identity_through_rename or value.success_identity is None:
            return
        with contextlib.suppress(StoreNotFoundError, StoreIsADirectoryError):
            await create_exclusively(self.context.store, self.context.layout.superseded / SUCCESS, PLACE_TAKEN)

    async def _set_aside(self, value: Decision) -> None:
        layout, store = self.context.layout, self.context.store
        if not (value.success_present and value.config.mark_successful_jobs):
            return
        aside = layout.superseded / SUCCESS
        try:
            status = await store.status(layout.success)
            if status.is_directory or status.identity != value.success_identity:
                return
            if status.identity is None and await self._speaks_for_this_job():
                return
            await move_file(store, layout.success, aside, identity=status.identity)
        except StoreNotFoundError as error:
            if error.path in ("", str(layout.success)):
                return
            raise aside_is_gone(self.context, self.name, layout.success) from error
        except StorePreconditionError:
            # Another one stands there since it was looked at.
            return
        except StoreExistsError:
            # Moved before: by a link whose old name was not yet removed, or by another driver, which may have written
            # the job's own marker since this one looked.
            standing, kept = await status_or_none(store, layout.success), await status_or_none(store, aside)
            if standing is None or kept is None or kept.identity is None:
                return
            if standing.identity == kept.identity == value.success_identity:
                await take_away(self.context, layout.success, layout.superseded, identity=kept.identity)

    async def _speaks_for_this_job(self) -> bool:
        found = await read_success(self.context)
        return found is not None and found.jobId == self.context.layout.job_id
