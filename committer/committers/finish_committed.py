"""What follows `outcome=committed`: `_SUCCESS`, the lock, kept records, cleanup, the report."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from committer.committers.failures import saying_what_is_left
from committer.committers.finish import clean_up, remove_last_records
from committer.committers.listing import KeptList, keep_list, store_of
from committer.committers.publish_action import PublishAction
from committer.committers.reports import save_report
from committer.errors import CommitterError, StoreNotADirectoryError, StoreNotFoundError
from committer.flow.together import settled, together
from committer.flow.workers import run_workers
from committer.layout import MANIFEST_SUFFIX
from committer.logs import job_logger
from committer.paths import StorePath
from committer.records.job_state import JobOutcome
from committer.records.success import SuccessData
from committer.stages.base import StageContext
from committer.stages.commit_state import CommitState
from committer.stages.durability import sync_directories
from committer.stages.end_job import Ended, mark_finished, runs_alone
from committer.stages.names import with_ancestors
from committer.stages.own_records import read_own_outcome
from committer.stages.publish import Published
from committer.stages.release_lock import release_lock
from committer.stages.removal import removal_of, remove_emptied
from committer.stages.success_content import is_unmarked, success_data
from committer.stages.success_file import SaveSuccess, withdraw_success
from committer.stores.base import FileStatus, Store
from committer.stores.helpers import walk

_log = job_logger("committer.committers")


class Finished(NamedTuple):
    """What is left to say of a job that is over.

    Attributes:
        uploads_left: Uploads that `AbortUploads` leaves alone: they may be another job's.
        kept: What became of the complete list of its files.
    """

    uploads_left: list[str]
    kept: KeptList


async def finish_committed(
    context: StageContext,
    state: CommitState,
    published: Published,
    action: PublishAction,
    ended: Ended | None = None,
) -> Finished:
    """Everything after `outcome=committed`. Idempotent; a failure here leaves a committed job.

    Args:
        context: The job.
        state: What was decided.
        published: What is at the destination.
        action: How it got there.
        ended: What this driver's `EndJob` found; what it did not is looked up.

    Raises:
        CommitterError: With `outcome="committed"`: the output is complete; `recover` does the rest.
    """
    job = _Committed(context, state, published)
    with saying_what_is_left(context):
        await job.look(ended)
        if job.fresh:
            await action.supersede(context, state)
        job.kept = await keep_list(context, state, fresh=job.fresh)
        await job.save_success()
        if context.config.diagnostics_manifest_directory and job.fresh:
            await _keep_records(context)
        if state.superseded:
            await _remove_emptied_directories(context, state)
        await job.mark_and_release()
        cleaned, uploads_left = await job.clean_up()
    await job.save_report()
    if cleaned:
        with saying_what_is_left(context):
            await job.remove_last_records()
    return Finished(uploads_left, job.kept)


class _Committed:
    """A committed job while its last steps are taken.

    Attributes:
        outcome: The outcome as it stands; None where another driver did the rest and cleaned up, or another process
            deleted all of `_temporary`: then nothing stands at `_SUCCESS`.
        fresh: Whether the last steps are still to be done. Once finished, `_SUCCESS` was written, and a later job's may
            stand there.
        was_empty: Whether the destination held nothing but what the job published.
        kept: What became of the complete list of its files.
    """

    def __init__(self, context: StageContext, state: CommitState, published: Published) -> None:
        self._context = context
        self._state = state
        self._published = published
        # Hardly ever does a job hold the lock that takes none; should it, every driver that meets the mark releases it.
        self._holds_lock = state.decision.replacing or context.config.takes_replace_lock
        self._committed_at = state.decision.created
        self._marker: SuccessData | None = None
        self._removal = removal_of(context)
        self._overtaken = False
        self._created: FileStatus | None = None
        self.outcome: JobOutcome | None = None
        self.fresh = self.was_empty = False
        self.kept = KeptList()

    async def look(self, ended: Ended | None) -> None:
        """Looks up what this driver does not know of the job's end."""
        context, decision = self._context, self._state.decision
        outcome, alone = (ended.standing, ended.alone) if ended is not None else (None, None)
        if outcome is None:
            outcome = await read_own_outcome(context.store, context.layout)
        if alone is None:
            alone = decision.was_empty and await runs_alone(context) and await is_unmarked(context)
        self.outcome = outcome
        self._created = ended.created if ended is not None else None
        self.fresh = outcome is not None and not outcome.finished
        self.was_empty = alone and self.fresh
        known = outcome or (ended.outcome if ended is not None else None)
        # Where it is not known any more when the job ended: when it was decided, which was before.
        self._committed_at = known.created if known is not None else decision.created

    async def save_success(self) -> None:
        """Writes `_SUCCESS`, unless the job is finished, or writes none."""
        context, decision = self._context, self._state.decision
        if not (context.config.mark_successful_jobs and (self.fresh or self.outcome is None)):
            return
        self._marker = success_data(
            context,
            success=True,
            published=self._published,
            stage=SaveSuccess.name,
            was_empty=self.was_empty,
            directories=decision.directories,
            decided_by=decision.driver,
            more=self.kept.diagnostics,
            committed_at=self._committed_at,
        )
        saving = SaveSuccess(context, outcome=self.outcome, replacing=self._holds_lock, published=self._published)
        await saving.run(self._marker)
        await sync_directories(context, [context.layout.destination])

    async def mark_and_release(self) -> None:
        """Marks the outcome as finished, releases the lock, and looks what there is to clean; all at once.

        A lock that is held is released after the mark: the next job that takes it looks for it. Neither is cut short
        where the other one fails, as both may move what is another job's. A `_SUCCESS` that came when the job was over
        is withdrawn all the same then.
        """
        context = self._context
        ended = await together(
            *([] if self._holds_lock else [settled(release_lock(context))]),
            *([settled(self._mark())] if self.fresh else []),
            *([] if context.config.cleanup_skipped else [self._look_what_to_clean()]),
        )
        if self._overtaken and self._marker is not None:
            await withdraw_success(context, self._marker, self._published)
        for error in ended:
            if isinstance(error, Exception):
                raise error
        if self._holds_lock:
            await release_lock(context)

    async def _mark(self) -> None:
        if self.outcome is not None and not await mark_finished(self._context, self.outcome, created=self._created):
            self._overtaken = True

    async def _look_what_to_clean(self) -> None:
        # What cannot be looked at now the cleanup looks for itself, and fails, or not.
        with suppress(CommitterError):
            await self._removal.look()

    async def clean_up(self) -> tuple[bool, list[str]]:
        """See `committer.committers.finish.clean_up`."""
        if self._overtaken:
            # What was withdrawn may lie in the job's directory since that was looked at, and that be another job's by
            # now.
            self._removal = removal_of(self._context)
        context = self._context
        # A summary is saved while decision and outcome stand, and a disk that reorders deletes is told their order.
        told = context.durable or bool(context.config.summary_report_directory)
        ended = self.outcome is not None and not (self._overtaken or told)
        return await clean_up(context, self._removal, skipped=context.config.cleanup_skipped, ended=ended)

    async def remove_last_records(self) -> None:
        """See `committer.committers.finish.remove_last_records`."""
        kept = self._context.config.outcome_kept and self.outcome is not None
        await remove_last_records(self._context, self._removal, kept=kept)
        if kept and self._overtaken:
            # The outcome may be forgotten by now; where a write makes parents up, the removal made them again.
            await remove_emptied(self._context)

    async def save_report(self) -> None:
        """Saves the summary, if the job asks for one."""
        await save_report(
            self._context,
            success=True,
            published=self._published,
            was_empty=self.was_empty,
            directories=self._state.decision.directories,
            more=self.kept.diagnostics,
        )


async def _remove_emptied_directories(context: StageContext, state: CommitState) -> None:
    """Removes directories that held only superseded files, deepest first. A courtesy: failures are ignored."""
    store, layout = context.store, context.layout
    if not store.capabilities.directories:
        return
    emptied = with_ancestors(await state.superseded.directories(), layout.roots)

    async def remove(directory: str) -> None:
        try:
            await store.delete_directory(layout.target(directory), recursive=False)
        except CommitterError:
            return

    for depth in sorted({directory.count("/") for directory in emptied}, reverse=True):
        level = sorted(directory for directory in emptied if directory.count("/") == depth)
        await run_workers(level, remove, workers=context.config.io_concurrency, operation="remove_emptied")


async def _keep_records(context: StageContext) -> None:
    """Copies the job's records to a directory of its own in the diagnostics directory; a failure only warns.

    As in Hadoop; but it deletes nothing there: a directory of that name may be another user's.
    """
    layout, store, other = context.layout, context.store, None
    try:
        directory = StorePath.of(context.config.diagnostics_manifest_directory)
        kept_in = directory / layout.unique_name
        other = await store_of(context, directory)
        await other.make_directory(kept_in, parents=True)
        for source in (layout.manifests_frozen, layout.manifests, layout.attempts):
            await _copy_records(context, context.holding(source), source, other, kept_in)
    except CommitterError as error:
        _log.warning("could not keep the records of job %s: %s", layout.job_id, error)
    finally:
        if other is not None and other is not store:
            await other.close()


async def _copy_records(
    context: StageContext, store: Store, source: StorePath, other: Store, kept_in: StorePath
) -> None:
    try:
        suffixes = (MANIFEST_SUFFIX, context.layout.record_suffix)
        records = [child.path async for child in walk(store, source) if child.path.name.endswith(suffixes)]
    except (StoreNotFoundError, StoreNotADirectoryError):
        # Where a driver of the job undid its freeze, a file keeps the name of the frozen ones.
        return

    async def copy(record: StorePath) -> None:
        data = await store.read(record, limit=context.config.record_size_limit)
        await other.put(kept_in / record.name, data)

    if records:
        await run_workers(records, copy, workers=context.config.io_concurrency, operation="keep_records")
