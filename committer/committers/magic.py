"""The magic committer: tasks send files as uploads, job commit completes them.

Below the destination D of job J, attempt N, beside what every committer has (`committer.layout`)::

    D/__magic_job-J/job-J/NN/<task>.pendingset                     records under the task's name
    D/__magic_job-J/job-J/NN/tasks/<attempt>/__base/<nonce>/…      records of single files, until the attempt commits
    D/__magic_job-J/job-J/NN/uploads/<attempt>-<nonce>/            lists of the uploads that a run began

By message only tasks that write by S3A itself (Spark's own writers) leave anything there, below
``tasks/<attempt>-<nonce>/__base/``. Source of the names: ``MagicCommitPaths``, ``CommitUtilsWithMR`` (since
HADOOP-18797, Hadoop 3.4.0).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import ClassVar

from committer.committers.actions import PublishAction, UploadAction
from committer.committers.base import Committer
from committer.committers.pending_sets import PendingSetForms, pending_of, uploads_of_pending, uploads_of_set
from committer.errors import StoreError, StoreNotADirectoryError, StoreNotFoundError
from committer.file_names import MAGIC_JOB
from committer.layout import JobLayout
from committer.logs import job_logger
from committer.paths import StorePath
from committer.records.pending_set import MAGIC_LENGTH, PENDING_SET_SUFFIX, PENDING_SUFFIX, encode_pending
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.stages.base import AttemptIdentity, RecordForms, StageContext, TaskOutput
from committer.stages.load.manifest_forms import ManifestForms
from committer.stages.names import is_absolute
from committer.stages.state.job_directory import JobDirectory
from committer.stages.task.abort_task import AbortRequest
from committer.stages.task.attempt_files import AttemptFiles
from committer.stages.task.sent_files import UploadedFiles
from committer.stores.base import FileStatus, Store
from committer.stores.helpers import children_of, walk
from committer.stores.uploads import UPLOADS


class MagicLayout(JobLayout):
    """Paths of a job by listing whose task records are Hadoop's pending sets."""

    beside_prefix: ClassVar[str] = MAGIC_JOB
    record_suffix: ClassVar[str] = PENDING_SET_SUFFIX
    record_kind: ClassVar[str] = "pending set"

    def _place_records(self) -> tuple[StorePath, StorePath]:
        # Hadoop's cleanup of the job deletes everything there, lists of uploads too.
        attempt = attempt_directory(self)
        return attempt, attempt / "uploads"

    def record_name(self, path: StorePath) -> str:
        """Returns a record's name: the bare name for a pending set."""
        return path.name if path.parent == self.manifests else super().record_name(path)

    def record_path(self, name: str) -> StorePath:
        """Returns the path of a record."""
        return self.manifests / name if name.endswith(PENDING_SET_SUFFIX) else super().record_path(name)


def attempts_directory(layout: JobLayout) -> StorePath:
    """Returns the directory of a job's attempts."""
    return layout.destination / f"{MAGIC_JOB}{layout.unique_id}" / f"job-{layout.unique_id}"


def attempt_directory(layout: JobLayout) -> StorePath:
    """Returns the directory of the job attempt."""
    return attempts_directory(layout) / f"{layout.job_attempt:02d}"


def task_attempt_directory(layout: JobLayout, attempt_id: str) -> StorePath:
    """Returns the directory of a task attempt's records; Hadoop's commit and abort delete all in its `__base`."""
    return attempt_directory(layout) / "tasks" / attempt_id


def run_directory(layout: JobLayout, attempt_id: str, nonce: str) -> StorePath:
    """Returns the directory where one run of a task attempt records its files."""
    return task_attempt_directory(layout, attempt_id) / "__base" / nonce


class MessageForms(ManifestForms):
    """Record format of a job by message: this engine's task manifests."""

    def __init__(self) -> None:
        super().__init__("magic", like_s3a=True)

    async def outside(self, context: StageContext) -> list[FileStatus]:
        """Returns the magic directory, where Spark's own writers leave records by S3A's magic paths; no call."""
        return [FileStatus(attempts_directory(context.layout).parent, True, 0)]


class MagicForms(PendingSetForms):
    """Record format of pending sets in the job's magic directory."""

    async def upload_lists(self, context: StageContext) -> list[StorePath]:
        """Lists what names uploads in the job's magic directory: one listing, and three a job attempt.

        Of every job attempt: a later one of Hadoop's commits nothing of an earlier one, and one cleanup deletes both.
        """
        found: list[StorePath] = []
        for attempt in await children_of(context.store, attempts_directory(context.layout)):
            if not (attempt.is_directory and attempt.path.name.isdecimal()):
                continue
            # A set that an abort renamed but did not delete has another suffix behind its own.
            found += [
                child.path
                for child in await children_of(context.store, attempt.path)
                if not child.is_directory and PENDING_SET_SUFFIX in child.path.name
            ]
            for name in ("tasks", context.layout.uploads.name):
                found += [
                    child.path for child in await children_of(context.store, attempt.path / name) if child.is_directory
                ]
        return found

    async def uploads_in(self, context: StageContext, place: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
        """Yields the uploads of a run's list, of a pending set, or of the records below an attempt's directory.

        One read for a set; else a listing for each directory, a read for each record. Damaged records, and paths
        outside destination and roots (G10), are skipped with a warning: such an upload stays, and ``committer
        uploads list`` shows it.
        """
        is_list = place.parent.name == context.layout.uploads.name
        if is_list or PENDING_SET_SUFFIX in place.name:
            async for upload in super().uploads_in(context, place) if is_list else uploads_of_set(context, place):
                yield upload
            return
        try:
            records = [
                child.path
                async for child in walk(context.store, place)
                if not child.is_directory and child.path.name.endswith(PENDING_SUFFIX)
            ]
        except (StoreNotFoundError, StoreNotADirectoryError):
            return
        for record in records:
            async for upload in uploads_of_pending(context, record):
                yield upload

    def upload_lists_of(self, context: StageContext, attempt_id: str) -> list[StorePath]:
        """Returns the directory with the records of an attempt's single files."""
        return [task_attempt_directory(context.layout, attempt_id)]


class PendingFiles(UploadedFiles):
    """Files that wait in uploads, recorded as S3A's magic committer does while their task attempt runs.

    Closing one costs 2 calls more: a marker, an empty object whose metadata holds the file's length, then the
    record of its upload, by which Hadoop aborts the attempt (in ``S3MagicCommitTracker``'s order).
    """

    def __init__(self, context: StageContext, identity: AttemptIdentity) -> None:
        super().__init__(context, identity)
        self._identity = identity
        attempt = context.layout.task_attempt_id(identity.task, identity.attempt)
        self._base = run_directory(context.layout, attempt, identity.nonce)

    def kept_at(self, staged: str) -> StorePath:
        """Returns the path of the record of the file's upload."""
        return self._base / f"{staged}{PENDING_SUFFIX}"

    async def _record(self, destination: str, staged: str, status: FileStatus) -> None:
        store, record = self._context.store, self.kept_at(staged)
        absolute = destination if is_absolute(destination) else ""
        file = self.written(staged, status, absolute=absolute)
        marker = self._base / staged
        if not marker.name.endswith((PENDING_SUFFIX, PENDING_SET_SUFFIX)):
            # Hadoop would take a marker of such a name for a record.
            uploads = UPLOADS.required(store, "put", marker)
            await uploads.put_described(marker, b"", metadata={MAGIC_LENGTH: str(file.size)})
        pending = pending_of(self._context, self._identity, file, attempt="")
        data = encode_pending(pending, etags=self._context.config.pending_etags)
        await store.put(record, data)


_log = job_logger("committer.committers")


class MagicCommitter(Committer):
    """S3A's magic committer, for stores with uploads and without renames: job commit completes open uploads.

    By listing all that tasks leave is in Hadoop's form, so that Java's tasks and drivers can take part.
    """

    name = "magic"
    needs: Mapping[str, str] = UploadAction.needs
    action: PublishAction = UploadAction()
    listed_layout: type[JobLayout] = MagicLayout

    def forms(self, spec: JobSpec) -> RecordForms:
        """Returns Hadoop's pending sets by listing, else this engine's task manifests."""
        return MagicForms("magic") if spec.delivery == "listing" else MessageForms()

    def files_of(self, context: StageContext, identity: AttemptIdentity, directory: StorePath) -> AttemptFiles:
        """Returns files that are uploaded to their destinations."""
        by_listing = context.spec.delivery == "listing"
        return PendingFiles(context, identity) if by_listing else UploadedFiles(context, identity)

    async def newest_hadoop_attempt(self, store: Store, layout: JobLayout) -> int | None:
        """Returns the newest job attempt that a task of Hadoop's committed to: two listings.

        Late tasks of this engine leave almost the same, but name their records by the job's id, not MapReduce's.
        """
        try:
            number = max(await _attempts_beside(store, layout), default=0)
            newest = MagicLayout(layout.destination, layout.job_id, number)
            own = newest.task_id(0).rpartition("_")[0]
            async for child in store.list(newest.manifests):
                name = child.path.name
                if name.endswith(newest.record_suffix) and not name.startswith(f"{own}_"):
                    return newest.job_attempt
        except (StoreNotFoundError, StoreNotADirectoryError):
            pass
        return None

    async def hadoop_attempts(self, store: Store, found: JobDirectory) -> set[int]:
        """Returns the numbers of the job attempts beside the destination's files: at most one listing."""
        return await _attempts_beside(store, found.layout) if found.beside else found.attempts

    async def last_task_commit(self, store: Store, layout: JobLayout) -> float:
        """Returns when the newest pending set was written: one listing, and one a job attempt."""
        newest = 0.0
        for attempt in await children_of(store, attempts_directory(layout)):
            if attempt.is_directory:
                records = [child for child in await children_of(store, attempt.path) if not child.is_directory]
                newest = max([newest, *(record.modified or 0.0 for record in records)])
        return newest

    async def commit_task(self, context: StageContext, output: TaskOutput) -> TaskCommit:
        """Runs `CommitTask`; then deletes the records of single files."""
        message = await super().commit_task(context, output)
        if context.spec.delivery == "listing":
            await _forget(context, *output.identity)
        return message

    async def abort_task(self, context: StageContext, request: AbortRequest) -> None:
        """Runs `AbortTask`; then deletes the records of single files."""
        await super().abort_task(context, request)
        if context.spec.delivery == "listing":
            await _forget(context, request.task, request.attempt, request.nonce)


async def _attempts_beside(store: Store, layout: JobLayout) -> set[int]:
    children = await children_of(store, attempts_directory(layout))
    return {int(child.path.name) for child in children if child.is_directory and child.path.name.isdecimal()}


async def _forget(context: StageContext, task: int, attempt: int, nonce: str | None) -> None:
    """Deletes the records of single files; a failure is left to the job's cleanup, which Hadoop's does too."""
    layout = context.layout
    attempt_id = layout.task_attempt_id(task, attempt)
    of_attempt = task_attempt_directory(layout, attempt_id)
    place = of_attempt if nonce is None else run_directory(layout, attempt_id, nonce)
    try:
        await context.store.delete_directory(place, recursive=True)
    except StoreError as error:
        _log.warning("could not remove %s, which the job's cleanup does: %s", place, error)
