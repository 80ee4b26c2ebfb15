"""Finds the directories that can be published by one rename each, where that saves calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from committer.flow.workers import portions
from committer.records.publish_chunk import PlannedFile
from committer.stages.base import StageContext
from committer.stores.abilities import LOCAL_PATHS

# Entries of a tree that a store lists in one call, about. (Azure Data Lake Storage: 5,000.)
LISTED_IN_A_CALL: Final = 4_000


@dataclass(slots=True)
class Promotion:
    """A directory that may be renamed as a whole.

    Attributes:
        directory: Relative to the destination; absent there.
        owner: The name of the task attempt's directory that contains it.
        saves: Store calls saved, compared with file by file.
        directories: Itself and those below it, relative to the destination.
        files: Its files by relative name, all of one record; set only while it is being published.
    """

    directory: str
    owner: str
    saves: int
    count: int = 0
    directories: list[str] = field(default_factory=list)
    files: dict[str, PlannedFile] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """Path of the source relative to the job's `tasks` directory."""
        return f"{self.owner}/{self.directory}"


def may_promote(context: StageContext) -> bool:
    """Whether this job may rename whole directories."""
    # Renames must be atomic, no delayed write may reach them, and the caller must have requested it or the
    # store must be able to tell that the result is the same.
    store, layout, wanted = context.store, context.layout, context.config.promote_directories
    can_rename = store.capabilities.atomic_directory_rename and (layout.can_be_sealed or layout.is_out_of_reach)
    can_compare = store.capabilities.directory_rights and LOCAL_PATHS.of(store) is not None
    able = wanted or (wanted is None and can_compare)
    return can_rename and able and not context.forms.visible_early


def note_owners(owners: dict[str, str], sources: list[str], destinations: list[str], counts: Collection[str]) -> None:
    """Updates, for the directories `counts` that a record's files go into, which task attempt owns each."""
    # `owners` maps a directory to the one attempt whose directory contains all its files, under their final
    # names; else to the empty string.
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
    """Finds the topmost absent directories whose files all come from one task attempt, from the same place in it."""
    # One attempt means one record, so a promotion's files are found together when that is read again. Some 7
    # microseconds per directory, a thousand at a time: a job may have millions. One in `directories` without
    # files keeps its parents from being promoted, since a rename would not create it.
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
    above, slash, _name = directory.rpartition("/")
    return above if slash else None


async def _by_depth(owners: Iterable[str], directories: Iterable[str]) -> list[list[str]]:
    """Returns all these directories and their ancestors, grouped by depth, top first."""
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
    """Returns, by directory, the owner of everything in and below it, and the calls that one rename of it saves."""
    # The owner is empty if there are several, or if a directory contains nothing, which a rename would not
    # create. The calls saved, before the rename itself: one per file, one per leaf directory (which creates
    # it), less `listings` for each directory.
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
