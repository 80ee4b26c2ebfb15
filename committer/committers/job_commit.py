"""The job-commit core: decided once, ended once, by any number of drivers.

::

    open -> decision=abort  -> cleaned up
         -> decision=commit -> publish, validate -> outcome=committed -> _SUCCESS -> cleaned up
                                                 -> outcome=rolled-back           -> cleaned up

Going forward is idempotent, so a driver that commits, the same one trying again, and any recoverer run the same code
from wherever the store says the job stands.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TypeVar

import anyio

from committer.committers.basis import Prepared, basis_of, find_refs, prepare
from committer.committers.context import trusted_config
from committer.committers.finish import finish_committed, finish_rolled_back, report_of_finished, save_report
from committer.committers.results import CommitPlan, JobReport
from committer.errors import (
    CommitterError,
    JobDecidedError,
    JobNotFoundError,
    JobRolledBackError,
    JobStateError,
    JobUndecidedError,
    MultipleError,
    OutcomeUnknownError,
    StoreError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    TargetExistsError,
)
from committer.events import audit, names
from committer.paths import StorePath
from committer.records.job_state import Decision, JobOutcome, NamedRecord
from committer.records.task_commit import TaskCommit
from committer.stages.base import StageContext
from committer.stages.cleanup import CleanupJob, RemoveFate, remove_emptied
from committer.stages.commit_state import CommitState, EndedElsewhereError
from committer.stages.create_directories import CreateDirectories
from committer.stages.decide import DecideCommit, abort_decision, create_decision, remove_side_files
from committer.stages.durability import sync_directories
from committer.stages.end_job import EndJob
from committer.stages.intent import CommitIntent, DeclareIntent, TakeReplaceLock, release_lock, withdraw
from committer.stages.job_directory import (
    JobDirectory,
    look_at_job,
    read_decision,
    read_intent,
    read_outcome,
)
from committer.stages.load_records import (
    RecordRef,
    refs_of_messages,
    thaw_manifests,
)
from committer.stages.names import ancestors
from committer.stages.preflight import refuse
from committer.stages.promote import PromoteDirectories, Promotion, find_promotions
from committer.stages.publish import Published, PublishFiles
from committer.stages.roll_back import RollBack, RollBackRequest, is_forward_only
from committer.stages.success_file import SetAsideSuccess, read_success, set_totals
from committer.stages.superseded import MoveAside
from committer.stages.validate_output import ValidateOutput
from committer.stores.helpers import exists

E = TypeVar("E", bound=BaseException)

_log = logging.getLogger("committer.committers")

_UNDO_BOUND_S = 60.0


class JobCommit:
    """Commits, recovers, rolls back or aborts one job; one object a call.

    Args:
        context: The job, with the choices to use until a decision says which.
    """

    def __init__(self, context: StageContext) -> None:
        self._context = context
        self._started = context.runtime.monotonic()
        self._published: Published | None = None
        self._decided = False
        self._owns_intent = False

    async def commit(self, task_commits: Iterable[TaskCommit] | None, tasks: int | None) -> JobReport:
        """Commits the job; goes on where it was decided before."""
        task_commits = list(task_commits) if task_commits is not None else None
        report = await self._reporting(lambda: self._commit(task_commits, tasks))
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
        return await self._reporting(lambda: self._recover(rollback=rollback, force=force))

    async def _reporting(self, work: Callable[[], Awaitable[JobReport]]) -> JobReport:
        """Runs with heartbeat, statistics and audit; saves the summary whatever fails."""
        context = self._context
        try:
            with audit(ji=context.layout.job_id), context.statistics.timed(names.COMMITTER_COMMIT_JOB):
                async with context.progress.heartbeat():
                    try:
                        return await work()
                    except EndedElsewhereError:
                        return await self._report_of_finished()
                    except CommitterError as error:
                        if self._decided and _is_missing(error) and await self._is_gone():
                            return await self._report_of_finished()
                        raise
        except (JobNotFoundError, JobUndecidedError):
            # Nothing was tried, so there is nothing to report (and perhaps a report of the real end to overwrite).
            raise
        except BaseException as error:
            with anyio.move_on_after(_UNDO_BOUND_S, shield=True):
                await save_report(
                    self._context,
                    success=getattr(error, "outcome", "") == "committed",
                    published=self._published,
                    error=error,
                    trace=traceback.format_exc(),
                )
            raise

    async def _is_gone(self) -> bool:
        """Whether the decision being carried out is gone: another driver ended the job and cleaned up."""
        try:
            return await read_decision(self._context.store, self._context.layout) is None
        except CommitterError:
            return False

    async def _report_of_finished(self) -> JobReport:
        # A driver that came too late to find its job may have taken the lock again.
        await release_lock(self._context)
        return await report_of_finished(self._context, self._started, decided=self._decided)

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
            return await self._report_of_finished()
        if found.decided or found.ended:
            return await self._go_on(rollback=False, force=False)
        if await self._ended_before(found):
            return await self._report_of_finished()
        winners = None
        if task_commits is not None:
            refs = refs_of_messages(self._context, task_commits)
            winners = [NamedRecord(ref.record, ref.digest or "") for ref in refs]
        return await self._decide_and_go(
            CommitIntent(winners, tasks, self._context.config.conflict_mode == "replace"),
            lambda: find_refs(self._context, task_commits, tasks, freeze=True),
        )

    async def _decide_and_go(self, intent: CommitIntent, find: Callable[[], Awaitable[list[RecordRef]]]) -> JobReport:
        context = self._context
        try:
            self._owns_intent = await DeclareIntent(context).run(intent)
        except CommitterError as error:
            return await self._overtaken(error)
        try:
            refs = await find()
            prepared = await self._prepare(refs)
            if (prepared.view.targets or prepared.view.blocking) and not intent.replacing:
                # Files will be replaced after all. Nobody else may commit here from now on, and what somebody did
                # until now is looked at again.
                await TakeReplaceLock(context).run(None)
                prepared = await self._prepare(refs)
        except CommitterError as error:
            return await self._overtaken(error, self._stay_undecided)
        # A cancellation here or below leaves freeze, intent and lock: another driver of this job may rest on them, and
        # abort, recover or another commit takes over from there.
        try:
            basis = basis_of(prepared)
            context.statistics.merge(prepared.loaded.statistics.snapshot())
            decision = await DecideCommit(context).run(basis)
        except StoreOutcomeUnknownError as error:
            raise OutcomeUnknownError(
                f"cannot tell whether job {context.layout.job_id} was decided",
                operation=DecideCommit.name,
                path=context.layout.decision,
                next_step=f"call {context.recover_command}: it finishes what was decided",
                causes=[error],
            ) from error
        except CommitterError as error:
            return await self._overtaken(error, self._stay_undecided)
        state = None
        if decision.driver == context.driver and decision.decision == "commit":
            state = CommitState.of(context, decision, basis.facts, prepared.loaded.entries)
            state.all_directories = sorted(prepared.loaded.directories)
        return await self._obey(decision, state, rollback=False, force=False)

    async def _prepare(self, refs: list[RecordRef]) -> Prepared:
        context = self._context
        can_freeze = context.store.capabilities.atomic_directory_rename
        prepared = await prepare(context, refs, copy_records=context.spec.delivery == "listing" and not can_freeze)
        refuse(context, prepared.conflicts)
        return prepared

    async def _overtaken(self, error: CommitterError, undo: Callable[[], Awaitable[None]] | None = None) -> JobReport:
        """What became of the job when another driver of it went ahead, and what failed here is its doing; else `error`.

        A file it published looks like somebody else's to a preflight. And freeze, intent and lock are the job's, so
        `undo` may not take them back once any driver decided.
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
        except StoreError:
            # Nobody can tell whether another driver decided, so nothing is taken back.
            raise error from None
        if over:
            try:
                return await self._report_of_finished()
            except JobNotFoundError:
                if isinstance(error, JobNotFoundError):
                    raise error from None
                raise
        if undo is not None:
            await undo()
        raise error

    async def _stay_undecided(self) -> None:
        """Takes freeze, intent and lock back after a refusal; what fails here must not hide the refusal.

        Only what is this driver's own: another one of this job may be alive and rest on it.
        """
        if not self._owns_intent:
            return
        with anyio.move_on_after(_UNDO_BOUND_S, shield=True):
            for undo in (thaw_manifests, withdraw):
                if undo is thaw_manifests and self._context.spec.delivery != "listing":
                    continue
                try:
                    await undo(self._context)
                except CommitterError as error:
                    _log.warning("job %s stays undecided, but: %s", self._context.layout.job_id, error)

    # -- going on from what the store says ------------------------------------------------------------------------

    async def _recover(self, *, rollback: bool, force: bool) -> JobReport:
        context = self._context
        try:
            found = await look_at_job(context.store, context.layout)
        except JobNotFoundError:
            return await self._report_of_finished()
        if not found.children:
            # What a cleanup leaves that died before its very last step (or a setup before its first record).
            await remove_emptied(context)
            return await self._report_of_finished()
        if await self._ended_before(found):
            return await self._report_of_finished()
        if found.decided or found.ended:
            return await self._go_on(rollback=rollback, force=force)
        if rollback:
            await self.abort()
            return self._report(success=False, published=Published(), directories=0)
        intent = await read_intent(context.store, context.layout) if found.intended else None
        if intent is None and not (force and context.spec.delivery == "listing"):
            raise JobUndecidedError(
                f"nobody began to commit job {context.layout.job_id}, so there is nothing to recover",
                operation="recover",
                path=context.layout.job_directory,
                next_step="commit it (attach_job(...).commit()) if all its tasks are done, else abort it",
            )
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

        replacing = context.config.conflict_mode == "replace"
        return await self._decide_and_go(CommitIntent(winners, tasks, replacing), find)

    async def _go_on(self, *, rollback: bool, force: bool) -> JobReport:
        decision = await read_decision(self._context.store, self._context.layout)
        if decision is None:
            # Gone since the directory was listed, or removed by a cleanup that died before it removed the outcome.
            outcome = await read_outcome(self._context.store, self._context.layout)
            if outcome is None:
                raise EndedElsewhereError(None)
            await RemoveFate(self._context).run(None)
            raise EndedElsewhereError(outcome)
        return await self._obey(decision, None, rollback=rollback, force=force)

    async def _obey(self, decision: Decision, state: CommitState | None, *, rollback: bool, force: bool) -> JobReport:
        self._context = context = replace(self._context, config=trusted_config(decision.config, self._context.config))
        layout, store = context.layout, context.store
        self._decided = decision.decision == "commit"
        if decision.decision == "abort":
            if rollback:
                await self.abort()
                return self._report(success=False, published=Published(), directories=0)
            raise JobDecidedError(
                f"job {layout.job_id} was aborted",
                operation="commit_job",
                path=layout.decision,
                next_step="run the job again under another id; cleanup removes what is left of this one",
            )
        outcome = await read_outcome(store, layout)
        if outcome is not None:
            return await self._after_outcome(decision, outcome, rollback=rollback)
        if state is None:
            await self._refuse_void(decision)
            state = await CommitState.read(context, decision)
        fenced = store.capabilities.atomic_directory_rename and await exists(store, layout.tasks_fenced)
        if rollback or fenced:
            return await self._roll_back(state, reason="on demand", force=force, raising=not rollback)
        return await self._forward(state)

    async def _refuse_void(self, decision: Decision) -> None:
        """Takes back a decision about a job that an abort or a cleanup had already emptied when it was made.

        Its driver looks for the setup record once it decided; this is for one that died before it could.
        """
        context = self._context
        found = await look_at_job(context.store, context.layout)
        if (
            found.set_up
            or found.ended
            or context.spec.hadoop
            or any(child.is_directory for child in found.children.values())
        ):
            return
        await context.store.delete_file(context.layout.decision)
        await remove_side_files(context, found)
        raise JobNotFoundError(
            f"job {decision.job_id} was aborted or cleaned up before it was decided to be committed",
            operation="commit_job",
            path=context.layout.job_directory,
            next_step="run the job again; nothing was published",
        )

    async def _after_outcome(self, decision: Decision, outcome: JobOutcome, *, rollback: bool) -> JobReport:
        context = self._context
        # Cleanup takes the intent first, after all else was done: without it only cleaning is left, and what a full
        # state is read from may be half gone.
        cleaning = not (await look_at_job(context.store, context.layout)).intended
        state = CommitState.of(context, decision, []) if cleaning else await CommitState.read(context, decision)
        if outcome.outcome == "rolled-back":
            return await self._end_rolled_back(state, raising=not rollback, reason=outcome.reason, undone=cleaning)
        if rollback:
            raise JobStateError(
                f"job {context.layout.job_id} is committed: it cannot be rolled back",
                operation="recover",
                path=context.layout.outcome,
                outcome="committed",
                next_step="recover it without rollback to clean up; remove its files by hand if you must",
            )
        return await self._complete(state, None)

    async def _forward(self, state: CommitState) -> JobReport:
        context = self._context
        try:
            published = self._published = await self._publish(state)
            outcome = await EndJob(context).run((state.decision, "committed", ""))
        except EndedElsewhereError as ended:
            return await self._after_elsewhere(state, ended.outcome)
        except CommitterError as error:
            among = _among(error, EndedElsewhereError)
            if among is not None:
                return await self._after_elsewhere(state, among.outcome)
            rolled_back = _among(error, JobRolledBackError)
            if rolled_back is not None:
                raise rolled_back from None
            if _is_missing(error) and await self._is_gone():
                return await self._after_elsewhere(state, None)
            refusal = _definite_refusal(error)
            if refusal is None or is_forward_only(context, state):
                raise _decided(context, error) from error
            return await self._take_back_refused(state, refusal)
        if outcome.outcome == "rolled-back":
            return await self._end_rolled_back(state, raising=True, reason=outcome.reason)
        return await self._complete(state, published)

    async def _after_elsewhere(self, state: CommitState, outcome: JobOutcome | None) -> JobReport:
        if outcome is None:
            committed = False
            try:
                report = await self._report_of_finished()
                committed = report.success
                return report
            finally:
                # It was rolled back and cleaned up, most likely, while this driver was still making directories.
                if not committed:
                    await RollBack(self._context).remove_directories(state)
        if outcome.outcome == "committed":
            return await self._complete(state, None)
        return await self._end_rolled_back(state, raising=True, reason=outcome.reason)

    async def _publish(self, state: CommitState) -> Published:
        context = self._context
        await SetAsideSuccess(context).run(state.decision)
        if state.blocking:
            await MoveAside(context).run(state.blocking)
        promotions = self._promotions(state)
        await CreateDirectories(context).run(_not_below(state.directories, promotions))
        if promotions:
            for promotion in await PromoteDirectories(context).run(promotions):
                state.promoted.update({file.destination: file for file in promotion.files.values()})
        published = await PublishFiles(context).run(state)
        if state.superseded:
            await MoveAside(context).run(state.superseded)
        if context.durable:
            await sync_directories(context, await _touched(context, state))
        await ValidateOutput(context).run((state, published))
        return published

    def _promotions(self, state: CommitState) -> list[Promotion]:
        entries = state.files.in_memory
        can_rename = self._context.store.capabilities.atomic_directory_rename
        if not (self._context.config.promote_directories and can_rename and entries):
            return []
        return find_promotions(entries, state.all_directories, set(state.directories))

    async def _complete(self, state: CommitState, published: Published | None) -> JobReport:
        if published is None:
            published = await _published_before(self._context, state)
        self._published = published
        await finish_committed(self._context, state, published)
        return self._report(success=True, published=published, directories=state.decision.directories)

    # -- rolling back -------------------------------------------------------------------------------------------

    async def _take_back_refused(self, state: CommitState, refusal: TargetExistsError) -> JobReport:
        """A publish action was refused for good: the job is rolled back, whole."""
        try:
            await self._roll_back(state, reason=refusal.message, force=True, raising=False)
        except CommitterError as error:
            raise CommitterError(
                f"{refusal.message}; rolling the job back failed: {error.message}",
                operation=error.operation,
                path=refusal.path,
                outcome="partial",
                next_step=f"call {self._context.recover_command} with rollback=True",
                causes=[refusal, error],
            ) from refusal
        refusal.outcome = "unchanged"
        refusal.next_step = refusal.next_step or "run the job again; what was published was taken back"
        raise refusal

    async def _roll_back(self, state: CommitState, *, reason: str, force: bool, raising: bool) -> JobReport:
        context = self._context
        # A disk's missing abilities show only when they are tried, and a fence must not be found out half way.
        if await exists(context.store, context.layout.job_attempt_directory):
            await context.store.probe(context.layout.job_attempt_directory)
        try:
            outcome = await RollBack(context).run(RollBackRequest(state, reason, force))
        except EndedElsewhereError as ended:
            if ended.outcome is None:
                raise
            outcome = ended.outcome
        if outcome.outcome == "committed":
            report = await self._complete(state, None)
            if raising:
                return report
            raise JobStateError(
                f"job {context.layout.job_id} was committed before it could be rolled back",
                operation="roll_back",
                path=context.layout.destination,
                outcome="committed",
                next_step="nothing was taken back",
            )
        return await self._end_rolled_back(state, raising=raising, reason=reason, undone=True)

    async def _end_rolled_back(
        self, state: CommitState, *, raising: bool, reason: str, undone: bool = False
    ) -> JobReport:
        context = self._context
        if not undone:
            # Whoever meets the outcome helps to undo: what this driver published late is known to it alone.
            await RollBack(context).undo(state)
        await finish_rolled_back(context)
        if raising:
            raise JobRolledBackError(
                f"job {context.layout.job_id} was rolled back: {reason}",
                operation="commit_job",
                path=context.layout.destination,
                next_step="run the job again",
            )
        return self._report(success=False, published=Published(), directories=0)

    # -- aborting -----------------------------------------------------------------------------------------------

    async def abort(self) -> None:
        """Decides against the job and removes it; does nothing for a job that ended."""
        context = self._context
        with audit(ji=context.layout.job_id), context.statistics.timed(names.JOB_STAGE_ABORT):
            try:
                found = await look_at_job(context.store, context.layout)
            except JobNotFoundError:
                await release_lock(context)
                return
            if found.ended:
                return
            try:
                decision = await create_decision(context, abort_decision(context))
            except JobNotFoundError:
                # Cleaned up since it was listed: there is nothing left to abort.
                await release_lock(context)
                return
            if decision.decision == "commit":
                raise JobDecidedError(
                    f"job {context.layout.job_id} is decided to be committed: it was not aborted, nothing was deleted",
                    operation="abort",
                    path=context.layout.decision,
                    outcome="partial",
                    next_step=f"call {context.recover_command} to finish it, with rollback=True to take it back",
                )
            await release_lock(context)
            if not context.config.cleanup_skipped:
                await CleanupJob(context).run(None)
            await save_report(context, success=False, published=None, error=None, only_if_absent=True)
            if not context.config.cleanup_skipped:
                await RemoveFate(context).run(None)

    # -- planning -----------------------------------------------------------------------------------------------

    async def plan(self, task_commits: Iterable[TaskCommit] | None) -> CommitPlan:
        """Loads and checks without freezing or writing anything."""
        context = self._context
        with audit(ji=context.layout.job_id):
            await look_at_job(context.store, context.layout)
            refs = await find_refs(
                context, list(task_commits) if task_commits is not None else None, None, freeze=False
            )
            prepared = await prepare(context, refs, copy_records=False)
        replaced = {*prepared.view.targets, *prepared.view.blocking, *prepared.superseded}
        return CommitPlan(
            files=prepared.loaded.files,
            bytes=prepared.loaded.size,
            directories=sorted(prepared.view.absent),
            conflicts=prepared.conflicts.all(),
            replaced=sorted(replaced)[:100],
            tasks=len(refs),
            stray=await _stray(context, refs),
        )

    def _report(self, *, success: bool, published: Published, directories: int) -> JobReport:
        context = self._context
        statistics = context.statistics.snapshot()
        set_totals(statistics, published)
        return JobReport(
            success=success,
            job_id=context.layout.job_id,
            committer=context.spec.committer,
            files_committed=published.files,
            bytes_committed=published.size,
            directories_created=directories,
            renames_recovered=published.recovered,
            duration_s=context.runtime.monotonic() - self._started,
            statistics=statistics,
            filenames=published.filenames,
        )


def _not_below(directories: list[str], promotions: list[Promotion]) -> list[str]:
    """Directories to make: those that come with a promoted one are left out."""
    promoted = {promotion.directory for promotion in promotions}
    if not promoted:
        return directories
    return [name for name in directories if not ({name, *ancestors(name)} & promoted)]


async def _touched(context: StageContext, state: CommitState) -> set[StorePath]:
    destination = context.layout.destination
    touched = {destination, *(destination / name for name in state.directories)}
    touched.update((destination / name).parent for name in state.directories)
    async for file in state.files:
        touched.add((destination / file.destination).parent)
    return touched


async def _published_before(context: StageContext, state: CommitState) -> Published:
    """What an earlier driver published, as far as it can still be read."""
    marker = await read_success(context)
    published = Published()
    if marker is not None and marker.jobId == context.layout.job_id:
        published.filenames, published.lengths = marker.filenames, marker.lengths or []
        published.files, published.size = state.decision.files, state.decision.size
        return published
    try:
        async for file in state.files:
            published.add(context.layout.destination, file)
            if len(published.filenames) >= 100:
                break
    except CommitterError:
        published = Published()
    published.files, published.size = state.decision.files, state.decision.size
    return published


async def _stray(context: StageContext, refs: list[RecordRef]) -> list[str]:
    """Records that would not be published, at most a hundred."""
    layout, store = context.layout, context.store
    winning = {ref.record for ref in refs}
    stray: list[str] = []
    for directory in (layout.manifests, layout.attempts):
        try:
            children = [child async for child in store.list(directory)]
        except CommitterError:
            continue
        stray += [str(child.path) for child in children if child.path.relative_to(layout.job_directory) not in winning]
    return sorted(stray)[:100]


def _among(error: CommitterError, kind: type[E]) -> E | None:
    """The news of one kind among the failures of several workers."""
    causes = error.causes if isinstance(error, MultipleError) else ()
    return next((cause for cause in causes if isinstance(cause, kind)), None)


def _is_missing(error: CommitterError) -> bool:
    """Whether something was not there any more, and nothing else went wrong."""
    if isinstance(error, MultipleError):
        return all(isinstance(cause, CommitterError) and _is_missing(cause) for cause in error.causes)
    return isinstance(error, StoreNotFoundError | JobNotFoundError)


def _definite_refusal(error: CommitterError) -> TargetExistsError | None:
    """The refusal among one or several failures of a stage; None when any of them may be something else."""
    if isinstance(error, TargetExistsError):
        return error
    if error.causes and all(isinstance(cause, CommitterError) for cause in error.causes):
        found = [cause for cause in error.causes if isinstance(cause, TargetExistsError)]
        if found and len(found) == len(error.causes):
            return found[0]
    return None


def _decided(context: StageContext, error: CommitterError) -> CommitterError:
    """A failure after the decision, which changed the destination or may have."""
    if error.outcome == "unchanged":
        error.outcome = "partial"
    if not error.next_step or isinstance(error, TargetExistsError):
        error.next_step = f"remove the cause, then call {context.recover_command}"
    return error
