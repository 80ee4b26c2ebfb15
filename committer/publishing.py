"""Publishing by workers: what a pool hands over, what it hands back, and what a worker calls."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from committer.committers.context import open_context
from committer.committers.opened_store import closed_on_failure, is_owned
from committer.committers.publish_part import publish_part
from committer.committers.registry import committer_for
from committer.errors import ConfigurationError
from committer.paths import StorePath
from committer.records.publish_chunk import PublishAccount, PublishChunk, PublishPool
from committer.stores.registry import find_store

__all__ = ["PublishAccount", "PublishChunk", "PublishPool", "publish_chunk"]


async def publish_chunk(chunk: PublishChunk, storage_options: Mapping[str, object] | None = None) -> PublishAccount:
    """Publishes a part of what a job has decided, for its driver: see ``Job.commit(publish_with=...)``.

    It may be called more than once for a chunk, by several processes at a time, and late: what is published already is
    found so, and a chunk of a job that ended, was taken back or removed changes nothing.

    Args:
        chunk: From the driver.
        storage_options: How to reach the store, resolved in this process.

    Returns:
        The account that the driver waits for, also where something failed.

    Raises:
        RecordError: The chunk was damaged on its way, or another release made it.
        ConfigurationError, UnsupportedError: The store cannot be opened here.
    """
    if not isinstance(chunk, PublishChunk):
        raise ConfigurationError(
            f"publish_chunk takes a PublishChunk, not a {type(chunk).__name__}",
            operation="publish_chunk",
            next_step="give what the driver handed to the pool, as it was",
        )
    rate = chunk.rate or 0
    spec = msgspec.structs.replace(chunk.spec, config=chunk.spec.config.replace(io_rate=rate, azure_io_rate=rate))
    store, owned = await find_store(StorePath.from_uri(spec.destination), storage_options), is_owned(storage_options)
    async with closed_on_failure(store, owned=owned):
        context = await open_context(spec, store, owned=owned)
    try:
        return await publish_part(context, committer_for(context.spec.committer).action, chunk)
    finally:
        await context.store.close()
