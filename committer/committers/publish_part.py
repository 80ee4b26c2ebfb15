"""What a worker does with a chunk: it looks whether the decision stands, then publishes by the rules of any driver."""

from __future__ import annotations

from dataclasses import replace

from committer.audit import audit
from committer.committers.failures import definite_refusal
from committer.committers.publish_action import PublishAction
from committer.errors import CommitterError, JobStateError
from committer.flow.together import both
from committer.records.job_state import DecisionHead
from committer.records.publish_chunk import Problem, PublishAccount, PublishChunk
from committer.stages.base import StageContext
from committer.stages.chunks import state_of_chunk
from committer.stages.commit_state import CommitState, check_still_decided
from committer.stages.own_records import read_outcome, read_record
from committer.stages.seal import sealed_layout


async def publish_part(context: StageContext, action: PublishAction, chunk: PublishChunk) -> PublishAccount:
    """Publishes the files of a chunk; changes nothing where the job is not decided as the chunk says, or ended.

    Returns:
        What came of it: also of what failed, since the driver looks at every file of such a chunk itself.

    Raises:
        RecordError: The chunk was damaged on its way, or another release made it.
    """
    if chunk.sealed:
        context = replace(context, layout=sealed_layout(context))
    state = state_of_chunk(context, chunk)
    with audit(ji=context.layout.job_id):
        try:
            await _check_decided(context, state)
        except CommitterError as error:
            return PublishAccount.of_problem(chunk, "over", error)
        try:
            published = await action.files(context).run(state)
        except CommitterError as error:
            return PublishAccount.of_problem(chunk, _kind_of(error), error)
    return PublishAccount(
        number=chunk.number,
        driver=chunk.driver,
        digest=chunk.digest,
        files=published.files,
        size=published.size,
        recovered=published.recovered,
        statistics=context.statistics.snapshot(),
    )


async def _check_decided(context: StageContext, state: CommitState) -> None:
    """Makes sure that the decision of the chunk stands, and that no driver ended the job.

    What changes after this look meets what holds for any driver that stood still meanwhile.
    """
    store, layout = context.store, context.layout
    decision, outcome = await both(read_record(store, layout.decision, DecisionHead), read_outcome(store, layout))
    check_still_decided(context, decision, state.decision)
    if outcome is not None:
        raise JobStateError(
            f"job {layout.job_id} ended: {outcome.outcome}",
            operation="publish_chunk",
            path=layout.outcome,
            next_step="nothing: this chunk came late",
        )


def _kind_of(error: CommitterError) -> Problem:
    if definite_refusal(error) is not None:
        return "refused"
    return "unknown" if error.outcome == "unknown" else "failed"
