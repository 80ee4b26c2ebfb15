"""Publishes chunks of a decided job in worker processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from committer.committers.actions import PublishAction
from committer.committers.context import open_context
from committer.committers.failures import definite_refusal
from committer.committers.opened_store import closed_on_failure, is_owned
from committer.committers.registry import committer_for
from committer.errors import CommitterError, ConfigurationError, JobStateError
from committer.flow.together import both
from committer.logs import audit
from committer.paths import StorePath
from committer.records.job_state import DecisionHead
from committer.records.publish_chunk import Problem, PublishAccount, PublishChunk, PublishPool
from committer.stages.base import StageContext
from committer.stages.decide.commit_state import CommitState, check_still_decided
from committer.stages.publish.promote import sealed_layout
from committer.stages.publish.publish_elsewhere import state_of_chunk
from committer.stages.state.own_records import read_outcome, read_record
from committer.stores.registry import find_store

__all__ = ["PublishAccount", "PublishChunk", "PublishPool", "publish_chunk"]


async def publish_part(context: StageContext, action: PublishAction, chunk: PublishChunk) -> PublishAccount:
    """Publishes the files of a chunk; changes nothing if the job has another decision, or ended.

    A failure is reported in the account: the driver looks at every file of such a chunk itself.
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
            refused = definite_refusal(error) is not None
            problem: Problem = "refused" if refused else "unknown" if error.outcome == "unknown" else "failed"
            return PublishAccount.of_problem(chunk, problem, error)
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
    """Checks that the chunk's decision exists and no driver ended the job."""
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


async def publish_chunk(chunk: PublishChunk, storage_options: Mapping[str, object] | None = None) -> PublishAccount:
    """Publishes a part of a decided job for its driver: see ``Job.commit(publish_with=...)``.

    It may run more than once for a chunk, in several processes at once, and late: published files are
    recognised, and a chunk of a job that ended, was rolled back or removed changes nothing.

    Args:
        chunk: From the driver.
        storage_options: Options of the store, resolved in this process.

    Returns:
        The account that the driver waits for, also after a failure.

    Raises:
        RecordError: The chunk was damaged on its way, or another release made it.
        ConfigurationError, UnsupportedError: The store cannot be opened here.
    """
    if not isinstance(chunk, PublishChunk):
        raise ConfigurationError(
            f"publish_chunk takes a PublishChunk, not a {type(chunk).__name__}",
            operation="publish_chunk",
            next_step="give what the driver handed to the pool, as it was",
        )
    rate = chunk.rate or 0
    spec = msgspec.structs.replace(chunk.spec, config=chunk.spec.config.replace(io_rate=rate, azure_io_rate=rate))
    store, owned = await find_store(StorePath.from_uri(spec.destination), storage_options), is_owned(storage_options)
    async with closed_on_failure(store, owned=owned):
        context = await open_context(spec, store, owned=owned)
    try:
        return await publish_part(context, committer_for(context.spec.committer).action, chunk)
    finally:
        await context.store.close()
