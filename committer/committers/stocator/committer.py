"""The committer stocator: tasks write objects whose names hold the attempt, and `_SUCCESS` lists those that count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from committer.committers.base import Committer
from committer.committers.publish_action import PublishAction
from committer.committers.stocator.abort_task import AbortDirectTask
from committer.committers.stocator.action import DIRECT_NEEDS, DirectAction
from committer.committers.stocator.files import DirectFiles
from committer.committers.stocator.forms import DirectForms
from committer.config import CommitterConfig
from committer.errors import UnsupportedError
from committer.paths import StorePath
from committer.spec import JobSpec
from committer.stages.abort_task import AbortRequest
from committer.stages.attempt_files import AttemptFiles
from committer.stages.base import RecordForms, StageContext
from committer.stages.task_output import AttemptIdentity


class StocatorCommitter(Committer):
    """IBM Stocator's way: a file is an object at the destination as soon as its task closes it. Unsafe by design.

    For object stores: one put a file, nothing is renamed or completed later. What that costs: a reader who lists the
    destination sees the files of task attempts before the job is decided, those of attempts that failed until a cleanup
    removes them, and those of earlier jobs beside them. Only `_SUCCESS` tells which count: it names every file of the
    last job that committed, and `committer.committed_files` reads it.

    The decision, the outcome, recovery and rolling back are those of every committer.
    """

    name = "stocator"
    unsafe: str = (
        "files are visible before the job is decided, and those of attempts that lost until a cleanup, to readers who "
        "do not go by _SUCCESS"
    )
    needs: Mapping[str, str] = DIRECT_NEEDS
    action: PublishAction = DirectAction()

    def forms(self, spec: JobSpec) -> RecordForms:
        """Task manifests of objects that are at their destinations."""
        return DirectForms()

    def files_of(self, context: StageContext, identity: AttemptIdentity, directory: StorePath) -> AttemptFiles:
        """Objects at the destination."""
        return DirectFiles(context, identity)

    def choices(self, config: CommitterConfig) -> CommitterConfig:
        """Refuses what it cannot mean.

        Raises:
            UnsupportedError: A conflict mode would take files of running jobs for old ones; without `_SUCCESS` nothing
                tells which files count; without a cleanup those that do not would stay.
        """
        if config.conflict_mode != "append":
            _refuse(
                f"conflict_mode={config.conflict_mode!r} goes by what stands at the destination, where tasks of "
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

    async def join_hadoop(self, context: StageContext) -> StageContext:
        """Refuses: Stocator is a filesystem, which Hadoop's committers know nothing of, and leaves no records.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "jobs that Hadoop set up cannot be joined: what its tasks write by Stocator's filesystem no record names",
            operation="attach_job",
            path=context.layout.destination,
            next_step="let its own driver commit it",
        )

    async def setup_task(self, context: StageContext, identity: AttemptIdentity) -> StorePath:
        """Runs `SetupTask`."""
        if context.spec.hadoop:
            await self.join_hadoop(context)
        return await super().setup_task(context, identity)

    async def abort_task(self, context: StageContext, request: AbortRequest) -> None:
        """Runs `AbortDirectTask`."""
        await AbortDirectTask(context).run(request)


def _refuse(what: str, step: str) -> NoReturn:
    raise UnsupportedError(what, operation="open_job", next_step=step)
