"""The stage that deletes old files where nothing can be moved aside, after the new ones are final."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from committer.errors import CommitterError, StorePreconditionError
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.records.job_state import Fact
from committer.stages.base import Stage
from committer.stages.decide.commit_state import looking_again
from committer.stages.facts import Facts
from committer.stores.abilities import BATCH_DELETE, SupportsBatchDelete
from committer.stores.helpers import delete_seen

# Batch calls at a time. Each costs as much of the endpoint's rate as it has files, and delays other jobs of the
# process.
_CALLS_AT_ONCE: Final = 2


class DeleteSuperseded(Stage[Facts, None]):
    """Stage that deletes the superseded files of the decision, each on the condition of its old identity.

    A batch call is repeated after a lost response: what it deleted is absent then, and what another job has written
    since does not meet its condition. Files that such a call does not settle are deleted singly.

    Preconditions: outcome `committed`: from there on the job only goes forward, so the old files are not needed
    (G13). No other job commits there: this one's entry exists.
    Postconditions: none of the recorded files is at its old place; a file that was written there since stays.
    Cost: one call for as many files as the store deletes conditionally in one (S3: 1,000); elsewhere one per file.
    """

    name = "job_stage_delete_superseded"

    async def execute(self, value: Facts) -> None:
        """Deletes all, many concurrently."""
        store = self.context.store
        able = BATCH_DELETE.of(store) if store.capabilities.conditional_batch_delete else None
        async for facts in value.batches():
            if able is None:
                await self._delete_each(facts)
            else:
                await self._delete_in_groups(facts, able)

    async def _delete_in_groups(self, facts: list[Fact], able: SupportsBatchDelete) -> None:
        most = self.context.store.capabilities.max_batch_delete or len(facts)

        async def delete(first: int) -> None:
            group = facts[first : first + most]
            left = group if len(group) == 1 else await self._delete_together(group, able)
            self.context.progress.advance(len(group) - len(left))
            await self._delete_each(left)

        await run_workers(range(0, len(facts), most), delete, workers=_CALLS_AT_ONCE, operation=self.name)

    async def _delete_together(self, facts: Sequence[Fact], able: SupportsBatchDelete) -> Sequence[Fact]:
        """Deletes files in one call; returns those that still exist, or may."""
        # A refusal is not interpreted here: some services answer for a missing file as for a changed one.
        identities: dict[StorePath, str | None] = {}
        by_path: dict[StorePath, Fact] = {}
        for fact in facts:
            if fact.identity is not None and not fact.is_directory:
                path = self.context.layout.target(fact.path)
                identities[path], by_path[path] = fact.identity, fact
        try:
            refused = await able.delete_files(identities)
        except CommitterError:
            return facts
        return [by_path[path] for path in refused]

    async def _delete_each(self, facts: Sequence[Fact]) -> None:
        async def delete(fact: Fact) -> None:
            await looking_again(lambda: self._delete(fact))
            self.context.progress.advance()

        await run_workers(facts, delete, workers=self.context.config.io_concurrency, operation=self.name)

    async def _delete(self, fact: Fact) -> bool:
        store, path = self.context.store, self.context.layout.target(fact.path)
        if fact.is_directory or fact.identity is None:
            return False
        try:
            return await delete_seen(store, path, identity=fact.identity)
        except StorePreconditionError:
            return False
