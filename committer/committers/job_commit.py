"""The job-commit core: one job brought to its end by any number of drivers, by the table in `standing`.

Each step may run again, or beside another driver of the job, and then does what is left to do. A step that fails says
so by its error, and the loop looks again where the job stands: another driver may have brought it on, and then the
table says what follows; else the error is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from committer.audit import audit
from committer.committers.deciding import Deciding, check_forced, intent_of, withdraw_or_say
from committer.committers.failures import (
    advise_recovery,
    as_one,
    broken_off,
    definite_refusal,
    leave_rest,
    refuse_anew,
    say_undecided,
    typed,
    unsettled_refusal,
)
from committer.committers.job_call import JobCall
from committer.committers.listing import refuse_unwritable_list
from committer.committers.look import Position
from committer.committers.publish_action import PublishAction
from committer.committers.reports import check_reported, save_report
from committer.committers.results import JobReport
from committer.committers.standing import Standing, Step, Wish, step_for
from committer.committers.steps import take
from committer.errors import (
    CommitterError,
    JobNotFoundError,
    JobRolledBackError,
    JobStateError,
    JobUndecidedError,
    OutcomeUnknownError,
    StoreError,
)
from committer.events import names
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.logs import job_logger
from committer.records.task_commit import TaskCommit, messages_in
from committer.stages.base import StageContext
from committer.stages.commit_state import is_forward_only
from committer.stages.decide import DecideCommit, remove_plan, remove_side_files
from committer.stages.intent import own_intent, withdraw
from committer.stages.job_directory import JobDirectory
from committer.stages.origin import lost_its_setup
from committer.stages.roll_back import RollBackRequest

_log = job_logger("committer.committers")

# Every look finds the job further on than the one before, so a handful is plenty.
_LOOKS: Final = 20

_DECIDING: Final = frozenset({Step.DECIDE, Step.DECIDE_AS_INTENDED, Step.DECIDE_IF_FORCED})
_DECIDED: Final = frozenset({Step.PUBLISH, Step.TAKE_BACK, Step.UNDO, Step.FINISH})
_REFUSING: Final = frozenset({Step.REFUSE_DECIDED, Step.REFUSE_ABORTED, Step.REFUSE_COMMITTED, Step.REFUSE_ANEW})
_UNDECIDED: Final = frozenset({Standing.OPEN, Standing.INTENDED, Standing.REMAINS})
# Where a driver finds a job that it saw decided, when another one ended it.
_OVER: Final = _UNDECIDED | {
    Standing.CLAIMED,
    Standing.EMPTIED,
    Standing.STALE,
    Standing.REPEATED,
    Standing.ANEW,
}

# Where a job may still stand when a step of this driver failed and no other driver was at work.
_NOT_BROUGHT_ON: Final[Mapping[Step, frozenset[Standing]]] = {
    Step.PUBLISH: frozenset({Standing.DECIDED}),
    Step.TAKE_BACK: frozenset({Standing.DECIDED, Standing.FENCED}),
    Step.UNDO: frozenset({Standing.DECIDED, Standing.FENCED, Standing.ROLLED_BACK}),
    # This driver's own mark and cleanup change where it stands, too; what they leave to the last says how it ended.
    Step.FINISH: frozenset(Standing) - {Standing.GONE, Standing.KEPT},
}


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
            raise JobRolledBackError(
                f"job {report.job_id} is over and was not committed: it was aborted, or rolled back",
                operation="commit_job",
                path=self._context.layout.destination,
                next_step="run the job again, under another id",
            )
        return report

    async def recover(self, *, rollback: bool, force: bool) -> JobReport:
        """Finishes the job as decided, or takes it back."""
        call = self._recovery(rollback=rollback, force=force)
        report = await _reporting(call)
        _log_end(report, f"recovered: it {_how_it_ended(call, report)}")
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
        if step in _REFUSING:
            await take(call, step, position)
        elif step is Step.REMOVE_CLAIMED or (step is Step.TELL and position.found is None):
            await check_reported(call.context)
        elif step is Step.DECIDE_IF_FORCED:
            check_forced(call.context, force=force)
        elif step is Step.DECIDE_AS_INTENDED:
            await intent_of(call.context, position, force=force)
        elif step in _DECIDED:
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
        for _look in range(_LOOKS):
            step = step_for(position.standing, call.wish)
            if step in _DECIDED:
                call.check_roots(position)
            try:
                led = await take(call, step, position)
            except Exception as error:
                led = await _after_failure(call, step, position, error)
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


async def _after_failure(call: JobCall, step: Step, position: Position, error: Exception) -> Position:
    """Where the job stands by now, when another driver brought it on, or is to be taken back; else raises."""
    if step in _DECIDING and call.deciding.began and call.decision is None:
        return await _after_undecided(call, typed(error))
    if step in _DECIDING and call.decision is not None and isinstance(error, CommitterError):
        raise advise_recovery(call.context, error) from error
    if step not in _DECIDED or not isinstance(error, CommitterError):
        raise error
    try:
        now = await call.look()
    except CommitterError as unseen:
        error.causes = (*error.causes, unseen)
        raise _told(call, step, error) from error
    carried = call.decision
    if carried is not None and carried.decision == "commit":
        if now.standing in _OVER:
            # It ended; what stands there came late, or is a job set up under its id since.
            return Position(Standing.GONE)
        if now.decision is not None and now.decision.driver != carried.driver:
            raise _told(call, step, error) from error
    if _is_brought_on(call, step, now):
        if step is Step.FINISH:
            call.overtaken = _told(call, step, error)
        return now
    refusal = definite_refusal(error) if step is Step.PUBLISH else None
    if refusal is not None and call.state is not None and not is_forward_only(call.context, call.state):
        _log.warning("job %s is rolled back: %s", call.context.layout.job_id, refusal.message)
        call.refusal = refusal
        return replace(position, standing=Standing.REFUSED)
    raise _told(call, step, error) from error


def _is_brought_on(call: JobCall, step: Step, now: Position) -> bool:
    """Whether another driver of the job did what a step was about to do, or the contrary."""
    own = now.standing is Standing.ROLLED_BACK and now.outcome is not None and now.outcome.driver == call.context.driver
    return not own and now.standing not in _NOT_BROUGHT_ON[step]


def _told(call: JobCall, step: Step, error: CommitterError) -> CommitterError:
    """The error of a step as its caller is told of it."""
    context = call.context
    if call.refusal is not None and step in (Step.TAKE_BACK, Step.UNDO):
        return unsettled_refusal(context, call.refusal, error)
    if step is Step.PUBLISH:
        return advise_recovery(context, error, otherwise=_other_end(call))
    if step in (Step.TAKE_BACK, Step.UNDO):
        return advise_recovery(context, error, rollback=step is Step.TAKE_BACK or call.wish is Wish.ROLL_BACK)
    if error.outcome != "committed":
        # It could not be read what is left to do.
        leave_rest(context, error)
    return error


def _other_end(call: JobCall) -> str:
    """What ends a job that cannot be published any further; empty where that was not read."""
    context, state = call.context, call.state
    if state is None:
        return ""
    return context.giving_up() if is_forward_only(context, state) else context.taking_back()


async def _after_undecided(call: JobCall, error: CommitterError) -> Position:
    """Where the job stands when another driver of it went ahead, and what failed here is its doing; else raises.

    A file it published looks like another job's to a preflight. And freeze and lock are the job's: they may not
    be taken back once any driver decided.
    """
    context = call.context
    if isinstance(error, OutcomeUnknownError) and error.operation == DecideCommit.name:
        raise error
    try:
        now = await call.look()
    except (StoreError, MemoryError) as unseen:
        # It cannot be told whether another driver decided, so nothing is taken back.
        say_undecided(context, error, "another driver may have decided it, and that could not be looked up", unseen)
        raise error from None
    if now.standing is Standing.ANEW and now.found is not None:
        await _withdraw_from_other(context, error, now.found)
        raise refuse_anew(context) from error
    if now.standing in _UNDECIDED and now.found is not None:
        if not lost_its_setup(context, now.found):
            await withdraw_or_say(context, error, call.deciding.declared, now.found)
            raise error
        await remove_side_files(context, now.found)
        now = Position(Standing.GONE)
    call.overtaken = error
    return now


async def _withdraw_from_other(context: StageContext, error: CommitterError, found: JobDirectory) -> None:
    """Removes what this driver wrote into the directory of a job that was set up under the id since.

    A driver of that job passes over it, so it is no harm where that fails.
    """
    try:
        intent = await own_intent(context, found)
        if intent is not None:
            await withdraw(context, intent)
        await remove_plan(context, found)
    except CommitterError as hidden:
        error.causes = (*error.causes, hidden)


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
