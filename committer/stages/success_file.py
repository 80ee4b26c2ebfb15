"""`_SUCCESS` is written when all is in place; an older one, or one that says what is gone, is taken away."""

from __future__ import annotations

import contextlib

from committer.errors import (
    CommitterError,
    JobStateError,
    RecordError,
    StoreIsADirectoryError,
    StoreNotFoundError,
    StorePreconditionError,
)
from committer.events import names
from committer.flow.workers import run_workers
from committer.layout import SUCCESS
from committer.paths import by_hand
from committer.records.job_state import JobOutcome
from committer.records.limits import LIMITS
from committer.records.success import SuccessData, decode_success, encode_success
from committer.stages.base import Stage, StageContext
from committer.stages.job_directory import other_job_stands
from committer.stages.older_success import give_back_moved, make_room_for
from committer.stages.own_records import is_unfinished
from committer.stages.planned_file import PlannedFile
from committer.stages.publish import Published
from committer.stages.success_content import is_same_decision, marker_at
from committer.stages.take_away import is_not_given_back, remove_apart
from committer.stages.validate_output import problem_with
from committer.stores.conditions import CONDITIONAL_DELETE
from committer.stores.helpers import create_exclusively, status_or_none

_ROUNDS = 5
_READ = "read"
_UNREADABLE = (
    "what stands in the way of the job's own _SUCCESS cannot be read: it is a link that leads nowhere, or other jobs "
    "took it away each time"
)


class NotWithdrawnError(JobStateError):
    """A `_SUCCESS` of this job stands, or may, though files that it names are gone; no recovery looks at it.

    Args:
        context: The job.
        cause: Why it was not looked at, or not taken away.
    """

    def __init__(self, context: StageContext, cause: CommitterError) -> None:
        job_id, success = context.layout.job_id, context.layout.success
        super().__init__(
            f"_SUCCESS of job {job_id} was written when another driver had ended the job; it may name files that are "
            f"gone, and could not be looked at, or taken away: {cause.message}",
            operation="withdraw_success",
            path=success,
            outcome="committed",
            next_step=f"look at {by_hand(success)}: if it is of job {job_id}, and files that it names are gone, "
            "remove it by hand",
            causes=[cause],
        )


class SaveSuccess(Stage[SuccessData, None]):
    """Writes `_SUCCESS` where none stands; an older one that came since the old one was set aside makes room first.

    So a driver that was stopped since the outcome, while another one finished the job and later jobs came, replaces
    nothing. Nor does it write once its job's directory is gone while another job has one, or when a file that it would
    name does not stand any more: what replaced that may have left no `_SUCCESS`. Where it still writes while a
    later job has set the one before it aside, that job takes this one away when it ends.

    Args:
        context: The job.
        outcome: The outcome that stood; None when the job's directory is known to be gone.
        replacing: The job took the replace lock before it was decided.
        published: What `_SUCCESS` names; None when the caller knows that it stands.

    Preconditions: outcome `committed` stands: every file of every committed task is in place (G9).
    Postconditions: `_SUCCESS` names this job, or one that committed later.
    Cost: 1 call (2 on stores that write first and rename after); some 7 more where another one stands; once the job's
    directory is gone one, and one or two for each file that `_SUCCESS` names.
    Hadoop: ``SaveSuccessFileStage``.
    """

    name = names.COMMITTER_COMMIT_JOB
    statistic = names.JOB_STAGE_SAVE_SUCCESS_MARKER

    def __init__(
        self,
        context: StageContext,
        *,
        outcome: JobOutcome | None = None,
        replacing: bool = False,
        published: Published | None = None,
    ) -> None:
        super().__init__(context)
        self._outcome = outcome
        self._replacing = replacing
        self._published = published

    async def execute(self, value: SuccessData) -> None:
        """Writes it; a directory of that name is a definite refusal."""
        context = self.context
        if not self._replacing:
            # With the lock what was taken away is older, whatever it says.
            await give_back_moved(context, value, self._outcome)
        try:
            await self._write(value)
        except StoreIsADirectoryError as error:
            success = context.layout.success
            raise JobStateError(
                f"a directory stands at {success}: the job is committed, but its marker cannot be written",
                operation=self.name,
                path=success,
                outcome="committed",
                next_step=f"remove {by_hand(success)} by hand",
            ) from error

    async def _write(self, value: SuccessData) -> None:
        context, layout = self.context, self.context.layout
        data = encode_success(value)
        # Below the job's directory: on a disk this write fails once another driver has finished the job.
        temporary = layout.success_temporary(context.driver) if self._outcome is not None else None
        if temporary is None and await self._is_past():
            return
        for tries_left in reversed(range(_ROUNDS)):
            try:
                found = await create_exclusively(
                    context.store,
                    layout.success,
                    data,
                    temporary=temporary,
                    durable=context.durable,
                    limit=LIMITS["success"],
                )
            except StoreNotFoundError as error:
                was_refused = error.operation == _READ
                if not was_refused and temporary is None:
                    # The destination itself is gone.
                    raise
                # What refused it went as it was read; or the job's directory, which holds `temporary`, is gone.
                stands = was_refused and temporary is not None
                if not (stands and await is_unfinished(context.store, layout, self._outcome)):
                    temporary = None
                    if await self._is_past():
                        return
                if not tries_left:
                    error.message = _UNREADABLE if was_refused else error.message
                    raise
                continue
            if found == data:
                if temporary is None:
                    await withdraw_success(context, value, self._published)
                return
            # What is moved away after the last try would be missed.
            if not tries_left or not await make_room_for(context, value, self._outcome, replacing=self._replacing):
                return

    async def _is_past(self) -> bool:
        """Whether another job replaced what this one, which is gone, published, or may be about to."""
        try:
            if await other_job_stands(self.context.store, self.context.layout):
                return True
        except StoreNotFoundError:
            pass
        return not await _still_stands(self.context, self._published)


async def withdraw_success(context: StageContext, value: SuccessData, published: Published | None) -> bool:
    """Takes this job's own `_SUCCESS` away where it came when the job was over, and the files it names were gone.

    A create that is under way while another driver ends the job, and later jobs replace its data, cannot be refused by
    a store that takes late writes; nor the one of a driver that stands still once it saw that its job's directory is
    gone. One call for each file that is named; some 7 more where one does not stand. Where the store is not told what
    to take, it goes to a directory that is made for it and deleted, so that a move which comes late takes nothing; the
    job's own, which is made again for that, the caller removes.

    Returns:
        Whether it was taken away.

    Raises:
        OutcomeUnknownError: Another job's may lie in the directory that was made. Nothing was deleted.
        NotWithdrawnError: A call failed, and it may stand.
    """
    if published is None or not published.named:
        # A driver that knows no file by its identity found the marker, which an earlier one wrote, and lets it be.
        return False
    try:
        return not await _still_stands(context, published) and await _withdraw(context, value)
    except CommitterError as error:
        if is_not_given_back(error):
            raise
        raise NotWithdrawnError(context, error) from error


async def _withdraw(context: StageContext, value: SuccessData) -> bool:
    layout, store = context.layout, context.store

    def is_own(data: bytes) -> bool:
        try:
            return is_same_decision(decode_success(data, source=SUCCESS), value)
        except RecordError:
            return False

    able = CONDITIONAL_DELETE.of(store)
    for _round in range(_ROUNDS):
        standing = await status_or_none(store, layout.success)
        if standing is None or not is_same_decision(await marker_at(context, layout.success), value):
            return False
        if able is not None and standing.identity:
            with contextlib.suppress(StorePreconditionError):
                return await able.delete_file_if(layout.success, identity=standing.identity)
            return False
        if await remove_apart(context, layout.success, identity=standing.identity, is_own=is_own):
            return True
    return False


async def _still_stands(context: StageContext, published: Published | None) -> bool:
    """Whether every file that a `_SUCCESS` would name is the one that was committed. One call each, of a hundred."""
    if published is None:
        return True
    if published.files and not published.named:
        return False
    problems: list[str] = []

    async def look(file: PlannedFile) -> None:
        problem = None if problems else await problem_with(context, file)
        if problem is not None:
            problems.append(problem)

    await run_workers(published.named, look, workers=context.config.io_concurrency, operation=SaveSuccess.name)
    return not problems
