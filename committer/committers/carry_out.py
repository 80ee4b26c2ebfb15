"""A decided job, carried to its end: forward, or back."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from committer.committers.abort import abort_job
from committer.committers.context import refuse_roots_not_given, trusted_config
from committer.committers.failures import Refusal, among, definite_refusal, is_missing
from committer.committers.finish import (
    finish_committed,
    finish_kept,
    finish_rolled_back,
    report_of,
    report_of_finished,
)
from committer.committers.publish_action import PublishAction
from committer.committers.results import JobReport
from committer.errors import (
    CommitterError,
    JobDecidedError,
    JobNotFoundError,
    JobRolledBackError,
    JobStateError,
    MultipleError,
    StoreError,
    StoreLinkError,
    StoreNotFoundError,
    TargetExistsError,
)
from committer.events.logs import job_logger
from committer.flow.together import both
from committer.records.job_state import Decision, JobOutcome
from committer.records.success import FILENAMES_LIMIT
from committer.stages.base import StageContext
from committer.stages.cleanup import CleanupJob, RemoveFate
from committer.stages.commit_state import CommitState, EndedElsewhereError, is_fenced, is_forward_only
from committer.stages.decide import remove_side_files
from committer.stages.durability import sync_directories
from committer.stages.end_job import Ended, EndJob
from committer.stages.job_directory import look_at_job, read_decision, read_outcome
from committer.stages.publish import Published
from committer.stages.roll_back import RollBackRequest, fence
from committer.stages.success_file import named_uris, read_success, was_completed
from committer.stores.helpers import exists

_log = job_logger("committer.committers")


class CarryOut:
    """Obeys the decision of one job; one object a call.

    Args:
        context: The job, with the choices to use until a decision says which.
        started: When the call began, on the runtime's clock.
        action: How the job's files become visible.

    Attributes:
        context: The job, with the decision's choices once that was read.
        decided: Whether a decision to commit was seen.
        published: What was published, as far as it is known.
    """

    def __init__(self, context: StageContext, started: float, action: PublishAction) -> None:
        self.context: StageContext = context
        self.decided: bool = False
        self.published: Published | None = None
        self._started = started
        self._action = action
        self._proved = context.proved

    async def is_gone(self) -> bool:
        """Whether the decision being carried out is gone: another driver ended the job and cleaned up. One call."""
        try:
            return await read_decision(self.context.store, self.context.layout) is None
        except CommitterError:
            return False

    async def report_of_finished(self) -> JobReport:
        """The report of a job that another driver ended and cleaned up.

        Raises:
            JobNotFoundError: Nothing speaks of the job.
        """
        try:
            return await report_of_finished(self.context, self._started, decided=self.decided)
        except CommitterError as error:
            if self.decided and error.outcome == "unchanged":
                # What this driver published stands, or another took it back: it could not be looked at.
                error.outcome = "unknown"
                first = f"{error.next_step}, then" if isinstance(error, StoreLinkError) else "remove the cause, then"
                error.next_step = f"{first} call {self.context.recover_call()}: it says how the job ended, or ends it"
            raise

    async def report_of_kept(self, *, rollback: bool) -> JobReport:
        """The report of a job that committed and left its outcome; removes what else stands there.

        Raises:
            JobStateError: It was to be rolled back.
        """
        if rollback:
            raise self.refuse_rollback()
        await finish_kept(self.context)
        return await self.report_of_finished()

    async def obey(self, decision: Decision, state: CommitState | None, *, rollback: bool, force: bool) -> JobReport:
        """Goes on from where the store says the job stands.

        Args:
            decision: What is obeyed, whoever made it.
            state: What the decision rests on, known to the driver that made it; None reads it from the store.
            rollback: Take a commit back rather than finish it.
            force: The user vouches that no other driver of the job is alive.

        Raises:
            JobDecidedError: It was decided against the job.
            JobRolledBackError: It was rolled back by somebody else.
            JobStateError: It is committed and cannot be rolled back.
            ConfigurationError: It publishes below roots that the caller did not give. Nothing was changed.
            EndedElsewhereError: Another driver ended the job and cleaned up.
        """
        self.context = context = replace(self.context, config=trusted_config(decision.config, self.context.config))
        layout, store = context.layout, context.store
        self.decided = decision.decision == "commit"
        context.statistics.merge(decision.statistics)
        if decision.decision == "abort":
            outcome = await read_outcome(store, layout)
            if outcome is not None and outcome.kept:
                # An abort that looked before the job committed, and decides only now; it is about to find out.
                return await self.report_of_kept(rollback=rollback)
            if rollback:
                await abort_job(context)
                return report_of(context, self._started, success=False, published=Published(), directories=0)
            raise self._was_aborted()
        if state is None:
            await self._force()
        if state is not None and store.capabilities.refuses_late_writes:
            # Made by this driver a moment ago. What others did since is met where it matters: a fence by the first
            # rename, an outcome when this driver's is created.
            outcome, fenced = None, False
        else:
            outcome, fenced = await both(read_outcome(store, layout), is_fenced(context))
        if outcome is None or not outcome.finished:
            refuse_roots_not_given(layout, decision.config, rollback=rollback, force=force)
            if state is None and (outcome is None or outcome.outcome == "rolled-back"):
                await self.prove_abilities()
        if outcome is not None:
            if not (outcome.finished or store.capabilities.refuses_late_writes):
                await self._refuse_void(decision, outcome)
            return await self._after_outcome(decision, outcome, rollback=rollback)
        if state is None:
            await self._refuse_void(decision)
            await self._refuse_completed(decision)
            state = await CommitState.read(context, decision)
        if rollback or fenced:
            return await self._roll_back(state, reason="on demand", force=force, raising=not rollback)
        return await self._forward(state)

    async def prove_abilities(self) -> None:
        """Finds out what the store can do here, once: a disk's missing abilities show only when they are tried.

        Whether the job can be taken back, and where its old files are kept then, depends on them. The process that set
        the job up found out; any other has to. Where a write makes its parents nothing is tried: such a store says what
        it can do, and the trial would make the directory of a job again that another driver cleans up meanwhile.
        """
        context = self.context
        if self._proved or context.store.capabilities.implicit_parents:
            return
        if not await exists(context.store, context.layout.job_attempt_directory):
            return
        # Another driver may clean up meanwhile: then nothing is left that asks for them.
        with contextlib.suppress(StoreNotFoundError):
            await context.store.probe(context.layout.job_attempt_directory)
        self._proved = True

    async def _force(self) -> None:
        """Forces the name of a decision to the disk: its driver may have died, or been refused, before it did."""
        try:
            await sync_directories(self.context, [self.context.layout.job_directory], missing_ok=True)
        except CommitterError as error:
            raise _decided(self.context, error) from error

    async def _refuse_void(self, decision: Decision, outcome: JobOutcome | None = None) -> None:
        """Takes back a decision, and an outcome, about a job that was emptied already when the decision was made.

        Its driver looks for the setup record once it decided; this is for one that died before it could.
        """
        context = self.context
        found = await look_at_job(context.store, context.layout)
        late = not context.store.capabilities.refuses_late_writes
        if not found.voids(decision, outcome, late=late):
            return
        if outcome is not None:
            # Its job may have been finished since that was read, and have kept it.
            outcome = await read_outcome(context.store, context.layout)
            if outcome is None:
                raise EndedElsewhereError(None)
            if not found.voids(decision, outcome, late=late):
                return
        await context.store.delete_file(context.layout.decision)
        if outcome is not None:
            await context.store.delete_file(context.layout.outcome)
        await remove_side_files(context, found)
        raise JobNotFoundError(
            f"job {decision.job_id} was aborted or cleaned up before it was decided to be committed",
            operation="commit_job",
            path=context.layout.job_directory,
            next_step="run the job again; nothing was published",
        )

    async def _refuse_completed(self, decision: Decision) -> None:
        """Removes a decision that arrived a second time after its job was committed and cleaned up.

        With a setup record or a directory that arrived as late it looks like a job that died; but `_SUCCESS` speaks of
        it, and the outcome, which came before that, is gone, and goes last.
        """
        context = self.context
        if await was_completed(context, decision) and await read_outcome(context.store, context.layout) is None:
            await CleanupJob(context).run(None)
            await RemoveFate(context).run(None)
            raise EndedElsewhereError(None)

    async def _after_outcome(self, decision: Decision, outcome: JobOutcome, *, rollback: bool) -> JobReport:
        context = self.context
        # When only cleaning is left, what a full state is read from may be half gone.
        finished = outcome.finished
        state = CommitState.of(context, decision, []) if finished else await CommitState.read(context, decision)
        if outcome.outcome == "rolled-back":
            return await self._end_rolled_back(state, raising=not rollback, reason=outcome.reason, undone=finished)
        if rollback:
            raise self.refuse_rollback()
        return await self._complete(state, None)

    async def check(self, decision: Decision, *, rollback: bool, force: bool) -> None:
        """Raises what `obey` would raise from where the job stands; changes nothing: 2 calls, with `rollback` more.

        What shows only when it is tried is not foreseen.
        """
        self.context = context = replace(self.context, config=trusted_config(decision.config, self.context.config))
        outcome = await read_outcome(context.store, context.layout)
        if decision.decision == "abort":
            if rollback or (outcome is not None and outcome.kept):
                return
            raise self._was_aborted()
        if outcome is None or not outcome.finished:
            refuse_roots_not_given(context.layout, decision.config, rollback=rollback, force=force)
        if not rollback:
            return
        if outcome is not None:
            if outcome.outcome == "committed":
                raise self.refuse_rollback()
            return
        state = await CommitState.read(context, decision)
        self._action.roll_back(context).refuse(RollBackRequest(state, "on demand", force))

    def _was_aborted(self) -> JobDecidedError:
        layout = self.context.layout
        return JobDecidedError(
            f"job {layout.job_id} was aborted",
            operation="commit_job",
            path=layout.decision,
            next_step="run the job again under another id; "
            f"{self.context.cleanup_call()} removes what is left of this one",
        )

    def refuse_rollback(self) -> JobStateError:
        """What to raise where a job that committed was to be rolled back."""
        layout = self.context.layout
        return JobStateError(
            f"job {layout.job_id} is committed: it cannot be rolled back",
            operation="recover",
            path=layout.outcome,
            outcome="committed",
            next_step=f"{self.context.recover_call()} cleans up behind it; remove its files by hand if you must",
        )

    async def _forward(self, state: CommitState) -> JobReport:
        context = self.context
        try:
            published = self.published = await self._action.publish(context, state)
            _log.info(
                "job %s: %d files and %d bytes are published",
                context.layout.job_id,
                published.files,
                published.size,
                extra={"files": published.files, "bytes": published.size},
            )
            ended = await EndJob(context).run((state.decision, "committed", ""))
        except EndedElsewhereError as over:
            return await self._after_elsewhere(state, over.outcome)
        except CommitterError as error:
            elsewhere = among(error, EndedElsewhereError)
            if elsewhere is not None:
                return await self._after_elsewhere(state, elsewhere.outcome)
            rolled_back = among(error, JobRolledBackError)
            if rolled_back is not None:
                raise rolled_back from None
            if is_missing(error) and await self.is_gone():
                return await self._after_elsewhere(state, None)
            refusal = definite_refusal(error)
            if refusal is None or is_forward_only(context, state):
                raise _decided(context, error, state) from error
            return await self._take_back_refused(state, refusal)
        if ended.outcome.outcome == "rolled-back":
            return await self._end_rolled_back(state, raising=True, reason=ended.outcome.reason)
        return await self._complete(state, published, ended)

    async def _after_elsewhere(self, state: CommitState, outcome: JobOutcome | None) -> JobReport:
        if outcome is None:
            committed = False
            try:
                report = await self.report_of_finished()
                committed = report.success
                return report
            finally:
                # It was rolled back and cleaned up, most likely, while this driver was still making directories.
                if not committed:
                    await self._action.roll_back(self.context).put_back_late(state)
        if outcome.outcome == "committed":
            return await self._complete(state, None)
        return await self._end_rolled_back(state, raising=True, reason=outcome.reason)

    async def _complete(self, state: CommitState, published: Published | None, ended: Ended | None = None) -> JobReport:
        if published is None:
            published = await _published_before(self.context, state)
        self.published = published
        finished = await finish_committed(self.context, state, published, self._action, ended)
        return report_of(
            self.context,
            self._started,
            success=True,
            published=published,
            directories=state.decision.directories,
            uploads_left=finished.untold,
            kept=finished.kept,
        )

    async def _take_back_refused(self, state: CommitState, refusal: Refusal) -> JobReport:
        """A publish action was refused for good: the job is rolled back, whole."""
        _log.warning("job %s is rolled back: %s", self.context.layout.job_id, refusal.message)
        try:
            await self._roll_back(state, reason=refusal.message, force=True, raising=False)
        except CommitterError as error:
            raise CommitterError(
                f"{refusal.message}; rolling the job back failed: {error.message}",
                operation=error.operation,
                path=refusal.path,
                outcome="partial",
                next_step=f"call {self.context.recover_call(rollback=True)}",
                causes=[refusal, error],
            ) from refusal
        refusal.outcome = "unchanged"
        refusal.next_step = refusal.next_step or "run the job again; what was published was taken back"
        raise refusal

    async def _roll_back(self, state: CommitState, *, reason: str, force: bool, raising: bool) -> JobReport:
        context = self.context
        await self.prove_abilities()
        try:
            outcome = await self._action.roll_back(context).run(RollBackRequest(state, reason, force))
        except EndedElsewhereError as ended:
            if ended.outcome is None:
                raise
            outcome = ended.outcome
        except CommitterError as error:
            if not error.next_step or _advises_one_call(error):
                error.next_step = f"remove the cause, then call {context.recover_call(rollback=True)}"
            _decided(context, error)
            raise
        if outcome.outcome == "rolled-back":
            await self._action.settle_rolled_back(context, state)
        else:
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
        context = self.context
        if not undone:
            if context.durable:
                # Undoing goes by the names that the fence gave, and a power loss may have taken them back.
                with contextlib.suppress(EndedElsewhereError):
                    await fence(context)
            # Whoever meets the outcome helps to undo: what this driver published late is known to it alone.
            await self._action.roll_back(context).undo(state)
            await self._action.settle_rolled_back(context, state)
        untold = await finish_rolled_back(context)
        if raising:
            raise JobRolledBackError(
                f"job {context.layout.job_id} was rolled back: {reason}",
                operation="commit_job",
                path=context.layout.destination,
                next_step="run the job again",
            )
        return report_of(
            context, self._started, success=False, published=Published(), directories=0, uploads_left=untold
        )


async def _published_before(context: StageContext, state: CommitState) -> Published:
    """What an earlier driver published, as far as it can still be read."""
    marker = await read_success(context)
    published = Published()
    if marker is not None and marker.jobId == context.layout.job_id:
        published.filenames = named_uris(marker, context.layout.destination)
        published.lengths = marker.lengths or []
        published.files, published.size = state.decision.files, state.decision.size
        return published
    try:
        async for file in state.files:
            published.add(context.layout, [file], 1)
            if len(published.filenames) >= FILENAMES_LIMIT:
                break
    except CommitterError:
        published = Published()
    published.files, published.size = state.decision.files, state.decision.size
    return published


def _decided(context: StageContext, error: CommitterError, state: CommitState | None = None) -> CommitterError:
    """A failure after the decision, which changed the destination or may have.

    Args:
        context: The job.
        error: The failure.
        state: What was being published, where the job may as well be taken back.
    """
    if error.outcome == "unchanged":
        error.outcome = "partial"
    if isinstance(error, StoreLinkError):
        error.next_step = f"{error.next_step}, then call {context.recover_call()}"
    elif not error.next_step or (_advises_one_call(error) and "committer.recover(" not in error.next_step):
        error.next_step = f"remove the cause, then call {context.recover_call()}"
        if state is not None and not is_forward_only(context, state):
            # Where no driver can be fenced off, its user has to vouch that this one is dead: it is, by this error.
            force = not context.store.capabilities.atomic_directory_rename
            back = context.recover_call(rollback=True, force=force)
            error.next_step = f"{error.next_step}; where the cause will stay, {back} takes the job back"
    return error


def _advises_one_call(error: CommitterError) -> bool:
    """Whether what an error advises is meant for one call, or for a job that is not decided."""
    return isinstance(error, StoreError | MultipleError | TargetExistsError) and not isinstance(error, StoreLinkError)
