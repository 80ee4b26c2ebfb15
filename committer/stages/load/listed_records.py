"""Records under their tasks' names, listed."""

from __future__ import annotations

from committer.errors import (
    JobNotFoundError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.layout import JobLayout
from committer.paths import StorePath
from committer.stages.base import RecordRef, StageContext
from committer.stores.helpers import move_file

# What `AbortTask` names a record it has taken while it looks whose it is.
ABORTED = "-aborted"


def aborted_suffix(layout: JobLayout) -> str:
    """How the name of a record ends that `AbortTask` has taken, while it looks whose it is."""
    return f"{ABORTED}{layout.record_suffix}.tmp"


def aborted_name(layout: JobLayout, attempt_id: str) -> str:
    """What `AbortTask` names a record of this attempt that it has taken."""
    return f"{layout.hidden}{attempt_id}{aborted_suffix(layout)}"


def aborted_attempt(layout: JobLayout, name: str) -> str:
    """The task attempt in such a name."""
    return name.removeprefix(layout.hidden).removesuffix(aborted_suffix(layout))


async def list_manifests(context: StageContext) -> list[RecordRef]:
    """The records by name, as a listing finds them; one call a page.

    Names that are not a record's are passed over. A task that commits later may replace what is listed, so a job commit
    copies what it reads.

    Raises:
        JobNotFoundError: Their directory is not there.
    """
    layout = context.layout
    directory = layout.manifests
    store = context.holding(directory)
    try:
        listed = {child.path: child.size async for child in store.list(directory)}
    except (StoreNotFoundError, StoreNotADirectoryError) as error:
        if store.capabilities.directories:
            # Never made again: another program may have deleted it with the records of tasks, and a commit would
            # publish none of their files.
            raise no_directory_of_records(layout, "list_manifests") from error
        listed = {}
    for path in [path for path in listed if path.name.endswith(aborted_suffix(layout))]:
        restored = await _put_back_taken(context, path, directory)
        if restored is not None:
            listed[restored] = listed[path]
    found = sorted(path for path in listed if layout.is_record(path.name))
    return [RecordRef(layout.record_name(path), length=listed[path]) for path in found]


def no_directory_of_records(layout: JobLayout, operation: str) -> JobNotFoundError:
    """The error where the directory of a job's records is missing."""
    return JobNotFoundError(
        f"job {layout.job_id} has no {layout.manifests.name} directory: it was cleaned up, by itself or by a Hadoop "
        "committer that deletes all of _temporary",
        operation=operation,
        path=layout.manifests,
        next_step="run the job again; nothing was published",
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
