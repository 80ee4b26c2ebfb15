"""The stage that aborts the pending uploads of a job that is over."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Final, TypeAlias

from committer.errors import RecordError, StoreNotADirectoryError, StoreNotFoundError, StorePermissionError
from committer.file_names import job_id_in, root_of
from committer.flow.spill import SpillFile
from committer.flow.texts import Asked, Matches
from committer.flow.together import both
from committer.flow.workers import run_workers
from committer.layout import COMMITTING, JobLayout, has_nonce
from committer.paths import StorePath
from committer.stages.base import Stage
from committer.stages.load.manifest_forms import end_uploads
from committer.stages.state.own_records import read_decision, read_outcome
from committer.stores.helpers import end_upload, status_or_none
from committer.stores.uploads import UPLOADS, PendingUpload

# Most uploads that are compared in memory: all that are pending, unless beside another job with many files.
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
    """Yields each pending upload, in order, and whether one of the lists contains it."""
    # Each list is read once by `uploads_in` (paths and ids), none if nothing is pending; `few` uploads are
    # compared in memory, more on disk.
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


# An id without a UUID may be part of another job's name: people count, and name by the day; Spark's and
# Hadoop's ids are counters and times that another application can draw, too (SPARK-33402).
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")

_MOST_LEFT_ALONE: Final = 100
# Uploads kept in memory; for each such batch the jobs that may own them are looked up once.
_AT_ONCE: Final = 10_000


def outermost(places: Sequence[StorePath]) -> list[StorePath]:
    """Returns the directories that are below no other one: a listing of each shows every upload once."""
    names = {place.path for place in places}
    return [place for place in places if root_of(place.path, names) is None]


class AbortUploads(Stage[None, list[str]]):
    """The stage that aborts every pending upload that the job's task attempts began, and never another job's.

    The job's uploads are those in the lists in its directory, and those with its id in their name, where the engine
    puts it, if the id contains a UUID, no other existing job can have meant it, and the upload is not older than the
    job's setup record. Others are left alone. A winner's uploads were completed, or aborted by a rollback, so its
    list is read only if something is pending.

    Preconditions: the job ended, or is decided to be aborted, or the caller vouches for it.
    Postconditions: none of the job's known uploads is pending; the lists still exist. A task attempt that begins an
    upload from here on lists it, then finds the decision, and sends nothing (`UploadedFiles`).
    Returns: paths of up to a hundred uploads that are still pending, began after the job's setup, and may be another
    job's; for a job with task records elsewhere also earlier ones, since Hadoop may have set it up then.
    Failure modes: a store error, or a disk without room for the list of pending uploads, leaves some pending; a
    repeat aborts them.
    Cost: 3 calls, and one per thousand pending uploads at the destination; for an attempt that did not win one
    listing, and one read and 2 calls for each of its uploads. One call per root. If names are used, one listing for
    each directory above such an upload. With pending sets two listings more, and three per job attempt.
    """

    name = "job_stage_abort_uploads"

    async def execute(self, value: None) -> list[str]:
        """Aborts uploads of losers by their lists, then the pending ones by name and by the winners' lists."""
        layout, forms = self.context.layout, self.context.forms
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

        await self.run_workers(lost, end_run)
        async with SpillFile(PendingUpload) as pending, SpillFile(PendingUpload) as unnamed:
            for place in outermost([layout.destination, *map(layout.target, sorted(layout.roots))]):
                async for upload in UPLOADS.required(self.context.store, "list_uploads", place).list_uploads(place):
                    await pending.append(upload)
            await self._end_named(pending, unnamed, since)
            return await self._end_listed(unnamed, won, since)

    async def _end_named(
        self, pending: SpillFile[PendingUpload], unnamed: SpillFile[PendingUpload], since: float
    ) -> None:
        """Aborts the uploads that are the job's by their name; adds all others to `unnamed`."""
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
        """Aborts the uploads in the winners' lists; returns some of the others."""
        # No record has the time of a setup by Hadoop; the setup record of a driver that claimed such a job is later.
        spec, forms = self.context.spec, self.context.forms
        unknown = spec.records_at or (spec.hadoop and math.isinf(since))
        earliest = 0.0 if unknown else _second(since)
        listed: list[PendingUpload] = []
        left_alone: list[str] = []
        found = with_listed(
            unnamed, won, lambda run: forms.uploads_in(self.context, run), workers=self.context.config.io_concurrency
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
        """Removes uploads that another job of the same id, or of one that contains it, may have begun."""
        if not uploads:
            return []
        layout = self.context.layout
        found: dict[StorePath, set[str]] = {}

        async def others(directory: StorePath) -> set[str]:
            # Jobs at two destinations do not see each other, and one destination may lie below the other.
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
        """Returns other jobs that run into a directory and whose ids contain this one's."""
        layout = self.context.layout
        try:
            children = [child async for child in self.context.store.list(directory / layout.temporary.name)]
        except (StoreNotFoundError, StoreNotADirectoryError):
            return set()
        except StorePermissionError:
            # A role may see the destination only; then the engine cannot tell, and uploads with this id stay.
            if directory == layout.destination:
                raise
            return {layout.job_id}
        alike = {job_id for child in children if layout.job_id in (job_id := job_id_in(child.path.name))} - {COMMITTING}
        return alike - {layout.job_id} if directory == layout.destination else alike

    async def _winners(self, *, asked: bool) -> set[str]:
        """Returns the ids of the winners of an ended job and of their tasks: their uploads are over."""
        # It is empty without an outcome, or if records are unreadable: aborting a completed upload does nothing.
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
        """Returns when the job was set up, by the store's clock; infinity if that is unknown."""
        setup = await status_or_none(self.context.store, self.context.layout.setup)
        return setup.modified if setup is not None and setup.modified is not None else math.inf


def _is_named(upload: PendingUpload, layout: JobLayout, since: float) -> bool:
    """Whether a pending upload is the job's by its age and its name (`unique_name` or Spark's binding)."""
    job_id, token = layout.job_id, layout.name_token.removeprefix(layout.job_id)
    if not _UUID.search(job_id) or upload.initiated < _second(since):
        return False
    return re.search(rf"-{re.escape(job_id)}(?:-c[0-9]+|_[0-9]{{5,}}|{token})?(?:\.|$)", upload.path.name) is not None


def _second(time_s: float) -> float:
    """Rounds a time down to its second: S3 gives the times of files in seconds, those of uploads more precisely."""
    return math.floor(time_s) if math.isfinite(time_s) else time_s
