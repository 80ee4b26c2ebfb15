"""PromoteDirectories: publishes a whole directory by one rename where that cannot make anything else visible."""

from __future__ import annotations

from dataclasses import dataclass, field

from committer.errors import StoreError
from committer.flow.workers import run_workers
from committer.stages.base import Stage
from committer.stages.identity import is_file_of, stands_as_directory
from committer.stages.names import ancestors
from committer.stages.planned_files import PlannedFile
from committer.stores.base import FileStatus
from committer.stores.helpers import walk

# Below this many files a listing costs about as much as renaming them one by one.
FEWEST_FILES = 4


@dataclass(slots=True)
class Promotion:
    """A directory that may be renamed as a whole.

    Attributes:
        directory: Relative to the destination; absent there.
        source: Relative to the job's `tasks` directory.
        files: Its files, by name below `source`.
    """

    directory: str
    source: str
    files: dict[str, PlannedFile] = field(default_factory=dict)


class PromoteDirectories(Stage[list[Promotion], list[Promotion]]):
    """Renames directories that one task attempt alone wrote and that are absent at the destination.

    Such a directory holds whatever the attempt left in it, so it is listed first and must hold exactly the committed
    files: no other file, link, pipe or directory. (Java's checksums come along with the files they belong to.) Any
    other answer than success leaves the directory to `PublishFiles`, which looks at each file, so a lost answer needs
    no recovery of its own.

    What the attempt's own writer makes after it committed, between listing and rename, comes along and is visible: an
    attempt that may do that must not be promoted. A listing after the rename could not tell it from a file that
    another job published there, and a recoverer would not know of it (docs/decisions, 4).

    Preconditions: the decision stands; directories are renamed atomically; their parents stand (`CreateDirectories`).
    Postconditions: the promotions returned are in place, each file of them the one that was committed.
    Cost: one listing a directory in it, one rename.
    """

    name = "job_stage_promote_directories"

    async def execute(self, value: list[Promotion]) -> list[Promotion]:
        """Promotes many at once; returns those that succeeded."""
        done: list[Promotion] = []

        async def promote(promotion: Promotion) -> None:
            if await self._promote(promotion):
                done.append(promotion)
                self.context.progress.advance(len(promotion.files))

        await run_workers(value, promote, workers=self.context.config.io_concurrency, operation=self.name)
        return done

    async def _promote(self, promotion: Promotion) -> bool:
        layout, store = self.context.layout, self.context.store
        source = layout.tasks / promotion.source
        target = layout.destination / promotion.directory
        try:
            if not await self._holds_exactly(promotion):
                return False
            await store.rename_directory(source, target)
        except StoreError:
            return False
        return True

    async def _holds_exactly(self, promotion: Promotion) -> bool:
        root = self.context.layout.tasks / promotion.source
        needed = {directory for name in promotion.files for directory in ancestors(name)}
        seen: dict[str, FileStatus] = {}
        async for status in walk(self.context.store, root):
            name = status.path.relative_to(root)
            if not stands_as_directory(status):
                seen[name] = status
            elif name not in needed:
                return False
        return seen.keys() == promotion.files.keys() and all(
            is_file_of(seen[name], file) for name, file in promotion.files.items()
        )


def find_promotions(entries: list[PlannedFile], directories: list[str], absent: set[str]) -> list[Promotion]:
    """The topmost absent directories whose files all come from one task attempt, from the same place in it.

    Args:
        entries: Every file of the job.
        directories: Every directory of the job; one that no file is in keeps its parents from being promoted, because
            a rename would not make it.
        absent: Those that do not exist at the destination.
    """
    owners: dict[str, set[str]] = {}
    below: dict[str, int] = {}
    for file in entries:
        attempt, _slash, name = file.source.partition("/")
        # Only a file that keeps its relative name moves with its directory.
        owner = attempt if name == file.destination else ""
        for directory in ancestors(file.destination):
            owners.setdefault(directory, set()).add(owner)
            below[directory] = below.get(directory, 0) + 1
    for empty in set(directories) - set(owners):
        for directory in (empty, *ancestors(empty)):
            owners.setdefault(directory, set()).add("")
    chosen: dict[str, Promotion] = {}
    for directory in sorted(absent, key=lambda name: (name.count("/"), name)):
        of = owners.get(directory, {""})
        if len(of) != 1 or "" in of or below[directory] < FEWEST_FILES:
            continue
        if not any(parent in chosen for parent in ancestors(directory)):
            chosen[directory] = Promotion(directory, f"{next(iter(of))}/{directory}")
    for file in entries:
        for parent in ancestors(file.destination):
            if parent in chosen:
                chosen[parent].files[file.destination[len(parent) + 1 :]] = file
                break
    return list(chosen.values())
