"""FindTargets: says what stands at the names of a job's files."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from committer.errors import StoreNotADirectoryError, StoreNotFoundError
from committer.flow.workers import run_workers
from committer.stages.base import Stage
from committer.stages.identity import is_file_of
from committer.stages.in_the_way import InTheWay
from committer.stages.inspect_destination import DestinationView, Inspected
from committer.stages.load_records import LoadedRecords
from committer.stages.many_at_once import pages
from committer.stages.names import NameFolding
from committer.stages.planned_files import PlannedFiles

# What changed at the destination since, a sentence each.
_MOST_CHANGED: Final = 100


@dataclass(frozen=True, slots=True)
class TargetsRequest:
    """What names are looked for.

    Attributes:
        loaded: What the records say.
        files: Every file.
        in_the_way: What is known of their names.
        inspected: What was seen so far.
        listed: Directories, by folded name, of which `in_the_way` was told when old files were listed.
        places: The first place aside that is free.
    """

    loaded: LoadedRecords
    files: PlannedFiles
    in_the_way: InTheWay
    inspected: Inspected
    listed: AbstractSet[str] = frozenset()
    places: int = 0


class FindTargets(Stage[TargetsRequest, DestinationView]):
    """Says what stands at files' names, once old files were listed.

    Preconditions: the destination was inspected.
    Postconditions: everything that stands in the way of a file is known, with its identity.
    Cost: one listing a directory that was not listed, or is not sure; none in most jobs. Where more than a few stand
    there and entries are not kept, one read a record.
    Memory: of files a few megabytes, more go to the driver's disk.
    """

    name = "job_stage_find_targets"
    statistic = ""

    async def execute(self, value: TargetsRequest) -> DestinationView:
        """Lists what is left, compares."""
        inspected, fold = value.inspected, NameFolding(self.context.store.capabilities).fold
        await self._list(value, [name for name in inspected.waiting if fold(name) not in value.listed])
        await value.in_the_way.compare()
        await self._list(value, value.in_the_way.unsure)
        if self.context.forms.visible_early:
            await self._look_for_own(value)
        elif value.in_the_way.any:
            await self._look_for_others(value)
        return inspected.view

    async def _list(self, value: TargetsRequest, directories: list[str]) -> None:
        async def look(directory: str) -> None:
            prefix = f"{directory}/" if directory else ""
            try:
                async for some in pages(self.context.store, self.context.layout.target(directory)):
                    names = [prefix + child.path.name for child in some]
                    value.inspected.view.note_summaries(directory, names, some)
                    await value.in_the_way.take(directory, names, some)
            except (StoreNotFoundError, StoreNotADirectoryError):
                # It vanished while we looked: publishing makes it again.
                value.inspected.view.absent.add(directory)

        await run_workers(directories, look, workers=self.context.config.io_concurrency, operation=self.name)

    async def _look_for_others(self, value: TargetsRequest) -> None:
        """Notes what stands where a file goes."""
        targets, config = value.inspected.view.targets, self.context.config
        real, aside = self.context.store.capabilities.directories, value.places
        async for name, standing in value.in_the_way.beside(value.files):
            superseded = config.supersedes(name)
            await targets.add(name, standing, aside=aside, superseded=superseded, real=real)
            # One that is not noted has no place either: those that are free begin after as many as were noted.
            aside += real or not standing.is_directory
        await targets.end()

    async def _look_for_own(self, value: TargetsRequest) -> None:
        """Notes files that tasks moved to the destination, and that are not there any more as they were committed."""
        changed = value.loaded.changed
        async for files in value.files.batches():
            standing = value.in_the_way.standing_at(file.destination for file in files)
            for file, (name, status) in zip(files, standing, strict=True):
                if not is_file_of(status, file) and len(changed) < _MOST_CHANGED:
                    what = "is gone" if status is None else "is not what its task committed"
                    changed.append(f"{name} {what}: another task attempt, or another job, took it away since")
