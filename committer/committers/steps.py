"""The steps of the table in `standing`: each brings a job on from where it stands, whatever was done of it before.

Each may run again, or beside another driver of the job, and then does what is left to do. A step that fails says so by
its error; where the job stands then is for the loop in `job_commit` to find out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from committer.committers.basis import basis_of
from committer.committers.deciding import Deciding, check_forced, intent_of
from committer.committers.failures import (
    Refusal,
    refuse_aborted,
    refuse_anew,
    refuse_committed,
    refuse_decided,
    say_unseen,
    unsettled_refusal,
)
from committer.committers.finish import clean_up_aborted, finish_kept, finish_rolled_back
from committer.committers.finish_committed import finish_committed
from committer.committers.look import Position, look_where_it_stands, standing_of
from committer.committers.publish_action import PublishAction
from committer.committers.reports import published_before, report_of, report_of_finished
from committer.committers.results import JobReport
from committer.committers.standing import Standing, Step, Wish, step_for
from committer.committers.trusted_config import refuse_roots_not_given, trusted_config
from committer.errors import (
    CommitterError,
    JobNotFoundError,
    JobRolledBackError,
    JobStateError,
    StoreNotFoundError,
)
from committer.events.logs import job_logger
from committer.records.job_state import Decision, JobOutcome
from committer.stages.base import StageContext
from committer.stages.cleanup import CleanupJob, RemoveFate, remove_emptied
from committer.stages.commit_state import CommitState
from committer.stages.decide import DecideCommit, abort_decision, create_decision, remove_side_files
from committer.stages.durability import sync_directories
from committer.stages.end_job import EndJob
from committer.stages.intent import DeclareIntent
from committer.stages.job_directory import read_outcome, refuse_links
from committer.stages.other_setup import remove_mistaken
from committer.stages.publish import Published
from committer.stages.replace_lock import TakeReplaceLock, release_lock
from committer.stages.roll_back import RollBackRequest, fence
from committer.stores.helpers import exists

_log = job_logger("committer.committers")

Led: TypeAlias = JobReport | Position | None
"""What a step led to: the report that ends the call, None where there is none to give, or where the job stands now."""


class Steps:
    """What one call does for one job, and what it knows of the job by now.

    Args:
        context: The job, with the choices to use until a decision says which.
        action: How its files become visible.
        wish: What the caller wants.
        force: The caller vouches for what the engine cannot see: that no other driver is alive, that a listing counts.
        deciding: By what the job is to be decided, where the caller commits it.

    Attributes:
        context: The job, with the decision's choices once that was read.
        decision: The decision that is carried out, once it was made or read.
        outcome: The outcome that was seen last.
        state: What the decision rests on, once it was made or read.
        published: What was published, as far as it is known.
        refusal: What a publish action was refused for, for good: the job is taken back for it.
        overtaken: What failed before the decision, or after the outcome, where another driver brought the job on.
    """

    def __init__(
        self,
        context: StageContext,
        action: PublishAction,
        wish: Wish,
        *,
        force: bool = False,
        deciding: Deciding | None = None,
    ) -> None:
        self.context: StageContext = context
        self.decision: Decision | None = None
        self.outcome: JobOutcome | None = None
        self.published: Published | None = None
        self.refusal: Refusal | None = None
        self.overtaken: CommitterError | None = None
        self.wish: Wish = wish
        self.action: PublishAction = action
        self.force: bool = force
        self.deciding: Deciding = deciding or Deciding(None, None)
        self._started = context.runtime.monotonic()
        self.state: CommitState | None = None
        self._publishing = False
        self._proved = context.proved

    async def take(self, step: Step, position: Position) -> Led:
        """Takes a step from where the job stands."""
        self.outcome = position.outcome or self.outcome
        return await {
            Step.TELL: self._tell,
            Step.DECIDE: self._decide,
            Step.DECIDE_AS_INTENDED: self._decide_as_intended,
            Step.DECIDE_IF_FORCED: self._decide_if_forced,
            Step.DECIDE_AGAINST: self._decide_against,
            Step.REMOVE_REMAINS: self._remove_remains,
            Step.CLEAN_UP_ABORTED: self._clean_up_aborted,
            Step.PUBLISH: self._publish,
            Step.TAKE_BACK: self._take_back,
            Step.UNDO: self._undo,
            Step.FINISH: self._finish,
            Step.CLEAN_UP_TAKEN_BACK: self._clean_up_taken_back,
            Step.CLEAN_UP_KEPT: self._clean_up_kept,
            Step.REMOVE_OUTCOME: self._remove_outcome,
            Step.REMOVE_VOID: self._remove_void,
            Step.REMOVE_REPEATED: self._remove_repeated,
            Step.REMOVE_MISTAKEN: self._remove_mistaken,
            Step.LEAVE: self._leave,
            Step.REFUSE_DECIDED: self._refuse,
            Step.REFUSE_ABORTED: self._refuse,
            Step.REFUSE_COMMITTED: self._refuse,
            Step.REFUSE_ANEW: self._refuse,
        }[step](position)

    async def look(self) -> Position:
        """Looks where the job stands; from the first decision that stands there on, by the choices of that."""
        position = await look_where_it_stands(self.context)
        return self._adopt(self._with_own_undone(position))

    def _with_own_undone(self, position: Position) -> Position:
        """A job that another driver took back while this one was publishing is to be taken back by this one, too.

        What it published, or moved aside, after the other had undone it all is known to it alone.
        """
        if self._publishing and position.standing is Standing.TAKEN_BACK:
            return replace(position, standing=Standing.ROLLED_BACK)
        return position

    def _adopt(self, position: Position) -> Position:
        """Goes by the choices of the first commit decision that is met; a void one, and an abort, say nothing."""
        decision = position.decision
        if decision is None or self.decision is not None or position.standing is Standing.VOID:
            return position
        self.decision = decision
        if decision.decision == "commit":
            context = self.context
            self.context = replace(context, config=trusted_config(decision.config, context.config))
            context.statistics.merge(decision.statistics)
        return position

    # -- a commit, from the first stage to the last -------------------------------------------------------------

    async def _decide(self, position: Position) -> Led:
        context, deciding = self.context, self.deciding
        deciding.check_setup(context, position)
        intent = deciding.intent_for(context)
        # A cancellation from here on leaves freeze, intent and lock: another driver of this job may rest on them, and
        # abort, recover or another commit takes over from there.
        deciding.began = True
        deciding.declared = await DeclareIntent(context).run(intent)
        refs = await (deciding.find(context) if intent.replacing else deciding.find_beside_lock(context))
        # LoadRecords, InspectDestination, Preflight, ListSuperseded
        prepared = await deciding.prepare(context, refs, self._prove_abilities)
        if prepared.replaces and not intent.replacing:
            # Files will be replaced after all. No other job may commit here from now on, and what others did until now
            # is looked at again.
            await TakeReplaceLock(context).run(None)
            prepared = await deciding.prepare(context, refs, self._prove_abilities)
        basis = basis_of(context, prepared)
        decision = await DecideCommit(context).run(basis)
        own = decision.driver == context.driver
        _log.info(
            "job %s is decided by %s: %s, %d files in %d task commits",
            context.layout.job_id,
            "this driver" if own else "another driver",
            decision.decision,
            decision.files,
            len(refs),
        )
        if not own or decision.decision != "commit":
            return await self.look()
        self._adopt(decided := Position(Standing.DECIDED, decision=decision))
        self.state = CommitState.of(self.context, decision, basis.facts, prepared.loaded.entries)
        self.state.all_directories = sorted(prepared.loaded.directories)
        # Made a moment ago. What other drivers did since is met where it matters: a fence by the first rename, an
        # outcome when this driver's is created. Only a store that takes late writes can hold the outcome of an earlier
        # end of the job by now.
        if context.store.capabilities.refuses_late_writes or await read_outcome(context.store, context.layout) is None:
            return decided
        return await self.look()

    async def _publish(self, position: Position) -> Led:
        await self._make_ready(position)
        state = await self.state_of(position)
        self._publishing = True
        # By renames: SetAsideSuccess, MoveAside, CreateDirectories, PromoteDirectories, PublishFiles, MoveAside,
        # ValidateOutput. By uploads: SetAsideSuccess, CompleteUploads, ValidateOutput.
        published = self.published = await self.action.publish(self.context, state)
        _log.info(
            "job %s: %d files and %d bytes are published",
            self.context.layout.job_id,
            published.files,
            published.size,
            extra={"files": published.files, "bytes": published.size},
        )
        ended = await EndJob(self.context).run((state.decision, "committed", ""))
        # From here on nothing of it is put back, however the rest goes.
        self._publishing = ended.outcome.outcome != "committed"
        led = replace(position, standing=standing_of(ended.outcome), outcome=ended.outcome, ended=ended)
        return self._with_own_undone(led)

    async def _finish(self, position: Position) -> Led:
        context = self.context
        if position.ended is None:
            await self._make_ready(position)
        state = await self.state_of(position)
        published = self.published or await published_before(context, state)
        self.published = published
        # DeleteSuperseded (by uploads), SaveFileList, SaveSuccess, what keeps records, releases the lock and marks the
        # outcome as finished, CleanupJob, SaveReport, RemoveFate.
        finished = await finish_committed(context, state, published, self.action, position.ended)
        return report_of(
            context,
            self._started,
            success=True,
            published=published,
            directories=state.decision.directories,
            uploads_left=finished.uploads_left,
            kept=finished.kept,
        )

    # -- what several steps need --------------------------------------------------------------------------------

    async def state_of(self, position: Position) -> CommitState:
        """What the decision rests on: in memory where this driver made it, else read from the store."""
        decision = position.decision
        if decision is None:
            raise AssertionError(position.standing)
        if self.state is None:
            if position.standing in (Standing.FINISHED, Standing.TAKEN_BACK):
                # Only cleaning is left, and what a full state is read from may be half gone.
                return CommitState.of(self.context, decision, [])
            self.state = await CommitState.read(self.context, decision)
        return self.state

    async def _make_ready(self, position: Position) -> None:
        """What a driver owes before it carries out a decision, most of it when another driver made that."""
        if position.standing in (Standing.FINISHED, Standing.TAKEN_BACK):
            return
        if self.state is not None:
            return
        # Its driver may have died, or been refused, before it forced the name of the decision to the disk.
        await sync_directories(self.context, [self.context.layout.job_directory], missing_ok=True)
        if position.standing is not Standing.COMMITTED:
            await self._prove_abilities()

    def check_roots(self, position: Position) -> None:
        """Refuses a decision that publishes below roots which the caller did not give.

        Raises:
            ConfigurationError: It does. Nothing was changed.
        """
        over = position.standing in (Standing.FINISHED, Standing.TAKEN_BACK)
        if position.decision is not None and not over:
            refuse_roots_not_given(
                self.context.layout,
                position.decision.config,
                rollback=self.wish is Wish.ROLL_BACK,
                force=self.force,
            )

    async def _prove_abilities(self) -> None:
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

    # -- deciding otherwise -------------------------------------------------------------------------------------

    async def _decide_as_intended(self, position: Position) -> Led:
        intent = await intent_of(self.context, position, force=self.force)
        self.deciding = Deciding.as_intended(intent)
        return await self._decide(position)

    async def _decide_if_forced(self, position: Position) -> Led:
        check_forced(self.context, force=self.force)
        self.deciding = Deciding.as_intended(None)
        return await self._decide(position)

    async def _decide_against(self, position: Position) -> Led:
        context = self.context
        if position.found is not None:
            await refuse_links(context.store, position.found, operation="abort")
        try:
            decision = await create_decision(context, abort_decision(context))
        except JobNotFoundError:
            # Cleaned up since it was listed: there is nothing left to abort, but perhaps another setup of its id.
            return await self.look()
        if decision.decision == "commit":
            return await self.look()
        return Position(Standing.ABORTED, position.found, decision)

    async def _remove_remains(self, position: Position) -> Led:
        if position.found is not None:
            await refuse_links(self.context.store, position.found, operation="abort")
            if position.found.attempts:
                return await self._decide_against(position)
        await release_lock(self.context)
        if position.found is not None:
            await remove_emptied(self.context)
        return None

    async def _clean_up_aborted(self, position: Position) -> Led:
        if position.found is not None:
            await refuse_links(self.context.store, position.found, operation="abort")
        await clean_up_aborted(self.context)
        _log.info("job %s is aborted", self.context.layout.job_id)
        return report_of(self.context, self._started, success=False, published=Published(), directories=0)

    # -- taking back --------------------------------------------------------------------------------------------

    async def _take_back(self, position: Position) -> Led:
        await self._make_ready(position)
        await self._prove_abilities()
        state = await self.state_of(position)
        refusal = self.refusal
        reason, force = (refusal.message, True) if refusal is not None else ("on demand", self.force)
        outcome = await self.action.roll_back(self.context).run(RollBackRequest(state, reason, force))
        return replace(position, standing=standing_of(outcome), outcome=outcome)

    async def _undo(self, position: Position) -> Led:
        await self._make_ready(position)
        state = await self.state_of(position)
        by_other = position.outcome is None or position.outcome.driver != self.context.driver
        if self.context.durable and by_other:
            # Undoing goes by the names that the fence gave, and a power loss may have taken them back.
            # Where neither name stands any more, another driver cleans up already.
            with contextlib.suppress(JobStateError):
                await fence(self.context)
        # Each driver that meets the outcome helps to undo: what this one published late is known to it alone.
        await self.action.roll_back(self.context).undo(state)
        await self.action.settle_rolled_back(self.context, state)
        return replace(position, standing=Standing.TAKEN_BACK)

    async def _clean_up_taken_back(self, position: Position) -> Led:
        try:
            uploads_left = await finish_rolled_back(self.context)
        except CommitterError as error:
            if self.refusal is not None:
                raise unsettled_refusal(self.context, self.refusal, error) from error
            raise
        return self._report_of_taken_back(uploads_left)

    def _report_of_taken_back(self, uploads_left: Sequence[str] = ()) -> JobReport:
        """The report of a job that is rolled back, for a caller who wanted that; an error for any other."""
        if self.refusal is not None:
            self.refusal.outcome = "unchanged"
            self.refusal.next_step = self.refusal.next_step or "run the job again; what was published was taken back"
            raise self.refusal
        if self.wish is not Wish.ROLL_BACK:
            reason = self.outcome.reason if self.outcome is not None else "on demand"
            raise JobRolledBackError(
                f"job {self.context.layout.job_id} was rolled back: {reason}",
                operation="commit_job",
                path=self.context.layout.destination,
                next_step="run the job again",
            )
        return report_of(
            self.context, self._started, success=False, published=Published(), directories=0, uploads_left=uploads_left
        )

    # -- what is over -------------------------------------------------------------------------------------------

    async def _tell(self, position: Position) -> Led:
        committed = False
        decided = self.decision is not None and self.decision.decision == "commit"
        try:
            report = await report_of_finished(self.context, self._started, decided=decided)
            committed = report.success
            return report
        except JobNotFoundError:
            known = self.overtaken
            if isinstance(known, JobNotFoundError) or (known is not None and known.outcome == "committed"):
                raise known from None
            if self.outcome is not None and self.outcome.outcome == "rolled-back":
                # Another driver of the job undid it, and cleaned up, before this one could.
                return self._report_of_taken_back()
            raise
        except CommitterError as error:
            if decided:
                say_unseen(self.context, error)
            raise
        finally:
            # It was rolled back and cleaned up, most likely, while this driver was still making directories.
            if self._publishing and self.state is not None and not committed:
                await self.action.roll_back(self.context).put_back_late(self.state)

    async def _leave(self, position: Position) -> Led:
        ended = position.outcome is None or position.outcome.outcome == "committed"
        if ended and position.standing is not Standing.ANEW:
            # Its driver may have died, or been cancelled, before it gave the lock back.
            await release_lock(self.context)
        return None

    async def _clean_up_kept(self, position: Position) -> Led:
        await finish_kept(self.context)
        return await self._tell(position)

    async def _remove_outcome(self, position: Position) -> Led:
        await RemoveFate(self.context).run(None)
        return Position(Standing.GONE)

    async def _remove_repeated(self, position: Position) -> Led:
        """With a setup record or a directory that arrived as late, it looks like a job that died; but `_SUCCESS` speaks
        of it, and the outcome, which came before that, is gone, and goes last.
        """
        await CleanupJob(self.context).run(None)
        await RemoveFate(self.context).run(None)
        return Position(Standing.GONE)

    async def _remove_mistaken(self, position: Position) -> Led:
        await remove_mistaken(self.context)
        return await self.look()

    async def _remove_void(self, position: Position) -> Led:
        """Its driver looks for the setup record once it decided; this is for one that died before it could."""
        context = self.context
        await context.store.delete_file(context.layout.decision)
        if position.outcome is not None:
            await context.store.delete_file(context.layout.outcome)
        if position.found is not None:
            await remove_side_files(context, position.found)
        return Position(Standing.GONE)

    async def _refuse(self, position: Position) -> Led:
        refuse = {
            Step.REFUSE_ABORTED: refuse_aborted,
            Step.REFUSE_COMMITTED: refuse_committed,
            Step.REFUSE_DECIDED: refuse_decided,
            Step.REFUSE_ANEW: refuse_anew,
        }[step_for(position.standing, self.wish)]
        raise refuse(self.context)
