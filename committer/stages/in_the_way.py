"""What stands where a job publishes its files, found while directories are listed."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from committer.file_names import is_reserved
from committer.flow.repeats import Repeats
from committer.stages.load_records import LoadedRecords
from committer.stages.names import NameFolding
from committer.stores.base import Capabilities, FileStatus


class InTheWay:
    """Compares what listings show with the names of a job's files.

    Where the job's entries are kept in memory, by their names. Of a larger job only hashes are compared, all at once on
    the driver's disk when everything was listed; the directories are listed again if two are equal.

    Args:
        capabilities: What the store takes for one name.
        loaded: What the records say.

    Attributes:
        found: What stands there, by folded name; also what was asked for by its name.
        unsure: Directories that are to be listed again, after `compare`.
    """

    def __init__(self, capabilities: Capabilities, loaded: LoadedRecords) -> None:
        self.found: dict[str, FileStatus] = {}
        self.unsure: list[str] = []
        self._folding = NameFolding(capabilities)
        self._loaded = loaded
        self._names: set[str] | None = None
        self._hashes: set[int] = set()
        self._standing: Repeats | None = None if loaded.entries is not None else Repeats()
        self._listed: set[str] = set()

    async def take(self, directory: str, names: list[str], children: list[FileStatus]) -> AbstractSet[int]:
        """Keeps of a directory's children what stands at a file's name.

        Args:
            directory: A directory that the job writes to.
            names: Its children, by their whole names.
            children: The same.

        Returns:
            Which of them that are, by index; empty where that is not known yet.
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
        for at in taken:
            if children[at].is_directory:
                # A file of the same name can stand beside it where directories are not real, and counts.
                self.found.setdefault(folded[at], children[at])
            else:
                self.found[folded[at]] = children[at]
        return taken

    def ask(self, folded: str, status: FileStatus) -> None:
        """Keeps what was asked for by its name."""
        self.found[folded] = status

    async def compare(self) -> None:
        """Compares hashes, where there are only those; `unsure` says what to list and `take` once more."""
        if self._standing is None:
            return
        self._hashes = await self._loaded.repeats.common(self._standing)
        if self._hashes:
            self.unsure = sorted(self._listed)
        await self.close()

    async def close(self) -> None:
        """Frees what the driver's disk holds. Safe to call twice."""
        standing, self._standing = self._standing, None
        if standing is not None:
            await standing.close()

    def standing_at(self, names: Iterable[str]) -> Iterable[tuple[str, FileStatus | None]]:
        """What stands at each of some names, with the name."""
        found = self.found
        return ((name, found.get(self._folding.fold(name))) for name in names)
