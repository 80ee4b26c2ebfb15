"""Lists the records under tasks' names."""

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

# Part of the name of a record that `AbortTask` has moved while it reads which attempt's it is.
ABORTED = "-aborted"


def aborted_suffix(layout: JobLayout) -> str:
    """Returns the suffix of the name of a record that `AbortTask` has moved."""
    return f"{ABORTED}{layout.record_suffix}.tmp"


def aborted_name(layout: JobLayout, attempt_id: str) -> str:
    """Returns the name to which `AbortTask` moves a record of this attempt."""
    return f"{layout.hidden}{attempt_id}{aborted_suffix(layout)}"


def aborted_attempt(layout: JobLayout, name: str) -> str:
    """Returns the task attempt in such a name."""
    return name.removeprefix(layout.hidden).removesuffix(aborted_suffix(layout))


async def list_manifests(context: StageContext) -> list[RecordRef]:
    """Lists the records by name, or raises `JobNotFoundError` if their directory is missing; one call per page."""
    # Other names are skipped. A task that commits later may replace a listed record, so a job commit copies
    # what it reads.
    layout = context.layout
    directory = layout.manifests
    store = context.holding(directory)
    try:
        listed = {child.path: child.size async for child in store.list(directory)}
    except (StoreNotFoundError, StoreNotADirectoryError) as error:
        if store.capabilities.directories:
            # Never created again: another program may have deleted it with tasks' records, and a commit would
            # publish none of their files.
            raise no_directory(layout, directory, "list_manifests") from error
        listed = {}
    for path in [path for path in listed if path.name.endswith(aborted_suffix(layout))]:
        restored = await _put_back_taken(context, path, directory)
        if restored is not None:
            listed[restored] = listed[path]
    found = sorted(path for path in listed if layout.is_record(path.name))
    return [RecordRef(layout.record_name(path), length=listed[path]) for path in found]


def no_directory(layout: JobLayout, directory: StorePath, operation: str) -> JobNotFoundError:
    """Builds the error of a missing directory in that of a job."""
    return JobNotFoundError(
        f"job {layout.job_id} has no {directory.name} directory: it was cleaned up, by itself or by a Hadoop "
        "committer that deletes all of _temporary",
        operation=operation,
        path=directory,
        next_step="run the job again; nothing was published",
    )


async def _put_back_taken(context: StageContext, taken: StorePath, directory: StorePath) -> StorePath | None:
    """Finishes an `AbortTask` that died: restores a record that it moved by mistake, of another attempt of the task."""
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
