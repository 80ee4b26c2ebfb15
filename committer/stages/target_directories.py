"""LookIntoTargets: what is in directories that stand where files go, before a replacing job takes them away."""

from __future__ import annotations

from dataclasses import dataclass, field

from committer.errors import StoreNotADirectoryError, StoreNotFoundError
from committer.file_names import working_directory_in
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stages.base import Stage
from committer.stages.identity import as_entry
from committer.stages.names import working_directory
from committer.stores.base import FileStatus, Store
from committer.stores.helpers import walk


@dataclass(slots=True)
class TargetDirectories:
    """What is in directories that stand at files' targets.

    Attributes:
        jobs: A job's own directory, by the name of the target that holds it; at most one a target.
        files: Every file below them by name, where directories are not real; empty elsewhere.
        mounted: Another volume's top below one, by the name of the target that holds it; at most one a target.
    """

    jobs: dict[str, StorePath] = field(default_factory=dict)
    files: dict[str, FileStatus] = field(default_factory=dict)
    mounted: dict[str, StorePath] = field(default_factory=dict)


class LookIntoTargets(Stage[list[str], TargetDirectories]):
    """Looks for jobs that run into a directory which is to make room for a file: theirs is never taken away (G11).

    Where directories are real such a directory goes as a whole. Elsewhere it is nothing but the files below it, which
    do not keep a file of its name from standing beside them: each is superseded like any other old file, so a
    file that is put there since stays.

    Preconditions: the job may replace what stands there.
    Postconditions: every job's directory among them is known; nothing changed.
    Cost: one listing for each directory in them, those of different targets at once.
    """

    name = "job_stage_look_into_targets"

    async def execute(self, value: list[str]) -> TargetDirectories:
        """Looks into all, many at once."""
        context, found = self.context, TargetDirectories()

        async def look(target: str) -> None:
            path = context.layout.target(target)
            try:
                async for status in walk(context.store, path):
                    job = working_directory(status, path)
                    if job is not None:
                        found.jobs[target] = job
                        return
                    if status.refuses is not None and status.refuses.mounted:
                        found.mounted[target] = status.path
                        return
                    name = context.layout.name_of(status.path)
                    real = status.is_directory or context.store.capabilities.directories
                    if not (real or working_directory_in(name)):
                        found.files[name] = as_entry(status)
            except (StoreNotFoundError, StoreNotADirectoryError):
                # It vanished while we looked, or a file took its place: publishing meets that.
                return

        await run_workers(value, look, workers=context.config.io_concurrency, operation=self.name)
        return found


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
