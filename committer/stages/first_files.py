"""Whether the files that task records name still stand, before the job is decided."""

from __future__ import annotations

from collections.abc import Iterable

from committer.audit import audit
from committer.flow.workers import run_workers
from committer.stages.base import StageContext
from committer.stages.identity import may_be_file_of
from committer.stages.load_records import LoadedRecords, LoadRecords
from committer.stages.planned_files import PlannedFile
from committer.stores.helpers import status_or_none
from committer.stores.upload_ends import is_pending


async def look_at_first_files(context: StageContext, loaded: LoadedRecords) -> list[str]:
    """The records whose task attempts were aborted, one sentence each: one look a record.

    An attempt that goes on although it was aborted commits files that are gone, which would be found out only half way
    through publishing. Its first file is its oldest, and speaks for all: an abort takes no other without it.

    No look for a committer whose files stand at their destinations already; there each is looked at.
    """
    if context.forms.visible_early:
        return []

    problems: list[str] = []

    async def look(named: tuple[str, PlannedFile]) -> None:
        problem = await _problem(context, *named)
        if problem:
            problems.append(problem)

    firsts: Iterable[tuple[str, PlannedFile]] = loaded.first_files.items()
    with audit(st=LoadRecords.name):
        await run_workers(firsts, look, workers=context.config.io_concurrency, operation=LoadRecords.name)
    loaded.first_files.clear()
    return sorted(problems)


async def _problem(context: StageContext, record: str, first: PlannedFile) -> str:
    store, layout = context.store, context.layout
    if first.upload is not None:
        target = layout.target(first.destination)
        if store.capabilities.multipart and await is_pending(store, target, first.upload.id):
            return ""
        return f"the uploads of {record} are gone: its task attempt was aborted, or a lifecycle rule ended them"
    status = await status_or_none(store, layout.tasks / first.source)
    if status is None or status.is_directory:
        return f"the files of {record} are gone: its task attempt was aborted, or deleted"
    return "" if may_be_file_of(status, first) else f"{first.source} is not the file that {record} speaks of"
