"""What tells of files that tasks moved to the destination themselves, and what is left to a job commit then."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import msgspec

from committer.committers.file.forms import outside_of
from committer.committers.file.layout import FileLayout
from committer.committers.publish_action import PublishAction
from committer.errors import JobStateError
from committer.records.manifest import DirectoryEntry, decode_task_manifest, encode_task_manifest
from committer.stages.base import StageContext
from committer.stages.commit_state import CommitState
from committer.stages.manifest_forms import ManifestForms
from committer.stages.move_aside import MoveAside
from committer.stages.publish import Published
from committer.stages.roll_back import RollBack, RollBackRequest
from committer.stages.set_aside_success import SetAsideSuccess
from committer.stages.task_output import TaskOutput
from committer.stages.validate_output import ValidateOutput
from committer.stores.base import FileStatus


class MergedForms(ManifestForms):
    """Task manifests, of files that are at their destinations before their job commits."""

    visible_early: bool = True
    forward_only: bool = True

    def encode_task(self, context: StageContext, output: TaskOutput, directories: list[DirectoryEntry]) -> bytes:
        """A task manifest, whose sources are named as those of every committer, and are gone by then."""
        run = output.directory
        data = super().encode_task(context, replace(output, directory=context.layout.tasks / run.name), directories)
        manifest = decode_task_manifest(data, source=str(run))
        return encode_task_manifest(msgspec.structs.replace(manifest, taskAttemptDir=run.uri))

    async def outside(self, context: StageContext) -> list[FileStatus]:
        """Its task attempts' directories: two listings."""
        return await outside_of(context, cast("FileLayout", context.layout))


class MergedAction(PublishAction):
    """Counts what tasks moved, which was looked at before the decision; what a rollback would take back stays.

    The only files moved aside are other writers' summary files that the tasks' files make stale.
    """

    async def publish(self, context: StageContext, state: CommitState) -> Published:
        """Sets `_SUCCESS` aside, counts, moves summaries aside, validates."""
        published = Published()
        await SetAsideSuccess(context).run(state.decision)
        async for batch in state.files.batches():
            published.add(context.layout, batch, len(batch))
        if state.superseded:
            await MoveAside(context).run(state.superseded)
        await ValidateOutput(context).run((state, published))
        return published

    async def supersede(self, context: StageContext, state: CommitState) -> None:
        """Does nothing: `publish` moved the superseded files aside."""

    def roll_back(self, context: StageContext) -> RollBack:
        """One that refuses."""
        return _NoRollBack(context)

    async def settle_rolled_back(self, context: StageContext, state: CommitState) -> None:
        """Nothing."""


class _NoRollBack(RollBack):
    def refuse(self, value: RollBackRequest) -> None:
        """Refuses always. No call; nothing was changed."""
        layout = self.context.layout
        raise JobStateError(
            f"job {layout.job_id} made its output visible when its tasks committed, and replaced what stood there: it "
            "can only go forward",
            operation=self.name,
            path=layout.destination,
            outcome="partial",
            next_step=f"{self.context.recover_call()} finishes it",
        )
