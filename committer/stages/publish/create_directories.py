"""The stage that creates the directories that files will be renamed into."""

from __future__ import annotations

from contextlib import suppress

from committer.errors import (
    CommitterError,
    StoreError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    TargetExistsError,
)
from committer.events import names
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stages.base import Stage, StageContext
from committer.stores.base import Store

_TRIES = 5


class CreateDirectories(Stage[list[str], int]):
    """The stage that creates every absent directory: it creates the leaves with their parents.

    Preconditions: the decision exists; files in the way were moved aside (with `existing_target="replace"`).
    Failure modes: a file in the way is a definite refusal (`TargetExistsError`).
    Cost: one call per leaf; none where directories are not real.
    Hadoop: ``CreateOutputDirectoriesStage``.
    """

    name = statistic = names.JOB_STAGE_CREATE_TARGET_DIRS

    async def execute(self, value: list[str]) -> int:
        """Creates the leaves of `value` concurrently; returns their number."""
        store, layout = self.context.store, self.context.layout
        if not store.capabilities.directories:
            return 0

        async def make(directory: str) -> None:
            path = layout.target(directory)
            for tries_left in reversed(range(_TRIES)):
                try:
                    await store.make_directory(path, parents=True)
                except StoreNotFoundError:
                    # The rollback of another job removed a parent that it had created, while this one was
                    # created below it.
                    if not tries_left:
                        raise
                except (StoreExistsError, StoreNotADirectoryError) as error:
                    raise refused_directory(directory, error) from error
                else:
                    return

        with self.context.statistics.timed(names.OP_CREATE_DIRECTORIES):
            return await run_workers(
                leaves(value), make, workers=self.context.config.io_concurrency, operation=self.name
            )


def leaves(directories: list[str]) -> list[str]:
    """Returns the directories that are not the parent of another."""
    parents = {directory.rpartition("/")[0] for directory in directories}
    return sorted(set(directories) - parents)


async def make_missing(context: StageContext, destination: str, made: list[StorePath]) -> None:
    """Creates the directory of a file's destination if it is missing: a status per directory, and one call."""
    # Adds the missing directories to `made`, deepest first, before it creates them.
    store = context.store
    needed = missing = context.layout.target(destination).parent
    while missing != missing.parent and not await _is_directory(store, missing):
        made.append(missing)
        missing = missing.parent
    if missing == needed:
        return
    try:
        await store.make_directory(needed, parents=True)
    except (StoreExistsError, StoreNotADirectoryError) as error:
        raise refused_directory(destination.rpartition("/")[0], error) from error


async def remove_made(context: StageContext, made: list[StorePath]) -> None:
    """Removes directories that `make_missing` created, if they are empty."""
    for directory in made:
        with suppress(StoreError):
            await context.store.delete_directory(directory, recursive=False)


async def _is_directory(store: Store, path: StorePath) -> bool:
    try:
        return (await store.status(path)).is_directory
    except (StoreNotFoundError, StoreNotADirectoryError):
        return False


def refused_directory(directory: str, error: CommitterError) -> TargetExistsError:
    """Builds the error of a file that appeared after preflight where a directory is needed."""
    return TargetExistsError(
        f"a file exists at {error.path or directory}, where the directory {directory} goes",
        conflicts=[f"a file exists at {error.path or directory}, where a directory goes"],
        operation=CreateDirectories.name,
        path=directory,
        next_step="remove it and run the job again",
        causes=[error],
    )
