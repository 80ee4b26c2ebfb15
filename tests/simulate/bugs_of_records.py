"""Mutants of what a driver keeps of records on its disk: a later pass must publish what the first one proved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from committer.flow.spill import NumberedSpill
from committer.stages.load.planned_files import PlannedFiles
from tests.simulate.patches import Patches


def kept_by_turn_of_reading(patches: Patches) -> None:
    """What the disk keeps goes by when a record was read, and is taken for that of whichever record has this place."""
    add, restore = NumberedSpill.add, PlannedFiles._restore
    turns: WeakKeyDictionary[NumberedSpill[Any], Iterator[int]] = WeakKeyDictionary()

    async def add_next(self: NumberedSpill[Any], number: int, item: Any, *, weight: int) -> None:
        if self.takes_more:
            await add(self, next(turns.setdefault(self, count())), item, weight=weight)

    async def restore_all(
        self: PlannedFiles, first: int, winners: Any, found: Mapping[int, Any], linked: Any
    ) -> dict[int, Any]:
        taken = {number: kept._replace(digest=winners[number - first].digest) for number, kept in found.items()}
        return await restore(self, first, winners, taken, linked)

    patches.method(NumberedSpill, "add", add_next)
    patches.method(PlannedFiles, "_restore", restore_all)


def columns_kept_apart(patches: Patches) -> None:
    """What the disk keeps of a record says of each file where the next one goes."""
    add = NumberedSpill.add

    async def add_apart(self: NumberedSpill[Any], number: int, item: Any, *, weight: int) -> None:
        first, *others = item.entries.destinations or [""]
        entries = item.entries._replace(destinations=[*others, first] if first else [])
        await add(self, number, item._replace(entries=entries), weight=weight)

    patches.method(NumberedSpill, "add", add_apart)


OF_RECORDS: tuple[Callable[[Patches], None], ...] = (kept_by_turn_of_reading, columns_kept_apart)
