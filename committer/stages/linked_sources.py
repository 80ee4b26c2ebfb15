"""Whether a link leads to files that records name as their tasks' output: asked of many records at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from committer.errors import RecordError
from committer.stages.base import StageContext
from committer.stores.abilities import LINKS

# Directories that are asked about in one call; a record names one for each partition that its task wrote.
_AT_ONCE: Final = 1_000


class LinkedSources:
    """Refuses records with a source behind a link: it would move what is not the job's (G10).

    Where no links stand no call, else one for every thousand directories that sources are in, and one for the rest.

    Args:
        context: The job.
    """

    def __init__(self, context: StageContext) -> None:
        self._context = context
        self._able = LINKS.of(context.store)
        self._records: dict[str, str] = {}

    async def add(self, record: str, sources: Iterable[str]) -> None:
        """Notes the sources of a record; looks at what was noted where that is much.

        Raises:
            RecordError: As `look`.
        """
        if self._able is None:
            return
        self._records.update(dict.fromkeys((source.rpartition("/")[0] for source in sources), record))
        if len(self._records) >= _AT_ONCE:
            await self.look()

    async def look(self) -> None:
        """Looks at all that was noted since the last look.

        Raises:
            RecordError: A directory on the way to a source is a link.
        """
        records, self._records = self._records, {}
        if self._able is None or not records:
            return
        layout = self._context.layout
        link = await self._able.find_link(layout.tasks, records)
        if link is None:
            return
        record = next(record for directory, record in records.items() if f"{directory}/".startswith(f"{link}/"))
        raise RecordError(
            f"a source lies behind {link}, which is a link: what is there is not the job's to move",
            field="files",
            path=layout.record_path(record),
            operation="job_stage_load_manifests",
            next_step="run the task again, with the files themselves in its directory",
        )
