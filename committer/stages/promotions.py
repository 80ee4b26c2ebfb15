"""Which directories can be published by one rename each, and whether that saves calls."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from committer.stages.names import ancestors
from committer.stages.planned_files import PlannedFile


@dataclass(slots=True)
class Promotion:
    """A directory that may be renamed as a whole.

    Attributes:
        directory: Relative to the destination; absent there.
        owner: The name of the task attempt's directory that it is in.
        files: Its files, by name below it.
        directories: Itself and those below it, relative to the destination.
    """

    directory: str
    owner: str
    files: dict[str, PlannedFile] = field(default_factory=dict)
    directories: list[str] = field(default_factory=list)

    @property
    def source(self) -> str:
        """Where it is, relative to the job's `tasks` directory."""
        return f"{self.owner}/{self.directory}"

    @property
    def saves(self) -> int:
        """How many store calls fewer than file by file.

        That makes every directory in which there is no other, and renames each file; this lists every directory, and
        renames one.
        """
        parents = {directory.rpartition("/")[0] for directory in self.directories}
        made = len(self.directories) - len(parents.intersection(self.directories))
        return len(self.files) + made - len(self.directories) - 1


@dataclass(slots=True)
class _Tree:
    """What the job publishes in a directory and below it; without an owner where that is not one attempt's alone."""

    owner: str
    directories: list[str] = field(default_factory=list)


def find_promotions(
    entries: list[PlannedFile],
    directories: Collection[str],
    absent: Collection[str],
    *,
    left_out: AbstractSet[str] = frozenset(),
) -> list[Promotion]:
    """The topmost absent directories whose files all come from one task attempt, from the same place in it.

    Args:
        entries: Every file of the job.
        directories: Every directory of the job; one that no file is in keeps its parents from being promoted, because
            a rename would not make it.
        absent: Those that do not exist at the destination.
        left_out: Names of task attempts' directories that nothing is promoted from.
    """
    if not absent:
        return []
    files, trees = _by_directory(entries, left_out)
    for empty in directories:
        if empty not in trees:
            for directory in (empty, *ancestors(empty)):
                trees.setdefault(directory, _Tree("")).owner = ""
    chosen: dict[str, Promotion] = {}
    for directory in sorted(absent, key=lambda name: (name.count("/"), name)):
        tree = trees.get(directory)
        if tree is None or not tree.owner or any(parent in chosen for parent in ancestors(directory)):
            continue
        within = [below for below in tree.directories if below in files]
        promotion = Promotion(directory, tree.owner, directories=sorted(tree.directories))
        for below in within:
            promotion.files.update((file.destination[len(directory) + 1 :], file) for file in files[below])
        if promotion.saves > 0:
            chosen[directory] = promotion
    return list(chosen.values())


def _by_directory(
    entries: list[PlannedFile], left_out: AbstractSet[str]
) -> tuple[dict[str, list[PlannedFile]], dict[str, _Tree]]:
    """Files by the directory they go to, and every directory below the destination that any file goes to or below."""
    files: dict[str, list[PlannedFile]] = {}
    owners: dict[str, str] = {}
    for file in entries:
        name = file.destination
        directory = name[: max(name.rfind("/"), 0)]
        attempt, _slash, staged = file.source.partition("/")
        # Only a file that keeps its relative name moves with its directory.
        owner = attempt if staged == name and attempt not in left_out else ""
        some = files.get(directory)
        if some is None:
            files[directory], owners[directory] = [file], owner
        else:
            some.append(file)
            if owners[directory] != owner:
                owners[directory] = ""
    trees: dict[str, _Tree] = {}
    for directory, owner in owners.items():
        for above in (*ancestors(directory), directory):
            tree = trees.setdefault(above, _Tree(owner))
            if tree.owner != owner:
                tree.owner = ""
    for directory in trees:
        for above in (*ancestors(directory), directory):
            trees[above].directories.append(directory)
    return files, trees
