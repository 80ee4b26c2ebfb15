"""The directory entries of a task's record."""

from __future__ import annotations

from committer.errors import StoreNotFoundError
from committer.flow.workers import run_workers
from committer.records.manifest import (
    DIRECTORY_IS_DIRECTORY,
    DIRECTORY_IS_FILE,
    DIRECTORY_NOT_FOUND,
    DIRECTORY_UNKNOWN,
    DirectoryEntry,
)
from committer.stages.base import StageContext
from committer.stages.names import with_ancestors
from committer.stages.task_output import TaskOutput


async def destination_directories(context: StageContext, output: TaskOutput) -> list[DirectoryEntry]:
    """Every directory the task's files need, parents first, with what stands there if a Java driver will trust it.

    A Python driver looks for itself, once for all tasks, so the status is written as unknown and nothing is asked.
    With `hadoop_driver` each directory whose parent exists is looked at, as ``TaskAttemptScanDirectoryStage`` does:
    one call each, level by level.
    """
    layout = context.layout
    wanted = {file.destination.rpartition("/")[0] for file in output.files} | set(output.directories)
    wanted = with_ancestors(wanted, layout.roots)
    statuses = dict.fromkeys(wanted, DIRECTORY_UNKNOWN)
    if context.config.hadoop_driver and context.forms.names_directories:
        await _probe(context, statuses)
    ordered = sorted(wanted, key=lambda name: (name.count("/"), name))
    return [DirectoryEntry(d=layout.target(name).uri, t=statuses[name], l=name.count("/") + 1) for name in ordered]


async def _probe(context: StageContext, statuses: dict[str, int]) -> None:
    async def look(name: str) -> None:
        try:
            status = await context.store.status(context.layout.target(name))
        except StoreNotFoundError:
            statuses[name] = DIRECTORY_NOT_FOUND
        else:
            statuses[name] = DIRECTORY_IS_DIRECTORY if status.is_directory else DIRECTORY_IS_FILE

    deepest = max((name.count("/") for name in statuses), default=-1)
    for level in range(deepest + 1):
        asked = []
        for name in statuses:
            if name.count("/") != level:
                continue
            parent = name.rpartition("/")[0]
            # A root outside the destination is none of them; it stands, as the destination does.
            if parent and statuses.get(parent, DIRECTORY_IS_DIRECTORY) != DIRECTORY_IS_DIRECTORY:
                statuses[name] = DIRECTORY_NOT_FOUND
            else:
                asked.append(name)
        await run_workers(asked, look, workers=context.config.io_concurrency, operation="probe_directories")
