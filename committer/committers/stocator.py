"""The committer stocator: tasks write objects whose names hold the attempt; `_SUCCESS` lists the winners."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NoReturn

from committer.committers.actions import PublishAction, UploadAction, needs_of
from committer.committers.base import Committer
from committer.errors import RecordError, StoreError, StoreNotFoundError, UnsupportedError
from committer.file_names import unique_name
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.flow.together import both
from committer.flow.workers import run_workers
from committer.layout import TEMPORARY
from committer.options.config import CommitterConfig
from committer.paths import StorePath
from committer.records.job_state import Decision, Winner
from committer.records.pending_uploads import ListedUpload
from committer.records.publish_chunk import PlannedFile
from committer.spec import JobSpec
from committer.stages.base import AttemptIdentity, RecordForms, StageContext, WrittenFile
from committer.stages.decide.commit_state import CommitState
from committer.stages.finish.validate_output import ValidateOutput
from committer.stages.load.manifest_forms import ManifestForms, contained, end_uploads, parts_of_list
from committer.stages.load.planned_files import decode_record, read_winner
from committer.stages.publish.move_aside import SetAsideSuccess
from committer.stages.publish.publish import Published
from committer.stages.state.own_records import read_decision, read_outcome, read_setup
from committer.stages.task.abort_task import AbortRequest, AbortTask
from committer.stages.task.attempt_files import AttemptFiles
from committer.stages.task.sent_files import ListBeingWritten
from committer.stages.undo.roll_back import RollBack, RollBackUploads
from committer.stores.base import FileStatus, FileWriter
from committer.stores.helpers import status_or_none
from committer.stores.uploads import UPLOADS

_OPERATION = "delete_objects"


async def objects_of(context: StageContext, run: StorePath) -> list[StorePath]:
    """Returns the objects that a run's list names and that contain the run: one listing, and a read for each part."""
    layout, found = context.layout, set[StorePath]()
    async for part in parts_of_list(context, run):
        found.update(layout.target(listed.name) for listed in contained(context, run, part))
    return sorted((path for path in found if f"-{run.name}" in path.name), key=str)


async def pending_at(context: StageContext, paths: Iterable[StorePath]) -> list[tuple[StorePath, str]]:
    """Returns path and id of pending uploads to these paths: one listing for each directory."""
    wanted = set(paths)
    found: list[tuple[StorePath, str]] = []
    if not context.store.capabilities.multipart:
        return found

    async def look(directory: StorePath) -> None:
        uploads = UPLOADS.required(context.store, "list_uploads", directory)
        found.extend([(up.path, up.upload_id) async for up in uploads.list_uploads(directory) if up.path in wanted])

    directories = {path.parent for path in wanted}
    await run_workers(directories, look, workers=context.config.io_concurrency, operation=_OPERATION)
    return found


async def delete_objects(context: StageContext, paths: Iterable[StorePath]) -> None:
    """Ends uploads to these paths, then deletes the objects. Only one run uses such names."""
    wanted = list(paths)
    await end_uploads(context, await pending_at(context, wanted))
    await run_workers(wanted, context.store.delete_file, workers=context.config.io_concurrency, operation=_OPERATION)


async def losing_runs(context: StageContext, runs: list[StorePath]) -> list[StorePath]:
    """Returns the runs whose output does not count: three reads, and one for each winner that ran more than once."""
    store, layout = context.store, context.layout
    ended = both(read_decision(store, layout), read_outcome(store, layout))
    try:
        _setup, (decision, outcome) = await both(read_setup(store, layout), ended)
    except (StoreNotFoundError, RecordError):
        # The job is over; or records that cannot be read do not prove that a run lost.
        return []
    if outcome is not None and outcome.outcome == "rolled-back":
        return runs
    if decision is None:
        return []
    if decision.decision == "abort":
        return runs if outcome is None else []
    return await _but_winners(context, decision, runs)


async def _but_winners(context: StageContext, decision: Decision, runs: list[StorePath]) -> list[StorePath]:
    winners = {winner.task_attempt: winner for winner in decision.winners if winner.files}
    by_attempt: dict[str, list[StorePath]] = {}
    for run in runs:
        by_attempt.setdefault(run.name.rpartition("-")[0], []).append(run)
    lost: list[StorePath] = []

    async def sort(item: tuple[str, list[StorePath]]) -> None:
        attempt, of_attempt = item
        winner = winners.get(attempt)
        if winner is None:
            lost.extend(of_attempt)
        elif len(of_attempt) > 1:
            won = await _run_of(context, winner)
            lost.extend(run for run in of_attempt if won and run.name != won)

    await run_workers(by_attempt.items(), sort, workers=context.config.io_concurrency, operation=_OPERATION)
    return sorted(lost, key=str)


async def _run_of(context: StageContext, winner: Winner) -> str:
    """Returns the run that wrote a winner's files; empty if its record cannot be read any more."""
    try:
        data = await read_winner(context, winner)
        sources = decode_record(context, winner.record, data)[1].sources
    except (StoreNotFoundError, RecordError):
        return ""
    return sources[0].partition("/")[0] if sources else ""


MOST_FILES: Final = 1_000_000
"""The most files of a job: `_SUCCESS` names each of them, in some 200 bytes, and is written in one call."""


class DirectForms(ManifestForms):
    """Record format of task manifests whose objects are at their destinations; `_SUCCESS` names all that won."""

    visible_early: bool = True
    filenames_limit: int = MOST_FILES
    names_all: bool = True

    async def outside(self, context: StageContext) -> list[FileStatus]:
        """Finds the objects of runs that lost: one listing, 3 reads, and for each run its list and a look an object."""
        found: list[FileStatus] = []
        runs = await self.upload_lists(context)
        lost = await losing_runs(context, runs) if runs else []
        paths: list[StorePath] = []

        async def read(run: StorePath) -> None:
            paths.extend(await objects_of(context, run))

        async def look(path: StorePath) -> None:
            status = await status_or_none(context.store, path)
            if status is not None and not status.is_directory:
                found.append(status)

        workers = context.config.io_concurrency
        await run_workers(lost, read, workers=workers, operation="find_losers")
        await run_workers(paths, look, workers=workers, operation="find_losers")
        return found

    async def uploads_in(self, context: StageContext, place: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
        """Yields pending uploads of a dead writer's long files that the run's list names."""
        if place.parent.name == context.layout.uploads.name:
            for upload in await pending_at(context, await objects_of(context, place)):
                yield upload


OBJECT: Final = "object"
"""Placeholder of an upload's id in the list of objects."""


class DirectFiles(AttemptFiles):
    """Files that are objects at the destination as soon as they are closed.

    ``a=1/p-0.csv`` is the object ``a=1/p-0-attempt_<job>_m_000000_0-<nonce>.csv``: Stocator's form, with the nonce
    added, so that two runs of one attempt id never share a name.

    Opening one costs 2 calls: its name is listed in the job's directory, then the job is checked. Files that
    are opened at the same time share both. So either a decided job finds every object listed, or the task
    attempt finds the job decided, or gone, and writes nothing.
    """

    def __init__(self, context: StageContext, identity: AttemptIdentity) -> None:
        super().__init__(context)
        layout = context.layout
        self._run = layout.task_attempt_directory(*identity).name
        attempt_id = layout.task_attempt_id(identity.task, identity.attempt)
        self._list = ListBeingWritten(context, layout.uploads / self._run, attempt_id)
        self._begun: dict[str, StorePath] = {}
        self._open: dict[str, FileWriter] = {}
        self._closed: set[str] = set()

    async def open(self, destination: str, staged: str) -> FileWriter:
        """Lists the object's name, opens the object."""
        context, name = self._context, unique_name(destination, self._run)
        path = context.layout.target(name)
        await self._list.add(ListedUpload(name, OBJECT))
        self._begun[staged] = path
        writer = self._open[staged] = await context.store.open_writer(path)
        return writer

    def written(self, staged: str, status: FileStatus, *, absolute: str) -> WrittenFile:
        """Returns the object's name, which contains the attempt, its size and identity."""
        self._closed.add(staged)
        self._open.pop(staged, None)
        if absolute:
            return WrittenFile(staged, status.size, status.identity, absolute=unique_name(absolute, self._run))
        return WrittenFile(unique_name(staged, self._run), status.size, status.identity)

    def kept_at(self, staged: str) -> StorePath | None:
        """Returns the object's path; None for a file outside the destination."""
        if staged.startswith(f"{TEMPORARY}/"):
            return None
        return self._context.layout.target(unique_name(staged, self._run))

    async def settle(self, files: Sequence[WrittenFile]) -> Sequence[WrittenFile]:
        """Deletes abandoned files: after a lost response to a close an object may exist."""
        given_up = [path for staged, path in self._begun.items() if staged not in self._closed]
        await delete_objects(self._context, given_up)
        return files

    async def stop(self) -> None:
        """Abandons files that were not closed."""
        for writer in tuple(self._open.values()):
            with suppress(StoreError):
                await run_shielded(writer.abort, bound_s=UNDO_BOUND_S)

    def uploads(self) -> Sequence[tuple[StorePath, str]]:
        """Returns every object that this run began, abandoned ones too."""
        return [(path, OBJECT) for path in self._begun.values()]


class AbortDirectTask(AbortTask):
    """Stage that removes the objects of an attempt's runs, after their records.

    Their lists stay for the job's cleanup: delayed requests of the attempt may create objects later.

    Cost: that of `AbortTask`; by ids a listing, and a read for each part of a list; a delete for each object.
    """

    async def _end_uploads(self, value: AbortRequest, attempt_id: str) -> None:
        if value.uploads is not None:
            await delete_objects(self.context, [path for path, _object in value.uploads])
            return
        for run in await self._of_request(value, self.context.layout.uploads):
            await delete_objects(self.context, await objects_of(self.context, run))


# To tell objects that count from others.
_NEEDS: Final = needs_of("exclusive_put", "conditional_delete", "identity")


class RollBackObjects(RollBackUploads):
    """Stage that rolls a job back: creates the outcome, then deletes each winner's object if it is still the same.

    No fence is needed: no driver makes a file visible, and a task attempt writes under names of its own.

    Cost: 2 calls a file; some 20 for `_SUCCESS`.
    """

    async def _end(self, file: PlannedFile) -> None:
        await self._deleted(file)


class DirectAction(UploadAction):
    """A publish action that counts the objects that tasks wrote; a rollback deletes them."""

    needs: Mapping[str, str] = _NEEDS
    roll_back: type[RollBack] = RollBackObjects

    async def publish(self, context: StageContext, state: CommitState) -> Published:
        """Moves `_SUCCESS` aside, counts the objects, validates."""
        published = Published(most=context.forms.filenames_limit)
        await SetAsideSuccess(context).run(state.decision)
        async for batch in state.files.batches():
            published.add(context.layout, batch, len(batch))
        await ValidateOutput(context).run((state, published))
        return published


class StocatorCommitter(Committer):
    """Committer that follows IBM Stocator: a closed file is an object at the destination at once. Unsafe.

    For object stores: one put a file, nothing is renamed or completed later. But a reader who lists the destination
    sees files before the job is decided, those of failed attempts until a cleanup, and those of earlier jobs. Only
    `_SUCCESS` tells which count: it names every file of the last committed job, for `committer.committed_files`.
    """

    name = "stocator"
    unsafe: str = (
        "files are visible before the job is decided, and those of attempts that lost until a cleanup, to readers who "
        "do not go by _SUCCESS"
    )
    needs: Mapping[str, str] = _NEEDS
    action: PublishAction = DirectAction()
    no_hadoop: str = "what its tasks write by Stocator's filesystem no record names"

    def forms(self, spec: JobSpec) -> RecordForms:
        """Returns task manifests of objects at their destinations."""
        return DirectForms()

    def files_of(self, context: StageContext, identity: AttemptIdentity, directory: StorePath) -> AttemptFiles:
        """Returns objects at the destination."""
        return DirectFiles(context, identity)

    def choices(self, config: CommitterConfig) -> CommitterConfig:
        """Refuses conflict modes, which would replace running jobs' files, and jobs without `_SUCCESS` or cleanup."""
        if config.conflict_mode != "append":
            _refuse(
                f"conflict_mode={config.conflict_mode!r} depends on existing files at the destination, where tasks of "
                "'stocator' write before their job is decided",
                "leave it out: who reads by _SUCCESS sees only what the last job wrote; or take 'magic'",
            )
        if not config.mark_successful_jobs:
            _refuse(
                "without _SUCCESS nothing tells which files of 'stocator' count",
                "leave mark_successful_jobs=True, or take another committer",
            )
        if config.cleanup_skipped:
            _refuse(
                "without a cleanup the files of failed attempts of 'stocator' would stay among the others",
                "leave cleanup_skipped=False, or take another committer",
            )
        return config

    async def abort_task(self, context: StageContext, request: AbortRequest) -> None:
        """Runs `AbortDirectTask`."""
        await AbortDirectTask(context).run(request)


def _refuse(what: str, step: str) -> NoReturn:
    raise UnsupportedError(what, operation="open_job", next_step=step)
