"""LookIntoTargets: what is in directories that stand where files go, before a replacing job takes them away."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from committer.errors import StoreNotADirectoryError, StoreNotFoundError
from committer.file_names import working_directory_in
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stages.base import Stage, StageContext
from committer.stages.identity import as_entry
from committer.stages.names import NameFolding, working_directory
from committer.stages.superseded import Superseded
from committer.stores.base import FileStatus, Store
from committer.stores.helpers import walk

# Old files that are noted together.
_NOTED_TOGETHER: Final = 1000


@dataclass(slots=True)
class TargetDirectories:
    """What is in directories that stand at files' targets.

    Attributes:
        jobs: A job's own directory, by the name of the target that holds it; at most one a target.
        mounted: Another volume's top below one, by the name of the target that holds it; at most one a target.
    """

    jobs: dict[str, StorePath] = field(default_factory=dict)
    mounted: dict[str, StorePath] = field(default_factory=dict)


class LookIntoTargets(Stage[list[str], TargetDirectories]):
    """Looks for jobs that run into a directory which is to make room for a file: theirs is never taken away (G11).

    Where directories are real such a directory goes as a whole. Elsewhere it is nothing but the files below it, which
    do not keep a file of its name from standing beside them: each is superseded like any other old file, so a
    file that is put there since stays.

    Args:
        context: The job.
        superseded: Where those files are noted.
        listed: Directories, by folded name, whose files were noted before.

    Preconditions: the job may replace what stands there.
    Postconditions: every job's directory among them is known; nothing changed.
    Cost: one listing for each directory in them, those of different targets at once.
    Memory: of files a few megabytes, more go to the driver's disk.
    """

    name = "job_stage_look_into_targets"

    def __init__(self, context: StageContext, superseded: Superseded, listed: AbstractSet[str] = frozenset()) -> None:
        super().__init__(context)
        self._superseded = superseded
        self._listed = listed
        self._folding = NameFolding(context.store.capabilities)

    async def execute(self, value: list[str]) -> TargetDirectories:
        """Looks into all, many at once."""
        context, found = self.context, TargetDirectories()

        async def look(target: str) -> None:
            path = context.layout.target(target)
            files: dict[str, FileStatus] = {}
            try:
                async for status in walk(context.store, path):
                    job = working_directory(status, path)
                    if job is not None:
                        found.jobs[target] = job
                        return
                    if status.refuses is not None and status.refuses.mounted and not status.is_link:
                        found.mounted[target] = status.path
                        return
                    name = context.layout.name_of(status.path)
                    real = status.is_directory or context.store.capabilities.directories
                    if not (real or working_directory_in(name) or self._is_noted(name)):
                        files[name] = as_entry(status)
                    if len(files) == _NOTED_TOGETHER:
                        await self._superseded.add([*files], [*files.values()])
                        files = {}
                await self._superseded.add([*files], [*files.values()])
            except (StoreNotFoundError, StoreNotADirectoryError):
                # It vanished while we looked, or a file took its place: publishing meets that.
                return

        await run_workers(value, look, workers=context.config.io_concurrency, operation=self.name)
        return found

    def _is_noted(self, name: str) -> bool:
        return bool(self._listed) and self._folding.fold(name.rpartition("/")[0]) in self._listed


async def job_inside(store: Store, directory: StorePath) -> StorePath | None:
    """The own directory of a job that runs into one, or below it; None without any. A listing for each directory."""
    try:
        async for status in walk(store, directory):
            job = working_directory(status, directory)
            if job is not None:
                return job
    except (StoreNotFoundError, StoreNotADirectoryError):
        pass
    return None
