"""Finds, while directories are listed, what exists at the destinations of a job's files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from committer.file_names import is_reserved
from committer.flow.texts import Asked, HashFilter, Matches, Repeats
from committer.records.publish_chunk import PlannedFile
from committer.stages.identity import as_entry
from committer.stages.load.load_records import LoadedRecords
from committer.stages.load.planned_files import PlannedFiles
from committer.stages.names import NameFolding
from committer.stores.base import Capabilities, FileStatus

STANDING_IN_MEMORY: Final = 25_000
"""Files at destinations that are kept in memory, some 600 bytes each; more go to the driver's disk."""


class ExistingEntry(NamedTuple):
    """Existing file or directory at a name; `refuses` is the reason why it cannot be moved, or empty."""

    identity: str | None
    size: int
    is_directory: bool
    is_link: bool
    refuses: str


class ObstacleFinder:
    """The comparison of listed names with the names of a job's files.

    If the job's entries are in memory, it compares names. For a larger job it compares hashes on the driver's
    disk after everything was listed, and the directories are listed again if two are equal.

    Attributes:
        found: What exists at files' names, by folded name: directories always, files while they are few.
        unsure: Directories to list again, after `compare`.
    """

    def __init__(self, capabilities: Capabilities, loaded: LoadedRecords, *, keep_all: bool = False) -> None:
        self.found: dict[str, FileStatus] = {}
        self.unsure: list[str] = []
        self._folding = NameFolding(capabilities)
        # A file is hard-linked aside before another file takes its name; a directory is moved.
        self._linked = capabilities.hard_links
        self._loaded = loaded
        self._most = None if keep_all else STANDING_IN_MEMORY
        self._names: set[str] | None = None
        self._hashes: set[int] | HashFilter = set()
        self._standing: Repeats | None = None if loaded.entries is not None else Repeats()
        self._listed: set[str] = set()
        self._files: Matches[ExistingEntry] | None = None

    async def take(self, directory: str, names: list[str], children: list[FileStatus]) -> AbstractSet[int]:
        """Stores `children` whose name a file of the job has; returns their indexes, none if only hashes are kept."""
        folded = self._folding.fold_all(names)
        if self._standing is not None:
            self._listed.add(directory)
            await self._standing.add(folded)
            return frozenset()
        if self._names is None and self._loaded.entries is not None:
            # Built only for a directory that exists: a job whose directories are all new has none to compare.
            self._names = {*self._folding.fold_all([file.destination for file in self._loaded.entries])}
        if self._names is None:
            hits: AbstractSet[str] = {name for name in folded if hash(name) in self._hashes}
        else:
            hits = self._names.intersection(folded)
        if not hits:
            return frozenset()
        taken = {at for at, name in enumerate(folded) if name in hits and (directory or not is_reserved(name))}
        files: dict[str, FileStatus] = {}
        for at in taken:
            if children[at].is_directory:
                # Where directories are not real, a file of the same name can exist beside it, and counts.
                self.found.setdefault(folded[at], children[at])
            else:
                files[folded[at]] = children[at]
        await self._keep(files)
        return taken

    async def _keep(self, files: dict[str, FileStatus]) -> None:
        if self._files is None:
            self.found.update(files)
            if self._most is None or len(self.found) <= self._most:
                return
            self._files = Matches(ExistingEntry)
            files = {name: status for name, status in self.found.items() if not status.is_directory}
            self.found = {name: status for name, status in self.found.items() if status.is_directory}
        await self._files.note([*files], [self._told(status) for status in files.values()])

    async def keep(self, folded: str, status: FileStatus) -> None:
        """Keeps what was looked up by its name."""
        if status.is_directory:
            self.found[folded] = status
        else:
            await self._keep({folded: status})

    async def compare(self) -> None:
        """Compares the hashes of a large job; sets `unsure` to the directories to list and `take` again."""
        if self._standing is None:
            return
        self._hashes = await self._loaded.repeats.common(self._standing)
        if self._hashes:
            self.unsure = sorted(self._listed)
        await self._end_comparison()

    async def _end_comparison(self) -> None:
        standing, self._standing = self._standing, None
        if standing is not None:
            await standing.close()

    async def close(self) -> None:
        """Frees disk space. Safe to call twice."""
        await self._end_comparison()
        files, self._files = self._files, None
        if files is not None:
            await files.close()

    @property
    def any(self) -> bool:
        """Whether something may exist at a file's name."""
        return bool(self.found) or self._files is not None

    def standing_at(self, names: Iterable[str]) -> Iterable[tuple[str, FileStatus | None]]:
        """Returns each name with what exists there; only if everything is kept in memory."""
        found = self.found
        return ((name, found.get(self._folding.fold(name))) for name in names)

    async def beside(self, planned: PlannedFiles) -> AsyncIterator[tuple[str, ExistingEntry]]:
        """Yields, in the order of the files, those destinations at which something exists. Callable once."""
        if self._files is None:
            async for files in planned.batches():
                for name, status in self.standing_at(file.destination for file in files):
                    if status is not None:
                        yield name, self._told(status)
            return
        # Directories are few.
        directories: list[tuple[int, str, ExistingEntry]] = []
        number = 0
        async for files in planned.batches():
            await self._files.ask(self._asked(files, number, directories))
            number += len(files)
        at = 0
        async for turn, name, standing in self._files.answers():
            while at < len(directories) and directories[at][0] < turn:
                yield directories[at][1:]
                at += 1
            if at < len(directories) and directories[at][0] == turn:
                # Beside a virtual directory: the file counts.
                at += 1
            yield name, standing
        for _turn, name, standing in directories[at:]:
            yield name, standing

    def _asked(
        self, files: list[PlannedFile], first: int, directories: list[tuple[int, str, ExistingEntry]]
    ) -> list[Asked]:
        names = [file.destination for file in files]
        folded = self._folding.fold_all(names)
        for number, name in enumerate(folded, first) if self.found else ():
            status = self.found.get(name)
            if status is not None:
                directories.append((number, names[number - first], self._told(status)))
        among = self._hashes if self._loaded.entries is None else None
        return [
            Asked(number, text, "" if text is name else name)
            for number, (text, name) in enumerate(zip(folded, names, strict=True), first)
            if among is None or hash(text) in among
        ]

    def _told(self, status: FileStatus) -> ExistingEntry:
        entry, refuses = as_entry(status), status.refuses
        reason = "" if refuses is None else refuses.move or (refuses.link if self._linked else "")
        return ExistingEntry(entry.identity, entry.size, entry.is_directory, entry.is_link, reason)
