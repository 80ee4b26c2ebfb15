"""The steps of a commit, from the intent to cleanup; each may run again, or beside another driver."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace

from committer.committers.commit_inputs import CommitInputs, check_forced, intent_of
from committer.committers.finish import finish_committed
from committer.committers.job_call import JobCall, StepResult
from committer.committers.position import Position, standing_of
from committer.committers.preparing import decision_content, promotions_of
from committer.committers.reports import published_before, report_of
from committer.committers.standing import Standing
from committer.events import names
from committer.logs import job_logger
from committer.stages.decide.commit_state import CommitState
from committer.stages.decide.decide import DecideCommit
from committer.stages.decide.entries import DeclareIntent
from committer.stages.finish.end_job import EndJob
from committer.stages.load.promotions import may_promote

_log = job_logger("committer.committers")


async def decide(call: JobCall, position: Position) -> StepResult:
    """Declares the intent, loads and checks the job, decides."""
    context, inputs = call.context, call.inputs
    await call.probe_for_hadoop_job()
    intent = inputs.intent_for(context)
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
        on_disk = call.take_from_disk(prepared.loaded)
    decision = decided.decision
    own = decision.driver == context.driver
    _log.info(
        "job %s is decided by %s: %s, %d files in %d task commits",
        context.layout.job_id,
        "this driver" if own else "another driver",
        decision.decision,
        decision.files,
        len(prepared.loaded.winners),
    )
    if own and prepared.metadata:
        context.statistics.count(names.COMMITTER_STALE_METADATA, len(prepared.metadata))
        _log.info(
            "job %s removes other writers' metadata, which its files make stale: %s",
            context.layout.job_id,
            ", ".join(prepared.metadata),
        )
    if not own or decision.decision != "commit":
        return await call.look()
    call.adopt(position := Position(Standing.DECIDED, decision=decision))
    call.state = CommitState.of(call.context, decision, decided.facts, prepared.loaded.entries, on_disk)
    call.state.promotions, call.state.attempts = promotions, prepared.loaded.attempts.keys()
    await call.keep_old_files(call.state)
    # Decided a moment ago, so nothing is read. What other drivers did since shows later: a fence at the first
    # rename, an outcome when this driver creates its own.
    return position


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
    """Takes the last steps of a committed job."""
    context = call.context
    if position.ended is None:
        await call.make_ready(position)
    state = await call.state_of(position)
    await call.probe_batch_deletes(state)
    published = call.published or await published_before(context, state)
    call.published = published
    # DeleteSuperseded (by uploads), SaveFileList, SaveSuccess, _keep_records, CleanupJob, SaveReport, RemoveJob.
    finished = await finish_committed(context, state, published, call.action, position.ended)
    return report_of(
        context,
        call.started,
        success=True,
        published=published,
        directories=state.decision.directories,
        uploads_left=finished.uploads_left,
        kept=finished.kept,
    )
