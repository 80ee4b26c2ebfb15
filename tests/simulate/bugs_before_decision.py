"""Mutants of what the engine does until a job is decided."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from committer.errors import CommitterError, StoreNotFoundError
from committer.layout import MANIFEST_SUFFIX, DirectoryName, JobLayout
from committer.paths import StorePath
from committer.stages.base import RecordRef, StageContext
from committer.stages.check.preflight import Conflicts, Preflight
from committer.stages.decide import entries
from committer.stages.decide.decide import DecideCommit
from committer.stages.decide.entries import Scope, drop_entries, refuse_neighbours, scope_of
from committer.stages.load.load_records import LoadRecords
from committer.stages.setup.setup_job import SetupJob, exists_error
from committer.stages.state.job_directory import JobDirectory, list_job_directories
from committer.stages.state.job_liveness import has_setup
from committer.stages.state.own_records import read_outcome
from committer.stages.task.commit_task import CommitTask
from committer.stores.base import Store
from committer.stores.helpers import create_exclusively
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

    async def listed(context: StageContext, task_commits: object, tasks: object, *, taking: bool) -> list[RecordRef]:
        if context.spec.delivery == "listing":
            return await find_refs(context, None, None, taking=taking)
        last: dict[str, str] = {}
        async for child in context.store.list(context.layout.attempts):
            name = child.path.name
            if name.endswith(MANIFEST_SUFFIX):
                task = name.partition("-")[0].rpartition("_")[0]
                last[task] = max(name, last.get(task, ""))
        prefix = context.layout.attempts.relative_to(context.layout.job_directory)
        return [RecordRef(f"{prefix}/{name}") for _task, name in sorted(last.items())]

    patches.function(find_refs, listed)


def no_copies(patches: Patches) -> None:
    """What was listed can be replaced until the job is over."""
    original = LoadRecords.__init__

    def without(self: LoadRecords, context: StageContext, *, copies: bool = False) -> None:
        original(self, context)

    patches.method(LoadRecords, "__init__", without)


def entries_ignored(patches: Patches) -> None:
    """No job looks at the entries of the others."""

    async def nothing(context: StageContext, scope: Scope) -> None:
        return

    patches.function(refuse_neighbours, nothing)


def unfinished_neighbours_ignored(patches: Patches) -> None:
    """A job takes no notice of jobs that have an outcome, whatever they have yet to do."""

    async def is_live(store: Store, layout: JobLayout) -> bool:
        return await read_outcome(store, layout) is None and await live(store, layout)

    live = getattr(entries, "_is_live")  # noqa: B009
    patches.function(live, is_live)


def entry_deleted_before_the_directory(patches: Patches) -> None:
    """A driver that carries a decision out deletes its entry first."""
    original = DecideCommit.execute

    async def execute(self: DecideCommit, value: Any) -> Any:
        decided = await original(self, value)
        await drop_entries(self.context)
        return decided

    patches.method(DecideCommit, "execute", execute)


def narrow_scope(patches: Patches) -> None:
    """An entry says nothing of the subtrees that its job replaces."""
    scope = scope_of

    def narrow(*arguments: Any) -> Scope:
        return Scope(scope(*arguments).writes)

    patches.function(scope_of, narrow)


def decision_not_exclusive(patches: Patches) -> None:
    """The last driver to decide wins."""
    create_by_put(patches, "decision")


def decided_after_publishing(patches: Patches) -> None:
    """Files are published before the decision is made (from what the records say, as a driver would)."""
    original = DecideCommit.execute

    async def execute(self: DecideCommit, value: Any) -> Any:
        from committer.stages.load.planned_files import PlannedFiles

        store, layout = self.context.store, self.context.layout
        async for file in PlannedFiles(self.context, value.decision.winners, None, value.identities):
            target = layout.destination / file.destination
            try:
                await store.make_directory(target.parent, parents=True)
                await store.rename_file(layout.tasks / file.source, target, identity=file.identity)
            except CommitterError:
                continue
        return await original(self, value)

    patches.method(DecideCommit, "execute", execute)


def id_set_up_beside_a_live_job(patches: Patches) -> None:
    """A setup takes no notice of a job of its id that is live, or keeps its outcome."""

    async def nothing(self: SetupJob) -> None:
        return

    patches.method(SetupJob, "_refuse_others", nothing)


def others_listed_first(patches: Patches) -> None:
    """A setup looks for other jobs of its id before it makes its own directory."""
    make = SetupJob._make_directory

    async def look_then_make(self: SetupJob) -> None:
        layout = self.context.layout
        found: list[DirectoryName] = []
        with suppress(StoreNotFoundError):
            found = await list_job_directories(self.context.store, layout.temporary, layout.job_id)
        for other in found:
            state = None if other.suffix else await self._state_of(other)
            if state is not None:
                raise exists_error(layout, state, operation=self.name)
        await make(self)

    async def nothing(self: SetupJob) -> None:
        return

    patches.method(SetupJob, "_make_directory", look_then_make)
    patches.method(SetupJob, "_refuse_others", nothing)


def opened_not_exclusive(patches: Patches) -> None:
    """Of several processes that settle whether a job is open, the last one wins."""
    create_by_put(patches, "opened")


def unopened_directories_passed_over(patches: Patches) -> None:
    """A directory that was never opened is taken for closed, and not closed."""

    async def create(store: Store, path: StorePath, data: bytes, **options: Any) -> bytes:
        closes = path.name == "opened" and b'"closed"' in data
        return data if closes else await create_exclusively(store, path, data, **options)

    patches.function(create_exclusively, create)


def setup_record_not_looked_for(patches: Patches) -> None:
    """A driver does not look whether its job still exists once it created the decision or the outcome."""

    async def is_there(context: StageContext, found: JobDirectory | None = None) -> bool:
        return found is None or await has_setup(context, found)

    patches.function(has_setup, is_there)


def loser_keeps_its_winners(patches: Patches) -> None:
    """A driver that finds its job decided by another one publishes what it chose itself."""

    async def create(store: Store, path: StorePath, data: bytes, **options: Any) -> bytes:
        found = await create_exclusively(store, path, data, **options)
        commits = b'"decision": "commit"'
        return data if path.name == "decision" and commits in data and commits in found else found

    patches.function(create_exclusively, create)


BEFORE_DECISION: tuple[Callable[[Patches], None], ...] = (
    skip_preflight,
    manifest_deleted_before_rename,
    listing_trusted,
    no_copies,
    entries_ignored,
    unfinished_neighbours_ignored,
    entry_deleted_before_the_directory,
    narrow_scope,
    decision_not_exclusive,
    decided_after_publishing,
    id_set_up_beside_a_live_job,
    others_listed_first,
    opened_not_exclusive,
    unopened_directories_passed_over,
    setup_record_not_looked_for,
    loser_keeps_its_winners,
)
