"""The steps of a commit, from the intent to cleanup; each may run again, or beside another driver."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace

from committer.committers.actions import PublishAction
from committer.committers.failures import saying_what_is_left
from committer.committers.job_call import JobCall, StepResult
from committer.committers.position import Position, standing_of
from committer.committers.preparing import (
    CommitInputs,
    Prepared,
    check_forced,
    decision_content,
    intent_of,
    promotions_of,
)
from committer.committers.reports import KeptList, keep_list, keep_records, published_before, report_of, save_report
from committer.committers.standing import Standing
from committer.errors import CommitterError
from committer.events import names
from committer.logs import job_logger
from committer.records.job_state import Decision, JobOutcome
from committer.stages.base import StageContext
from committer.stages.decide.commit_state import CommitState, decision_is_gone
from committer.stages.decide.decide import DecideCommit
from committer.stages.decide.entries import DeclareIntent
from committer.stages.durability import sync_directories
from committer.stages.finish.end_job import Ended, EndJob, runs_alone
from committer.stages.finish.success_file import SaveSuccess, success_data
from committer.stages.load.promotions import may_promote
from committer.stages.names import with_ancestors
from committer.stages.publish.publish import Published, remove_empty
from committer.stages.remove.abort_uploads import AbortUploads
from committer.stages.remove.removal import CleanupJob, RemoveJob, end_without_removal, put_kept
from committer.stages.state.own_records import read_outcome
from committer.stages.state.success_content import is_unmarked

_log = job_logger("committer.committers")


async def decide(call: JobCall, position: Position) -> StepResult:
    """Declares the intent, loads and checks the job, decides."""
    context, inputs = call.context, call.inputs
    await call.probe_for_hadoop_job()
    intent = await inputs.intent_for(context)
    # After a cancellation, intent, entry and taken task output stay: another driver may rest on them, and
    # abort, recover or another commit continues from there.
    inputs.began = True
    await DeclareIntent(context).run(intent)
    # LoadRecords, DeclareScope, RefuseNeighbours, LookUpIdentities, InspectDestination, ListSuperseded, FindTargets,
    # LookIntoTargets, Preflight: `preparing.py`. Only a job that replaces looks for neighbours before it inspects.
    prepared = await inputs.prepare(context, call.probe_abilities)
    async with aclosing(prepared):
        promotions = await promotions_of(context, prepared)
        if promotions:
            # They need exclusive renames of directories; only a probe shows whether this disk has them.
            await call.probe_abilities()
            promotions = promotions if may_promote(context) else []
        sealed = bool(promotions) and not context.layout.is_out_of_reach
        decided = await DecideCommit(context).run(decision_content(context, prepared, sealed=sealed))
        # The files are read again, after the rest of `prepared` is closed.
        on_disk, prepared.loaded.on_disk = prepared.loaded.on_disk, None
        if on_disk is not None:
            call.resources.push_async_callback(on_disk.close)
    decision = decided.decision
    _report_decision(context, decision, prepared)
    if decision.driver != context.driver or decision.decision != "commit":
        return await call.look()
    call.adopt(position := Position(Standing.DECIDED, decision=decision))
    call.state = CommitState.of(call.context, decision, decided.facts, prepared.loaded.entries, on_disk)
    call.state.promotions, call.state.attempts = promotions, prepared.loaded.attempts.keys()
    await call.keep_old_files(call.state)
    # Decided a moment ago, so nothing is read. What other drivers did since shows later: a fence at the first
    # rename, an outcome when this driver creates its own.
    return position


def _report_decision(context: StageContext, decision: Decision, prepared: Prepared) -> None:
    """Logs the decision; counts the metadata of other writers that it removes."""
    own = decision.driver == context.driver
    _log.info(
        "job %s is decided by %s: %s, %d files in %d task commits",
        context.layout.job_id,
        "this driver" if own else "another driver",
        decision.decision,
        decision.files,
        len(prepared.loaded.winners),
    )
    stale = prepared.superseded.stale
    if own and stale:
        context.statistics.count(names.COMMITTER_STALE_METADATA, len(stale))
        _log.info(
            "job %s removes other writers' metadata, which its files make stale: %s",
            context.layout.job_id,
            ", ".join(stale),
        )


async def decide_as_intended(call: JobCall, position: Position) -> StepResult:
    """Decides as the intent of a dead driver says."""
    intent = await intent_of(call.context, position, force=call.force)
    call.inputs = CommitInputs.as_intended(intent)
    return await decide(call, position)


async def decide_if_forced(call: JobCall, position: Position) -> StepResult:
    """Decides by a listing if the caller forces it; else refuses."""
    check_forced(call.context, force=call.force)
    call.inputs = CommitInputs.as_intended(None)
    return await decide(call, position)


async def publish(call: JobCall, position: Position) -> StepResult:
    """Publishes every file, creates the outcome."""
    await call.make_ready(position)
    state = await call.state_of(position)
    call.publishing = True
    # By renames: SealTasks, SetAsideSuccess, MoveAside, CreateDirectories, PromoteDirectories, PublishFiles, MoveAside,
    # ValidateOutput. By uploads: SetAsideSuccess, CompleteUploads, ValidateOutput.
    published = call.published = await call.action.publish(call.context, state)
    _log.info(
        "job %s: %d files and %d bytes are published",
        call.context.layout.job_id,
        published.files,
        published.size,
        extra={"files": published.files, "bytes": published.size},
    )
    ended = await EndJob(call.context).run((state.decision, "committed", ""))
    # The job is committed: nothing is rolled back from here on.
    call.publishing = ended.outcome.outcome != "committed"
    return replace(position, standing=standing_of(ended.outcome), outcome=ended.outcome, ended=ended)


async def finish(call: JobCall, position: Position) -> StepResult:
    """Writes `_SUCCESS`, file list and report of a committed job, and removes its directory."""
    context = call.context
    if position.ended is None:
        await call.make_ready(position)
    state = await call.state_of(position)
    await call.probe_batch_deletes(state)
    published = call.published = call.published or await published_before(context, state)
    uploads_left, kept = await finish_committed(context, state, published, call.action, position.ended)
    return report_of(
        context,
        call.started,
        success=True,
        published=published,
        directories=state.decision.directories,
        uploads_left=uploads_left,
        kept=kept,
    )


async def finish_committed(
    context: StageContext, state: CommitState, published: Published, action: PublishAction, ended: Ended | None
) -> tuple[list[str], KeptList]:
    """Takes all steps after `outcome=committed`, idempotently; `ended` saves reads of what this driver knows.

    Returns uploads left alone, which may be another job's, and the state of the file list. An error has
    `outcome="committed"`: the output is complete, and `recover` finishes the rest.
    """
    decision = state.decision
    with saying_what_is_left(context):
        outcome, was_empty = await _read_end(context, decision, ended)
        await action.supersede(context, state)
        kept = await keep_list(context, state)
        if context.config.mark_successful_jobs:
            marker = success_data(
                context,
                success=True,
                published=published,
                stage=SaveSuccess.name,
                was_empty=was_empty,
                directories=decision.directories,
                decided_by=decision.driver,
                more=kept.diagnostics,
                committed_at=outcome.created,
            )
            await SaveSuccess(context, was_absent=was_empty).run(marker)
            await sync_directories(context, [context.layout.destination])
        if context.config.diagnostics_manifest_directory:
            await keep_records(context)
        if state.superseded:
            await _remove_emptied_directories(context, state)
        cleaned, uploads_left = await clean_up(context)
    await save_report(
        context,
        success=True,
        published=published,
        was_empty=was_empty,
        directories=decision.directories,
        more=kept.diagnostics,
    )
    with saying_what_is_left(context):
        await remove_job(context, outcome if context.config.outcome_kept else None, cleaned=cleaned)
    return uploads_left, kept


async def _read_end(context: StageContext, decision: Decision, ended: Ended | None) -> tuple[JobOutcome, bool]:
    """Returns the outcome, and whether the destination held nothing else; reads what this driver does not know."""
    outcome = ended.outcome if ended is not None else await read_outcome(context.store, context.layout)
    if outcome is None:
        raise decision_is_gone(context)
    alone = ended.alone if ended is not None else None
    if alone is None:
        alone = decision.was_empty and await runs_alone(context) and await is_unmarked(context)
    return outcome, alone


async def _remove_emptied_directories(context: StageContext, state: CommitState) -> None:
    """Removes directories that held only superseded files, deepest first; ignores failures."""
    if context.store.capabilities.directories:
        emptied = with_ancestors(await state.superseded.directories(), context.layout.roots)
        await remove_empty(context, emptied, unless=(CommitterError,), operation="remove_emptied")


async def clean_up(context: StageContext) -> tuple[bool, list[str]]:
    """Removes task output; returns whether the job is to be removed, and uploads left alone."""
    try:
        if context.config.cleanup_skipped:
            # Pending uploads cost money, and no listing of files shows them.
            return False, await AbortUploads(context).run(None) if context.store.capabilities.multipart else []
        return True, await CleanupJob(context).run(None)
    except CommitterError as error:
        if not context.config.cleanup_failures_ignored:
            raise
        _log.warning("cleanup of job %s failed and is ignored: %s", context.layout.job_id, error)
        return False, []


async def remove_job(context: StageContext, kept: JobOutcome | None, *, cleaned: bool) -> None:
    """Runs `RemoveJob`, or only ends a job that skips cleanup; may ignore a failure."""
    try:
        if cleaned:
            await RemoveJob(context).run(kept)
        else:
            if kept is not None:
                await put_kept(context, kept)
            await end_without_removal(context)
            if not context.layout.setup_name:
                # The task directory stays, so the job would look live. A job with an outcome but no decision is over.
                await context.store.delete_file(context.layout.decision)
    except CommitterError as error:
        if not context.config.cleanup_failures_ignored:
            raise
        _log.warning("cleanup of job %s failed and is ignored: %s", context.layout.job_id, error)
