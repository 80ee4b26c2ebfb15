"""The job-commit core: decided once, ended once, by any number of drivers.

::

    open -> decision=abort  -> cleaned up
         -> decision=commit -> publish, validate -> outcome=committed -> _SUCCESS -> cleaned up
                                                 -> outcome=rolled-back           -> cleaned up

Going forward is idempotent, so a driver that commits, the same one trying again, and any recoverer run the same code
from wherever the store says the job stands.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial

from committer.committers.abort import abort_job
from committer.committers.basis import Prepared, basis_of, find_refs, prepare
from committer.committers.carry_out import CarryOut
from committer.committers.failures import as_one, is_missing
from committer.committers.finish import check_reported, report_of, save_report
from committer.committers.listing import refuse_unwritable_list
from committer.committers.publish_action import PublishAction
from committer.committers.results import JobReport
from committer.errors import (
    CommitterError,
    JobDecidedError,
    JobNotFoundError,
    JobRolledBackError,
    JobUndecidedError,
    OutcomeUnknownError,
    StoreError,
    StoreLinkError,
    StoreOutcomeUnknownError,
)
from committer.events import audit, names
from committer.events.logs import job_logger
from committer.flow.outlast import UNDO_BOUND_S, outlast
from committer.flow.together import both
from committer.paths import StorePath
from committer.records.job_state import Intent, NamedRecord
from committer.records.task_commit import TaskCommit, messages_in
from committer.stages.base import StageContext
from committer.stages.cleanup import RemoveFate, remove_emptied
from committer.stages.commit_state import CommitState, EndedElsewhereError
from committer.stages.decide import DecideCommit, is_another_setup, remove_side_files, vanished
from committer.stages.intent import (
    CommitIntent,
    DeclareIntent,
    TakeReplaceLock,
    look_for_lock,
    own_intent,
    withdraw,
)
from committer.stages.job_directory import (
    JobDirectory,
    look_at_job,
    read_decision,
    read_intent,
    read_outcome,
)
from committer.stages.load_records import RecordRef, can_freeze, refs_of_messages, thaw_manifests
from committer.stages.preflight import refuse
from committer.stages.publish import Published
from committer.stages.success_file import read_success

_log = job_logger("committer.committers")


class JobCommit:
    """Commits, recovers, rolls back or aborts one job; one object a call.

    Args:
        context: The job, with the choices to use until a decision says which.
        action: How its files become visible.
    """

    def __init__(self, context: StageContext, action: PublishAction) -> None:
        self._context = context
        self._started = context.runtime.monotonic()
        self._carry_out = CarryOut(context, self._started, action)
        self._intent: StorePath | None = None

    async def commit(self, task_commits: Iterable[TaskCommit] | None, tasks: int | None) -> JobReport:
        """Commits the job; goes on where it was decided before."""
        refuse_unwritable_list(self._context.config)
        messages = messages_in(task_commits)
        report = await self._reporting(lambda: self._commit(messages, tasks))
        self._log_end(report, "committed" if report.success else "over, and was not committed")
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
        report = await self._reporting(lambda: self._recover(rollback=rollback, force=force))
        self._log_end(
            report, "recovered: it is committed" if report.success else "recovered: it is rolled back or aborted"
        )
        return report

    def _log_end(self, report: JobReport, how: str) -> None:
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

    async def _reporting(self, work: Callable[[], Awaitable[JobReport]]) -> JobReport:
        """Runs with heartbeat, statistics and audit; saves the summary whatever fails."""
        context = self._context
        try:
            with audit(ji=context.layout.job_id), context.statistics.timed(names.COMMITTER_COMMIT_JOB):
                async with context.progress.heartbeat():
                    try:
                        return await work()
                    except EndedElsewhereError:
                        return await self._carry_out.report_of_finished()
                    except CommitterError as error:
                        if self._carry_out.decided and is_missing(error) and await self._carry_out.is_gone():
                            return await self._carry_out.report_of_finished()
                        one = as_one(error)
                        if one is error:
                            raise
                        raise one from error
                    except (MemoryError, RecursionError, ExceptionGroup) as error:
                        raise _broken_off(context, error) from error
        except JobUndecidedError:
            # Nothing was tried, so there is nothing to report.
            raise
        except BaseException as error:
            saving = partial(
                save_report,
                self._carry_out.context,
                success=getattr(error, "outcome", "") == "committed",
                published=self._carry_out.published,
                error=error,
                trace=traceback.format_exc(),
                # Whoever ended a job that is gone knew better.
                only_if_absent=isinstance(error, JobNotFoundError),
            )
            await outlast(saving, bound_s=UNDO_BOUND_S)
            raise

    def _is_litter(self, found: JobDirectory) -> bool:
        """Whether no job stands there: late requests made the directory again, where directories are not real."""
        refuses = self._context.store.capabilities.refuses_late_writes
        if found.is_remains and not self._context.spec.hadoop:
            return True
        return not (found.has_records or (found.is_job and (refuses or self._context.spec.hadoop)))

    async def _ended_before(self, found: JobDirectory) -> bool:
        """Whether a directory without setup record is litter: a late Java task makes its job's directory again.

        Only Hadoop's jobs have no setup record, and Hadoop's job setup deletes `_SUCCESS`; so one that names this job
        says that it is over, and what stands here came afterwards.
        """
        if found.set_up or found.decided or found.ended:
            return False
        marker = await read_success(self._context)
        return marker is not None and marker.success and marker.jobId == self._context.layout.job_id

    # -- committing ---------------------------------------------------------------------------------------------

    async def _commit(self, task_commits: list[TaskCommit] | None, tasks: int | None) -> JobReport:
        try:
            found = await look_at_job(self._context.store, self._context.layout)
        except JobNotFoundError:
            return await self._carry_out.report_of_finished()
        if found.decided or found.ended:
            return await self._go_on(rollback=False, force=False)
        if self._is_litter(found) or await self._ended_before(found):
            return await self._carry_out.report_of_finished()
        if is_another_setup(self._context, found.children.get("setup")):
            raise vanished(self._context)
        winners = None
        if task_commits is not None:
            refs = refs_of_messages(self._context, task_commits)
            winners = [NamedRecord(ref.record, ref.digest or "") for ref in refs]
        return await self._decide_and_go(
            CommitIntent(winners, tasks, self._context.config.takes_replace_lock),
            lambda: find_refs(self._context, task_commits, tasks, freeze=True),
        )

    async def _decide_and_go(self, intent: CommitIntent, find: Callable[[], Awaitable[list[RecordRef]]]) -> JobReport:
        context = self._context
        try:
            self._intent = await DeclareIntent(context).run(intent)
        except Exception as error:
            return await self._overtaken(_typed(error))
        try:
            refs = await find() if intent.replacing else await self._find_beside_lock(find)
            prepared = await self._prepare(refs)
            if prepared.replaces and not intent.replacing:
                # Files will be replaced after all. Nobody else may commit here from now on, and what somebody did
                # until now is looked at again.
                await TakeReplaceLock(context).run(None)
                prepared = await self._prepare(refs)
        except Exception as error:
            return await self._overtaken(_typed(error))
        # A cancellation here or below leaves freeze, intent and lock: another driver of this job may rest on them, and
        # abort, recover or another commit takes over from there.
        try:
            basis = basis_of(context, prepared)
            decision = await DecideCommit(context).run(basis)
        except OutcomeUnknownError:
            raise
        except Exception as error:
            return await self._overtaken(_typed(error))
        _log.info(
            "job %s is decided by %s: %s, %d files in %d task commits",
            context.layout.job_id,
            "this driver" if decision.driver == context.driver else "another driver",
            decision.decision,
            decision.files,
            len(refs),
        )
        state = None
        if decision.driver == context.driver and decision.decision == "commit":
            state = CommitState.of(context, decision, basis.facts, prepared.loaded.entries)
            state.all_directories = sorted(prepared.loaded.directories)
        return await self._carry_out.obey(decision, state, rollback=False, force=False)

    async def _find_beside_lock(self, find: Callable[[], Awaitable[list[RecordRef]]]) -> list[RecordRef]:
        """What `find` finds, unless another job replaces data there."""

        async def found() -> list[RecordRef]:
            return await find()

        # The freeze is never cut short: a rename that comes late would freeze the records of tasks after a thaw.
        refs, busy = await both(found(), look_for_lock(self._context))
        if busy is not None:
            raise busy
        return refs

    async def _prepare(self, refs: list[RecordRef]) -> Prepared:
        context = self._context
        copies = context.spec.delivery == "listing" and not can_freeze(context)
        prepared = await prepare(context, refs, copy_records=copies, prove=self._carry_out.prove_abilities)
        refuse(context, prepared.conflicts)
        return prepared

    async def _overtaken(self, error: CommitterError) -> JobReport:
        """What became of the job when another driver of it went ahead, and what failed here is its doing; else `error`.

        A file it published looks like somebody else's to a preflight. And freeze and lock are the job's: they may not
        be taken back once any driver decided.
        """
        context = self._context
        try:
            found = await look_at_job(context.store, context.layout)
            if found.decided or found.ended:
                return await self._go_on(rollback=False, force=False)
            over = not (found.set_up or context.spec.hadoop)
            if over:
                await remove_side_files(context, found)
        except JobNotFoundError:
            over = True
        except (StoreError, MemoryError) as unseen:
            # Nobody can tell whether another driver decided, so nothing is taken back.
            _say_undecided(
                context, error, "another driver may have decided it, and that could not be looked up", unseen
            )
            raise error from None
        if over:
            try:
                return await self._carry_out.report_of_finished()
            except JobNotFoundError:
                if isinstance(error, JobNotFoundError):
                    raise error from None
                raise
        await self._stay_undecided(error, found)
        raise error

    async def _stay_undecided(self, error: CommitterError, found: JobDirectory) -> None:
        """Takes freeze, lock and intent back after a refusal; what fails here must not hide the refusal, which says it.

        The freeze only for the job's first and only driver, and the lock only when no other one rests on it: another
        one may be alive.
        """
        context = self._context
        failure: Exception | None = None

        async def undo() -> None:
            nonlocal failure
            try:
                intent = self._intent or await own_intent(context, found)
                if intent is None:
                    return
                alone = found.intents == [intent.name] == [context.layout.intent.name]
                if alone and context.spec.delivery == "listing":
                    await thaw_manifests(context)
                await withdraw(context, intent)
            except Exception as hidden:
                failure = hidden

        in_time = await outlast(undo, bound_s=UNDO_BOUND_S)
        if failure is not None or not in_time:
            _say_undecided(context, error, "its intent could not be taken back", failure)
        elif isinstance(error, StoreOutcomeUnknownError):
            # Whatever it did, the job is not decided, and no driver goes by it.
            error.outcome = "unchanged"
            error.next_step = error.next_step or "commit the job again"

    # -- going on from what the store says ------------------------------------------------------------------------

    async def _recover(self, *, rollback: bool, force: bool) -> JobReport:
        context = self._context
        try:
            found = await look_at_job(context.store, context.layout)
        except JobNotFoundError:
            return await self._carry_out.report_of_finished()
        if not found.children:
            # What a cleanup leaves that died before its very last step (or a setup before its first record).
            await remove_emptied(context)
            return await self._carry_out.report_of_finished()
        if self._is_litter(found) or await self._ended_before(found):
            return await self._carry_out.report_of_finished()
        if found.decided or found.ended:
            return await self._go_on(rollback=rollback, force=force)
        if rollback:
            return await self._abort_instead(force=force)
        intent = await self._intent_of(found, force=force)
        winners = intent.winners if intent is not None else None
        tasks = intent.tasks if intent is not None else None

        async def find() -> list[RecordRef]:
            if winners is None or context.spec.delivery == "listing":
                listed = await find_refs(context, None, tasks, freeze=True)
                if winners is None:
                    return listed
                by_name = {ref.record.rpartition("/")[2]: ref for ref in listed}
                return [
                    replace(
                        by_name.get(winner.record.rpartition("/")[2], RecordRef(winner.record)), digest=winner.digest
                    )
                    for winner in winners
                ]
            return [RecordRef(winner.record, winner.digest) for winner in winners]

        return await self._decide_and_go(CommitIntent(winners, tasks, context.config.takes_replace_lock), find)

    async def _intent_of(self, found: JobDirectory, *, force: bool) -> Intent | None:
        """The intent of a driver that began to commit an undecided job; None where a listing is taken by force.

        Raises:
            JobUndecidedError: Nobody did.
        """
        context = self._context
        intent = await read_intent(context.store, found)
        if intent is None and not (force and context.spec.delivery == "listing"):
            raise JobUndecidedError(
                f"nobody began to commit job {context.layout.job_id}, so there is nothing to recover",
                delivery=context.spec.delivery,
                operation="recover",
                path=context.layout.job_directory,
                next_step=_ways_out(context),
            )
        return intent

    async def check_recover(self, *, rollback: bool, force: bool) -> None:
        """Raises what `recover` would raise from where the job stands; changes nothing.

        What shows only when it is tried is not foreseen, nor what a commit of an undecided job would be refused for.
        """
        context = self._context
        try:
            found = await look_at_job(context.store, context.layout)
        except JobNotFoundError:
            await check_reported(context)
            return
        if not found.children or self._is_litter(found) or await self._ended_before(found):
            return
        if not (found.decided or found.ended):
            if not rollback:
                await self._intent_of(found, force=force)
            return
        decision = await read_decision(context.store, context.layout)
        if decision is not None:
            await self._carry_out.check(decision, rollback=rollback, force=force)
        elif rollback:
            outcome = await read_outcome(context.store, context.layout)
            if outcome is not None and outcome.kept:
                raise self._carry_out.refuse_rollback()

    async def _abort_instead(self, *, force: bool) -> JobReport:
        """Rolls back a job that was undecided when it was looked at: by an abort, unless somebody was faster."""
        try:
            if await abort_job(self._context):
                return report_of(self._context, self._started, success=False, published=Published(), directories=0)
            await look_at_job(self._context.store, self._context.layout)
        except JobNotFoundError:
            return await self._carry_out.report_of_finished()
        except JobDecidedError:
            pass
        return await self._go_on(rollback=True, force=force)

    async def _go_on(self, *, rollback: bool, force: bool) -> JobReport:
        decision = await read_decision(self._context.store, self._context.layout)
        if decision is None:
            # Gone since the directory was listed, or removed by a cleanup that died before it removed the outcome.
            outcome = await read_outcome(self._context.store, self._context.layout)
            if outcome is None:
                raise EndedElsewhereError(None)
            if outcome.kept:
                return await self._carry_out.report_of_kept(rollback=rollback)
            await RemoveFate(self._context).run(None)
            raise EndedElsewhereError(outcome)
        return await self._carry_out.obey(decision, None, rollback=rollback, force=force)


def _ways_out(context: StageContext) -> str:
    """How a job ends that nobody began to commit."""
    layout = context.layout
    how = "from_attempts=True, tasks=N" if context.spec.delivery == "message" else "tasks=N"
    return (
        f"`job = await committer.attach_job({str(layout.destination)!r}, job_id={layout.job_id!r})`, then "
        f"`await job.commit({how})` if all its tasks are done, N of them, else `await job.abort()`"
    )


def _broken_off(context: StageContext, error: Exception) -> CommitterError:
    """The error of a commit that ended where nobody can tell how far it came: no memory was left."""
    return CommitterError(
        f"the commit of job {context.layout.job_id} broke off: {type(error).__name__}: {error}",
        operation="commit_job",
        path=context.layout.destination,
        outcome="unknown",
        next_step=f"call {context.recover_call()} in a fresh process: it finishes what was begun; "
        f"{context.recover_call(rollback=True)} aborts it or takes it back",
        causes=[error],
    )


def _say_undecided(context: StageContext, error: CommitterError, why: str, failure: Exception | None) -> None:
    """Makes a refusal say that the job may be committed yet, because its intent still stands."""
    job_id = context.layout.job_id
    reason = failure.message if isinstance(failure, CommitterError) else str(failure or "it took too long")
    _log.warning("the intent of job %s still stands: %s: %s", job_id, why, reason)
    error.message = (
        f"{error.message}; this driver published nothing, but a recovery would commit job {job_id}: {why}: {reason}"
    )
    error.outcome = "unknown"
    links = (one.next_step for one in (error, failure) if isinstance(one, StoreLinkError))
    cause = next(links, "remove the cause")
    error.next_step = (
        f"{cause}, then call {context.recover_call()} to commit it, or {context.recover_call(rollback=True)} "
        "to abort it"
    )
    error.causes = (*error.causes, *([failure] if failure is not None else []))


def _typed(error: Exception) -> CommitterError:
    """An error as the engine raises it: what nobody foresaw must not leave intent and lock behind."""
    if isinstance(error, CommitterError):
        return error
    unforeseen = CommitterError(
        f"the commit failed in a way that was not foreseen: {type(error).__name__}: {error}",
        operation="commit_job",
        next_step="nothing was published; report this with its traceback",
        causes=[error],
    )
    unforeseen.__cause__ = error
    return unforeseen
