"""The job-commit core: one job brought to its end by any number of drivers, by the table in `standing`.

Each step may run again, or beside another driver of the job, and then does what is left to do. A step that fails says
so by its error, and the loop looks again where the job stands: another driver may have brought it on, and then the
table says what follows; else the error is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from committer.audit import audit
from committer.committers.after_failure import after_failure
from committer.committers.deciding import Deciding, check_forced, intent_of
from committer.committers.failures import (
    as_one,
    broken_off,
    refuse_over,
)
from committer.committers.job_call import JobCall
from committer.committers.listing import refuse_unwritable_list
from committer.committers.look import Position
from committer.committers.publish_action import PublishAction
from committer.committers.reports import check_reported, save_report
from committer.committers.results import JobReport
from committer.committers.standing import CARRYING_OUT, REFUSING, Step, Wish, step_for
from committer.committers.steps import take
from committer.committers.waiting import Turn
from committer.errors import (
    CommitterError,
    DestinationBusyError,
    JobNotFoundError,
    JobStateError,
    JobUndecidedError,
)
from committer.events import names
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.logs import job_logger
from committer.records.task_commit import TaskCommit, messages_in
from committer.stages.base import StageContext
from committer.stages.roll_back import RollBackRequest

_log = job_logger("committer.committers")

# Every look finds the job further on than the one before, so a handful is plenty.
_LOOKS: Final = 20


class JobCommit:
    """Commits, recovers, rolls back or aborts one job; one object a call.

    Args:
        context: The job, with the choices to use until a decision says which.
        action: How its files become visible.
    """

    def __init__(self, context: StageContext, action: PublishAction) -> None:
        self._context = context
        self._action = action

    async def commit(self, task_commits: Iterable[TaskCommit] | None, tasks: int | None) -> JobReport:
        """Commits the job; goes on where it was decided before."""
        refuse_unwritable_list(self._context.config)
        call = JobCall(self._context, self._action, Wish.COMMIT, deciding=Deciding(messages_in(task_commits), tasks))
        report = await _reporting(call)
        _log_end(report, "committed" if report.success else "over, and was not committed")
        if not report.success:
            raise refuse_over(self._context, "commit_job")
        call.deciding.check_reported(self._context, report)
        return report

    async def recover(self, *, rollback: bool, force: bool) -> JobReport:
        """Finishes the job as decided, or takes it back."""
        call = self._recovery(rollback=rollback, force=force)
        report = await _reporting(call)
        _log_end(report, f"recovered: it {_how_it_ended(call, report)}")
        if not (report.success or rollback):
            raise refuse_over(self._context, "recover")
        return report

    async def abort(self) -> bool:
        """Decides against the job and removes it; does nothing for a job that ended or is gone.

        Returns:
            Whether the job is decided against.

        Raises:
            JobDecidedError: It is decided to be committed; nothing was deleted.
        """
        with audit(ji=self._context.layout.job_id), self._context.statistics.timed(names.JOB_STAGE_ABORT):
            return await _bring_to_end(JobCall(self._context, self._action, Wish.ABORT)) is not None

    async def check_recover(self, *, rollback: bool, force: bool) -> None:
        """Raises what `recover` would raise from where the job stands; changes nothing.

        What shows only when it is tried is not foreseen, nor what a commit of an undecided job would be refused for.
        """
        call = self._recovery(rollback=rollback, force=force)
        position = await call.look()
        step = step_for(position.standing, call.wish)
        if step in REFUSING:
            await take(call, step, position)
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
                self._action.roll_back(call.context).refuse(RollBackRequest(state, "on demand", force))

    def _recovery(self, *, rollback: bool, force: bool) -> JobCall:
        return JobCall(self._context, self._action, Wish.ROLL_BACK if rollback else Wish.RECOVER, force=force)


async def _bring_to_end(call: JobCall) -> JobReport | None:
    """Takes the step that the table names, from where the job stands, until one ends the call."""
    async with call.resources:
        position = await call.look()
        turn, looks = Turn(call), _LOOKS
        while looks:
            looks -= 1
            step = step_for(position.standing, call.wish)
            if step in CARRYING_OUT:
                call.check_roots(position)
            if step in (Step.PUBLISH, Step.FINISH):
                call.deciding.check_decided(call.context, position)
            try:
                led = await take(call, step, position)
            except Exception as error:
                try:
                    led = await after_failure(call, step, position, error)
                except DestinationBusyError as busy:
                    led, looks = await turn.wait(busy, step, position), _LOOKS
            if not isinstance(led, Position):
                return led
            position = led
    raise JobStateError(
        f"job {call.context.layout.job_id} was found at another point at each of {_LOOKS} looks",
        operation=call.wish.value,
        path=call.context.layout.job_directory,
        outcome="unknown",
        next_step=f"find out who changes it, then call {call.context.recover_call()}",
    )


async def _reporting(call: JobCall) -> JobReport:
    """Runs with heartbeat, statistics and audit; saves the summary whatever fails."""
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
        # Nothing was tried, so there is nothing to report.
        raise
    except BaseException as error:
        saving = partial(
            save_report,
            call.context,
            success=getattr(error, "outcome", "") == "committed",
            published=call.published,
            error=error,
            # The driver that ended a job that is gone knew better.
            only_if_absent=isinstance(error, JobNotFoundError),
        )
        await run_shielded(saving, bound_s=UNDO_BOUND_S)
        raise


def _how_it_ended(call: JobCall, report: JobReport) -> str:
    if report.success:
        return "is committed"
    if call.decision is None and not call.aborted:
        # A report tells it, of a job that is gone.
        return "was rolled back, or aborted, before"
    return "is aborted" if call.aborted else "is rolled back"


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
