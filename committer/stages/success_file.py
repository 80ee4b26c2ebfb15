"""`_SUCCESS` is written when all is in place; the job that ends last writes it last."""

from __future__ import annotations

from committer.errors import (
    JobStateError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
)
from committer.events import names
from committer.paths import by_hand
from committer.records.success import SuccessData, encode_success
from committer.stages.base import Stage
from committer.stages.commit_state import looking_again
from committer.stages.job_stands import has_setup, may_vanish
from committer.stages.success_content import is_same_decision, marker_at
from committer.stores.conditions import CONDITIONAL_REPLACE
from committer.stores.helpers import status_or_none

_ROUNDS = 10


class SaveSuccess(Stage[SuccessData, None]):
    """Replaces `_SUCCESS`, whichever job wrote the old one, as long as this job's records exist.

    With real directories a driver writes a temporary file in the job's directory and renames it to `_SUCCESS`: once
    another driver has removed that directory, the rename fails. Elsewhere the store replaces exactly the marker that
    the driver read before it looked at the job's records.

    Preconditions: outcome `committed` exists: every file of every committed task is in place (G9).
    Postconditions: `_SUCCESS` names this job, or a job that ended later; or another driver ended this job.
    Cost: 2 calls on local disks and HDFS, 3 on ADLS; elsewhere 3, 4 if a marker exists.
    Hadoop: ``SaveSuccessFileStage``.
    """

    name = names.COMMITTER_COMMIT_JOB
    statistic = names.JOB_STAGE_SAVE_SUCCESS_MARKER

    async def execute(self, value: SuccessData) -> None:
        """Writes it; a directory of that name is a definite refusal."""
        write = self._rename if self.context.store.capabilities.directories else self._put
        try:
            for tries_left in reversed(range(_ROUNDS)):
                try:
                    return await write(value)
                except (StoreExistsError, StorePreconditionError, StoreOutcomeUnknownError):
                    if not tries_left:
                        raise
        except StoreIsADirectoryError as error:
            success = self.context.layout.success
            raise JobStateError(
                f"a directory stands at {success}: the job is committed, but its marker cannot be written",
                operation=self.name,
                path=success,
                outcome="committed",
                next_step=f"remove {by_hand(success)} by hand",
            ) from error

    async def _rename(self, value: SuccessData) -> None:
        context, store, success = self.context, self.context.store, self.context.layout.success
        temporary = context.layout.success_temporary(context.driver)
        try:
            written = await store.put(temporary, encode_success(value), durable=context.durable)
            if may_vanish(context) and not await has_setup(self.context):
                return
            await looking_again(lambda: store.rename_file(temporary, success, replace=True, identity=written.identity))
        except (StoreNotFoundError, StoreNotADirectoryError):
            # Another driver removed the job's directory, or the response to an earlier rename was lost.
            return

    async def _put(self, value: SuccessData) -> None:
        store, success = self.context.store, self.context.layout.success
        seen = await status_or_none(store, success)
        if seen is not None and is_same_decision(await marker_at(self.context, success), value):
            return
        if not await has_setup(self.context):
            return
        able = CONDITIONAL_REPLACE.of(store)
        if seen is not None and able is not None:
            await able.replace_file(success, encode_success(value), seen=seen)
            return
        if seen is not None:
            await store.delete_file(success)
        await store.put(success, encode_success(value), exclusive=True)
