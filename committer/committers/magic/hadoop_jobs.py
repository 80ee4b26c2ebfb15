"""Jobs that Hadoop's magic committer set up: no record tells of them, only what their tasks committed."""

from __future__ import annotations

from committer.committers.magic.layout import MagicLayout, attempts_directory
from committer.errors import StoreNotADirectoryError, StoreNotFoundError
from committer.layout import JobLayout
from committer.stores.base import Store
from committer.stores.helpers import children_of


async def newest_attempt(store: Store, layout: JobLayout) -> int | None:
    """The newest job attempt of Hadoop's magic committer, if a task of Hadoop's committed to it; else None.

    What late tasks of this engine leave of a job that is over looks almost the same, but they name their records by the
    job's id, and Hadoop by MapReduce's. Two listings.
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


async def last_commit(store: Store, layout: JobLayout) -> float:
    """When a task last committed to a job of Hadoop's magic committer; 0 where none did, or the store does not say.

    One listing, and one a job attempt.
    """
    newest = 0.0
    for attempt in await children_of(store, attempts_directory(layout)):
        if attempt.is_directory:
            records = [child for child in await children_of(store, attempt.path) if not child.is_directory]
            newest = max([newest, *(record.modified or 0.0 for record in records)])
    return newest
