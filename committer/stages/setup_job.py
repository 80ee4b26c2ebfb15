"""SetupJob: claims the job id and makes the job's directories."""

from __future__ import annotations

from committer.errors import (
    JobExistsError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    UnsupportedError,
)
from committer.paths import StorePath
from committer.records.job_state import JobSetup, encode_record
from committer.stages.base import Stage
from committer.stages.cleanup import give_up_claim, remove_job_directory
from committer.stages.durability import sync_directories
from committer.stores.helpers import create_exclusively, exists

_TRIES = 10


class SetupJob(Stage[None, JobSetup]):
    """Claims the job id by creating the setup record, then makes the directories tasks need.

    Preconditions: the store renames files atomically and creates exclusively; nothing is in the job's directory.
    Postconditions: the setup record and the directories for task attempts and their records stand; the store proved
    that a rename keeps identity. Nothing at the destination outside `_temporary/<job id>` changed: an old `_SUCCESS`
    stays until the commit decision (Hadoop deletes it here).
    Failure modes: `JobExistsError` changes nothing; any later failure removes what was made.
    Cost: about 8 calls and the store's probe; with `durability="fsync"` 5 more, and 2 a directory made above.
    Hadoop: ``SetupJobStage``.
    """

    name = "job_stage_setup"
    statistic = "job_stage_setup"

    async def execute(self, value: None) -> JobSetup:
        """Claims, makes, proves."""
        layout, store = self.context.layout, self.context.store
        self._check_capabilities()
        setup = JobSetup(spec=self.context.spec, created=self.context.timestamp(), owner=self.context.driver)
        absent = await self._absent() if self.context.durable else []
        try:
            await self._claim(setup)
        except JobExistsError:
            raise
        except BaseException:
            # Cancelled, or its answers were lost: the claim may stand.
            await give_up_claim(self.context, encode_record(setup))
            raise
        try:
            await store.make_directory(layout.job_attempt_directory, parents=False)
            await store.make_directory(layout.tasks, parents=False)
            records = layout.manifests if self.context.spec.delivery == "listing" else layout.attempts
            await store.make_directory(records, parents=False)
            await store.probe(layout.job_attempt_directory)
            names = [layout.job_attempt_directory, layout.job_directory, layout.temporary, layout.destination]
            await sync_directories(self.context, [*names, *(path.parent for path in absent)])
        except BaseException:
            await remove_job_directory(self.context)
            raise
        return setup

    async def _absent(self) -> list[StorePath]:
        """Directories that will be made, from `_temporary` upwards."""
        absent: list[StorePath] = []
        path = self.context.layout.temporary
        while path != path.parent and not await exists(self.context.store, path):
            absent.append(path)
            path = path.parent
        return absent

    def _check_capabilities(self) -> None:
        can = self.context.store.capabilities
        missing = [
            text
            for has, text in (
                (can.atomic_file_rename, "rename a file atomically"),
                (can.no_replace_rename, "rename without replacing"),
                (can.exclusive_put, "create a file exclusively"),
            )
            if not has
        ]
        if missing:
            raise UnsupportedError(
                f"committer {self.context.spec.committer!r} needs a store that can {' and '.join(missing)}; "
                f"{self.context.store.scheme}:// cannot",
                operation=self.name,
                path=self.context.layout.destination,
                next_step="choose another committer for this store",
            )

    async def _claim(self, setup: JobSetup) -> None:
        layout, store = self.context.layout, self.context.store
        try:
            await self._make_directories()
        except (StoreExistsError, StoreNotADirectoryError) as error:
            raise StoreNotADirectoryError(
                f"a file stands where a directory must be: {error.path or layout.temporary}",
                operation=self.name,
                path=layout.destination,
                next_step="choose another destination, or remove the file",
                causes=[error],
            ) from error
        # A directory alone claims nothing: a lost answer to its creation cannot be told from somebody else's. The
        # record does. Anything else in the directory belongs to another job: Hadoop's, or one being cleaned up.
        wanted = encode_record(setup)
        if await self._is_vacant():
            found = await create_exclusively(store, layout.setup, wanted, durable=self.context.durable)
            if found == wanted:
                return
        raise JobExistsError(
            f"job id {layout.job_id} is in use at {layout.destination}",
            operation=self.name,
            path=layout.job_directory,
            next_step="choose another job id, or join the job with attach_job or open_task",
        )

    async def _make_directories(self) -> None:
        layout, store = self.context.layout, self.context.store
        for tries_left in reversed(range(_TRIES)):
            await store.make_directory(layout.temporary, parents=True)
            try:
                await store.make_directory(layout.job_directory, parents=False)
            except StoreNotFoundError:
                # The last job that was in `_temporary` ended, and removed it.
                if not tries_left:
                    raise
            else:
                return

    async def _is_vacant(self) -> bool:
        try:
            async for _child in self.context.store.list(self.context.layout.job_directory):
                return False
        except StoreNotFoundError:
            pass
        return True
