"""The job-commit core: reads a job's position and takes the step of the state table, until the job is over.

After a failed step it reads the position again: another driver may have advanced the job; else the caller gets
the error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from committer.committers import backward_steps, forward_steps
from committer.committers.actions import PublishAction
from committer.committers.after_failure import after_failure
from committer.committers.failures import as_one, broken_off, refuse_over
from committer.committers.job_call import JobCall, StepResult
from committer.committers.position import Position
from committer.committers.preparing import CommitInputs, check_forced, intent_of
from committer.committers.reports import check_reported, refuse_unwritable_list, save_report
from committer.committers.results import JobReport
from committer.committers.standing import CARRYING_OUT, REFUSING, STEPS, Standing, Step, Wish
from committer.errors import (
    CommitterError,
    DestinationBusyError,
    JobNotFoundError,
    JobStateError,
    JobUndecidedError,
    StoreError,
)
from committer.events import names
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.logs import audit, job_logger
from committer.records.task_commit import TaskCommit, messages_in
from committer.stages.base import StageContext
from committer.stages.decide.entries import DeclareIntent, layout_of_owner, owners_of_entries
from committer.stages.undo.roll_back import RollBackRequest

_RunStep: TypeAlias = Callable[[JobCall, Position], Awaitable[StepResult]]

_STEPS: Final[Mapping[Step, _RunStep]] = {
    Step.REPORT: backward_steps.report_end,
    Step.CLOSE: backward_steps.close,
    Step.REMOVE_REST: backward_steps.remove_rest,
    Step.DECIDE: forward_steps.decide,
    Step.DECIDE_AS_INTENDED: forward_steps.decide_as_intended,
    Step.DECIDE_IF_FORCED: forward_steps.decide_if_forced,
    Step.DECIDE_AGAINST: backward_steps.decide_against,
    Step.CLEAN_UP_ABORTED: backward_steps.clean_up_aborted,
    Step.PUBLISH: forward_steps.publish,
    Step.TAKE_BACK: backward_steps.create_rollback,
    Step.UNDO: backward_steps.undo_published,
    Step.CLEAN_UP_UNDONE: backward_steps.clean_up_undone,
    Step.FINISH: forward_steps.finish,
    Step.LEAVE: backward_steps.leave,
    Step.REFUSE_DECIDED: backward_steps.refuse,
    Step.REFUSE_ABORTED: backward_steps.refuse,
    Step.REFUSE_COMMITTED: backward_steps.refuse,
}


async def run_step(call: JobCall, step: Step, position: Position) -> StepResult:
    """Carries out one step of the table from a position."""
    if position.standing is not Standing.OVER:
        call.outcome = position.outcome or call.outcome
    return await _STEPS[step](call, position)


_log = job_logger("committer.committers")

_SHORTEST_S: Final = 0.25
_LONGEST_S: Final = 5.0


class BusyWait:
    """Waiting of one commit for other jobs, within `CommitterConfig.busy_timeout`."""

    def __init__(self, call: JobCall) -> None:
        self._call = call
        self._began: float | None = None
        self._pause = _SHORTEST_S

    async def wait(self, busy: DestinationBusyError, step: Step, position: Position) -> StepResult:
        """Waits until no live job that refused this one has an entry; returns this job's new position.

        The driver has deleted its entry, so it excludes no other job meanwhile. The intent of its next try shows that
        it is alive. Each try has a new driver name: a delayed delete of an entry or intent must not hit the next one.
        Each look costs one listing, and up to 3 calls an entry. Raises `busy` after `busy_timeout`.
        """
        context = self._call.context
        limit = context.config.busy_timeout or 0.0
        if busy.outcome != "unchanged" or not limit:
            raise busy
        if self._began is None:
            self._began = context.runtime.monotonic()
        self._call.context = context = replace(context, driver=context.runtime.nonce())
        try:
            await DeclareIntent(context).run(await self._call.inputs.intent_for(context))
            await self._until_free(context, busy, self._began + limit)
            return await self._call.look()
        except Exception as error:
            if error is busy:
                busy.message = f"{busy.message}, after a wait of {limit:g} s"
            return await after_failure(self._call, step, position, error)

    async def _until_free(self, context: StageContext, busy: DestinationBusyError, end: float) -> None:
        runtime = context.runtime
        free = False
        while not free:
            left = end - runtime.monotonic()
            if left <= 0:
                raise busy
            _log.info("job %s waits for %s", context.layout.job_id, ", ".join(busy.owners))
            await runtime.sleep(min(left, self._pause * (0.5 + runtime.random())))
            self._pause = min(2 * self._pause, _LONGEST_S)
            with suppress(StoreError):
                live = await owners_of_entries(context.store, partial(layout_of_owner, context))
                free = not any(live.get(owner) for owner in busy.owners)


# Each look finds the job advanced, so a handful is plenty.
_LOOKS: Final = 20


async def commit(
    context: StageContext, action: PublishAction, task_commits: Iterable[TaskCommit] | None, tasks: int | None
) -> JobReport:
    """Commits the job, or continues a decided one."""
    refuse_unwritable_list(context.config)
    call = JobCall(context, action, Wish.COMMIT, inputs=CommitInputs(messages_in(task_commits), tasks))
    report = await _reporting(call)
    _log_end(report, "committed" if report.success else "over, and was not committed")
    if not report.success:
        raise refuse_over(context, "commit_job")
    call.inputs.check_reported(context, report)
    return report


async def recover(context: StageContext, action: PublishAction, *, rollback: bool, force: bool) -> JobReport:
    """Finishes the job as decided, or rolls it back."""
    call = JobCall(context, action, Wish.ROLL_BACK if rollback else Wish.RECOVER, force=force)
    report = await _reporting(call)
    _log_end(report, f"recovered: it {_how_it_ended(call, report)}")
    if not (report.success or rollback):
        raise refuse_over(context, "recover")
    return report


async def abort(context: StageContext, action: PublishAction) -> bool:
    """Decides against the job and removes it; returns True if this call did. Refuses a decided commit."""
    with audit(ji=context.layout.job_id), context.statistics.timed(names.JOB_STAGE_ABORT):
        return await _bring_to_end(JobCall(context, action, Wish.ABORT)) is not None


async def check_recover(context: StageContext, action: PublishAction, *, rollback: bool, force: bool) -> None:
    """Raises what `recover` would raise, as far as that is known without trying; changes nothing."""
    call = JobCall(context, action, Wish.ROLL_BACK if rollback else Wish.RECOVER, force=force)
    position = await call.look()
    step = STEPS[position.standing][call.wish]
    if step in REFUSING:
        await run_step(call, step, position)
    elif step in (Step.REMOVE_REST, Step.CLOSE) or (step is Step.REPORT and position.outcome is None):
        success = await check_reported(call.context)
        if not (success or rollback):
            raise refuse_over(call.context, "recover")
    elif step is Step.DECIDE_IF_FORCED:
        check_forced(call.context, force=force)
    elif step is Step.DECIDE_AS_INTENDED:
        await intent_of(call.context, position, force=force)
    elif step in CARRYING_OUT:
        call.check_roots(position)
    if step is Step.TAKE_BACK:
        async with call.resources:
            state = await call.state_of(position)
            action.roll_back(call.context).refuse(RollBackRequest(state, "on demand", force))


async def _bring_to_end(call: JobCall) -> JobReport | None:
    """Runs the table's steps until one ends the call."""
    async with call.resources:
        position = await call.look()
        busy_wait, looks = BusyWait(call), _LOOKS
        while looks:
            looks -= 1
            step = STEPS[position.standing][call.wish]
            if step in CARRYING_OUT:
                call.check_roots(position)
            if step in (Step.PUBLISH, Step.FINISH):
                call.inputs.check_decided(call.context, position)
            try:
                result = await run_step(call, step, position)
            except Exception as error:
                try:
                    result = await after_failure(call, step, position, error)
                except DestinationBusyError as busy:
                    result, looks = await busy_wait.wait(busy, step, position), _LOOKS
            if not isinstance(result, Position):
                return result
            position = result
    raise JobStateError(
        f"job {call.context.layout.job_id} was found at another point at each of {_LOOKS} looks",
        operation=call.wish.value,
        path=call.context.layout.job_directory,
        outcome="unknown",
        next_step=f"find out who changes it, then call {call.context.recover_call()}",
    )


async def _reporting(call: JobCall) -> JobReport:
    """Runs the loop with heartbeat, statistics and audit; saves the summary if it fails."""
    context = call.context
    try:
        with audit(ji=context.layout.job_id), context.statistics.timed(names.COMMITTER_COMMIT_JOB):
            async with context.progress.heartbeat():
                try:
                    report = await _bring_to_end(call)
                except CommitterError as error:
                    one = as_one(error)
                    if one is error:
                        raise
                    raise one from error
                except (MemoryError, RecursionError, ExceptionGroup) as error:
                    raise broken_off(context, error) from error
        if report is None:
            raise AssertionError(call.wish)
        return report
    except JobUndecidedError:
        # No step was tried, so there is nothing to report.
        raise
    except BaseException as error:
        if call.is_end_unknown:
            raise
        saving = partial(
            save_report,
            call.context,
            success=getattr(error, "outcome", "") == "committed",
            published=call.published,
            error=error,
            # The driver that ended a removed job knew more.
            only_if_absent=isinstance(error, JobNotFoundError),
        )
        await run_shielded(saving, bound_s=UNDO_BOUND_S)
        raise


def _how_it_ended(call: JobCall, report: JobReport) -> str:
    if report.success:
        return "is committed"
    if call.decision is None:
        # The summary says it, of a removed job.
        return "was rolled back, or aborted, before"
    return "is aborted" if call.decision.decision == "abort" else "is rolled back"


def _log_end(report: JobReport, how: str) -> None:
    if not report.success:
        _log.info("job %s is %s", report.job_id, how, extra={"job": report.job_id})
        return
    _log.info(
        "job %s is %s: %d files, %d bytes in %.3f s, %.0f files/s",
        report.job_id,
        how,
        report.files_committed,
        report.bytes_committed,
        report.duration_s,
        report.files_committed / report.duration_s if report.duration_s > 0 else 0.0,
        extra={"job": report.job_id, "files": report.files_committed, "bytes": report.bytes_committed},
    )
