"""Mutants of what the engine does until a job is decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from committer.errors import CommitterError
from committer.layout import MANIFEST_SUFFIX
from committer.paths import StorePath
from committer.records.job_state import is_of
from committer.stages.base import StageContext
from committer.stages.commit_task import CommitTask
from committer.stages.decide import DecideCommit
from committer.stages.job_stands import is_set_up_anew
from committer.stages.listed_records import freeze_manifests
from committer.stages.other_setup import is_anew
from committer.stages.own_records import read_outcome
from committer.stages.preflight import Conflicts, Preflight
from committer.stages.record_refs import RecordRef
from committer.stages.release_lock import release_lock
from committer.stages.replace_lock import TakeReplaceLock, lock_owner
from committer.stores.base import Store
from committer.stores.helpers import Created, create_or_read
from tests.simulate.patches import Patches, create_by_put


def skip_preflight(patches: Patches) -> None:
    """Nothing is checked before the decision."""

    async def execute(self: Preflight, value: object) -> Conflicts:
        return Conflicts([], [])

    patches.method(Preflight, "execute", execute)


def manifest_deleted_before_rename(patches: Patches) -> None:
    """A task's earlier record is deleted before the new one is put in its place (Hadoop does)."""
    original = CommitTask.execute

    async def execute(self: CommitTask, value: Any) -> Any:
        if self.context.spec.delivery == "listing":
            await self.context.store.delete_file(self.context.layout.manifest(value.identity.task))
        return await original(self, value)

    patches.method(CommitTask, "execute", execute)


def listing_trusted(patches: Patches) -> None:
    """Where messages name the winners, the last record listed of each task wins all the same."""
    from committer.committers.preparing import find_refs

    async def listed(context: StageContext, task_commits: object, tasks: object, *, freeze: bool) -> list[RecordRef]:
        if context.spec.delivery == "listing":
            return await find_refs(context, None, None, freeze=freeze)
        last: dict[str, str] = {}
        async for child in context.store.list(context.layout.attempts):
            name = child.path.name
            if name.endswith(MANIFEST_SUFFIX):
                task = name.partition("-")[0].rpartition("_")[0]
                last[task] = max(name, last.get(task, ""))
        prefix = context.layout.attempts.relative_to(context.layout.job_directory)
        return [RecordRef(f"{prefix}/{name}") for _task, name in sorted(last.items())]

    patches.function(find_refs, listed)


def no_freeze(patches: Patches) -> None:
    """What was listed can be replaced until the job is over."""

    async def freeze(context: StageContext) -> bool:
        return False

    patches.function(freeze_manifests, freeze)


def replace_lock_ignored(patches: Patches) -> None:
    """A replacing job takes no lock, and no job looks for one."""

    async def execute(self: TakeReplaceLock, value: None) -> None:
        return

    async def no_owner(context: StageContext) -> None:
        return

    patches.method(TakeReplaceLock, "execute", execute)
    patches.function(lock_owner, no_owner)


def unfinished_neighbours_ignored(patches: Patches) -> None:
    """A replacing job takes no notice of jobs that have an outcome, whatever they have yet to do."""
    original = getattr(TakeReplaceLock, "_in_the_way")  # noqa: B009

    async def in_the_way(self: TakeReplaceLock, other: Any) -> Any:
        if await read_outcome(self.context.store, other) is not None:
            return None
        return await original(self, other)

    patches.method(TakeReplaceLock, "_in_the_way", in_the_way)


def lock_deleted_blindly(patches: Patches) -> None:
    """A driver that ends its job, or withdraws, deletes the replace lock, another job's too."""

    async def release(context: StageContext, *, driver: str | None = None) -> None:
        await context.store.delete_file(context.layout.replace_lock)

    patches.function(release_lock, release)


def decision_not_exclusive(patches: Patches) -> None:
    """The last driver to decide wins."""
    create_by_put(patches, "decision")


def decided_after_publishing(patches: Patches) -> None:
    """Files are published before the decision is made (from what the records say, as a driver would)."""
    original = DecideCommit.execute

    async def execute(self: DecideCommit, value: Any) -> Any:
        from committer.stages.planned_files import PlannedFiles

        store, layout = self.context.store, self.context.layout
        async for file in PlannedFiles(self.context, value.winners, None, in_order=value.identities):
            target = layout.destination / file.destination
            try:
                await store.make_directory(target.parent, parents=True)
                await store.rename_file(layout.tasks / file.source, target, identity=file.identity)
            except CommitterError:
                continue
        return await original(self, value)

    patches.method(DecideCommit, "execute", execute)


def setup_name_ignored(patches: Patches) -> None:
    """A driver goes by every record under its job's id, whatever setup of that id it is of."""

    async def never(context: StageContext, children: object) -> bool:
        return False

    async def not_anew(store: object, layout: object, found: object = None) -> bool:
        return False

    patches.function(is_of, lambda record, setup: True)
    patches.function(is_anew, never)
    patches.function(is_set_up_anew, not_anew)


def loser_keeps_its_winners(patches: Patches) -> None:
    """A driver that finds its job decided by another one publishes what it chose itself."""

    async def create(store: Store, path: StorePath, data: bytes, **options: Any) -> Created:
        found = await create_or_read(store, path, data, **options)
        commits = b'"decision": "commit"'
        return Created(data) if path.name == "decision" and commits in data and commits in found.data else found

    patches.function(create_or_read, create)


BEFORE_DECISION: tuple[Callable[[Patches], None], ...] = (
    skip_preflight,
    manifest_deleted_before_rename,
    listing_trusted,
    no_freeze,
    replace_lock_ignored,
    unfinished_neighbours_ignored,
    lock_deleted_blindly,
    decision_not_exclusive,
    decided_after_publishing,
    setup_name_ignored,
    loser_keeps_its_winners,
)
