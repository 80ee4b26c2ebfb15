"""Leaving nothing in the directory of a task attempt but what it finished."""

from __future__ import annotations

from committer.committers.file.walking import without_sidecars
from committer.errors import StoreNotEmptyError, TaskError
from committer.flow.workers import run_workers
from committer.stages.base import StageContext
from committer.stages.names import ancestors
from committer.stages.scan_task import ScanTask
from committer.stages.task_output import TaskOutput
from committer.stores.base import FileStatus


async def tidy(context: StageContext, output: TaskOutput, *, operation: str) -> None:
    """Deletes what the attempt did not finish: what stands there is what it commits.

    One listing for each directory, and a call for each stray.

    Raises:
        TaskError: What it finished is gone, or is not what it was when it was closed.
    """
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
