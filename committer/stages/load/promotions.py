"""Which directories can be published by one rename each, and whether that saves calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from committer.flow.workers import portions
from committer.stages.base import StageContext
from committer.stages.load.planned_files import PlannedFile
from committer.stores.directory_abilities import DIRECTORY_RIGHTS

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


def may_promote(context: StageContext) -> bool:
    """Whether this job may rename whole directories: they are renamed in one step, no late write reaches them, and the
    caller asked for it or the store can tell that the result is the same.
    """
    store, layout, wanted = context.store, context.layout, context.config.promote_directories
    can_rename = store.capabilities.atomic_directory_rename and (layout.can_be_sealed or layout.is_out_of_reach)
    able = wanted or (wanted is None and DIRECTORY_RIGHTS.of(store) is not None)
    return can_rename and able and not context.forms.visible_early


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


async def find_promotions(
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

    Some 7 microseconds a directory, a thousand at a time: a job may have millions.

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
    levels = await _by_depth(owners, directories)
    trees, weights = await _rolled_up(levels, owners, written, left_out, 0 if listed_together else 1)
    inside: dict[str, Promotion] = {}
    chosen: list[Promotion] = []
    for level in levels:
        async for some in portions(level):
            for directory in some:
                promotion = inside.get(directory.rpartition("/")[0])
                if promotion is None and trees[directory] and weights[directory] > 1 and directory in absent:
                    promotion = Promotion(directory, trees[directory], weights[directory] - 1)
                    chosen.append(promotion)
                if promotion is not None:
                    inside[directory] = promotion
                    promotion.directories.append(directory)
                    promotion.count += written.get(directory, 0)
    return chosen


def _parent(directory: str) -> str | None:
    """The directory that one lies in; None of one at the top."""
    above, slash, _name = directory.rpartition("/")
    return above if slash else None


async def _by_depth(owners: Iterable[str], directories: Iterable[str]) -> list[list[str]]:
    """All these directories and those that they lie in, by how many are above: parents first."""
    seen: set[str] = set()
    levels: list[list[str]] = []
    async for some in portions(chain(owners, directories)):
        for directory in some:
            above: str | None = directory
            while above is not None and above not in seen:
                seen.add(above)
                depth = above.count("/")
                while len(levels) <= depth:
                    levels.append([])
                levels[depth].append(above)
                above = _parent(above)
    return levels


async def _rolled_up(
    levels: Sequence[Sequence[str]],
    owners: Mapping[str, str],
    written: Mapping[str, int],
    left_out: AbstractSet[str],
    listings: int,
) -> tuple[dict[str, str], dict[str, int]]:
    """Of each directory whose all is that is in it and below it, and how many calls one rename of it spares.

    The owner is empty where there is more than one, or where a directory holds nothing: a rename would not make that.
    Of the calls the rename itself is not taken off yet: they are one a file, one for each directory in which there is
    no other, which makes it, less the listings of every directory.

    Args:
        levels: As `_by_depth` has them.
        owners: As `note_owners` notes them.
        written: How many files go into each directory.
        left_out: Owners that count as none.
        listings: How many calls list a directory.
    """
    trees: dict[str, str] = {}
    weights: dict[str, int] = {}
    async for owned in portions(owners.items()):
        for directory, owner in owned:
            trees[directory] = "" if owner in left_out else owner
    for level in reversed(levels):
        async for some in portions(level):
            for directory in some:
                leaf = directory not in weights
                weight = weights.get(directory, 0) + written.get(directory, 0) + leaf - listings
                weights[directory] = weight
                tree = trees.setdefault(directory, "")
                above = _parent(directory)
                if above is not None:
                    weights[above] = weights.get(above, 0) + weight
                    if trees.setdefault(above, tree) != tree:
                        trees[above] = ""
    return trees, weights
