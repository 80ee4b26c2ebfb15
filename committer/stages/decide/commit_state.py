"""The state of a decided commit, the same for the driver that decided and for any recoverer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from committer.errors import JobNotFoundError, JobStateError, StoreError, StoreLinkError, StoreOutcomeUnknownError
from committer.flow.spill import NumberedSpill
from committer.paths import StorePath
from committer.records.job_state import Decision, DecisionHead, Fact
from committer.records.publish_chunk import PlannedFile
from committer.stages.base import StageContext
from committer.stages.facts import DecisionFacts, FactList, Facts
from committer.stages.load.planned_files import KeptEntries, PlannedFiles
from committer.stages.load.promotions import Promotion
from committer.stores.helpers import exists, status_or_none

T = TypeVar("T")

_Errors: TypeAlias = type[StoreError] | tuple[type[StoreError], ...]


@dataclass(slots=True)
class CommitState:
    """State of a decided commit: the files that it publishes and replaces.

    Attributes:
        targets: What existed at files' destinations.
        blocking: Files in the place of directories.
        superseded: Old files to remove.
        directories: Directories that were absent.
        attempts: The winners' directories; known only to the driver that decided.
        promotions: Directories to rename as a whole; known only to the driver that decided, which alone does that.
        promote: Renames the directories of some files (all files of whole records) and returns the other files; or
            None.
        forward_only: Whether the job cannot be rolled back because of facts outside this part of it.
    """

    decision: Decision
    files: PlannedFiles
    targets: Facts = field(default_factory=FactList)
    blocking: list[Fact] = field(default_factory=list)
    superseded: Facts = field(default_factory=FactList)
    directories: list[str] = field(default_factory=list)
    attempts: Collection[str] | None = None
    promotions: list[Promotion] = field(default_factory=list)
    promote: Callable[[list[PlannedFile]], Awaitable[list[PlannedFile]]] | None = None
    forward_only: bool = False

    @classmethod
    def of(
        cls,
        context: StageContext,
        decision: Decision,
        facts: DecisionFacts,
        entries: list[PlannedFile] | None = None,
        on_disk: NumberedSpill[KeptEntries] | None = None,
    ) -> CommitState:
        """Sorts facts by kind."""
        files = PlannedFiles(context, decision.winners, entries, facts.identities, decided=True, on_disk=on_disk)
        files.targets = facts.targets
        return cls(
            decision=decision,
            files=files,
            targets=facts.targets,
            blocking=[fact for fact in facts.others if fact.kind == "blocking"],
            superseded=facts.superseded,
            directories=[fact.path for fact in facts.others if fact.kind == "directory"],
        )


def is_forward_only(context: StageContext, state: CommitState) -> bool:
    """Whether a rollback is impossible: tasks replaced files, or the store cannot keep replaced files."""
    # An old file is kept by a hard link, a directory by a rename.
    can, targets = context.store.capabilities, state.targets
    return (
        context.forms.forward_only
        or state.forward_only
        or (targets.of_directories > 0 and not can.atomic_directory_rename)
        or (targets.count > targets.of_directories and not can.hard_links)
    )


async def end_advice(context: StageContext, *, forward_only: bool) -> str:
    """Returns a sentence about how to end a decided job that cannot be finished: at most 3 calls."""
    layout, renames = context.layout, context.store.capabilities.atomic_directory_rename
    try:
        reversible = not renames or await exists(context.store, layout.tasks)
        # A rollback may have begun.
        reversible = reversible or await stands_fenced(context, layout.tasks_fenced)
        if not reversible and layout.tasks != layout.recorded_tasks:
            reversible = await exists(context.store, layout.recorded_tasks)
    except StoreError:
        # The caller reports another error. A rollback that cannot continue says so itself.
        reversible = True
    return context.abandon_advice() if forward_only or not reversible else context.rollback_advice()


async def stands_fenced(context: StageContext, fenced: StorePath) -> bool:
    """Whether a directory has its fenced name: one call; `StoreLinkError` if a link has it, which no fence creates."""
    status = await status_or_none(context.store, fenced)
    if status is not None and status.is_link:
        raise StoreLinkError.at(fenced, operation="fence")
    return status is not None


async def looking_again(
    step: Callable[[], Awaitable[T]], *, after: _Errors = StoreOutcomeUnknownError, rounds: int = 5
) -> T:
    """Runs a step that reads before it writes; repeats it after a lost response, or the errors `after`."""
    for _round in range(rounds - 1):
        try:
            return await step()
        except after:
            continue
    return await step()


def aside_is_gone(context: StageContext, operation: str, path: StorePath) -> JobStateError:
    """Builds the error if the directory for old files is gone: a rollback began, or another driver ended the job."""
    return JobStateError(
        f"the place where job {context.layout.job_id} keeps what it moves aside is gone",
        operation=operation,
        path=path,
        outcome="partial",
        next_step=f"call {context.recover_call()} to see how it ended",
    )


def decision_is_gone(context: StageContext) -> JobNotFoundError:
    """Builds the error if the decision does not exist any more: another driver ended the job."""
    return JobNotFoundError(
        f"the decision of job {context.layout.job_id} is gone: another driver ended it, or its directory was deleted",
        operation="commit_job",
        path=context.layout.decision,
        outcome="unknown",
        next_step=f"call {context.recover_call()} to see how it ended",
    )


def check_still_decided(context: StageContext, decision: DecisionHead | None, expected: Decision) -> None:
    """Raises `JobNotFoundError` if the decision is gone, `JobStateError` if it is not the expected one."""
    if decision is None:
        raise decision_is_gone(context)
    if decision.driver != expected.driver or decision.decision != expected.decision:
        raise JobStateError(
            f"the decision of job {expected.job_id} was replaced by something else",
            operation="commit_job",
            outcome="unknown",
            next_step="find out who writes into the job's directory",
        )
