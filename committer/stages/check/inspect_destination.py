"""Stages that find what exists where a job will publish files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final, TypeVar

from committer.errors import InvalidPathError, StoreNotADirectoryError, StoreNotFoundError
from committer.events import names
from committer.flow.together import together
from committer.paths import StorePath
from committer.records.job_state import Fact
from committer.stages.base import Stage, StageContext
from committer.stages.check.foreign_metadata import SUMMARY_NAMES, RootView, first_data, look_at_root
from committer.stages.check.in_the_way import ExistingEntry, ObstacleFinder
from committer.stages.durability import pages
from committer.stages.facts import NotedFacts, directories_of
from committer.stages.identity import is_file_of
from committer.stages.load.load_records import LoadedRecords
from committer.stages.load.planned_files import PlannedFiles
from committer.stages.names import NameFolding, is_hidden
from committer.stores.base import FileStatus
from committer.stores.helpers import status_or_none

T = TypeVar("T")

# Names that are reported; a job can have millions.
_MOST_TOLD: Final = 100
_NOTED_TOGETHER: Final = 1000


class FirstNames(dict[str, T]):
    """The first of many names, each with a value."""

    def add(self, name: str, said: T) -> None:
        """Adds a name; drops the last ones if there are many."""
        self[name] = said
        if len(self) > 10 * _MOST_TOLD:
            first = self.first()
            self.clear()
            self.update(first)

    def first(self) -> list[tuple[str, T]]:
        """Returns at most a hundred, sorted."""
        return nsmallest(_MOST_TOLD, self.items())


@dataclass(slots=True)
class Targets:
    """Files and directories that exist at the destinations of a job's files.

    Attributes:
        facts: The decision's facts, in the order of the job's files; without virtual directories.
        first: The first names in `facts`.
        refused: The first that cannot be moved, with the reason.
        unwanted: The first that only `existing_target="replace"` replaces.
        directories: Names of directories.
        waiting: Facts that `end` adds to `facts`.
    """

    facts: NotedFacts = field(default_factory=NotedFacts)
    first: FirstNames[ExistingEntry] = field(default_factory=FirstNames)
    refused: FirstNames[str] = field(default_factory=FirstNames)
    unwanted: FirstNames[ExistingEntry] = field(default_factory=FirstNames)
    directories: list[str] = field(default_factory=list)
    waiting: list[Fact] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.facts or self.directories)

    async def add(self, name: str, standing: ExistingEntry, *, aside: int, superseded: bool, real: bool) -> None:
        """Adds what exists at a file's name; `aside` is its place aside; `superseded`: old files are replaced there."""
        if standing.refuses:
            self.refused.add(name, standing.refuses)
        if standing.is_directory or not superseded:
            self.unwanted.add(name, standing)
        if standing.is_directory:
            self.directories.append(name)
            if not real:
                return
        self.first.add(name, standing)
        self.waiting.append(Fact("target", name, standing.identity, standing.size, standing.is_directory, aside))
        if len(self.waiting) >= _NOTED_TOGETHER:
            await self.end()

    async def end(self) -> None:
        """Writes the buffered facts. Call it after the last `add`."""
        waiting, self.waiting = self.waiting, []
        await self.facts.add(waiting, directories_of(waiting))


# Up to this many names are looked up singly; for more, their directory is listed.
_FEW = 4


@dataclass(slots=True)
class DestinationView:
    """Files and directories at the destination before the decision. Names are relative to it, or absolute.

    Attributes:
        targets: What exists at files' destinations.
        blocking: Files where a directory is needed.
        absent: Directories to create.
        linked: Directories of the job that are links to a directory elsewhere.
        jobs: A job's working directory inside a directory that a file would replace, by that file's name.
        occupied: Directories that receive files and contain something visible.
        closed: Directories into which nothing can be put, with the reason.
        success: The existing `_SUCCESS`.
        was_empty: Whether the destination contained nothing visible.
        used: Whether the destination contained data, if the job refuses that.
        root: Contents of the destination itself, with other writers' metadata.
        summaries: Other writers' summary files by name, in the listed directories below the destination.
        unlisted: Directories with files only, which `ListSuperseded` or `FindTargets` lists.
    """

    targets: Targets = field(default_factory=Targets)
    blocking: dict[str, FileStatus] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    linked: set[str] = field(default_factory=set)
    jobs: dict[str, StorePath] = field(default_factory=dict)
    occupied: set[str] = field(default_factory=set)
    closed: dict[str, str] = field(default_factory=dict)
    success: FileStatus | None = None
    was_empty: bool = True
    used: bool = False
    root: RootView = field(default_factory=RootView)
    summaries: dict[str, FileStatus] = field(default_factory=dict)
    unlisted: list[str] = field(default_factory=list)

    def note_summaries(self, directory: str, names: list[str], children: list[FileStatus]) -> None:
        """Adds the summary files among a directory's children; `names` are relative to the destination."""
        for name in (f"{directory}/{name}" for name in SUMMARY_NAMES if directory):
            if name in names and not (child := children[names.index(name)]).is_directory:
                self.summaries[name] = child


@dataclass(frozen=True, slots=True)
class Inspection:
    """The values that the checks before a decision share: `view` is completed by one after the other."""

    loaded: LoadedRecords
    files: PlannedFiles
    in_the_way: ObstacleFinder
    view: DestinationView = field(default_factory=DestinationView)


async def _children(
    context: StageContext, view: DestinationView, directory: str
) -> AsyncIterator[tuple[list[str], list[FileStatus]]]:
    """Yields the children of a directory, with their names, in batches; a directory that is gone becomes absent."""
    prefix = f"{directory}/" if directory else ""
    try:
        async for some in pages(context.store, context.layout.target(directory)):
            yield [prefix + child.path.name for child in some], some
    except (StoreNotFoundError, StoreNotADirectoryError):
        # It was deleted meanwhile; publishing creates it again.
        view.absent.add(directory)


class InspectDestination(Stage[Inspection, None]):
    """Stage that inspects directories from the top down; those below an absent one cost no call.

    Preconditions: records are loaded. Statuses in them are not trusted: the destination may have changed since.
    Postconditions: everything that is in the way of a directory is known, with its identity.
    Cost: one listing per existing directory that is written to, or up to 4 status calls for as few names; 1 listing
    of the destination (`look_at_root`), 1 status of `_SUCCESS` and of each root written to. Round trips: depth.
    Hadoop: the probes of ``TaskAttemptScanDirectoryStage`` and ``CreateOutputDirectoriesStage``.
    """

    name = "job_stage_inspect_destination"

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._folding = NameFolding(context.store.capabilities)
        self._view: DestinationView
        self._few_names: dict[str, list[str]] = {}
        self._in_the_way: ObstacleFinder
        self._directories: set[str] = set()
        self._refusing: dict[str, str] = {}

    async def execute(self, value: Inspection) -> None:
        """Looks level by level."""
        loaded, view = value.loaded, value.view
        self._view, self._in_the_way = view, value.in_the_way
        wanted = _wanted_children(loaded)
        fold = self._folding.fold
        self._few_names = _names_by_directory(loaded)
        self._directories = {fold(name) for name in loaded.directories}
        with self.context.statistics.timed(names.OP_PREPARE_DIR_ANCESTORS):
            found: dict[str, FileStatus] = {}
            roots: list[str] = []
            # The destination itself is the first level and can be read at once.
            await together(
                self._look_at_root(),
                self._look_whether_closed(loaded),
                self._look_at_success(),
                self._look([""], wanted, loaded, found),
                self._look_at_roots(loaded, wanted, roots),
            )
            await self._look(sorted(roots), wanted, loaded, found)
            level = ["", *sorted(roots)]
            while level:
                below: list[str] = []
                for directory in level:
                    for name in wanted.get(directory, ()):
                        status = found.get(fold(name))
                        if (status is None or not status.is_directory) and directory in self._refusing:
                            view.closed[directory] = self._refusing[directory]
                        if status is None:
                            self._absent(name, wanted)
                        elif status.is_directory:
                            below.append(name)
                            if status.is_link:
                                view.linked.add(name)
                            if status.refuses is not None and status.refuses.enter:
                                self._refusing[name] = status.refuses.enter
                                if status.refuses.mounted or name in loaded.written:
                                    view.closed[name] = status.refuses.enter
                        else:
                            view.blocking[name] = status
                            if self.context.store.capabilities.directories:
                                self._absent(name, wanted)
                            else:
                                # Names below it can exist beside it.
                                below.append(name)
                level = below
                found = {}
                await self._look(level, wanted, loaded, found)

    def _absent(self, directory: str, wanted: dict[str, list[str]]) -> None:
        pending = [directory]
        while pending:
            name = pending.pop()
            self._view.absent.add(name)
            pending.extend(wanted.get(name, ()))

    async def _look_at_roots(self, loaded: LoadedRecords, wanted: dict[str, list[str]], standing: list[str]) -> None:
        """Finds the roots that are written to and exist; one call each."""
        layout, view = self.context.layout, self._view

        async def look(root: str) -> None:
            status = await status_or_none(self.context.store, layout.target(root))
            if status is not None and status.is_directory:
                standing.append(root)
                self._note_closed(root, status, written_to=root in loaded.written)
                return
            if status is not None:
                view.blocking[root] = status
            self._absent(root, wanted)

        written = layout.roots & (loaded.written.keys() | wanted.keys())
        await self.run_workers(sorted(written), look)

    async def _look_at_root(self) -> None:
        self._view.root = await look_at_root(self.context.store, self.context.layout.destination)
        self._view.was_empty = not self._view.root.visible
        if self.context.config.refuses_used_destination and not self._view.was_empty:
            self._view.used = await first_data(self.context.store, self.context.layout.destination) is not None

    async def _look_whether_closed(self, loaded: LoadedRecords) -> None:
        """Checks whether files can be put into the destination itself: one call, local disks only."""
        if not self.context.store.capabilities.local_paths:
            return
        status = await status_or_none(self.context.store, self.context.layout.destination)
        if status is not None:
            marks = self.context.config.mark_successful_jobs
            self._note_closed("", status, written_to=marks or "" in loaded.written)

    def _note_closed(self, directory: str, status: FileStatus, *, written_to: bool) -> None:
        """Records that no rename can reach the destination or a root below a mount point."""
        if status.refuses is None or not status.refuses.enter or status.refuses.mounted:
            return
        self._refusing[directory] = status.refuses.enter
        if written_to:
            self._view.closed[directory] = status.refuses.enter

    async def _look_at_success(self) -> None:
        if self.context.config.mark_successful_jobs:
            self._view.success = await status_or_none(self.context.store, self.context.layout.success)

    async def _look(
        self, directories: list[str], wanted: dict[str, list[str]], loaded: LoadedRecords, found: dict[str, FileStatus]
    ) -> None:
        """Looks at directories' children: wanted directories go to `found` by folded name, files to `_in_the_way`."""

        async def look(directory: str) -> None:
            files = loaded.written.get(directory, 0)
            children = wanted.get(directory, [])
            if self.context.config.conflict_mode == "replace" and not children:
                # The listing of old files covers most of these.
                self._view.unlisted.append(directory)
                return
            few = None
            if files + len(children) <= _FEW and not (files and self.context.config.conflict_mode == "fail"):
                few = (
                    children + self._few_names.get(directory, []) if not files or directory in self._few_names else None
                )
            if few is None:
                await self._list(directory, found, keep_files=files > 0)
            else:
                await together(*(self._ask(name, found) for name in few))

        await self.run_workers(directories, look)

    async def _ask(self, name: str, found: dict[str, FileStatus]) -> None:
        try:
            status = await self.context.store.status(self.context.layout.target(name))
        except (StoreNotFoundError, InvalidPathError):
            # Nothing exists at a name that the store cannot hold; preflight refuses it.
            return
        found[self._folding.fold(name)] = status
        await self._in_the_way.keep(self._folding.fold(name), status)

    async def _list(self, directory: str, found: dict[str, FileStatus], *, keep_files: bool) -> None:
        async for listed, some in _children(self.context, self._view, directory):
            if keep_files:
                if any(not is_hidden(child.path.name) for child in some):
                    self._view.occupied.add(directory)
                self._view.note_summaries(directory, listed, some)
                await self._in_the_way.take(directory, listed, some)
            # Millions of old files may exist; only what is in this job's way is kept.
            folded = self._folding.fold_all(listed)
            found |= {name: child for name, child in zip(folded, some, strict=True) if name in self._directories}
        is_refused = self.context.config.conflict_mode == "fail" and directory in self._view.occupied
        with suppress(StoreNotADirectoryError):  # A file took its place meanwhile: the job is refused all the same.
            if is_refused and await first_data(self.context.store, self.context.layout.target(directory)) is None:
                self._view.occupied.discard(directory)


def _wanted_children(loaded: LoadedRecords) -> dict[str, list[str]]:
    wanted: dict[str, list[str]] = {}
    for directory in sorted(loaded.directories):
        wanted.setdefault(directory.rpartition("/")[0], []).append(directory)
    return wanted


def _names_by_directory(loaded: LoadedRecords) -> dict[str, list[str]]:
    """Returns file names by directory, only for directories that get a few, only while entries are in memory."""
    names: dict[str, list[str]] = {}
    written = loaded.written
    if min(written.values(), default=0) > _FEW:
        return names
    for file in loaded.entries or ():
        directory = file.destination.rpartition("/")[0]
        if written[directory] <= _FEW:
            names.setdefault(directory, []).append(file.destination)
    return names


# Most changes at the destination that are reported.
_MOST_CHANGED: Final = 100


class FindTargets(Stage[Inspection, None]):
    """The stage that finds what exists at files' destinations, after old files were listed.

    `listed` are folded names of the directories whose entries `in_the_way` already has, `places` the first number that
    no old file has in the job's directory.

    Postconditions: everything that is in the way of a file is known, with its identity.
    Cost: one listing for each directory not yet listed, or unsure; none in most jobs. One read per record if
    more than a few things exist there and entries are not in memory. Memory: a few megabytes of files, more go
    to the driver's disk.
    """

    name = "job_stage_find_targets"

    def __init__(self, context: StageContext, *, listed: AbstractSet[str], places: int) -> None:
        super().__init__(context)
        self._listed = listed
        self._places = places

    async def execute(self, value: Inspection) -> None:
        """Lists the remaining directories, then compares."""
        fold = NameFolding(self.context.store.capabilities).fold
        await self._list(value, [name for name in value.view.unlisted if fold(name) not in self._listed])
        await value.in_the_way.compare()
        await self._list(value, value.in_the_way.unsure)
        if self.context.forms.visible_early:
            await self._look_for_own(value)
        elif value.in_the_way.any:
            await self._look_for_others(value)

    async def _list(self, value: Inspection, directories: list[str]) -> None:
        async def look(directory: str) -> None:
            async for listed, some in _children(self.context, value.view, directory):
                value.view.note_summaries(directory, listed, some)
                await value.in_the_way.take(directory, listed, some)

        await self.run_workers(directories, look)

    async def _look_for_others(self, value: Inspection) -> None:
        targets, config = value.view.targets, self.context.config
        real, aside = self.context.store.capabilities.directories, self._places
        async for name, standing in value.in_the_way.beside(value.files):
            superseded = config.supersedes(name)
            await targets.add(name, standing, aside=aside, superseded=superseded, real=real)
            # A virtual directory is not noted and takes no place: free places begin after the noted ones.
            aside += real or not standing.is_directory
        await targets.end()

    async def _look_for_own(self, value: Inspection) -> None:
        """Reports files that tasks published and that are missing or changed since."""
        changed = value.loaded.changed
        async for files in value.files.batches():
            standing = value.in_the_way.standing_at(file.destination for file in files)
            for file, (name, status) in zip(files, standing, strict=True):
                if is_file_of(status, file) or len(changed) >= _MOST_CHANGED:
                    continue
                what = "is gone" if status is None else "is not what its task committed"
                changed.append(f"{name} {what}: another task attempt, or another job, took it away since")
