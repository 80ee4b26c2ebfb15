"""Which directories can be published by one rename each, and whether that saves calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from committer.stages.names import ancestors
from committer.stages.planned_files import PlannedFile

# What a store shows of a tree in one call, about. (Azure Data Lake Storage 5,000.)
LISTED_IN_A_CALL: Final = 4_000


@dataclass(slots=True)
class Promotion:
    """A directory that may be renamed as a whole.

    Attributes:
        directory: Relative to the destination; absent there.
        owner: The name of the task attempt's directory that it is in.
        saves: How many store calls fewer than file by file.
        count: How many files it holds, and those below it.
        directories: Itself and those below it, relative to the destination.
        files: Its files, by name below it: known while it is its turn, all of one record.
    """

    directory: str
    owner: str
    saves: int
    count: int = 0
    directories: list[str] = field(default_factory=list)
    files: dict[str, PlannedFile] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """Where it is, relative to the job's `tasks` directory."""
        return f"{self.owner}/{self.directory}"


def note_owners(owners: dict[str, str], sources: list[str], destinations: list[str], counts: Collection[str]) -> None:
    """Notes for directories that a record's files go into whose they are.

    Args:
        owners: By directory the name of the one task attempt's directory that all its files lie in, under the names
            that they are to have; empty of any other directory.
        sources: The record's files, all of one task attempt.
        destinations: The same.
        counts: Their directories.
    """
    if not sources:
        return
    owner = sources[0].partition("/")[0]
    for directory in counts:
        if owners.setdefault(directory, owner) != owner:
            owners[directory] = ""
    if sources != [f"{owner}/{name}" for name in destinations]:
        # Only a file that keeps its relative name moves with its directory.
        for source, name in zip(sources, destinations, strict=True):
            if source != f"{owner}/{name}":
                owners[name.rpartition("/")[0]] = ""


def find_promotions(
    owners: Mapping[str, str],
    written: Mapping[str, int],
    directories: Collection[str],
    absent: Collection[str],
    *,
    left_out: AbstractSet[str] = frozenset(),
    listed_together: bool = False,
) -> list[Promotion]:
    """The topmost absent directories whose files all come from one task attempt, from the same place in it.

    All that is known of a job of any size is its directories, and that is enough: of one attempt means of one record,
    so a promotion's files are found together when that is read again.

    Args:
        owners: As `note_owners` notes them.
        written: How many files go into each directory.
        directories: Every directory of the job; one that no file is in keeps its parents from being promoted, because
            a rename would not make it.
        absent: Those that do not exist at the destination.
        left_out: Names of task attempts' directories that nothing is promoted from.
        listed_together: Whether no directory costs a listing of its own.
    """
    if not absent:
        return []
    trees = _owners_of_trees(owners, directories, left_out)
    weights = _weights(trees, written, 0 if listed_together else 1)
    chosen: dict[str, Promotion] = {}
    for directory in sorted(absent, key=lambda name: (name.count("/"), name)):
        owner = trees.get(directory)
        saves = weights[directory] - 1
        if owner and saves > 0 and not any(parent in chosen for parent in ancestors(directory)):
            chosen[directory] = Promotion(directory, owner, saves)
    for directory in sorted(trees):
        for above in (*ancestors(directory), directory):
            promotion = chosen.get(above)
            if promotion is not None:
                promotion.directories.append(directory)
                promotion.count += written.get(directory, 0)
                break
    return list(chosen.values())


def _owners_of_trees(
    owners: Mapping[str, str], directories: Collection[str], left_out: AbstractSet[str]
) -> dict[str, str]:
    """By directory that any file goes to or below, whose everything in it and below it is; empty where of no one."""
    trees: dict[str, str] = {}
    for directory, owner in owners.items():
        alone = "" if owner in left_out else owner
        for above in (*ancestors(directory), directory):
            if trees.setdefault(above, alone) != alone:
                trees[above] = ""
    for empty in [name for name in directories if name not in trees]:
        for directory in (empty, *ancestors(empty)):
            trees[directory] = ""
    return trees


def _weights(trees: Mapping[str, str], written: Mapping[str, int], listings: int) -> Counter[str]:
    """How many calls a rename of each tree spares, but for that rename itself: one a file, one for each directory in
    which there is no other, which makes it; less the listings of every directory.
    """
    weights: Counter[str] = Counter()
    parents = {directory.rpartition("/")[0] for directory in trees}
    for directory in trees:
        weight = written.get(directory, 0) + (directory not in parents) - listings
        for above in (*ancestors(directory), directory):
            weights[above] += weight
    return weights
