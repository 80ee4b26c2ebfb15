"""Lists the directory of a task attempt as a task manifest."""

from __future__ import annotations

from committer.errors import StoreNotEmptyError, StoreNotFoundError, TaskError
from committer.file_names import is_reserved
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.records.manifest import DIRECTORY_UNKNOWN, DirectoryEntry, FileEntry, TaskManifest, encode_task_manifest
from committer.stages.base import StageContext, TaskOutput
from committer.stages.check.foreign_metadata import checksummed
from committer.stages.names import ancestors
from committer.stages.task.attempt_files import ScanTask
from committer.stores.base import FileStatus


async def manifest_of_directory(
    context: StageContext, directory: StorePath, *, task_name: str | None = None
) -> TaskManifest:
    """Builds the task manifest of a directory.

    Empty directories count, as in Hadoop's merge; reserved ones do not: some libraries take this for a job's
    directory.
    """
    layout = context.layout
    task = task_name or directory.name
    files, directories = await ScanTask(context).run(directory)
    named = [(status, status.path.relative_to(directory)) for status in without_sidecars(context, files)]
    return TaskManifest(
        jobId=layout.job_id,
        jobAttemptNumber=layout.job_attempt,
        taskID=task,
        taskAttemptDir=(layout.recorded_tasks / task).uri,
        files=[
            FileEntry(
                s=(layout.recorded_tasks / task / name).uri,
                d=layout.target(name).uri,
                z=status.size,
                e=status.identity,
                v=status.version,
            )
            for status, name in named
        ],
        directories=[
            DirectoryEntry(d=layout.target(name).uri, t=DIRECTORY_UNKNOWN, l=name.count("/") + 1)
            for path in directories
            if not is_reserved(name := path.relative_to(directory))
        ],
    )


async def record_of_directory(context: StageContext, directory: StorePath, *, task_name: str | None = None) -> bytes:
    """Returns the encoded manifest of a directory: equal bytes mean the same content."""
    try:
        return encode_task_manifest(await manifest_of_directory(context, directory, task_name=task_name))
    except TaskError as error:
        if isinstance(error.__cause__, StoreNotFoundError):
            raise error.__cause__ from error
        raise


def without_sidecars(context: StageContext, files: list[FileStatus]) -> list[FileStatus]:
    """Returns the files without Hadoop's checksum files of local disks, which move with their files."""
    if not context.store.capabilities.checksum_sidecars:
        return files
    paths = {status.path for status in files}
    owners = ((status, checksummed(status.path.name)) for status in files)
    return [status for status, owner in owners if not owner or status.path.parent / owner not in paths]


async def tidy(context: StageContext, output: TaskOutput, *, operation: str) -> None:
    """Deletes files that the attempt did not finish, and checks the others: the directory is what it commits."""
    store, workers = context.store, context.config.io_concurrency
    files, directories = await ScanTask(context).run(output.directory)
    found = {status.path.relative_to(output.directory): status for status in without_sidecars(context, files)}
    for file in output.files:
        status = found.pop(file.name, None)
        if status is None or status.size != file.size or status.identity != file.identity:
            what = "is gone from" if status is None else "is not what was written to"
            raise TaskError(
                f"{file.name} {what} the task attempt directory: the attempt was aborted, or another process works in "
                "it",
                operation=operation,
                path=output.directory / file.name,
                next_step="run the task again as a new attempt",
            )
    if not found:
        return

    async def delete(status: FileStatus) -> None:
        await store.delete_file(status.path)

    await run_workers(found.values(), delete, workers=workers, operation=operation)
    kept = {*output.directories}
    for file in output.files:
        kept.update(ancestors(file.name))
    for path in sorted(directories, key=lambda path: -path.path.count("/")):
        if path.relative_to(output.directory) not in kept:
            try:
                await store.delete_directory(path, recursive=False)
            except StoreNotEmptyError:
                continue
