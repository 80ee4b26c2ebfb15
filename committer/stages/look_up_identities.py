"""LookUpIdentities: finds out by listings what tasks' files are known by, where their records do not say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from committer.errors import StoreNotADirectoryError, StoreNotFoundError
from committer.flow.workers import run_workers
from committer.records.job_state import Fact
from committer.stages.base import Stage
from committer.stages.load_records import LoadedRecords
from committer.stages.many_at_once import pages
from committer.stages.planned_file import PlannedFile
from committer.stages.planned_files import PlannedFiles
from committer.stores.base import FileStatus

# Sources that are not there any more, or not as their record says, a sentence each.
_MOST_CHANGED: Final = 100

# Files that are looked for together, about.
_TOGETHER: Final = 10_000


class LookUpIdentities(Stage[LoadedRecords, None]):
    """Lists the source directories of entries without identity (Java's on a local disk have none).

    What a listing shows is compared with the records: a source that is gone or has another length would only be found
    out half way through publishing.

    Preconditions: records are loaded.
    Postconditions: `LoadedRecords.identities` holds one fact for each such entry, in the order of the job's files, if
    the store has identities; of entries that are kept each says it itself.
    Cost: one listing a directory.
    Memory: what one run of records names; facts on the driver's disk where they are many.
    """

    name = "job_stage_look_up_identities"
    statistic = ""

    async def execute(self, value: LoadedRecords) -> None:
        """Lists, a run of records at a time."""
        planned = PlannedFiles(self.context, value.winners, value.entries, on_disk=value.on_disk)
        async for files in planned.batches():
            for some in _by_attempts(file for file in files if file.identity is None):
                await self._look_up(value, some)

    async def _look_up(self, value: LoadedRecords, lacking: list[PlannedFile]) -> None:
        found = await self._list(lacking)
        for file in lacking:
            status = found.get(file.source)
            if status is None or status.is_directory:
                problem = "is gone"
            elif status.size != file.size:
                problem = f"has {status.size} bytes, its record says {file.size}"
            else:
                file.identity = status.identity
                continue
            if len(value.changed) < _MOST_CHANGED:
                value.changed.append(f"the source of {file.destination} {problem}")
        if self.context.store.capabilities.identity:
            await value.identities.add([Fact("identity", file.source, file.identity) for file in lacking])

    async def _list(self, files: Iterable[PlannedFile]) -> dict[str, FileStatus]:
        tasks, wanted = self.context.layout.tasks, {file.source for file in files}
        found: dict[str, FileStatus] = {}

        async def look(directory: str) -> None:
            try:
                async for some in pages(self.context.store, tasks / directory):
                    for child in some:
                        name = f"{directory}/{child.path.name}"
                        if name in wanted:
                            found[name] = child
            except (StoreNotFoundError, StoreNotADirectoryError):
                return

        directories = sorted({source.rpartition("/")[0] for source in wanted})
        await run_workers(directories, look, workers=self.context.config.io_concurrency, operation=self.name)
        return found


def _by_attempts(files: Iterable[PlannedFile]) -> Iterator[list[PlannedFile]]:
    """Files in runs, those of a task attempt in one: no directory holds files of two."""
    run: list[PlannedFile] = []
    attempt = ""
    for file in files:
        of = file.source.partition("/")[0]
        if len(run) >= _TOGETHER and of != attempt:
            yield run
            run = []
        attempt = of
        run.append(file)
    if run:
        yield run
