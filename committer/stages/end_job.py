"""EndJob: writes the outcome, once."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from committer.errors import StoreError, StoreNotFoundError, StorePreconditionError
from committer.flow.together import both
from committer.paths import StorePath
from committer.records.job_state import (
    Decision,
    DecisionHead,
    JobOutcome,
    decode_record,
    encode_record,
    is_of,
    limit_of,
)
from committer.stages.base import Stage, StageContext
from committer.stages.commit_state import check_still_decided, decision_is_gone, looking_again
from committer.stages.job_directory import other_job_stands
from committer.stages.other_setup import is_another_setup, remove_mistaken
from committer.stages.own_records import read_own_outcome, read_record
from committer.stages.removal import remove_emptied, remove_records
from committer.stages.success_content import is_unmarked
from committer.stores.base import FileStatus
from committer.stores.conditions import CONDITIONAL_REPLACE
from committer.stores.helpers import Created, create_or_read, exists, status_or_none

_TRIES: Final = 5
_REASON: Final = 10_000
"""Longest reason of a rollback in an outcome record, in characters; the rest is cut off."""


class Ended(NamedTuple):
    """How a job ended.

    Attributes:
        outcome: What `EndJob` wrote, or found written by another driver.
        standing: What stood there a moment later, `finished` perhaps; None where the driver did not look, or could not.
        alone: Whether what stands at a destination that was empty is all this job's: no other job committed
            there meanwhile. None where the driver did not look.
        created: What the store said of the outcome when this driver created it.
    """

    outcome: JobOutcome
    standing: JobOutcome | None = None
    alone: bool | None = None
    created: FileStatus | None = None


class EndJob(Stage[tuple[Decision, Literal["committed", "rolled-back"], str], Ended]):
    """Creates the outcome exclusively, where the decision still stands.

    Where a cleanup takes the directory first that an outcome comes through, the create itself tells. Elsewhere the
    decision is looked for before. A driver that finished the job removes decision and outcome before the job's
    directory (which on many stores cannot refuse a late outcome at all). So the decision is looked for again after the
    create, and an outcome of a job that ended meanwhile is taken back: it could say the contrary of how the job ended.
    Only another driver that went by this very outcome may have ended the job so fast, and left it there to be kept.

    Preconditions: for `committed`, everything is published and validated; for `rolled-back`, the fence stands.
    Postconditions: the job's end is on the store; what is returned may be another driver's.
    Failure modes: `JobNotFoundError` when the decision is gone: another driver ended the job and cleaned up.
    Cost: 3 calls, two of them at once; without such a directory 4, and where late writes are taken 5, three of them at
    once. To commit into a destination that was empty 2 more, beside them: jobs that run left a directory, which is
    looked for first, and one that ended left `_SUCCESS`.
    """

    name = "job_stage_end_job"

    async def execute(self, value: tuple[Decision, Literal["committed", "rolled-back"], str]) -> Ended:
        """Looks, creates, looks again."""
        decision, kind, reason = value
        layout, store = self.context.layout, self.context.store
        asked = kind == "committed" and decision.was_empty
        wanted = encode_record(
            JobOutcome(
                job_id=layout.job_id,
                outcome=kind,
                driver=self.context.driver,
                created=self.context.timestamp(),
                tasks=len(decision.winners) if kind == "committed" else None,
                files=decision.files if kind == "committed" else 0,
                size=decision.size if kind == "committed" else 0,
                reason=reason[:_REASON],
                setup=layout.setup_name,
            )
        )
        looks = runs_alone(self.context, asked=asked)
        if self._is_fenced(decision):
            found, alone = await both(self._create(wanted), looks)
        else:
            _decided, alone = await both(self._check_decided(decision), looks)
            found = await self._create(wanted)
        outcome = decode_record(found.data, JobOutcome, source=str(layout.outcome))
        if not is_of(outcome.setup, layout.setup_name):
            # A driver of an earlier setup of the id wrote it late.
            await remove_mistaken(self.context)
            found = await self._create(wanted)
            outcome = decode_record(found.data, JobOutcome, source=str(layout.outcome))
            if not is_of(outcome.setup, layout.setup_name):
                raise decision_is_gone(self.context)
        if found.data != wanted:
            return Ended(outcome)
        # Looked up after the create, however long that took: a driver that ended the job meanwhile is not overlooked.
        is_over, (standing, alone) = await both(
            self._is_over(decision), both(self._standing(), is_unmarked(self.context, asked=alone))
        )
        if is_over:
            # It may have been marked as kept since it was read.
            standing = await read_own_outcome(store, layout)
            if standing is not None and standing.kept:
                return Ended(standing)
            await remove_records(self.context, [layout.outcome])
            await remove_emptied(self.context)
            raise decision_is_gone(self.context)
        return Ended(outcome, standing, alone, found.status)

    def _is_fenced(self, decision: Decision) -> bool:
        """Whether the outcome cannot be created once a cleanup began: it comes through the directory that goes with
        the job's setup, which a cleanup renames before it takes anything else.

        So no look has to come before. The one that follows is for a request that made that directory once more, late,
        in the directory of a job that was set up under the id since.
        """
        can, own = self.context.store.capabilities, bool(self.context.layout.setup_name) and not decision.hadoop
        return own and can.refuses_late_writes and can.atomic_directory_rename

    async def _check_decided(self, decision: Decision) -> None:
        store, layout = self.context.store, self.context.layout
        check_still_decided(self.context, await read_record(store, layout.decision, DecisionHead), decision)

    async def _create(self, wanted: bytes) -> Created:
        layout, durable = self.context.layout, self.context.durable
        temporary = layout.temporary_of(layout.outcome, self.context.driver)
        try:
            return await create_or_read(
                self.context.store,
                layout.outcome,
                wanted,
                temporary=temporary,
                durable=durable,
                limit=limit_of(JobOutcome),
            )
        except StoreNotFoundError as error:
            raise decision_is_gone(self.context) from error

    async def _standing(self) -> JobOutcome | None:
        try:
            return await read_own_outcome(self.context.store, self.context.layout)
        except StoreError:
            # A caller that needs it looks again, and fails then.
            return None

    async def _is_over(self, decision: Decision) -> bool:
        """Whether another driver ended the job and cleaned up, before or after the outcome was created.

        Where late writes are taken, a decision that stands may be this job's, arrived a second time. But cleanup
        removes the setup record first, so that one which stands without it, looked at in this order, says nothing.
        """
        layout, store = self.context.layout, self.context.store
        if self._is_fenced(decision):
            head = await read_record(store, layout.decision, DecisionHead)
            return head is None or head.driver != decision.driver
        if store.capabilities.refuses_late_writes or decision.hadoop:
            return not await exists(store, layout.decision)
        if self.context.setup_identity is not None:
            # The setup record that this driver knows tells by itself: with it the decision stands.
            stands, setup = await both(exists(store, layout.decision), status_or_none(store, layout.setup))
        else:
            stands = await exists(store, layout.decision)
            setup = await status_or_none(store, layout.setup) if stands else None
        return not stands or setup is None or is_another_setup(self.context, setup)


async def runs_alone(context: StageContext, *, asked: bool = True) -> bool:
    """Whether no other job runs into the destination. No call unless `asked`, else one.

    What cannot be looked at is not vouched for.
    """
    if not asked:
        return False
    try:
        return not await other_job_stands(context.store, context.layout)
    except StoreError:
        return False


async def mark_finished(context: StageContext, outcome: JobOutcome, *, created: FileStatus | None = None) -> bool:
    """Says in the outcome that only cleaning is left. Idempotent; does nothing for a job cleaned up meanwhile.

    From here on no driver writes `_SUCCESS` for the job again, where a later job's may stand by now, and no driver
    reads what cleanup removes. One call; where nothing refuses a late write one more, and two more unless `created`.

    The outcome of a committed job that is to be kept is marked so, and is not taken back here: that its decision is
    gone says only that another driver did the rest.

    Args:
        context: The job.
        outcome: Its outcome, as it stood.
        created: What the store said of it when this driver created it.

    Returns:
        Whether the job stood until now, and no other driver had marked it, as far as a put is told what it replaces;
        False where another one did the rest, or an answer was lost.
    """
    layout, store = context.layout, context.store
    kept = context.config.outcome_kept and outcome.outcome == "committed"
    record = encode_record(msgspec.structs.replace(outcome, finished=True, kept=kept))
    temporary = layout.temporary_of(layout.outcome, context.driver)
    try:
        if CONDITIONAL_REPLACE.of(store) is not None:
            if not await _MarkOver(context, record, temporary, created).put():
                return False
        else:
            # A lost answer is no harm: the second time it writes what it wrote the first.
            await looking_again(lambda: store.put(layout.outcome, record, temporary=temporary, durable=context.durable))
    except StoreNotFoundError:
        return False
    if store.capabilities.refuses_late_writes or await exists(store, layout.decision):
        return True
    if not kept:
        await remove_records(context, [layout.outcome])
        await remove_emptied(context)
    return False


class _MarkOver:
    """Puts the mark over this setup's own outcome, and over no other: where a put makes missing directories up nothing
    else keeps a driver that stood still from the outcome of a job that was set up under the id since.

    Args:
        context: The job.
        record: The outcome with its mark.
        temporary: As for `Store.put`.
        seen: The outcome that this driver created; None looks.
    """

    def __init__(
        self, context: StageContext, record: bytes, temporary: StorePath | None, seen: FileStatus | None
    ) -> None:
        self._context = context
        self._record = record
        self._temporary = temporary
        self._seen = seen

    async def put(self) -> bool:
        """Whether an outcome of this setup stood, and was not marked before: one call; 3 where it was not seen before.

        Where an answer was lost it may say False of its own mark.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                return await looking_again(self._try)
            except StorePreconditionError:
                # Another driver of the job marked it, or removed it, or an answer was lost.
                if not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    async def _try(self) -> bool:
        context, store = self._context, self._context.store
        path, seen = context.layout.outcome, self._seen
        self._seen = None
        if seen is None:
            # In this order: what is read then is what was seen, or the put is refused.
            seen = await status_or_none(store, path)
            standing = await read_own_outcome(store, context.layout)
            if seen is None or standing is None or standing.finished:
                return False
        able = CONDITIONAL_REPLACE.required(store, "put", path)
        await able.replace_file(path, self._record, seen=seen, temporary=self._temporary)
        return True
