"""Mutants of publishing by workers."""

from __future__ import annotations

from typing import Any

import msgspec

from committer.api.publishing import publish_part
from committer.records.publish_chunk import PublishAccount, PublishChunk
from committer.stages.publish.publish import PublishFiles
from committer.stages.publish.publish_elsewhere import PublishElsewhere, state_of_chunk
from tests.simulate.patches import Patches


def chunk_acknowledged_before_done(patches: Patches) -> None:
    """A worker says that all of its chunk is in place when all but the last file is."""

    async def publish(context: Any, action: Any, chunk: PublishChunk) -> PublishAccount:
        def state_without_last(context: Any, chunk: PublishChunk) -> Any:
            state = state_of_chunk(context, chunk)
            state.files.in_memory.pop()
            return state

        inner = Patches()
        inner.function(state_of_chunk, state_without_last)
        try:
            account = await publish_part(context, action, chunk)
        finally:
            inner.undo()
        if account.problem:
            return account
        return msgspec.structs.replace(account, files=chunk.files, size=chunk.size)

    patches.function(publish_part, publish)


def any_account_counts(patches: Patches) -> None:
    """A driver takes every account for that of the chunk that it asked about, whatever it says."""

    def is_of(self: PublishAccount, chunk: PublishChunk) -> bool:
        return True

    patches.method(PublishAccount, "is_of", is_of)


def lost_worker_passed_over(patches: Patches) -> None:
    """A chunk that no worker answered for counts as published."""

    async def publish_here(self: Any, state: Any, run: Any, chunk: PublishChunk) -> None:
        self._count(chunk)

    patches.method(PublishElsewhere, "_publish_here", publish_here)


def chunk_published_over_what_stands(patches: Patches) -> None:
    """A worker whose rename fails sends it again without looking, over whatever exists there."""

    settle = getattr(PublishFiles, "_settle")  # noqa: B009

    async def forced(self: PublishFiles, file: Any, source: Any, target: Any, error: object) -> None:
        try:
            await self.context.store.rename_file(source, target, replace=True)
        except Exception:
            await settle(self, file, source, target, error)

    async def publish(context: Any, action: Any, chunk: PublishChunk) -> PublishAccount:
        # The driver's own stage stays as it is.
        stage = action.files(context)
        forced_stage = type("_Forced", (type(stage),), {"_settle": forced})

        class Action:
            def files(self, context: Any) -> Any:
                return forced_stage(context)

        return await publish_part(context, Action(), chunk)  # type: ignore[arg-type]

    patches.function(publish_part, publish)


OF_WORKERS = (
    chunk_acknowledged_before_done,
    any_account_counts,
    lost_worker_passed_over,
    chunk_published_over_what_stands,
)
