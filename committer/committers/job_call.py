"""One call for one job: what its caller wants, and what the driver knows of the job by now."""

from __future__ import annotations

import contextlib
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TypeAlias

from committer.committers.deciding import Deciding
from committer.committers.failures import (
    Refusal,
)
from committer.committers.look import Position, look_where_it_stands
from committer.committers.publish_action import PublishAction
from committer.committers.results import JobReport
from committer.committers.standing import Standing, Wish
from committer.committers.trusted_config import refuse_roots_not_given, trusted_config
from committer.errors import (
    CommitterError,
    StoreNotFoundError,
)
from committer.flow.spill import NumberedSpill
from committer.records.job_state import Decision, JobOutcome
from committer.stages.base import StageContext
from committer.stages.decide.commit_state import CommitState
from committer.stages.durability import sync_directories
from committer.stages.facts import Facts, NotedFacts, RecordedFacts, directories_of
from committer.stages.load.load_records import LoadedRecords
from committer.stages.load.planned_files import KeptEntries
from committer.stages.publish.publish import Published
from committer.stages.setup.setup_job import check_store
from committer.stages.undo.seal import sealed_layout
from committer.stores.helpers import exists

Led: TypeAlias = JobReport | Position | None
"""What a step led to: the report that ends the call, None where there is none to give, or where the job stands now."""


class JobCall:
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
        resources: What is closed at the end of the call.
        published: What was published, as far as it is known.
        refusal: What a publish action was refused for, for good: the job is taken back for it.
        aborted: Whether this driver cleaned up behind a decision against the job.
        publishing: Whether this call began to publish, and did not end the job yet.
        started: When it began, on the runtime's clock.
        proved: Whether this process tried what the store can do there.
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
        self.aborted: bool = False
        self.overtaken: CommitterError | None = None
        self.wish: Wish = wish
        self.action: PublishAction = action
        self.force: bool = force
        self.deciding: Deciding = deciding or Deciding(None, None)
        self.started: float = context.runtime.monotonic()
        self.state: CommitState | None = None
        self.resources: AsyncExitStack = AsyncExitStack()
        self.publishing: bool = False
        self.proved: bool = context.proved

    async def look(self) -> Position:
        """Looks where the job stands; from the first decision that stands there on, by the choices of that."""
        return self.adopt(await look_where_it_stands(self.context))

    def adopt(self, position: Position) -> Position:
        """Goes by the choices of the first commit decision that is met; that of a job that is over says nothing."""
        decision = position.decision
        if decision is None or self.decision is not None or position.standing is Standing.OVER:
            return position
        self.decision = decision
        if decision.decision == "commit":
            context = self.context
            layout = sealed_layout(context) if decision.sealed else context.layout
            self.context = replace(context, layout=layout, config=trusted_config(decision.config, context.config))
            context.statistics.merge(decision.statistics)
        return position

    async def state_of(self, position: Position) -> CommitState:
        """What the decision rests on: in memory where this driver made it, else read from the store."""
        decision = position.decision
        if decision is None:
            raise AssertionError(position.standing)
        if self.state is None:
            self.state = await CommitState.read(self.context, decision)
            await self.keep_old_files(self.state)
        return self.state

    def take_from_disk(self, loaded: LoadedRecords) -> NumberedSpill[KeptEntries] | None:
        """What the driver's disk keeps of the records, kept from now on until the end of the call."""
        on_disk, loaded.on_disk = loaded.on_disk, None
        if on_disk is not None:
            self.resources.push_async_callback(on_disk.close)
        return on_disk

    async def keep_old_files(self, state: CommitState) -> None:
        """Keeps the lists of old files on this driver's disk, where no fence can keep its late moves out.

        Another driver may take the job back and clean it up meanwhile: what this one moves aside after that is known to
        it alone, and the side files of the decision are gone. No call where they are few; else one a side file.
        """
        can = self.context.store.capabilities
        if can.atomic_directory_rename or not can.atomic_file_rename:
            return
        state.superseded = await self._kept(state.superseded)
        targets = await self._kept(state.targets)
        if targets is not state.targets:
            state.targets = targets
            state.files.stand_on({}, targets)

    async def _kept(self, listed: Facts) -> Facts:
        if not isinstance(listed, RecordedFacts):
            return listed
        kept = NotedFacts()
        self.resources.push_async_callback(kept.close)
        async for facts in listed.batches():
            await kept.add(facts, directories_of(facts))
        return kept

    async def make_ready(self, position: Position) -> None:
        """What a driver owes before it carries out a decision, most of it when another driver made that."""
        if self.state is not None:
            return
        # Its driver may have died, or been refused, before it forced the name of the decision to the disk.
        await sync_directories(self.context, [self.context.layout.job_directory], missing_ok=True)
        if position.standing is not Standing.COMMITTED:
            await self.prove_abilities()

    def check_roots(self, position: Position) -> None:
        """Refuses a decision that publishes below roots which the caller did not give.

        Raises:
            ConfigurationError: It does. Nothing was changed.
        """
        if position.decision is not None:
            refuse_roots_not_given(
                self.context.layout,
                position.decision.config,
                rollback=self.wish is Wish.ROLL_BACK,
                force=self.force,
            )

    async def prove_abilities(self) -> None:
        """Finds out what the store can do here, once: a disk's missing abilities show only when they are tried.

        Whether the job can be taken back, and where its old files are kept then, depends on them. The process that set
        the job up found out; any other has to. Where a write makes its parents nothing is tried: such a store says what
        it can do, and the trial would make the directory of a job again that another driver cleans up meanwhile.

        Raises:
            UnsupportedError: It cannot do what publishing and taking back rest on.
        """
        context = self.context
        if self.proved or context.store.capabilities.implicit_parents:
            return
        if not await exists(context.store, context.layout.job_attempt_directory):
            return
        # Another driver may clean up meanwhile: then nothing is left that asks for them.
        with contextlib.suppress(StoreNotFoundError):
            await context.store.probe(context.layout.job_attempt_directory)
        check_store(context, self.action.needs, operation="commit_job")
        self.proved = True

    async def prove_batches(self, state: CommitState) -> None:
        """Finds out whether old files may be deleted many at a time, where they are more than one call takes.

        A driver that meets a job after its outcome tried nothing, and needs none of it but for this: without it the
        files are deleted one by one, and so they are where the trial fails.
        """
        context = self.context
        can = context.store.capabilities
        most = can.max_batch_delete
        if self.proved or most is None or state.superseded.count <= most:
            return
        if can.atomic_file_rename or can.conditional_batch_delete or not can.conditional_delete:
            return
        with contextlib.suppress(CommitterError):
            # Where it is gone another driver cleaned up, and the trial's file would come after that.
            if await exists(context.store, context.layout.outcome):
                await context.store.probe(context.layout.job_attempt_directory)

    async def prove_joined(self) -> None:
        """Finds out what the store can do for a job that Hadoop set up: nothing of this engine tried it yet.

        Hadoop's committer asks less of a store: by what it set up a file of another job could be replaced here.

        Raises:
            UnsupportedError: It cannot do what publishing and taking back rest on.
        """
        if self.proved or not self.context.spec.hadoop or not self.action.needs:
            return
        await self.context.store.probe(self.context.layout.job_attempt_directory)
        check_store(self.context, self.action.needs, operation="commit_job")
        self.proved = True
