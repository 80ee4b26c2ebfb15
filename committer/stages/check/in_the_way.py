"""What stands where a job publishes its files, found while directories are listed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from committer.file_names import is_reserved
from committer.flow.matches import Asked, Matches
from committer.flow.repeats import HashFilter, Repeats
from committer.stages.identity import as_entry
from committer.stages.load.load_records import LoadedRecords
from committer.stages.load.planned_files import PlannedFile, PlannedFiles
from committer.stages.names import NameFolding
from committer.stores.base import Capabilities, FileStatus

STANDING_IN_MEMORY: Final = 25_000
"""Files that stand there and are kept, some 600 bytes each; more go to the driver's disk."""


class Standing(NamedTuple):
    """What stands at a name.

    Attributes:
        identity: Its identity; None where the store has none, and for a directory.
        size: Bytes.
        is_directory: Whether it is a directory, not a link to one.
        is_link: Whether it is a link.
        refuses: Why it cannot make way; empty where nothing is known to be against it.
    """

    identity: str | None
    size: int
    is_directory: bool
    is_link: bool
    refuses: str


class InTheWay:
    """Compares what listings show with the names of a job's files.

    Where the job's entries are kept in memory, by their names. Of a larger job only hashes are compared, all at once on
    the driver's disk when everything was listed; the directories are listed again if two are equal.

    Args:
        capabilities: What the store takes for one name.
        loaded: What the records say.
        keep_all: Whether what is found stays in memory, however much it is.

    Attributes:
        found: What stands there, by folded name, and also what was asked for by its name; files as long as they are
            few, directories always.
        unsure: Directories that are to be listed again, after `compare`.
    """

    def __init__(self, capabilities: Capabilities, loaded: LoadedRecords, *, keep_all: bool = False) -> None:
        self.found: dict[str, FileStatus] = {}
        self.unsure: list[str] = []
        self._folding = NameFolding(capabilities)
        # Before another file takes its name, a file is linked aside; a directory is moved.
        self._linked = capabilities.hard_links
        self._loaded = loaded
        self._most = None if keep_all else STANDING_IN_MEMORY
        self._names: set[str] | None = None
        self._hashes: set[int] | HashFilter = set()
        self._standing: Repeats | None = None if loaded.entries is not None else Repeats()
        self._listed: set[str] = set()
        self._files: Matches[Standing] | None = None

    async def take(self, directory: str, names: list[str], children: list[FileStatus]) -> AbstractSet[int]:
        """Keeps of a directory's children what stands at a file's name.

        Args:
            directory: A directory that the job writes to.
            names: Its children, by their whole names.
            children: The same.

        Returns:
            Which of them that are, by index; empty where that is not known yet.

        Raises:
            CommitterError: The disk did not take them.
        """
        folded = self._folding.fold_all(names)
        if self._standing is not None:
            self._listed.add(directory)
            await self._standing.add(folded)
            return frozenset()
        if self._names is None and self._loaded.entries is not None:
            # Only for a directory that stands: a job whose directories are all new has none to compare.
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
                # A file of the same name can stand beside it where directories are not real, and counts.
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
            self._files = Matches(Standing)
            files = {name: status for name, status in self.found.items() if not status.is_directory}
            self.found = {name: status for name, status in self.found.items() if status.is_directory}
        await self._files.note([*files], [self._told(status) for status in files.values()])

    async def keep(self, folded: str, status: FileStatus) -> None:
        """Keeps what was asked for by its name.

        Raises:
            CommitterError: The disk did not take it.
        """
        if status.is_directory:
            self.found[folded] = status
        else:
            await self._keep({folded: status})

    async def compare(self) -> None:
        """Compares hashes, where there are only those; `unsure` says what to list and `take` once more."""
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
        """Frees what the driver's disk holds. Safe to call twice."""
        await self._end_comparison()
        files, self._files = self._files, None
        if files is not None:
            await files.close()

    @property
    def any(self) -> bool:
        """Whether something may stand at a file's name."""
        return bool(self.found) or self._files is not None

    def standing_at(self, names: Iterable[str]) -> Iterable[tuple[str, FileStatus | None]]:
        """What stands at each of some names, with the name; only where all is kept in memory."""
        found = self.found
        return ((name, found.get(self._folding.fold(name))) for name in names)

    async def beside(self, planned: PlannedFiles) -> AsyncIterator[tuple[str, Standing]]:
        """The files at whose destinations something stands, by these names, in their order. Once.

        Raises:
            CommitterError: The disk failed.
        """
        if self._files is None:
            async for files in planned.batches():
                for name, status in self.standing_at(file.destination for file in files):
                    if status is not None:
                        yield name, self._told(status)
            return
        # Directories are few.
        directories: list[tuple[int, str, Standing]] = []
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
                # Beside a directory that is none: the file counts.
                at += 1
            yield name, standing
        for _turn, name, standing in directories[at:]:
            yield name, standing

    def _asked(self, files: list[PlannedFile], first: int, directories: list[tuple[int, str, Standing]]) -> list[Asked]:
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

    def _told(self, status: FileStatus) -> Standing:
        entry, refuses = as_entry(status), status.refuses
        reason = "" if refuses is None else refuses.move or (refuses.link if self._linked else "")
        return Standing(entry.identity, entry.size, entry.is_directory, entry.is_link, reason)
