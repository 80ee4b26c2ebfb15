"""Checks the files that task records name: whether they exist, and their identities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from committer.errors import StoreNotADirectoryError, StoreNotFoundError
from committer.flow.workers import run_workers
from committer.logs import audit
from committer.records.job_state import Fact
from committer.records.publish_chunk import PlannedFile
from committer.stages.base import Stage, StageContext
from committer.stages.durability import pages
from committer.stages.identity import may_be_file_of
from committer.stages.load.load_records import MOST_PROBLEMS, LoadedRecords, LoadRecords
from committer.stages.load.planned_files import PlannedFiles
from committer.stages.task.sent_files import MARK
from committer.stores.base import FileStatus
from committer.stores.helpers import blocks_wait, is_pending, status_or_none

# The service drops blocks a week after the last one of a name was sent; one day less allows for its clock.
_MAY_EXPIRE_S: Final = 6 * 24 * 3600.0


async def look_at_first_files(context: StageContext, loaded: LoadedRecords) -> list[str]:
    """Returns a sentence for each record whose task attempt was aborted: one call per record."""
    # An attempt that goes on after its abort commits files that are gone, which would show only half way
    # through publishing. Its first file is its oldest, and no abort deletes others without it. No call for a
    # committer with `visible_early`; there each file is checked.
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
    """Returns a sentence for each file whose blocks are gone and whose destination exists: one call each."""
    # A writer that created that file since then dropped the blocks. After the decision this would leave a job
    # that has replaced other files already and cannot roll back.
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
    """Returns the problem if the mark of a task attempt is gone, which an abort deletes, or its blocks expired."""
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


# Most sources, missing or changed, that are reported.
_MOST_CHANGED: Final = 100

# Files that are looked up in one batch, about.
_TOGETHER: Final = 10_000


class LookUpIdentities(Stage[LoadedRecords, None]):
    """The stage that lists the source directories of entries without identity (Java's on a local disk have none).

    A source that is missing or has another length is reported, since it would show only half way through publishing.

    Preconditions: records are loaded.
    Postconditions: if the store has identities, `LoadedRecords.identities` has a fact for each such entry, in the
    order of the job's files; entries in memory have their identity.
    Cost: one listing per directory. Memory: a batch of records; facts on the driver's disk if there are many.
    """

    name = "job_stage_look_up_identities"

    async def execute(self, value: LoadedRecords) -> None:
        """Lists for one batch of records at a time."""
        planned = PlannedFiles(self.context, value.winners, value.entries, on_disk=value.on_disk)
        async for files in planned.batches():
            for some in _by_attempts(file for file in files if file.identity is None):
                await self._look_up(value, some)

    async def _look_up(self, value: LoadedRecords, lacking: list[PlannedFile]) -> None:
        found = await self._list(lacking)
        for file in lacking:
            status = found.get(file.source)
            if status is None or status.is_directory:
                problem = "is gone"
            elif status.size != file.size:
                problem = f"has {status.size} bytes, its record says {file.size}"
            else:
                file.identity = status.identity
                continue
            if len(value.changed) < _MOST_CHANGED:
                value.changed.append(f"the source of {file.destination} {problem}")
        if self.context.store.capabilities.identity:
            await value.identities.add([Fact("identity", file.source, file.identity) for file in lacking])

    async def _list(self, files: Iterable[PlannedFile]) -> dict[str, FileStatus]:
        tasks, wanted = self.context.layout.tasks, {file.source for file in files}
        found: dict[str, FileStatus] = {}

        async def look(directory: str) -> None:
            try:
                async for some in pages(self.context.store, tasks / directory):
                    for child in some:
                        name = f"{directory}/{child.path.name}"
                        if name in wanted:
                            found[name] = child
            except (StoreNotFoundError, StoreNotADirectoryError):
                return

        directories = sorted({source.rpartition("/")[0] for source in wanted})
        await self.run_workers(directories, look)
        return found


def _by_attempts(files: Iterable[PlannedFile]) -> Iterator[list[PlannedFile]]:
    """Yields files in batches that do not split a task attempt: no directory contains files of two."""
    run: list[PlannedFile] = []
    attempt = ""
    for file in files:
        of = file.source.partition("/")[0]
        if len(run) >= _TOGETHER and of != attempt:
            yield run
            run = []
        attempt = of
        run.append(file)
    if run:
        yield run
