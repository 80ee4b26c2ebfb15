"""Mutants of how whole directories are published: what writes on into them must not come along."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from committer.errors import StoreError, StoreNotFoundError
from committer.stages.load.promotions import Promotion
from committer.stages.publish.promote import PromoteDirectories, SealTasks, sealed_layout
from committer.stores.base import FileStatus
from committer.stores.helpers import walk
from tests.simulate.patches import Patches


def nothing_is_sealed(patches: Patches) -> None:
    """Directories are listed, and renamed, where task attempts write."""
    patches.function(sealed_layout, lambda context: context.layout)


def listing_before_the_seal(patches: Patches) -> None:
    """A directory is renamed from where no task attempt writes, but by what it held before it was moved there."""
    seen: dict[str, dict[str, FileStatus]] = {}
    original = SealTasks.execute

    async def execute(self: SealTasks, value: Any) -> None:
        root, found = self.context.layout.recorded_tasks, seen.setdefault(self.context.driver, {})
        try:
            async for status in walk(self.context.store, root):
                if not status.is_directory:
                    found[status.path.relative_to(root)] = status
        except StoreNotFoundError:
            found.clear()
        await original(self, value)

    async def exact(self: PromoteDirectories, _root: Any, promotions: list[Promotion]) -> list[Promotion]:
        found = seen.get(self.context.driver, {})
        return [one for one in promotions if _below(one.source, found) == one.files.keys()]

    patches.method(SealTasks, "execute", execute)
    patches.method(PromoteDirectories, "_exact", exact)


def _below(source: str, names: Iterable[str]) -> set[str]:
    return {name[len(source) + 1 :] for name in names if name.startswith(f"{source}/")}


def promoted_with_a_stray(patches: Patches) -> None:
    """A directory is renamed as a whole if it holds the committed files, whatever else it holds."""

    async def holding(self: PromoteDirectories, root: Any, promotions: list[Promotion]) -> list[Promotion]:
        tasks = self.context.layout.tasks
        try:
            found = {status.path.relative_to(tasks) async for status in walk(self.context.store, root)}
        except StoreError:
            return []
        return [one for one in promotions if one.files.keys() <= _below(one.source, found)]

    patches.method(PromoteDirectories, "_exact", holding)


OF_DIRECTORIES: tuple[Callable[[Patches], None], ...] = (
    nothing_is_sealed,
    listing_before_the_seal,
    promoted_with_a_stray,
)
