"""AbortDirectTask: removes what one task attempt wrote to the destination."""

from __future__ import annotations

from committer.committers.stocator.objects import delete_objects, objects_of
from committer.paths import StorePath
from committer.stages.abort_task import AbortRequest, AbortTask


class AbortDirectTask(AbortTask):
    """Removes the objects of the attempt's runs, once no record speaks for them.

    Their lists stay for the job's cleanup: what was under way when an attempt ended may arrive later.

    Cost: that of `AbortTask`; by ids a listing, and a read for each part of a list; a delete for each object.
    """

    async def _end_uploads(self, value: AbortRequest, attempt_id: str) -> None:
        if value.uploads is not None:
            await delete_objects(self.context, [path for path, _object in value.uploads])
            return
        for run in await self._listed_runs(value, attempt_id):
            await delete_objects(self.context, await objects_of(self.context, run))

    async def _listed_runs(self, value: AbortRequest, attempt_id: str) -> list[StorePath]:
        layout = self.context.layout
        if value.nonce is None:
            return await self._runs(layout.uploads, attempt_id)
        return [layout.uploads / layout.task_attempt_directory(value.task, value.attempt, value.nonce).name]
