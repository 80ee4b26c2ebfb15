"""The magic committer: tasks send their files to uploads, job commit completes them."""

from __future__ import annotations

from collections.abc import Mapping

from committer.committers.base import Committer
from committer.committers.magic.forms import MessageForms, PendingSetForms
from committer.committers.magic.layout import (
    MagicLayout,
    attempts_directory,
    run_directory,
    task_attempt_directory,
)
from committer.committers.magic.pending_files import PendingFiles
from committer.committers.publish_action import PublishAction
from committer.committers.upload_action import UPLOADS_NEED, UploadAction
from committer.errors import StoreError, StoreNotADirectoryError, StoreNotFoundError
from committer.layout import JobLayout
from committer.logs import job_logger
from committer.paths import StorePath
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.stages.abort_task import AbortRequest
from committer.stages.attempt_files import AttemptFiles
from committer.stages.base import RecordForms, StageContext
from committer.stages.task_output import AttemptIdentity, TaskOutput
from committer.stages.uploaded_files import UploadedFiles
from committer.stores.base import Store
from committer.stores.helpers import children_of

_log = job_logger("committer.committers")


class MagicCommitter(Committer):
    """S3A's magic committer: a file is sent to where it goes, and its upload stays open.

    For stores that have uploads and no renames: Amazon S3 and compatibles. By message nothing of it is in Hadoop's
    form; by listing all that tasks leave is, so that Java's tasks and drivers take part.
    """

    name = "magic"
    needs: Mapping[str, str] = UPLOADS_NEED
    action: PublishAction = UploadAction()
    listed_layout: type[JobLayout] = MagicLayout

    def forms(self, spec: JobSpec) -> RecordForms:
        """Hadoop's pending sets where they are listed, else this engine's task manifests."""
        return PendingSetForms() if spec.delivery == "listing" else MessageForms()

    def files_of(self, context: StageContext, identity: AttemptIdentity, directory: StorePath) -> AttemptFiles:
        """Uploads to where the files go."""
        by_listing = context.spec.delivery == "listing"
        return PendingFiles(context, identity) if by_listing else UploadedFiles(context, identity)

    async def newest_hadoop_attempt(self, store: Store, layout: JobLayout) -> int | None:
        """The newest that a task of Hadoop's committed to: two listings.

        What late tasks of this engine leave of a job that is over looks almost the same, but they name their records by
        the job's id, and Hadoop by MapReduce's.
        """
        try:
            attempts = [child.path.name async for child in store.list(attempts_directory(layout)) if child.is_directory]
            number = max(map(int, filter(str.isdecimal, attempts)), default=0)
            newest = MagicLayout(layout.destination, layout.job_id, number)
            own = newest.task_id(0).rpartition("_")[0]
            async for child in store.list(newest.manifests):
                name = child.path.name
                if name.endswith(newest.record_suffix) and not name.startswith(f"{own}_"):
                    return newest.job_attempt
        except (StoreNotFoundError, StoreNotADirectoryError):
            pass
        return None

    async def last_task_commit(self, store: Store, layout: JobLayout) -> float:
        """When the newest pending set was written: one listing, and one a job attempt."""
        newest = 0.0
        for attempt in await children_of(store, attempts_directory(layout)):
            if attempt.is_directory:
                records = [child for child in await children_of(store, attempt.path) if not child.is_directory]
                newest = max([newest, *(record.modified or 0.0 for record in records)])
        return newest

    async def commit_task(self, context: StageContext, output: TaskOutput) -> TaskCommit:
        """Runs `CommitTask`; then what told of single files is of no use any more."""
        message = await super().commit_task(context, output)
        if context.spec.delivery == "listing":
            identity = output.identity
            await _forget(context, _place_of(context, identity.task, identity.attempt, identity.nonce))
        return message

    async def abort_task(self, context: StageContext, request: AbortRequest) -> None:
        """Runs `AbortTask`; then nothing is left that it goes by."""
        await super().abort_task(context, request)
        if context.spec.delivery == "listing":
            await _forget(context, _place_of(context, request.task, request.attempt, request.nonce))


def _place_of(context: StageContext, task: int, attempt: int, nonce: str | None) -> StorePath:
    layout = context.layout
    attempt_id = layout.task_attempt_id(task, attempt)
    if nonce is None:
        return task_attempt_directory(layout, attempt_id)
    return run_directory(layout, attempt_id, nonce)


async def _forget(context: StageContext, place: StorePath) -> None:
    """Deletes the records of single files; what fails here goes with the job's cleanup, Hadoop's too."""
    try:
        await context.store.delete_directory(place, recursive=True)
    except StoreError as error:
        _log.warning("could not remove %s, which the job's cleanup does: %s", place, error)
