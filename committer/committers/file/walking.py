"""What a task's directory amounts to, by a walk."""

from __future__ import annotations

from committer.errors import StoreNotFoundError, TaskError
from committer.file_names import is_reserved
from committer.paths import StorePath
from committer.records.manifest import DIRECTORY_UNKNOWN, DirectoryEntry, FileEntry, TaskManifest, encode_task_manifest
from committer.stages.base import StageContext
from committer.stages.scan_task import ScanTask
from committer.stores.base import FileStatus


async def manifest_of_directory(
    context: StageContext, directory: StorePath, *, task_name: str | None = None
) -> TaskManifest:
    """The task manifest that a directory amounts to, wherever it stands.

    Empty directories are made at the destination too, as Hadoop's merge does, but for reserved ones: libraries that
    take the directory for a job's make those.

    Args:
        context: The job.
        directory: Where it stands.
        task_name: The task that commits it; the directory's name when None.

    Raises:
        TaskError: Something in it is no file and no directory; or it is gone.
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
    """The same, encoded: of one directory always the same bytes, so they tell whether it is the one that was seen.

    Raises:
        TaskError: Something in it is no file and no directory.
        StoreNotFoundError: It is gone.
    """
    try:
        return encode_task_manifest(await manifest_of_directory(context, directory, task_name=task_name))
    except TaskError as error:
        if isinstance(error.__cause__, StoreNotFoundError):
            raise error.__cause__ from error
        raise


def without_sidecars(context: StageContext, files: list[FileStatus]) -> list[FileStatus]:
    """The files but for those that hold the checksum of another: Hadoop's, of a local disk. They go with it."""
    if not context.store.capabilities.checksum_sidecars:
        return files
    paths = {status.path for status in files}
    return [status for status in files if _whose_checksum(status.path) not in paths]


def _whose_checksum(path: StorePath) -> StorePath | None:
    name = path.name
    return path.parent / name[1:-4] if name.startswith(".") and name.endswith(".crc") and len(name) > 5 else None
