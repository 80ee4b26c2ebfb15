"""The superseded set: old files that a replacing job removes, listed before the decision."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

import msgspec

from committer.errors import InvalidPathError, StoreNotADirectoryError, StoreNotFoundError
from committer.file_names import is_utf_8, root_of, working_directory_in
from committer.flow.texts import Asked, Matches
from committer.flow.workers import run_workers
from committer.layout import JobLayout
from committer.paths import StorePath
from committer.records.job_state import Fact
from committer.stages.base import Stage, StageContext
from committer.stages.check.foreign_metadata import checksummed, is_replaced
from committer.stages.check.in_the_way import ObstacleFinder
from committer.stages.check.inspect_destination import DestinationView
from committer.stages.durability import pages
from committer.stages.facts import NotedFacts, are_plain, check_superseded, directories_of
from committer.stages.identity import as_entry, stands_as_directory
from committer.stages.names import NameFolding, is_absolute, is_hidden, with_ancestors, working_directory
from committer.stores.base import FileStatus, Refusals, Store
from committer.stores.helpers import status_or_none, walk

# Directories that are listed concurrently: each holds a page of entries, of which little is kept.
_LISTINGS: Final = 64
# Where Hive (``hive.exec.stagingdir``) and Spark (``stagingDir`` of its commit protocol) keep the output of running
# queries, which may write into a partition of the same table. Hive's own overwrites spare hidden names, too.
_STAGING_PREFIXES: Final = (".hive-staging", ".spark-staging")
# Old files that cannot be replaced and are reported; a directory can contain millions.
_MOST_TOLD: Final = 100


@dataclass(slots=True, kw_only=True)
class Superseded:
    """Collector of the old files to remove, each once.

    Attributes:
        facts: The decision's facts, those of a directory next to one another.
        any: Whether the job replaces any old data file, noted or not.
        whole: Whether the job replaces all that is directly in the destination.
        links: Problems with symbolic links at replaced directories.
        stale: Names of other writers' summary files that the job's files make stale.
        places: The first free place aside.
        refused: Files that the store would refuse to move or to name, by name; at most a hundred.
        unnameable: Sentences about files that no record may name; at most a hundred.
    """

    layout: JobLayout
    folding: NameFolding
    facts: NotedFacts = field(default_factory=NotedFacts)
    any: bool = False
    whole: bool = False
    links: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    places: int = 0
    refused: dict[str, FileStatus] = field(default_factory=dict)
    unnameable: list[str] = field(default_factory=list)

    async def add(
        self, names: list[str], statuses: list[FileStatus], *, plain: bool = False, replaces: bool = True
    ) -> None:
        """Adds old files; a link to a directory counts as a file. Names that are not UTF-8 are only reported."""
        # `plain`: the names pass `are_plain`, none is a directory, and all are in one directory. `replaces`:
        # they are data files; other writers' summaries exclude no other job.
        if not names:
            return
        self.any = self.any or replaces
        self._note_refused(names, statuses)
        if not (plain or are_plain(names)):
            self._check(names, statuses)
            # The others are refused: no record can hold such a name, nor that of a temporary file.
            named = [pair for pair in zip(names, statuses, strict=True) if is_utf_8(pair[0])]
            names, statuses = [name for name, _status in named], [status for _name, status in named]
            if not names:
                return
        first = self.places
        self.places += len(names)
        await self.facts.add(
            [
                Fact("superseded", name, status.identity, status.size, not plain and stands_as_directory(status), place)
                for place, (name, status) in enumerate(zip(names, statuses, strict=True), first)
            ],
            {names[0].rpartition("/")[0]} if plain else {name.rpartition("/")[0] for name in names},
        )

    def _note_refused(self, names: list[str], statuses: list[FileStatus]) -> None:
        for name, status in zip(names, statuses, strict=True):
            refuses = status.refuses
            if refuses is not None and (refuses.move or refuses.advice) and len(self.refused) < _MOST_TOLD:
                self.refused[name] = status

    async def leave_out(self, replaced: Matches[bool]) -> None:
        """Removes files that a new file replaces under another spelling of its name, by folded name."""
        if not (replaced.count and self.facts):
            return
        facts = self.facts
        self.facts = NotedFacts()
        try:
            number = 0
            async for some in facts.batches():
                folded = self.folding.fold_all([fact.path for fact in some])
                await replaced.ask([Asked(*asked) for asked in enumerate(folded, number)])
                number += len(some)
            answers = replaced.answers()
            turn, number = await _turn_of(answers), 0
            async for some in facts.batches():
                kept: list[Fact] = []
                for at, fact in enumerate(some, number):
                    if at == turn:
                        turn = await _turn_of(answers)
                    else:
                        kept.append(fact)
                number += len(some)
                await self.facts.add(kept, directories_of(kept))
        finally:
            await facts.close()

    def _check(self, names: list[str], statuses: list[FileStatus]) -> None:
        """Adds names to `unnameable` that no record can hold or no driver accepts, unless the store gives advice."""
        for name, status in zip(names, statuses, strict=True):
            if len(self.unnameable) == _MOST_TOLD:
                return
            if status.refuses is not None and status.refuses.advice:
                continue
            if not is_utf_8(name):
                self.unnameable.append(f"{name!a} is to be replaced, and its name is not UTF-8")
                continue
            try:
                check_superseded(self.layout, name)
            except InvalidPathError as error:
                self.unnameable.append(f"{name!r} is to be replaced, and no record may name it: {error.message}")


async def _turn_of(answers: AsyncIterator[tuple[int, str, bool]]) -> int:
    """Returns the number of the next answer; -1 after the last."""
    found = await anext(answers, None)
    return -1 if found is None else found[0]


class ListSuperseded(Stage[list[str], Superseded]):
    """The stage that lists the old files below the directories written to, those named, or the whole destination.

    A link is one old entry, wherever it leads: what is behind it may belong to another user or partition. Only
    a link on the path to a directory that is written to is followed, as for the job's own files. `in_the_way`
    gets the listings of the directories in `written` (folded), so that no stage lists them again.

    Attributes:
        listed: Every directory that was listed, by folded name.

    Preconditions: this driver's entry exists, and no other job commits there.
    Postconditions: every old file with its identity. At the destination and at roots, names that start with `_`
    or `.` stay (unless they contain `=`), so `_temporary` is never removed, except other writers' metadata
    (`foreign_metadata`) and checksums of old files.
    Cost: one listing per directory of the old tree, one depth at a time; round trips: its depth. One call for
    each checksum file at the destination itself whose data file is in another page. Memory: directories; a few
    megabytes of files, more go to the driver's disk.
    """

    name = "job_stage_list_superseded"

    def __init__(
        self,
        context: StageContext,
        found: Superseded,
        in_the_way: ObstacleFinder | None = None,
        written: AbstractSet[str] = frozenset(),
    ) -> None:
        super().__init__(context)
        self.listed: set[str] = set()
        self._folding = NameFolding(context.store.capabilities)
        self._mounted: dict[StorePath, Refusals] = {}
        self._found = found
        self._in_the_way = in_the_way
        self._written = written

    async def execute(self, value: list[str]) -> Superseded:
        """Lists the topmost of the directories `value` and everything below, each directory once, level by level."""
        layout = self.context.layout
        written = {self._folding.fold(directory) for directory in with_ancestors(value, layout.roots)}
        level = [layout.target(directory) for directory in topmost(value)]
        while level:
            below: list[StorePath] = []

            async def look(directory: StorePath, below: list[StorePath] = below) -> None:
                with contextlib.suppress(StoreNotFoundError, StoreNotADirectoryError):
                    async for some in pages(self.context.store, directory):
                        await self._take(directory, some, written, below)
                    self.listed.add(self._folding.fold(self._name_of(directory)))

            await run_workers(level, look, workers=_LISTINGS, operation=self.name)
            level = below
        return self._found

    async def _take(
        self, directory: StorePath, children: list[FileStatus], written: set[str], below: list[StorePath]
    ) -> None:
        layout = self.context.layout
        place = self._name_of(directory)
        at_top = place in layout.roots if is_absolute(place) else not place
        prefix = f"{place}/" if place else ""
        cut = len(directory.path) + (directory.path != "/")
        volume = self._volume_of(directory) if self._mounted else None
        whole = [prefix + child.path.path[cut:] for child in children]
        taken: AbstractSet[int] = frozenset()
        if self._in_the_way is not None and self._folding.fold(place) in self._written:
            taken = await self._in_the_way.take(place, whole, children)
        plain = volume is None and not taken and are_plain(whole)
        if plain and not any(child.is_directory for child in children):
            # Most directories contain only files.
            await self._found.add(whole, children, plain=True)
            return
        names: list[str] = []
        statuses: list[FileStatus] = []
        start = len(prefix)
        described = await self._described(directory, children) if at_top else frozenset[str]()
        for at, (child, long_name) in enumerate(zip(children, whole, strict=True)):
            name = long_name[start:]
            # Other jobs may run into a directory below this one; their working directories are never removed (G11).
            if name[:1] in "_." and (
                working_directory_in(name)
                or (name.startswith(_STAGING_PREFIXES) and child.is_directory)
                or (at_top and is_hidden(name) and name not in described)
            ):
                continue
            if not child.is_directory:
                pass
            elif not child.is_link or self._folding.fold(long_name) in written:
                below.append(child.path)
                if child.refuses is not None and child.refuses.mounted:
                    self._mounted[child.path] = child.refuses
                continue
            if at in taken:
                self._found.any = True
                continue
            names.append(long_name)
            statuses.append(child if volume is None else msgspec.structs.replace(child, refuses=volume))
        await self._found.add(names, statuses)

    async def _described(self, directory: StorePath, children: list[FileStatus]) -> AbstractSet[str]:
        """Finds the hidden names at the destination that an overwrite replaces: other writers' metadata, checksums."""
        here = {child.path.name: child for child in children}
        described = {name for name, child in here.items() if is_hidden(name) and is_replaced(child)}
        owners = {
            name: owner
            for name in here.keys() - described
            if (owner := checksummed(name)) and not is_hidden(owner) and not here[name].is_directory
        }

        async def look(name: str) -> None:
            owner = owners[name]
            status = here.get(owner) or await status_or_none(self.context.store, directory / owner)
            if status is not None and not status.is_directory:
                described.add(name)

        await self.run_workers(owners, look)
        return described

    def _name_of(self, directory: StorePath) -> str:
        layout = self.context.layout
        return "" if directory == layout.destination else layout.name_of(directory)

    def _volume_of(self, directory: StorePath) -> Refusals | None:
        tops = (top for top in self._mounted if directory == top or directory.is_under(top))
        return next((self._mounted[top] for top in tops), None)


def topmost(directories: list[str]) -> list[str]:
    """Returns the directories that lie below no other of them."""
    if "" in directories:
        return ["", *topmost([directory for directory in directories if is_absolute(directory)])]
    given = set(directories)
    return sorted(directory for directory in given if root_of(directory, given) is None)


# Old files that are added in one batch.
_NOTED_TOGETHER: Final = 1000


class LookIntoTargets(Stage[DestinationView, None]):
    """The stage that finds jobs inside directories that files would replace: a job's directory is never removed (G11).

    Where directories are real, such a directory is moved as a whole. Elsewhere it consists only of the files below
    it, and a file of its name can exist beside them: each is added to `superseded` like any other old file, so a file
    that is created later stays. Files in the `listed` directories were added before.

    Preconditions: the job may replace what exists there.
    Postconditions: the view has every job's directory inside, and other volumes' mount points; nothing changed.
    Cost: one listing per directory inside, those of different targets concurrently. Memory: a few megabytes of files,
    more go to the driver's disk.
    """

    name = "job_stage_look_into_targets"

    def __init__(self, context: StageContext, superseded: Superseded, listed: AbstractSet[str]) -> None:
        super().__init__(context)
        self._superseded = superseded
        self._listed = listed
        self._folding = NameFolding(context.store.capabilities)

    async def execute(self, value: DestinationView) -> None:
        """Looks into all of them concurrently."""
        context = self.context

        async def look(target: str) -> None:
            path = context.layout.target(target)
            files: dict[str, FileStatus] = {}
            try:
                async for status in walk(context.store, path):
                    job = working_directory(status, path)
                    if job is not None:
                        value.jobs[target] = job
                        return
                    if status.refuses is not None and status.refuses.mounted and not status.is_link:
                        value.closed[target] = f"another volume is mounted at {status.path}"
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
                # It was deleted meanwhile, or replaced by a file: publishing handles that.
                return

        await self.run_workers(sorted(value.targets.directories), look)

    def _is_noted(self, name: str) -> bool:
        return bool(self._listed) and self._folding.fold(name.rpartition("/")[0]) in self._listed


async def job_inside(store: Store, directory: StorePath) -> StorePath | None:
    """Returns a job's working directory in or below a directory; None without any. One listing per directory."""
    try:
        async for status in walk(store, directory):
            job = working_directory(status, directory)
            if job is not None:
                return job
    except (StoreNotFoundError, StoreNotADirectoryError):
        pass
    return None
