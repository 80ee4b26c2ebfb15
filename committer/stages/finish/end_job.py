"""The stage that writes the outcome, once."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, Literal, NamedTuple

from committer.errors import StoreError, StoreNotFoundError
from committer.flow.together import both
from committer.layout import REMOVED
from committer.records.job_state import Decision, JobOutcome, decode_record, encode_record
from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import decision_is_gone
from committer.stages.state.job_liveness import has_setup, may_vanish
from committer.stages.state.own_records import create_record
from committer.stages.state.success_content import is_unmarked

_REASON: Final = 10_000
"""Longest reason of a rollback in an outcome record, in characters; the rest is cut off."""


class Ended(NamedTuple):
    """Result of `EndJob`.

    Attributes:
        outcome: The outcome on the store, which another driver may have created.
        alone: Whether no other job committed into the empty destination; None if not checked.
    """

    outcome: JobOutcome
    alone: bool | None = None


class EndJob(Stage[tuple[Decision, Literal["committed", "rolled-back"], str], Ended]):
    """Stage that creates the outcome exclusively; no process rewrites an outcome.

    Where the job's directory can outlast its setup record, the driver reads that after the create, and deletes an
    outcome of a job that another driver ended and removed meanwhile.

    Preconditions: for `committed`, everything is published and validated.
    Postconditions: the job's outcome is on the store; the returned one may be another driver's.
    Failure modes: `JobNotFoundError` if another driver ended the job and removed it.
    Cost: 1 call, 2 where the directory can outlast the setup record. For a commit into an empty destination
    concurrently 2 more: running jobs have a directory, which is looked for first; one that ended left `_SUCCESS`.
    """

    name = "job_stage_end_job"

    async def execute(self, value: tuple[Decision, Literal["committed", "rolled-back"], str]) -> Ended:
        """Creates the outcome and checks that the job still exists."""
        decision, kind, reason = value
        layout = self.context.layout
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
            )
        )
        try:
            creating = create_record(self.context, layout.outcome, wanted, JobOutcome)
            found, alone = await both(creating, runs_alone(self.context, asked=asked))
        except StoreNotFoundError as error:
            raise decision_is_gone(self.context) from error
        stands, alone = await both(self._stands(), is_unmarked(self.context, asked=alone))
        if not stands:
            if found == wanted:
                await self.context.store.delete_file(layout.outcome)
                with suppress(StoreError):
                    # Where a write creates parents, it created the job's directory again.
                    await self.context.store.delete_directory(layout.job_directory, recursive=False)
            raise decision_is_gone(self.context)
        outcome = decode_record(found, JobOutcome, source=str(layout.outcome))
        return Ended(outcome, alone if found == wanted else None)

    async def _stands(self) -> bool:
        return not may_vanish(self.context) or await has_setup(self.context)


async def runs_alone(context: StageContext, *, asked: bool = True) -> bool:
    """Whether no other job runs into the destination; False if unknown. No call unless `asked`, else one."""
    if not asked:
        return False
    layout = context.layout
    try:
        async for child in context.store.list(layout.temporary):
            own = child.path in (layout.job_directory, layout.entries)
            if child.is_directory and not own and not child.path.name.endswith(REMOVED):
                return False
    except StoreError:
        return False
    return True
