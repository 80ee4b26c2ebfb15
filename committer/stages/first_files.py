"""Whether the files that task records name still stand, before the job is decided."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from committer.audit import audit
from committer.flow.workers import run_workers
from committer.stages.base import StageContext
from committer.stages.block_files import MARK
from committer.stages.identity import may_be_file_of
from committer.stages.load_records import MOST_PROBLEMS, LoadedRecords, LoadRecords
from committer.stages.planned_file import PlannedFile
from committer.stages.planned_files import PlannedFiles
from committer.stores.block_ends import blocks_wait
from committer.stores.helpers import status_or_none
from committer.stores.upload_ends import is_pending

# The service drops blocks a week after the last one of a name was sent; it and this machine may have other clocks.
_MAY_EXPIRE_S: Final = 6 * 24 * 3600.0


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


async def look_at_blocks(context: StageContext, files: PlannedFiles) -> list[str]:
    """The files whose blocks are gone and at whose destinations something stands, one sentence each: a look each.

    Who made a file there since the blocks were sent dropped them. Found out after the decision, it would leave a job
    that replaced other files already and can only go forward.
    """
    if not context.store.capabilities.block_lists:
        return []
    problems: list[str] = []

    async def look(file: PlannedFile) -> None:
        if file.stood is not None:
            problem = await _blocks_problem(context, "its task's record", file)
            if problem and len(problems) < MOST_PROBLEMS:
                problems.append(problem)

    with audit(st=LoadRecords.name):
        await run_workers(files, look, workers=context.config.io_concurrency, operation=LoadRecords.name)
    return sorted(problems)


async def _problem(context: StageContext, record: str, first: PlannedFile) -> str:
    store, layout = context.store, context.layout
    if first.upload is not None:
        target = layout.target(first.destination)
        if store.capabilities.block_lists:
            return await _problem_of_run(context, record, first)
        if store.capabilities.multipart and await is_pending(store, target, first.upload.id):
            return ""
        return f"the uploads of {record} are gone: its task attempt was aborted, or a lifecycle rule ended them"
    status = await status_or_none(store, layout.tasks / first.source)
    if status is None or status.is_directory:
        return f"the files of {record} are gone: its task attempt was aborted, or deleted"
    return "" if may_be_file_of(status, first) else f"{first.source} is not the file that {record} speaks of"


async def _problem_of_run(context: StageContext, record: str, first: PlannedFile) -> str:
    """What is wrong with a run that sent blocks: the look is for its mark, for an abort can delete nothing else."""
    mark = await status_or_none(context.store, context.layout.tasks / first.source.partition("/")[0] / MARK)
    if mark is None or mark.is_directory:
        return f"the mark of {record} is gone: its task attempt was aborted, or deleted"
    old = mark.modified is None or context.runtime.now().timestamp() - mark.modified > _MAY_EXPIRE_S
    return await _blocks_problem(context, record, first) if old else ""


async def _blocks_problem(context: StageContext, record: str, file: PlannedFile) -> str:
    if file.upload is None or await blocks_wait(
        context.store, context.layout.target(file.destination), file.upload.etags
    ):
        return ""
    return (
        f"blocks of {file.destination} are gone, which {record} names: another writer made a file under that name, or "
        "they were a week old"
    )
