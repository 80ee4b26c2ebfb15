"""Mutants of the committers `file-v1` and `file-v2`, and of what conflict modes of `partitioned` are of."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from committer.committers.file import taking
from committer.committers.file.committer_v1 import CommitFileTask
from committer.committers.file.committer_v2 import MergeTask
from committer.errors import StoreNotFoundError
from committer.stages.check.inspect_destination import FindTargets
from committer.stages.decide.entries import superseded_scope
from tests.simulate.patches import Patches

# -- file-v1 ------------------------------------------------------------------------------------------------------


def earlier_commit_deleted(patches: Patches) -> None:
    """As Hadoop does: a task that commits again first deletes what it committed before."""

    async def move_aside(self: Any, target: Any, aside: Any) -> None:
        with suppress(StoreNotFoundError):
            await self.context.store.delete_directory(target, recursive=True)

    patches.method(CommitFileTask, "_move_aside", move_aside)


def moved_aside_passed_over(patches: Patches) -> None:
    """A job commit looks for tasks where they commit, and not among what was moved aside for a later commit."""

    async def replaced(context: Any, layout: Any) -> dict[str, Any]:
        return {}

    patches.function(taking._replaced, replaced)


OF_FILE_V1: tuple[Callable[[Patches], None], ...] = (earlier_commit_deleted, moved_aside_passed_over)

# -- file-v2 ------------------------------------------------------------------------------------------------------


def merged_files_not_looked_at(patches: Patches) -> None:
    """A job commit does not look whether what tasks moved to the destination is still theirs."""

    async def look(self: Any, value: Any) -> None:
        return

    patches.method(FindTargets, "_look_for_own", look)


def late_tasks_merge(patches: Patches) -> None:
    """A task attempt does not look whether its job is being committed, or over."""

    async def check(self: Any, value: Any) -> None:
        return

    patches.method(MergeTask, "_check_job", check)


OF_FILE_V2: tuple[Callable[[Patches], None], ...] = (merged_files_not_looked_at, late_tasks_merge)

# -- partitioned --------------------------------------------------------------------------------------------------


def partitions_taken_for_the_table(patches: Patches) -> None:
    """What a job supersedes is the whole table, not the partitions that it writes to."""

    def scope(config: Any, written: list[str], folding: Any) -> list[str]:
        return [""] if config.superseded_scope == "partitions" else superseded_scope(config, written, folding)

    patches.function(superseded_scope, scope)


def first_partition_alone(patches: Patches) -> None:
    """Old files stay in all partitions that a job writes to but one."""

    def scope(config: Any, written: list[str], folding: Any) -> list[str]:
        return superseded_scope(config, written, folding)[:1]

    patches.function(superseded_scope, scope)


OF_PARTITIONS: tuple[Callable[[Patches], None], ...] = (partitions_taken_for_the_table, first_partition_alone)
