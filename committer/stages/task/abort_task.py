"""The stage that removes what one task attempt wrote, by its ids alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from committer.errors import (
    JobDecidedError,
    JobNotFoundError,
    JobStateError,
    RecordError,
    StoreExistsError,
    StoreNotFoundError,
)
from committer.events import names
from committer.layout import MANIFEST_SUFFIX
from committer.paths import StorePath
from committer.stages.base import Stage
from committer.stages.load.manifest_forms import end_uploads
from committer.stages.load.winning_records import aborted_name
from committer.stages.state.job_directory import look_at_job
from committer.stores.helpers import children_of, move_file


@dataclass(frozen=True, slots=True)
class AbortRequest:
    """The runs of a task attempt to remove.

    Attributes:
        nonce: The run; None for every run of the attempt.
        may_have_record: False if the run surely never committed, so no job commit can rely on its files.
        uploads: The uploads that the run began, by path and id, if known; None reads its list.
    """

    task: int
    attempt: int
    nonce: str | None = None
    may_have_record: bool = True
    uploads: Sequence[tuple[StorePath, str]] | None = None


class AbortTask(Stage[AbortRequest, None]):
    """The stage that removes a task attempt: its record first, then its directories.

    It runs in the driver, for attempts of any host (``OutputCommitter.abortTask`` demands it). The record goes
    first, since a record without its files would fail the job commit, as it does in Hadoop. A record under the
    task's name is removed only if it is this attempt's. A job commit writes its intent before it reads records;
    an abort moves its records away before it looks for intents. So one of the two sees the other, and files are
    deleted only while no commit can have read their record. A commit by listing puts a moved record back, and an
    abort that finds its record gone looks for intents again. Limit: a commit whose listing has several pages may
    miss a record that is moved, or put back, between two of them.

    Preconditions: no driver commits the job.
    Postconditions: nothing of the attempt is left; no other attempt is touched.
    Failure modes: files and records stay, with `JobDecidedError` or `JobStateError` if the job is being
    committed, `JobNotFoundError` if its id was set up anew and the attempt is known by its ids alone.
    Cost: by ids 4 listings, two reads of the task's record, one delete per run; for a run that never committed 1
    call. On stores with uploads 2 more per run, and one read and 2 calls for each of its uploads.
    Hadoop: ``AbortTaskStage``.
    """

    name = statistic = names.TASK_STAGE_ABORT_TASK

    async def execute(self, value: AbortRequest) -> None:
        """Moves records away, looks for intents, deletes."""
        layout, store = self.context.layout, self.context.store
        attempt_id = layout.task_attempt_id(value.task, value.attempt)
        if value.may_have_record:
            await self._remove_records(value, attempt_id)

        async def delete(directory: StorePath) -> None:
            await store.delete_directory(directory, recursive=True)

        await self.run_workers(await self._of_request(value, layout.runs), delete)
        await self._end_uploads(value, attempt_id)

    async def _end_uploads(self, value: AbortRequest, attempt_id: str) -> None:
        """Aborts the uploads that the attempt began; such an attempt has no directory of its own."""
        # The lists of runs that may be alive stay for the job's cleanup: a live run adds to its list.
        if not self.context.store.capabilities.multipart:
            return
        runs = await self._of_request(value, self.context.layout.uploads)
        if value.nonce is None:
            for run in (*runs, *self.context.forms.upload_lists_of(self.context, attempt_id)):
                await self._end_uploads_in(run)
            return
        if value.uploads is None:
            await self._end_uploads_in(runs[0])
        else:
            await end_uploads(self.context, value.uploads)
        await self.context.store.delete_directory(runs[0], recursive=True)

    async def _end_uploads_in(self, place: StorePath) -> None:
        await self._end_uploads_of([upload async for upload in self.context.forms.uploads_in(self.context, place)])

    async def _end_uploads_of(self, found: Sequence[tuple[StorePath, str]]) -> None:
        # The oldest first and alone: if the run goes on and commits, a job commit checks that one.
        await end_uploads(self.context, found[:1])
        await end_uploads(self.context, found[1:])

    async def _remove_records(self, value: AbortRequest, attempt_id: str) -> None:
        deleted = False
        while not deleted:
            await self._check_not_being_committed()
            taken = await self._take_records(value, attempt_id)
            if taken is None:
                continue
            try:
                await self._check_not_being_committed()
            except JobStateError:
                for record, aside in taken:
                    await self._put_back(record, aside)
                raise
            deleted = True
            for _record, aside in taken:
                # For Hadoop's attempts the record may be the only list of their uploads.
                uploads = [upload async for upload in self.context.forms.uploads_in(self.context, aside)]
                if await self.context.holding(aside).delete_file(aside):
                    await self._end_uploads_of(uploads)
                else:
                    # A job commit, or another abort, has put it back.
                    deleted = False

    async def _take_records(self, value: AbortRequest, attempt_id: str) -> list[tuple[StorePath, StorePath]] | None:
        """Moves the attempt's records away; returns None if one was moved and is gone: then look again."""
        layout = self.context.layout
        if self.context.spec.delivery == "listing":
            return await self._take_manifest(value, attempt_id)
        taken: list[tuple[StorePath, StorePath]] = []
        for record in await self._of_request(value, layout.attempts, MANIFEST_SUFFIX):
            taken += await self._take(record, record.parent / f"{record.name}.tmp")
        return taken

    async def _check_not_being_committed(self) -> None:
        layout = self.context.layout
        try:
            found = await look_at_job(self.context.store, layout)
        except JobNotFoundError:
            return
        if found.decided or found.ended:
            raise JobDecidedError(
                f"job {layout.job_id} is decided: a task attempt may be part of it and is not aborted any more",
                operation=self.name,
                path=layout.decision,
                next_step="leave it: what is not part of the job is removed with the job's directory",
            )
        if found.intents:
            raise JobStateError(
                f"job {layout.job_id} is being committed: a task attempt may be part of it and is not aborted now",
                operation=self.name,
                path=layout.job_directory / found.intents[0],
                next_step=f"wait for the commit to end; if its driver is dead, call {self.context.recover_call()}",
            )

    async def _of_request(self, value: AbortRequest, directory: StorePath, suffix: str = "") -> list[StorePath]:
        """Returns the children of a directory that are of the runs to remove: no call for one run, else a listing."""
        attempt_id = self.context.layout.task_attempt_id(value.task, value.attempt)
        if value.nonce is None:
            return await self._runs(directory, attempt_id)
        return [directory / f"{attempt_id}-{value.nonce}{suffix}"]

    async def _runs(self, directory: StorePath, attempt_id: str) -> list[StorePath]:
        """Returns the children that belong to a run of the attempt: `<id>` (Hadoop's) or `<id>-<nonce>…`."""
        children = [child.path for child in await children_of(self.context.store, directory)]
        return [path for path in children if path.name == attempt_id or path.name.startswith(f"{attempt_id}-")]

    async def _take_manifest(self, value: AbortRequest, attempt_id: str) -> list[tuple[StorePath, StorePath]] | None:
        # Another attempt may commit between a look and a move. So the record is first moved to a name of this
        # attempt, then read, and moved back without replacing if it is another's.
        layout = self.context.layout
        manifest, moved = layout.manifest(value.task), layout.manifests / aborted_name(layout, attempt_id)
        taken = await self._take(manifest, moved) if await self._is_of(manifest, value) else []
        # Without a move of this abort, one that died may have left it there.
        if await self._is_of(moved, value):
            return [(manifest, moved)]
        for record, aside in taken:
            await self._put_back(record, aside)
        return None if taken else []

    async def _take(self, record: StorePath, aside: StorePath) -> list[tuple[StorePath, StorePath]]:
        """Moves a record to a name that is no record's; returns an empty list if it is gone."""
        try:
            # With delivery by message the record's name contains a nonce: no other attempt uses it.
            by_name = self.context.spec.delivery == "message"
            await move_file(self.context.holding(record), record, aside, replace=True, by_name=by_name)
        except StoreNotFoundError:
            return []
        return [(record, aside)]

    async def _put_back(self, record: StorePath, aside: StorePath) -> None:
        # Unless a job commit was first, or a later attempt committed.
        with suppress(StoreExistsError, StoreNotFoundError):
            await move_file(self.context.holding(record), aside, record, by_name=True)

    async def _is_of(self, path: StorePath, value: AbortRequest) -> bool:
        layout = self.context.layout
        try:
            data = await self.context.holding(path).read(path, limit=self.context.config.record_size_limit)
            manifest = self.context.forms.decode_task(self.context, path, data)
        except (StoreNotFoundError, RecordError):
            return False
        if value.nonce is not None:
            return manifest.taskAttemptDir == layout.task_attempt_directory(value.task, value.attempt, value.nonce).uri
        return manifest.taskAttemptID == layout.task_attempt_id(value.task, value.attempt)
