"""AbortUploads: aborts the pending uploads of a job that is over."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Final, TypeAlias

from committer.errors import (
    RecordError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StorePermissionError,
)
from committer.file_names import job_id_in, root_of
from committer.flow.matches import Asked, Matches
from committer.flow.spill import SpillFile
from committer.flow.together import both
from committer.flow.workers import run_workers
from committer.layout import COMMITTING, JobLayout, has_nonce
from committer.logs import job_logger
from committer.paths import StorePath
from committer.stages.base import Stage
from committer.stages.state.own_records import read_decision, read_outcome
from committer.stages.upload_lists import end_uploads
from committer.stores.helpers import status_or_none
from committer.stores.upload_ends import end_upload
from committer.stores.uploads import UPLOADS, PendingUpload

# So many are kept in memory while lists are read: all that is pending, but beside another job of many files.
_FEW: Final = 50_000
_LISTED_AT_ONCE: Final = 1000

UploadsIn: TypeAlias = Callable[[StorePath], AsyncIterator[tuple[StorePath, str]]]


async def with_listed(
    pending: SpillFile[PendingUpload],
    lists: Sequence[StorePath],
    uploads_in: UploadsIn,
    *,
    workers: int,
    few: int = _FEW,
) -> AsyncGenerator[tuple[PendingUpload, bool]]:
    """Tells of each upload whether one of the lists names it, in order.

    Args:
        pending: The uploads.
        lists: Each is read once; none where nothing is pending.
        uploads_in: Reads one: paths and ids.
        workers: Lists that are read at a time.
        few: How many uploads are compared in memory.

    Raises:
        CommitterError: The disk did not take, or give, what is more than that.
    """
    if not pending.count or not lists:
        async for upload in pending.read():
            yield upload, False
        return
    if pending.count <= few:
        unseen = {_text(upload.path, upload.upload_id) async for upload in pending.read()}
        listed: set[str] = set()

        async def find(run: StorePath) -> None:
            async for path, upload_id in uploads_in(run):
                if (text := _text(path, upload_id)) in unseen:
                    listed.add(text)

        await run_workers(lists, find, workers=workers, operation="abort_uploads")
        async for upload in pending.read():
            yield upload, _text(upload.path, upload.upload_id) in listed
        return
    async with Matches[bool](bool) as matches:

        async def note(run: StorePath) -> None:
            some: list[str] = []
            async for path, upload_id in uploads_in(run):
                some.append(_text(path, upload_id))
                if len(some) == _LISTED_AT_ONCE:
                    await matches.note(some, [True] * len(some))
                    some = []
            await matches.note(some, [True] * len(some))

        await run_workers(lists, note, workers=workers, operation="abort_uploads")
        number = 0
        async for upload in pending.read():
            await matches.ask([Asked(number, _text(upload.path, upload.upload_id), "-")])
            number += 1
        async with aclosing(matches.answers()) as answers:
            following = await anext(answers, None)
            number = 0
            async for upload in pending.read():
                named = following is not None and following[0] == number
                if named:
                    following = await anext(answers, None)
                yield upload, named
                number += 1


def _text(path: StorePath, upload_id: str) -> str:
    return f"{path}\n{upload_id}"


_log = job_logger("committer.stages")

# An id without a UUID may be part of another job's name: people count, and name by the day; Spark's and Hadoop's ids
# are counters and times that another application can draw, too (SPARK-33402).
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")

_MOST_LEFT_ALONE: Final = 100
# Uploads that are kept in memory; whether they may be another job's is looked up once for so many.
_AT_ONCE: Final = 10_000


def outermost(places: Sequence[StorePath]) -> list[StorePath]:
    """The directories that are below no other one: a listing of each of them tells every upload once."""
    names = {place.path for place in places}
    return [place for place in places if root_of(place.path, names) is None]


class AbortUploads(Stage[None, list[str]]):
    """Ends every upload that the job's task attempts began and that is still pending; no other's, ever.

    Which are the job's is told by the lists in its directory, and by names that hold its id where the engine puts it,
    if the id holds a UUID, no other job that stands there can have meant it, and the upload is not older than the job's
    setup record. What neither tells is left alone: it may be another job's. A winner's uploads were completed, or ended
    with a rollback, so its list is read only where something is pending.

    Preconditions: the job ended, or is decided against, or the caller vouches for it.
    Postconditions: none of the uploads that can be told is pending; the lists still stand. A task attempt that
    begins an upload from here on finds the decision once it is listed, and sends nothing (`UploadedFiles`).
    Returns: paths of up to a hundred uploads that are still pending there, began since the job was set up, and may be
    another job's; of a job whose task records are elsewhere also those that began before, since Hadoop may have set
    it up then.
    Failure modes: a store error leaves some pending, and so does a disk without room for the list of what is pending,
    of which memory holds a part; running it again ends them.
    Cost: 3 calls, and one a thousand uploads pending at the destination; for an attempt that did not win one listing,
    and one read and 2 calls for each of its uploads. A root outside the destination one call more. Where names tell
    something, one listing for each directory above such an upload. Where task commits are pending sets, two
    listings more, and three a job attempt.
    """

    name = "job_stage_abort_uploads"

    async def execute(self, value: None) -> list[str]:
        """Ends those of losers by their lists, then what is pending by list and by name."""
        layout, workers = self.context.layout, self.context.config.io_concurrency
        forms = self.context.forms
        runs = await forms.upload_lists(self.context)
        since, winners = await both(self._set_up_at(), self._winners(asked=bool(runs)))
        won = [run for run in runs if forms.is_list_of(run, winners)]
        lost = sorted({*runs} - {*won})

        async def end_run(run: StorePath) -> None:
            if has_nonce(run.name):
                async for upload in forms.uploads_in(self.context, run):
                    await end_upload(self.context.store, *upload)
                return
            uploads = [upload async for upload in forms.uploads_in(self.context, run)]
            await end_uploads(self.context, uploads)

        await run_workers(lost, end_run, workers=workers, operation=self.name)
        async with SpillFile(PendingUpload) as pending, SpillFile(PendingUpload) as unnamed:
            for place in outermost([layout.destination, *map(layout.target, sorted(layout.roots))]):
                async for upload in UPLOADS.required(self.context.store, "list_uploads", place).list_uploads(place):
                    await pending.append(upload)
            await self._end_named(pending, unnamed, since)
            return await self._end_listed(unnamed, won, since)

    async def _end_named(
        self, pending: SpillFile[PendingUpload], unnamed: SpillFile[PendingUpload], since: float
    ) -> None:
        """Ends what is the job's by its name; hands on all that is not."""
        maybe: list[PendingUpload] = []

        async def end() -> None:
            own = await self._without_others(maybe)
            kept = {id(upload) for upload in own}
            for upload in maybe:
                if id(upload) not in kept:
                    await unnamed.append(upload)
            await self._end(own)
            maybe.clear()

        async for upload in pending.read():
            if not _is_named(upload, self.context.layout, since):
                await unnamed.append(upload)
                continue
            maybe.append(upload)
            if len(maybe) == _AT_ONCE:
                await end()
        await end()

    async def _end_listed(self, unnamed: SpillFile[PendingUpload], won: Sequence[StorePath], since: float) -> list[str]:
        """Ends what lists of winners name; returns some of what is left."""
        # No record tells when Hadoop set its job up; one that a driver of this engine claimed is older than that.
        spec, forms = self.context.spec, self.context.forms
        unknown = spec.records_at or (spec.hadoop and math.isinf(since))
        earliest = 0.0 if unknown else _second(since)
        listed: list[PendingUpload] = []
        left_alone: list[str] = []
        found = with_listed(
            unnamed,
            won,
            lambda run: forms.uploads_in(self.context, run),
            workers=self.context.config.io_concurrency,
        )
        async with aclosing(found):
            async for upload, is_listed in found:
                if is_listed:
                    listed.append(upload)
                    if len(listed) == _AT_ONCE:
                        await self._end(listed)
                        listed.clear()
                elif upload.initiated >= earliest:
                    left_alone.append(str(upload.path))
                    if len(left_alone) == _AT_ONCE:
                        left_alone = sorted(left_alone)[:_MOST_LEFT_ALONE]
        await self._end(listed)
        return sorted(left_alone)[:_MOST_LEFT_ALONE]

    async def _end(self, uploads: Sequence[PendingUpload]) -> None:
        await end_uploads(self.context, [(upload.path, upload.upload_id) for upload in uploads])

    async def _without_others(self, uploads: list[PendingUpload]) -> list[PendingUpload]:
        """Leaves out those that another job of the same id, or of one that holds it, may have begun."""
        if not uploads:
            return []
        layout = self.context.layout
        found: dict[StorePath, set[str]] = {}

        async def others(directory: StorePath) -> set[str]:
            # Jobs at two destinations know nothing of each other, and one may lie below the other.
            if directory not in found:
                found[directory] = await self._jobs_like_this(directory)
                if directory.path != "/":
                    found[directory] |= await others(directory.parent)
            return found[directory]

        here = await others(layout.destination)
        return [
            upload
            for upload in uploads
            if not any(other in upload.path.name for other in here | await others(upload.path.parent))
        ]

    async def _jobs_like_this(self, directory: StorePath) -> set[str]:
        """The jobs that run into a directory whose ids hold this one's; this one itself is none."""
        layout = self.context.layout
        try:
            children = [child async for child in self.context.store.list(directory / layout.temporary.name)]
        except (StoreNotFoundError, StoreNotADirectoryError):
            return set()
        except StorePermissionError:
            # A role may see the destination alone; then the engine cannot tell, and what holds this id stays.
            if directory == layout.destination:
                raise
            return {layout.job_id}
        alike = {job_id for child in children if layout.job_id in (job_id := job_id_in(child.path.name))} - {COMMITTING}
        return alike - {layout.job_id} if directory == layout.destination else alike

    async def _winners(self, *, asked: bool) -> set[str]:
        """The task attempts whose uploads are completed, or were taken back, and their tasks, by their ids; none of an
        undecided job, nor of one that is given up because its records cannot be read. Those of winners are ended, too,
        then: of a completed one nothing can be ended.
        """
        store, layout = self.context.store, self.context.layout
        if not asked:
            return set()
        try:
            outcome, decision = await both(read_outcome(store, layout), read_decision(store, layout))
        except RecordError:
            return set()
        winners = decision.winners if outcome is not None and decision is not None else []
        return {name for winner in winners for name in (winner.task_attempt, winner.task)}

    async def _set_up_at(self) -> float:
        """When the job was set up, by the store's clock; never, where its setup record is gone or has no time."""
        setup = await status_or_none(self.context.store, self.context.layout.setup)
        return setup.modified if setup is not None and setup.modified is not None else math.inf


def _is_named(upload: PendingUpload, layout: JobLayout, since: float) -> bool:
    """Whether a pending upload is the job's by its name, as `unique_name` or Spark's binding makes it, and its age."""
    job_id, token = layout.job_id, layout.name_token.removeprefix(layout.job_id)
    if not _UUID.search(job_id) or upload.initiated < _second(since):
        return False
    return re.search(rf"-{re.escape(job_id)}(?:-c[0-9]+|_[0-9]{{5,}}|{token})?(?:\.|$)", upload.path.name) is not None


def _second(time_s: float) -> float:
    """The whole second that a time lies in: S3 tells when a file was written by seconds, of uploads by less."""
    return math.floor(time_s) if math.isfinite(time_s) else time_s
