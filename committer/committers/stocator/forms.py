"""The records of a job whose files stand at their destinations, and what of it has lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from committer.committers.stocator.objects import losing_runs, objects_of, pending_at
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.manifest_forms import ManifestForms
from committer.stores.base import FileStatus
from committer.stores.helpers import status_or_none

MOST_FILES: Final = 1_000_000
"""How many files a job may have: `_SUCCESS` names each of them, in some 200 bytes, and is written in one call."""


class DirectForms(ManifestForms):
    """Task manifests, of objects that are at their destinations; `_SUCCESS` names all that won."""

    visible_early: bool = True
    filenames_limit: int = MOST_FILES
    names_all: bool = True

    async def outside(self, context: StageContext) -> list[FileStatus]:
        """The objects of runs that lost: one listing and 3 reads; of each such run one listing, a read for each part of
        its list, and a look for each object.
        """
        found: list[FileStatus] = []
        runs = await self.upload_lists(context)
        lost = await losing_runs(context, runs) if runs else []
        paths: list[StorePath] = []

        async def read(run: StorePath) -> None:
            paths.extend(await objects_of(context, run))

        async def look(path: StorePath) -> None:
            status = await status_or_none(context.store, path)
            if status is not None and not status.is_directory:
                found.append(status)

        workers = context.config.io_concurrency
        await run_workers(lost, read, workers=workers, operation="find_losers")
        await run_workers(paths, look, workers=workers, operation="find_losers")
        return found

    async def uploads_in(self, context: StageContext, place: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
        """What a writer that died left of the long files that the run's list names."""
        if place.parent.name == context.layout.uploads.name:
            for upload in await pending_at(context, await objects_of(context, place)):
                yield upload
