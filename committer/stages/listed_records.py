"""Records under their tasks' names: put out of reach of late tasks, and listed."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from committer.advice import COMMIT_AGAIN
from committer.errors import (
    CommitterError,
    JobNotFoundError,
    JobStateError,
    StoreConflictError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    UnsupportedError,
)
from committer.flow.workers import run_workers
from committer.layout import JobLayout
from committer.paths import StorePath
from committer.stages.base import Frozen, StageContext
from committer.stages.commit_state import looking_again
from committer.stages.record_refs import RecordRef, can_freeze
from committer.stores.helpers import children_of, move_file, status_or_none

# What `AbortTask` names a record it has taken while it looks whose it is.
ABORTED = "-aborted"

_PLACE_TAKEN: Final = b"No records: only that none may arrive here late.\n"

# Another driver of the job may do the same, or undo it.
_TRIES: Final = 5


class FrozenAgainError(JobStateError):
    """Each time that records were brought back another driver of the job froze them again."""


def aborted_suffix(layout: JobLayout) -> str:
    """How the name of a record ends that `AbortTask` has taken, while it looks whose it is."""
    return f"{ABORTED}{layout.record_suffix}.tmp"


def aborted_name(layout: JobLayout, attempt_id: str) -> str:
    """What `AbortTask` names a record of this attempt that it has taken."""
    return f"{layout.hidden}{attempt_id}{aborted_suffix(layout)}"


def aborted_attempt(layout: JobLayout, name: str) -> str:
    """The task attempt in such a name."""
    return name.removeprefix(layout.hidden).removesuffix(aborted_suffix(layout))


async def freeze_manifests(context: StageContext) -> bool:
    """Puts the listing out of reach of late tasks: `manifests` becomes `manifests-frozen`, one call.

    A job commit that died after the freeze left it done; a `manifests` that stands beside the frozen one was made
    again by a late task attempt (seen with Hadoop 3.5.0) and is never read. With `durability="fsync"` the new name is
    synced right before the decision, the first that rests on it (`DecideCommit`).

    After a commit that was refused 3 calls more: what `unfreeze_manifests` left makes room.

    Returns:
        False where the store cannot rename a directory atomically; nothing was done then.

    Raises:
        JobNotFoundError: Neither directory is there.
    """
    if not can_freeze(context):
        return False
    return await looking_again(lambda: _freeze(context))


async def _freeze(context: StageContext) -> bool:
    layout, store = context.layout, context.store
    for tries_left in reversed(range(_TRIES)):
        try:
            # Not looked for first: where it stands already, the rename refuses to replace it.
            await store.rename_directory(layout.manifests, layout.manifests_frozen)
        except UnsupportedError:
            # A disk says so only when it is tried; from now on the store's capabilities say it too. Another machine may
            # have been able to.
            return await is_frozen(context)
        except CommitterError as error:
            # A lost answer, or another driver of this job: what counts is what stands there now.
            if await is_frozen(context):
                return True
            if isinstance(error, StoreExistsError) and tries_left:
                with suppress(StoreIsADirectoryError):
                    await store.delete_file(layout.manifests_frozen)
                continue
            if isinstance(error, StoreNotFoundError):
                # Never made again, though a driver may have died that had to (`_bring_back`): another program may have
                # deleted it with the records of tasks, and a commit would publish none of their files.
                raise JobNotFoundError(
                    f"job {layout.job_id} has no manifests directory: it was cleaned up, by itself or by a Hadoop "
                    "committer that deletes all of _temporary",
                    operation="freeze_manifests",
                    path=layout.manifests,
                    next_step="run the job again; nothing was published",
                ) from error
            raise
        return True
    raise AssertionError("the last try returns or raises")


async def is_frozen(context: StageContext) -> bool:
    """Whether the listing is out of reach of late tasks: one call.

    A file of that name only keeps it: see `unfreeze_manifests`.
    """
    found = await status_or_none(context.store, context.layout.manifests_frozen)
    return found is not None and found.is_directory


async def unfreeze_manifests(context: StageContext) -> None:
    """Undoes the freeze of a job that stays undecided.

    A task that committed meanwhile may have made `manifests` again (Hadoop's do): then its newer records first replace
    the frozen ones, so that at every moment one directory holds a record of every task.

    A request to freeze may come late, or a second time, and so may one that moves such a newer record. They would hide
    the records of tasks from the next commit that commit after it. So a file keeps the name `manifests-frozen` until
    that commit: such requests fail.

    Cost: 4 calls; 2 more a late record.

    Raises:
        FrozenAgainError: Each time that they were brought back another driver froze them again: they may be frozen now,
            and then what tasks commit does not count.
    """
    if not can_freeze(context):
        return
    for _try in range(_TRIES):
        if await is_frozen(context):
            await _bring_back(context)
        # Else another driver froze the records, or a request that came late.
        if await _keep_name(context):
            return
    layout = context.layout
    raise FrozenAgainError(
        f"the records of job {layout.job_id} stay frozen, where no task can commit any more: they were brought back "
        f"{_TRIES} times, and another driver froze them again each time",
        operation="unfreeze_manifests",
        path=layout.manifests_frozen,
        next_step=f"find out which other driver commits job {layout.job_id}, and have it stop",
    )


async def _bring_back(context: StageContext) -> None:
    layout, store = context.layout, context.store
    try:
        await store.rename_directory(layout.manifests_frozen, layout.manifests)
        return
    except (StoreNotFoundError, StoreNotADirectoryError):
        return
    except StoreExistsError:
        if not await is_frozen(context):
            # Another driver has brought them back, or this call, whose first answer was lost: no record is a late one.
            return
    except StoreOutcomeUnknownError:
        if not await is_frozen(context):
            return
    try:
        await _bring_in_late(context)
        await store.rename_directory(layout.manifests_frozen, layout.manifests)
    except CommitterError:
        if await is_frozen(context):
            raise
        # Another driver brought them back meanwhile. Where it brought none, this one may have deleted their directory.
        await _make_again(context)


async def _make_again(context: StageContext) -> None:
    """Makes the directory of records, where none is there: one call. Nothing where the job is gone."""
    with suppress(StoreNotFoundError, StoreExistsError):
        await context.store.make_directory(context.layout.manifests, parents=False)


async def _bring_in_late(context: StageContext) -> None:
    """Moves the records of late tasks to the frozen ones, whom they replace, and deletes their directory."""
    layout, store = context.layout, context.store
    late = [child.path for child in await children_of(store, layout.manifests)]

    async def bring_in(record: StorePath) -> None:
        # Where it is gone, another driver that undoes the freeze has moved it.
        with suppress(StoreNotFoundError):
            await store.rename_file(record, layout.manifests_frozen / record.name, replace=True)

    await run_workers(late, bring_in, workers=context.config.io_concurrency, operation="unfreeze_manifests")
    with suppress(StoreNotFoundError):
        await store.delete_directory(layout.manifests, recursive=False)


async def _keep_name(context: StageContext) -> bool:
    """Has a file keep the name `manifests-frozen`; False where a directory has it, or had a moment ago.

    The file is made apart, and moved. A move that comes late, or a second time, finds it gone. A request that makes it
    in its place would make it again there, once a later commit has taken it away.

    It is made in the job's directory: where a write makes directories, it would make that of the drivers again once the
    job is over. So the move is refused then, and what was made goes again.

    Cost: 2 calls; after a refusal, or a lost answer, at least 2 more.
    """
    store, layout = context.store, context.layout
    place, apart = layout.manifests_frozen, layout.job_directory / f"taken-{context.runtime.nonce()}"
    moved = False

    async def move() -> None:
        await store.put(apart, _PLACE_TAKEN)
        await move_file(store, apart, place)

    try:
        # Where a try came whose answer was lost, the next one is refused.
        await looking_again(move)
        moved = True
    except (StoreExistsError, StoreNotFoundError, StoreConflictError, StoreOutcomeUnknownError) as error:
        # A conflict is a put of a lost answer that came again, late: the next try makes a file of another name.
        standing = await status_or_none(store, place)
        if standing is None and isinstance(error, StoreOutcomeUnknownError):
            raise
        # Where nothing is there, nothing can arrive any more.
        return isinstance(error, StoreNotFoundError) if standing is None else not standing.is_directory
    finally:
        if not moved:
            with suppress(CommitterError):
                await store.delete_file(apart)
    return True


async def list_manifests(context: StageContext, frozen: Frozen) -> list[RecordRef]:
    """The records by name: those that the freeze saw, else what a listing finds; one call a page.

    Names that are not a record's are passed over.

    Raises:
        StoreNotFoundError: Their directory is not there: another driver of the job undid the freeze, or froze them.
    """
    layout = context.layout
    directory = layout.manifests_frozen if frozen.done else layout.manifests
    if frozen.names is not None:
        return [
            RecordRef(layout.record_name(directory / name)) for name in sorted(filter(layout.is_record, frozen.names))
        ]
    store = context.holding(directory)
    try:
        listed = {child.path: child.size async for child in store.list(directory)}
    except (StoreNotFoundError, StoreNotADirectoryError) as error:
        if store.capabilities.directories:
            raise _not_listed(context, directory, frozen) from error
        listed = {}
    for path in [path for path in listed if path.name.endswith(aborted_suffix(layout))]:
        restored = await _put_back_taken(context, path, directory)
        if restored is not None:
            listed[restored] = listed[path]
    found = sorted(path for path in listed if layout.is_record(path.name))
    return [RecordRef(layout.record_name(path), length=listed[path]) for path in found]


def _not_listed(context: StageContext, directory: StorePath, frozen: Frozen) -> StoreNotFoundError:
    """The error where another driver of the job moved the records between this one's look, or freeze, and listing."""
    job_id = context.layout.job_id
    if frozen.done:
        what = f"the frozen records of job {job_id} are not there any more: another driver of it was refused meanwhile"
        what, step = f"{what}, and undid the freeze", COMMIT_AGAIN
    else:
        what = f"the records of job {job_id} are not there any more: another driver of it began to commit it meanwhile"
        step = "make the call again; if it fails in the same way, the job's setup did not end: abort the job"
    return StoreNotFoundError(
        f"{what}, or the job was removed",
        operation="list_manifests",
        path=directory,
        next_step=f"{step}; nothing was published",
    )


async def _put_back_taken(context: StageContext, taken: StorePath, directory: StorePath) -> StorePath | None:
    """Finishes an `AbortTask` that died: puts back a record that it took by mistake, of another attempt of the task."""
    store = context.holding(taken)
    data = await store.read(taken, limit=context.config.record_size_limit)
    manifest = context.forms.decode_task(context, taken, data)
    layout = context.layout
    if taken.name == aborted_name(layout, manifest.taskAttemptID):
        return None
    record = directory / f"{manifest.taskID}{layout.record_suffix}"
    try:
        await move_file(store, taken, record)
    except StoreExistsError:
        return None
    return record
