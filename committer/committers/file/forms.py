"""The records of a job by listing of algorithm 1: the directories that tasks committed, read by a walk."""

from __future__ import annotations

from typing import cast

from committer.committers.file.giving_back import put_back
from committer.committers.file.layout import CommittedLayout, FileLayout
from committer.committers.file.taking import take
from committer.committers.file.walking import record_of_directory
from committer.paths import StorePath
from committer.stages.base import RecordRef, StageContext
from committer.stages.manifest_forms import ManifestForms
from committer.stores.base import FileStatus
from committer.stores.helpers import children_of


class FileForms(ManifestForms):
    """What stands in the directory of a task is what the task committed: Hadoop's driver goes by nothing else.

    A decision rests on copies: the manifests that the directories amount to.
    """

    takes_records: bool = True
    names_directories: bool = False

    async def read(self, context: StageContext, path: StorePath) -> bytes:
        """One listing for each directory of a task's; one read for a copy.

        Of one directory the bytes are always the same, wherever it stands: they tell whether a task committed again.
        """
        layout = layout_of(context)
        if not layout.is_directory_of_task(path):
            return await super().read(context, path)
        return await record_of_directory(context, path)

    async def list_records(self, context: StageContext, *, taking: bool) -> list[RecordRef]:
        """The directory of each task; taking, one rename a task and three listings more."""
        layout = layout_of(context)
        if taking:
            names = await take(context, layout)
        else:
            names = {child.path.name for child in await children_of(context.store, layout.tasks)}
            if not names:
                return await super().list_records(context, taking=False)
        records = sorted(filter(layout.is_record, names))
        return [RecordRef(layout.record_name(layout.tasks / name)) for name in records]

    async def give_back(self, context: StageContext) -> None:
        """One rename a task."""
        await put_back(context, layout_of(context))

    async def outside(self, context: StageContext) -> list[FileStatus]:
        """Its tasks' directories, and its task attempts': two listings."""
        return await outside_of(context, layout_of(context))


async def outside_of(context: StageContext, layout: FileLayout) -> list[FileStatus]:
    """What the directories that jobs share hold of a job, its task attempts first: one that is gone commits no more."""
    places = (layout.runs, layout.application_attempt)
    found = [child for place in places for child in await children_of(context.store, place)]
    return [child for child in found if is_of_job(layout, child.path.name)]


def layout_of(context: StageContext) -> CommittedLayout:
    """The job's layout, as algorithm 1 has it for a job by listing."""
    return cast("CommittedLayout", context.layout)


def is_of_job(layout: FileLayout, name: str) -> bool:
    """Whether a directory of that name is of one of the job's tasks, or task attempts, this engine's or Hadoop's."""
    if layout.is_task(name) or layout.task_replaced(name) is not None:
        return True
    task, underscore, attempt = name.removeprefix(layout.attempt_stem).partition("_")
    number = attempt.partition("-")[0]
    return name.startswith(layout.attempt_stem) and bool(underscore) and task.isdecimal() and number.isdecimal()
