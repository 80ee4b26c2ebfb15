"""`_SUCCESS` of an earlier job is set aside when publishing begins."""

from __future__ import annotations

from committer.errors import (
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotFoundError,
    StorePreconditionError,
)
from committer.layout import SUCCESS
from committer.records.job_state import Decision
from committer.stages.base import Stage
from committer.stages.commit_state import aside_is_gone, looking_again
from committer.stages.take_away import is_told, take_away
from committer.stores.helpers import create_exclusively, move_file, status_or_none

PLACE_TAKEN = b"No _SUCCESS: only that none may arrive here late.\n"
"""Content of the file that bars delayed renames of `_SUCCESS`. Not empty: Hadoop's own `_SUCCESS` may be empty."""


class SetAsideSuccess(Stage[Decision, None]):
    """Moves the old `_SUCCESS` that the decision recorded into the job's directory, once for all drivers of the job.

    It says that a destination is complete, which it no longer is once the first file is published. Hadoop deletes it
    in job setup, so a job that never commits leaves a complete destination without it.

    A store that compares identities moves only the recorded marker. Elsewhere the first file under the new name bars
    every other rename: a driver that finds no `_SUCCESS` creates it.

    Preconditions: the decision stands, nothing is published yet (or the commit is being finished).
    Postconditions: the recorded `_SUCCESS` is not at the destination; rollback puts it back.
    Cost: 1 call if there was a marker, 5 on stores without renames, else none; one more if it was moved before.
    """

    name = "job_stage_set_aside_success"

    async def execute(self, value: Decision) -> None:
        """Moves it; again when a response was lost."""
        if value.success_present and value.config.mark_successful_jobs:
            await looking_again(lambda: self._set_aside(value.success_identity))

    async def _set_aside(self, identity: str | None) -> None:
        layout, store = self.context.layout, self.context.store
        aside = layout.superseded / SUCCESS
        by_name = identity is None or not is_told(store)
        try:
            await move_file(store, layout.success, aside, identity=None if by_name else identity, by_name=True)
        except (StorePreconditionError, StoreIsADirectoryError):
            return
        except StoreNotFoundError as error:
            source_missing = error.path in ("", str(layout.success))
            if source_missing and not by_name:
                return
            try:
                if not source_missing:
                    raise
                await create_exclusively(store, aside, PLACE_TAKEN)
            except StoreNotFoundError as gone:
                raise aside_is_gone(self.context, self.name, layout.success) from gone
        except StoreExistsError:
            # Moved before. A rename that is a link and a delete, or a copy and a delete, may have left the old name.
            standing, kept = await status_or_none(store, layout.success), await status_or_none(store, aside)
            if standing is None or kept is None or kept.identity is None:
                return
            if standing.identity == kept.identity == identity:
                await take_away(self.context, layout.success, layout.superseded, identity=identity)
