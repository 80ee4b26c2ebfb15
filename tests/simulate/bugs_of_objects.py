"""Mutants of how `stocator` tells objects that count from those that do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from committer.committers import stocator as objects
from committer.committers.stocator import AbortDirectTask, DirectFiles, DirectForms, RollBackObjects
from committer.records.pending_uploads import ListedUpload
from committer.stages.task.sent_files import ListBeingWritten
from tests.simulate.patches import Patches


def winners_taken_for_losers(patches: Patches) -> None:
    """A cleanup deletes the objects of every run that is listed."""

    async def losing(context: Any, runs: list[Any]) -> list[Any]:
        return runs

    patches.function(objects.losing_runs, losing)


def losers_left(patches: Patches) -> None:
    """A cleanup deletes no object."""

    async def outside(self: Any, context: Any) -> list[Any]:
        return []

    patches.method(DirectForms, "outside", outside)


def objects_not_listed(patches: Patches) -> None:
    """A task attempt looks at its job, and lists nothing of what it writes."""
    original = ListBeingWritten.add

    async def add(self: Any, upload: ListedUpload) -> None:
        await original(self, ListedUpload(f"{upload.name}.tmp", upload.id))

    patches.method(ListBeingWritten, "add", add)


def names_without_the_run(patches: Patches) -> None:
    """Two runs of an attempt write under one name."""
    original = DirectFiles.__init__

    def init(self: Any, context: Any, identity: Any) -> None:
        original(self, context, identity)
        self._run = self._run.rpartition("-")[0] + "-0"

    patches.method(DirectFiles, "__init__", init)


def aborted_attempts_left(patches: Patches) -> None:
    """An aborted attempt deletes nothing, and forgets what it listed."""

    async def end_uploads(self: Any, value: Any, attempt_id: str) -> None:
        run = self.context.layout.uploads / f"{attempt_id}-{value.nonce}"
        await self.context.store.delete_directory(run, recursive=True)

    patches.method(AbortDirectTask, "_end_uploads", end_uploads)


def rolled_back_objects_left(patches: Patches) -> None:
    """A rollback deletes no object of the winners, and neither does the cleanup after it."""

    async def end(self: Any, file: Any) -> None:
        return

    original = objects.losing_runs

    async def losing(context: Any, runs: list[Any]) -> list[Any]:
        lost = await original(context, runs)
        return [] if len(lost) == len(runs) else lost

    patches.method(RollBackObjects, "_end", end)
    patches.function(original, losing)


def some_winners_named(patches: Patches) -> None:
    """`_SUCCESS` names a few of the files alone, as those of other committers do."""
    patches.method(DirectForms, "filenames_limit", 3)  # type: ignore[arg-type]
    patches.method(DirectForms, "names_all", False)  # type: ignore[arg-type]


OF_OBJECTS: tuple[Callable[[Patches], None], ...] = (
    winners_taken_for_losers,
    losers_left,
    objects_not_listed,
    names_without_the_run,
    aborted_attempts_left,
    rolled_back_objects_left,
    some_winners_named,
)
