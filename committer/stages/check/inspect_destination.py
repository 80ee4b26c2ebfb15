"""InspectDestination and FindTargets: find what exists where a job will publish files."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final, Generic, NamedTuple, TypeVar

from committer.errors import InvalidPathError, StoreNotADirectoryError, StoreNotFoundError
from committer.events import names
from committer.flow.together import together
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.records.job_state import Fact
from committer.stages.base import Stage, StageContext
from committer.stages.check.foreign_metadata import SUMMARY_NAMES, RootView, first_data, look_at_root
from committer.stages.check.in_the_way import InTheWay, Standing
from committer.stages.durability import pages
from committer.stages.facts import NotedFacts
from committer.stages.identity import is_file_of
from committer.stages.load.load_records import LoadedRecords
from committer.stages.load.planned_files import PlannedFiles
from committer.stages.names import NameFolding, is_hidden
from committer.stores.base import FileStatus
from committer.stores.helpers import status_or_none

T = TypeVar("T")

# Those that are told; a job can have millions.
_MOST_TOLD: Final = 100
_NOTED_TOGETHER: Final = 1000


class FirstNames(Generic[T]):
    """The first of many names, with what is said of each."""

    def __init__(self) -> None:
        self._kept: dict[str, T] = {}

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(self, name: str, said: T) -> None:
        """Adds one."""
        self._kept[name] = said
        if len(self._kept) > 10 * _MOST_TOLD:
            self._kept = dict(self.items())

    def items(self) -> list[tuple[str, T]]:
        """At most a hundred, in order."""
        return [(name, self._kept[name]) for name in nsmallest(_MOST_TOLD, self._kept)]


class Targets:
    """What stands at the names of a job's files.

    Attributes:
        facts: What the decision says of each, in the order of the job's files; where directories are not real without
            them.
        first: The first names that `facts` tell of.
        refused: The first of those that cannot make way, with the reason.
        unwanted: The first of those that only `existing_target="replace"` has make way.
        directories: The directories, by name.
    """

    def __init__(self) -> None:
        self.facts: NotedFacts = NotedFacts()
        self.first: FirstNames[Standing] = FirstNames()
        self.refused: FirstNames[str] = FirstNames()
        self.unwanted: FirstNames[Standing] = FirstNames()
        self.directories: list[str] = []
        self._waiting: list[Fact] = []

    def __bool__(self) -> bool:
        return bool(self.facts or self.directories)

    async def add(self, name: str, standing: Standing, *, aside: int, superseded: bool, real: bool) -> None:
        """Notes one.

        Args:
            name: Of the file that goes there.
            standing: What stands there.
            aside: Its place aside.
            superseded: Whether old files make room there.
            real: Whether directories are.

        Raises:
            CommitterError: The disk did not take it.
        """
        if standing.refuses:
            self.refused.add(name, standing.refuses)
        if standing.is_directory or not superseded:
            self.unwanted.add(name, standing)
        if standing.is_directory:
            self.directories.append(name)
            if not real:
                return
        self.first.add(name, standing)
        self._waiting.append(Fact("target", name, standing.identity, standing.size, standing.is_directory, aside))
        if len(self._waiting) >= _NOTED_TOGETHER:
            await self.end()

    async def end(self) -> None:
        """Notes what is left. Call it after the last one.

        Raises:
            CommitterError: The disk did not take it.
        """
        waiting, self._waiting = self._waiting, []
        await self.facts.add(waiting, {fact.path.rpartition("/")[0] for fact in waiting})

    async def close(self) -> None:
        """Frees what the driver's disk holds. Safe to call twice."""
        await self.facts.close()


# Up to this many names are looked up one by one; more are found by listing their directory.
_FEW = 4


@dataclass(slots=True)
class DestinationView:
    """What stood at the destination before the decision. Names are relative to it, or absolute.

    Attributes:
        targets: Files and directories that stand where a file goes.
        blocking: Files that stand where a directory goes.
        absent: Directories that are to be made.
        linked: Directories of the job that are links to one elsewhere.
        jobs: A job's own directory in a directory that is to make room for a file, by the name of that.
        occupied: Directories that files go into and that hold something visible.
        closed: Directories into which nothing can be put, with the reason.
        success: The `_SUCCESS` that stands there.
        was_empty: Whether the destination held nothing visible.
        used: Whether the destination held data, where the job refuses that.
        root: Contents of the destination itself, with other writers' metadata.
        summaries: Summary files of other writers by name, in the listed directories below the destination.
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

    def note_summaries(self, directory: str, names: list[str], children: list[FileStatus]) -> None:
        """Adds the summary files among a directory's children, which `names` gives relative to the destination."""
        for name in (f"{directory}/{name}" for name in SUMMARY_NAMES if directory):
            if name in names and not (child := children[names.index(name)]).is_directory:
                self.summaries[name] = child


@dataclass(frozen=True, slots=True)
class InspectionRequest:
    """What to look for.

    Attributes:
        loaded: What the records say.
        in_the_way: Is told what stands at files' names, as far as directories are listed.
        old_listed: Whether old files are listed afterwards: then directories that hold nothing but files wait for that.
    """

    loaded: LoadedRecords
    in_the_way: InTheWay
    old_listed: bool = False


class Inspected(NamedTuple):
    """What was seen so far.

    Attributes:
        view: What stood there, without `targets`.
        waiting: Directories that were not looked at.
    """

    view: DestinationView
    waiting: list[str]


class InspectDestination(Stage[InspectionRequest, Inspected]):
    """Looks at directories from the top down: what is below an absent one is absent and costs nothing.

    `FindTargets` follows, and says what stands at files' names.

    Preconditions: records are loaded. Statuses in them are not trusted: the destination may have changed since.
    Postconditions: everything that stands in the way of a directory is known, with its identity.
    Failure modes: a store error; nothing changed.
    Cost: per directory that exists and is written to, one listing, or up to 4 looks when it gets no more names than
    that; 1 listing of the destination (`look_at_root`), 1 look at `_SUCCESS`, 1 at each root
    outside that is written to. Dependent round trips: depth.
    Hadoop: the probes of ``TaskAttemptScanDirectoryStage`` and ``CreateOutputDirectoriesStage``.
    """

    name = "job_stage_inspect_destination"
    statistic = ""

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._folding = NameFolding(context.store.capabilities)
        self._view = DestinationView()
        self._few_names: dict[str, list[str]] = {}
        self._waiting: list[str] | None = None
        self._in_the_way: InTheWay
        self._directories: set[str] = set()
        self._refusing: dict[str, str] = {}

    async def execute(self, value: InspectionRequest) -> Inspected:
        """Looks, level by level."""
        loaded, view = value.loaded, self._view
        self._in_the_way = value.in_the_way
        self._waiting = [] if value.old_listed else None
        wanted = _wanted_children(loaded)
        fold = self._folding.fold
        self._few_names = _names_by_directory(loaded)
        self._directories = {fold(name) for name in loaded.directories}
        with self.context.statistics.timed(names.OP_PREPARE_DIR_ANCESTORS):
            found: dict[str, FileStatus] = {}
            roots: list[str] = []
            # The destination itself is the first level; nothing has to be known to look there.
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
                            self._absent(name, wanted)
                level = below
                found = {}
                await self._look(level, wanted, loaded, found)
        return Inspected(view, self._waiting or [])

    def _absent(self, directory: str, wanted: dict[str, list[str]]) -> None:
        pending = [directory]
        while pending:
            name = pending.pop()
            self._view.absent.add(name)
            pending.extend(wanted.get(name, ()))

    async def _look_at_roots(self, loaded: LoadedRecords, wanted: dict[str, list[str]], standing: list[str]) -> None:
        """Finds the roots outside the destination that are written to and stand; one look each."""
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
        await run_workers(sorted(written), look, workers=self.context.config.io_concurrency, operation=self.name)

    async def _look_at_root(self) -> None:
        self._view.root = await look_at_root(self.context.store, self.context.layout.destination)
        self._view.was_empty = not self._view.root.visible
        if self.context.config.refuses_used_destination and not self._view.was_empty:
            self._view.used = await first_data(self.context.store, self.context.layout.destination) is not None

    async def _look_whether_closed(self, loaded: LoadedRecords) -> None:
        """Looks whether anything can be put into the destination itself: one look, where that is a call of the system;
        elsewhere it says nothing of it.
        """
        if not self.context.store.capabilities.local_paths:
            return
        status = await status_or_none(self.context.store, self.context.layout.destination)
        if status is not None:
            marks = self.context.config.mark_successful_jobs
            self._note_closed("", status, written_to=marks or "" in loaded.written)

    def _note_closed(self, directory: str, status: FileStatus, *, written_to: bool) -> None:
        """Notes that nothing can be put into the destination, or a root outside, which may themselves be mounted."""
        if status.refuses is None or not status.refuses.enter or status.refuses.mounted:
            return
        self._refusing[directory] = status.refuses.enter
        if written_to:
            self._view.closed[directory] = status.refuses.enter

    async def _look_at_success(self) -> None:
        if self.context.config.mark_successful_jobs:
            self._view.success = await status_or_none(self.context.store, self.context.layout.success)

    async def _look(
        self,
        directories: list[str],
        wanted: dict[str, list[str]],
        loaded: LoadedRecords,
        found: dict[str, FileStatus],
    ) -> None:
        """What stands below each directory: wanted directories by folded name in `found`; files go to `_found`."""

        async def look(directory: str) -> None:
            files = loaded.written.get(directory, 0)
            children = wanted.get(directory, [])
            if self._waiting is not None and not children:
                self._waiting.append(directory)
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

        await run_workers(directories, look, workers=self.context.config.io_concurrency, operation=self.name)

    async def _ask(self, name: str, found: dict[str, FileStatus]) -> None:
        try:
            status = await self.context.store.status(self.context.layout.target(name))
        except (StoreNotFoundError, InvalidPathError):
            # At a name that the store cannot hold nothing stands; preflight refuses it.
            return
        found[self._folding.fold(name)] = status
        await self._in_the_way.keep(self._folding.fold(name), status)

    async def _list(self, directory: str, found: dict[str, FileStatus], *, keep_files: bool) -> None:
        prefix = f"{directory}/" if directory else ""
        try:
            async for some in pages(self.context.store, self.context.layout.target(directory)):
                names = [prefix + child.path.name for child in some]
                if keep_files:
                    if any(not is_hidden(child.path.name) for child in some):
                        self._view.occupied.add(directory)
                    self._view.note_summaries(directory, names, some)
                    await self._in_the_way.take(directory, names, some)
                # Millions of old files may stand there; only what is in this job's way is kept.
                folded = self._folding.fold_all(names)
                found |= {name: child for name, child in zip(folded, some, strict=True) if name in self._directories}
            is_refused = self.context.config.conflict_mode == "fail" and directory in self._view.occupied
            if is_refused and await first_data(self.context.store, self.context.layout.target(directory)) is None:
                self._view.occupied.discard(directory)
        except (StoreNotFoundError, StoreNotADirectoryError):
            # It vanished while we looked: publishing makes it again.
            self._view.absent.add(directory)


def _wanted_children(loaded: LoadedRecords) -> dict[str, list[str]]:
    wanted: dict[str, list[str]] = {}
    for directory in sorted(loaded.directories):
        wanted.setdefault(directory.rpartition("/")[0], []).append(directory)
    return wanted


def _names_by_directory(loaded: LoadedRecords) -> dict[str, list[str]]:
    """File names by directory, only for directories that get a few, only while entries are in memory."""
    names: dict[str, list[str]] = {}
    written = loaded.written
    if min(written.values(), default=0) > _FEW:
        return names
    for file in loaded.entries or ():
        directory = file.destination.rpartition("/")[0]
        if written[directory] <= _FEW:
            names.setdefault(directory, []).append(file.destination)
    return names


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
