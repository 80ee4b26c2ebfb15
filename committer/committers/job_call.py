"""State of one call for one job: the caller's wish, and what the driver knows of the job."""

from __future__ import annotations

import contextlib
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from committer.committers.actions import PublishAction
from committer.committers.failures import Refusal
from committer.committers.position import Position, read_position
from committer.committers.preparing import CommitInputs
from committer.committers.results import JobReport
from committer.committers.standing import Standing, Wish
from committer.committers.trusted_config import refuse_roots_not_given, trusted_config
from committer.errors import CommitterError, StoreNotFoundError
from committer.records.job_state import Decision, JobOutcome
from committer.stages.base import StageContext
from committer.stages.decide.commit_state import CommitState
from committer.stages.durability import sync_directories
from committer.stages.facts import Facts, NotedFacts, RecordedFacts, directories_of, read_facts
from committer.stages.publish.promote import sealed_layout
from committer.stages.publish.publish import Published
from committer.stages.setup.setup_job import check_store
from committer.stores.helpers import exists

StepResult: TypeAlias = JobReport | Position | None
"""Result of a step: the report that ends the call, None to end it without one, or the job's new position."""


@dataclass(slots=True)
class JobCall:
    """State of one call for one job.

    Attributes:
        context: The job; once a decision is read, with its configuration.
        force: The caller vouches that no other driver is alive, or that a listing counts.
        inputs: Inputs of the decision, if the caller commits the job.
        decision: The decision that is carried out.
        state: The decision's inputs, once they were made or read.
        publishing: Whether this call began to publish, and the job has not ended.
        outcome: The last outcome that was read.
        refusal: The definite refusal for which the job is rolled back.
        overtaken: The failure before the decision or after the outcome, if another driver advanced the job.
        is_end_unknown: Whether a damaged report may say that the job committed, so that no report may say the opposite.
    """

    context: StageContext
    action: PublishAction
    wish: Wish
    force: bool = False
    inputs: CommitInputs = field(default_factory=CommitInputs)
    started: float = field(init=False)
    resources: AsyncExitStack = field(default_factory=AsyncExitStack)
    decision: Decision | None = None
    state: CommitState | None = None
    published: Published | None = None
    publishing: bool = False
    outcome: JobOutcome | None = None
    refusal: Refusal | None = None
    overtaken: CommitterError | None = None
    is_end_unknown: bool = False

    def __post_init__(self) -> None:
        self.started = self.context.runtime.monotonic()

    async def look(self) -> Position:
        """Reads the job's position; takes over the configuration of the first decision."""
        return self.adopt(await read_position(self.context))

    def adopt(self, position: Position) -> Position:
        """Takes over the configuration of the first commit decision, unless the job is over."""
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
        """Returns the decision's inputs: from memory if this driver made them, else read from the store."""
        decision = position.decision
        if decision is None:
            raise AssertionError(position.standing)
        if self.state is None:
            self.state = CommitState.of(self.context, decision, await read_facts(self.context, decision))
            await self.keep_old_files(self.state)
        return self.state

    async def keep_old_files(self, state: CommitState) -> None:
        """Copies the lists of old files to this driver's disk, on stores where no fence stops its delayed moves.

        Another driver may roll the job back and remove the side files: then only this driver knows what it
        moved aside. No call if there are few files; else one a side file.
        """
        can = self.context.store.capabilities
        if can.atomic_directory_rename or not can.atomic_file_rename:
            return
        state.superseded = await self._kept(state.superseded)
        targets = await self._kept(state.targets)
        if targets is not state.targets:
            state.targets = targets
            state.files.targets = targets

    async def _kept(self, listed: Facts) -> Facts:
        if not isinstance(listed, RecordedFacts):
            return listed
        kept = NotedFacts()
        self.resources.push_async_callback(kept.close)
        async for facts in listed.batches():
            await kept.add(facts, directories_of(facts))
        return kept

    async def make_ready(self, position: Position) -> None:
        """Prepares this driver to carry out a decision, which another driver may have made."""
        if self.state is not None:
            return
        # The deciding driver may have died, or been refused, before it synced the decision's name to disk.
        await sync_directories(self.context, [self.context.layout.job_directory], missing_ok=True)
        if position.standing is not Standing.COMMITTED:
            await self.probe_abilities()

    def check_roots(self, position: Position) -> None:
        """Refuses a decision that publishes below roots which the caller did not give."""
        if position.decision is not None:
            refuse_roots_not_given(
                self.context.layout, position.decision.config, rollback=self.wish is Wish.ROLL_BACK, force=self.force
            )

    async def probe_abilities(self) -> None:
        """Probes the store once, and refuses one that cannot publish or roll back.

        A disk's missing abilities show only in a trial, which the process that set the job up made. Where a
        write creates its parents nothing is tried: a trial could recreate the directory of a job that another
        driver cleans up.
        """
        context = self.context
        if context.known.is_probed or context.store.capabilities.implicit_parents:
            return
        if not await exists(context.store, context.layout.job_attempt_directory):
            return
        # Another driver may clean up meanwhile; then no ability is needed.
        with contextlib.suppress(StoreNotFoundError):
            await context.store.probe(context.layout.job_attempt_directory)
        check_store(context, self.action.needs, operation="commit_job")
        context.known.is_probed = True

    async def probe_batch_deletes(self, state: CommitState) -> None:
        """Probes for batch deletes, if there are many old files: a driver of a committed job has not probed yet."""
        context = self.context
        can = context.store.capabilities
        most = can.max_batch_delete
        if context.known.is_probed or most is None or state.superseded.count <= most:
            return
        if can.atomic_file_rename or can.conditional_batch_delete or not can.conditional_delete:
            return
        with contextlib.suppress(CommitterError):
            # Without it another driver cleaned up, and the trial's file would be left.
            if await exists(context.store, context.layout.outcome):
                await context.store.probe(context.layout.job_attempt_directory)

    async def probe_for_hadoop_job(self) -> None:
        """Probes the store for a job that Hadoop set up: Hadoop's committer needs less of a store."""
        context = self.context
        if context.known.is_probed or not context.spec.hadoop or not self.action.needs:
            return
        await context.store.probe(context.layout.job_attempt_directory)
        check_store(context, self.action.needs, operation="commit_job")
        context.known.is_probed = True
