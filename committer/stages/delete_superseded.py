"""DeleteSuperseded: takes old files away where nothing can be moved aside, once the new ones stand for good."""

from __future__ import annotations

from committer.errors import StorePreconditionError
from committer.flow.workers import run_workers
from committer.records.job_state import Fact
from committer.stages.base import Stage
from committer.stages.commit_state import looking_again
from committer.stages.decided_facts import Facts
from committer.stores.conditions import CONDITIONAL_DELETE


class DeleteSuperseded(Stage[Facts, int]):
    """Deletes exactly what the decision says is superseded, each file on the condition that it still is the old one.

    Preconditions: outcome `committed`: from there on the job only goes forward, so the old files are not needed (G13).
    The replace lock is held.
    Postconditions: none of the recorded files is at its old place; a file that was put there since stays.
    Cost: one call a file.
    """

    name = "job_stage_delete_superseded"

    async def execute(self, value: Facts) -> int:
        """Deletes all, many at once; returns how many this call deleted."""
        deleted = 0

        async def delete(fact: Fact) -> None:
            nonlocal deleted
            if await looking_again(lambda: self._delete(fact)):
                deleted += 1
            self.context.progress.advance()

        async for facts in value.batches():
            await run_workers(facts, delete, workers=self.context.config.io_concurrency, operation=self.name)
        return deleted

    async def _delete(self, fact: Fact) -> bool:
        store, path = self.context.store, self.context.layout.target(fact.path)
        if fact.is_directory or fact.identity is None:
            return False
        try:
            return await CONDITIONAL_DELETE.required(store, "delete_file_if", path).delete_file_if(
                path, identity=fact.identity
            )
        except StorePreconditionError:
            return False
