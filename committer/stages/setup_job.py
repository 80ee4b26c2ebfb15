"""SetupJob: claims the job id and makes the job's directories."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from committer.advice import call
from committer.documentation import page
from committer.errors import (
    CommitterError,
    JobExistsError,
    JobNotFoundError,
    StoreCrossDeviceError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    UnsupportedError,
)
from committer.events import names
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.flow.together import both, together
from committer.flow.workers import run_workers
from committer.records.job_state import JobSetup, encode_record, limit_of
from committer.stages.base import Stage, StageContext
from committer.stages.cleanup import remove_job_directory
from committer.stages.destination_file import enclose_file, file_in_the_way, refuse_object
from committer.stages.durability import missing_directories, sync_directories
from committer.stages.job_directory import JobDirectory, list_job_directory, stands_beside
from committer.stages.other_setup import delete_seen
from committer.stages.removal import remove_records
from committer.stores.base import FileStatus
from committer.stores.helpers import children_of, create_once, status_or_none

_CLAIM_TRIES = 10


class SetupJob(Stage[None, str | None]):
    """Claims the job id by creating the setup record, then makes the directories tasks need.

    Args:
        context: The job.
        needs: What the committer needs of the store: capabilities, each with what it is to say.

    Attributes:
        given_up: Whether it failed since the answer to the setup record's put was lost, and nothing of it was left.

    Preconditions: the store can what the committer needs; the job's directory holds no record of any job: what a driver
    left there that died in a setup, or came to a job of this id that was over, does not keep the id.
    Postconditions: the setup record and the directories for task attempts and their records stand; the store proved
    that a rename keeps identity. Nothing at the destination outside `_temporary/<job id>` changed: an old `_SUCCESS`
    stays until the commit decision (Hadoop deletes it here). Roots outside the destination stand, and are on its volume
    as far as that can be tried. With `durability="fsync"` the name of every directory made
    here survives a power loss, those of the destination and its parents too.
    Returns: the setup record's identity, on stores that take late writes: a driver that decides tells it by that from
    one that a late request makes after a cleanup.
    A setup record whose answer was lost, and that does not stand then, is given up (`given_up`), and not put again: it
    may have stood and been ended, and who ended it would take the job for that one. The job is set up under another
    name then (`committer.committers.setting_up`).
    Failure modes: `JobExistsError` changes nothing, and neither does a first call that is refused or cannot be made (no
    credentials, no such server); any other failure, and a cancellation, removes what was made below `_temporary`, so
    that the id is free again; where that fails too the error says so.
    Cost: about 10 calls in 7 round trips, and the store's probe beside the last; with `outcome_kept` one more. On
    stores that take late writes one look at the setup record beside the last, too; where directories are not real, one
    at the destination beside the first. With
    `durability="fsync"` 6 more (one look, five directories synced), one where `_temporary` is made, and two a directory
    made above it. For a failed setup 5 or 6. For a root 4. Two for an intent that was left there.
    Hadoop: ``SetupJobStage``.
    """

    name = statistic = names.JOB_STAGE_SETUP

    def __init__(self, context: StageContext, needs: Mapping[str, str]) -> None:
        super().__init__(context)
        setup = JobSetup(spec=context.spec, created=context.timestamp(), owner=context.driver)
        self._needs, self._claimed_as = needs, encode_record(setup)
        self._began_to_make = self._lost = False
        self.given_up: bool = False

    async def execute(self, value: None) -> str | None:
        """Claims, makes, proves."""
        layout, store = self.context.layout, self.context.store
        check_store(self.context, self._needs, operation=self.name)
        claim = self._claimed_as
        missing = await missing_directories(self.context, layout.temporary)
        for root in sorted(layout.roots):
            missing += await missing_directories(self.context, layout.target(root))
        try:
            left = await self._claim(claim)
            if left:
                await store.make_directory(layout.drivers, parents=False)
                await self._remove_intents(left)
            # The directory of drivers is made once: what shows that this setup stands must not come back after a pause.
            first = [layout.job_attempt_directory] if left else [layout.job_attempt_directory, layout.drivers]
            await together(*(store.make_directory(directory, parents=False) for directory in first))
            records = layout.records_of(by_listing=self.context.spec.delivery == "listing")
            # First: a driver that tidies up after an earlier job of this id takes a place for old files that stands
            # alone.
            await store.make_directory(layout.tasks, parents=False)
            # A driver that joins a job that is being set up waits for the directory of records.
            identity, _made = await both(
                self._identify(claim),
                together(
                    store.make_directory(layout.superseded, parents=False),
                    *(
                        self.context.holding(place).make_directory(
                            place, parents=layout.keeps_elsewhere or layout.beside is not None
                        )
                        for place in records
                    ),
                    store.probe(layout.job_attempt_directory),
                    self._prove_roots(),
                ),
            )
            # The probe may have found that the store can do less than it thought.
            check_store(self.context, self._needs, operation=self.name)
            # What a task commits rests on every name above it. `_temporary` may be another job's, made a moment ago and
            # not synced yet.
            made_in = {directory.parent for directory in missing}
            made_in.update((layout.drivers, layout.job_attempt_directory, layout.job_directory))
            made_in.update((layout.temporary, layout.destination))
            await sync_directories(self.context, made_in)
        except JobExistsError:
            raise
        except BaseException as error:
            if not self._began_to_make and isinstance(error, CommitterError) and error.outcome == "unchanged":
                # A look for what is left would fail as this call did, and advice about it would hide what is wrong.
                raise
            # Also while claiming: a create that was cancelled or whose answer was lost may have come through.
            free = await remove_job_directory(self.context, claim)
            self.given_up = self._lost and free
            if isinstance(error, CommitterError):
                self._say_what_is_left(error, free=free)
            raise
        return identity

    async def take_back(self) -> bool:
        """Removes the record of this setup that came after it was given up, as long as nothing goes by it.

        Another driver may have joined the job since, by its id, and have decided it: then it is that driver's. 2 calls,
        4 where a job may keep things beside, and those of the removal.

        Returns:
            Whether it stood there, and nothing of it is left.
        """
        store, layout = self.context.store, self.context.layout
        if not await self._stands(self._claimed_as):
            return False
        children = (await self._standing()).children
        rest = JobDirectory(layout, {name: child for name, child in children.items() if child.path != layout.setup})
        if rest.intents or not rest.is_remains or await stands_beside(store, layout):
            return False
        return await remove_job_directory(self.context, self._claimed_as)

    def _say_what_is_left(self, error: CommitterError, *, free: bool) -> None:
        job_id = self.context.layout.job_id
        if not free:
            error.message = f"{error.message}; what was made of job {job_id} until then may still be there"
            cause = error.next_step or "remove the cause"
            again = f"run it again, and where the id is in use call {self.context.cleanup_call()}: it frees the id"
            error.next_step = f"{cause}; then {again}"
        elif error.outcome == "unknown":
            error.outcome = "unchanged"
            error.next_step = error.next_step or f"set the job up again; its id {job_id} is free"

    async def _identify(self, claim: bytes) -> str | None:
        """Looks at the setup record once this driver's directory stands, by which others tell that the job is set up.

        This driver may have stood still since it claimed the id, and the job have been ended and another one set up.
        """
        layout, store = self.context.layout, self.context.store
        identity = None
        try:
            if not store.capabilities.refuses_late_writes:
                identity = (await store.status(layout.setup)).identity
        except StoreNotFoundError:
            raise self._ended_meanwhile() from None
        if not await self._stands(claim):
            raise self._ended_meanwhile()
        return identity

    async def _stands(self, claim: bytes) -> bool:
        """Whether the setup record is this driver's: one call."""
        try:
            return await self.context.store.read(self.context.layout.setup, limit=limit_of(JobSetup)) == claim
        except StoreNotFoundError:
            return False

    def _ended_meanwhile(self) -> JobNotFoundError:
        layout = self.context.layout
        return JobNotFoundError(
            f"job {layout.job_id} was ended while it was set up",
            operation=self.name,
            path=layout.setup,
            next_step="find out who ended it, then set it up again",
        )

    async def _prove_roots(self) -> None:
        roots, workers = sorted(self.context.layout.roots), self.context.config.io_concurrency
        await run_workers(roots, self._prove_root, workers=workers, operation=self.name)

    async def _prove_root(self, root: str) -> None:
        """Makes a root outside the destination, and tries to rename something into it.

        Whether a directory is on another volume cannot be told from its name, nor from its device (bind mounts). What
        is tried is an empty directory, so that no reader finds a file there before the job is decided. Where a store
        cannot rename one, publishing finds out, and the job is taken back.
        """
        layout, store = self.context.layout, self.context.store
        directory = layout.target(root)
        probe = layout.probe_in(root)
        source = layout.job_attempt_directory / f"{probe.name}-{self.context.runtime.nonce()}"
        try:
            await store.make_directory(directory, parents=True)
            if not store.capabilities.atomic_directory_rename:
                return
            await store.make_directory(source, parents=False)
            try:
                await store.rename_directory(source, probe)
            except (StoreOutcomeUnknownError, UnsupportedError, StoreExistsError):
                # Then publishing finds out. One that stands there is of a job of this id that died in its setup.
                pass
            finally:
                await run_shielded(lambda: store.delete_directory(probe, recursive=False), bound_s=UNDO_BOUND_S)
        except StoreCrossDeviceError as error:
            raise UnsupportedError(
                f"absolute_roots: no file of job {layout.job_id} can be renamed into {directory}: it is on another "
                f"volume than the destination {layout.destination}",
                operation=self.name,
                path=directory,
                next_step="write there with a job of its own, whose destination it is",
                causes=[error],
            ) from error
        except (StoreExistsError, StoreNotADirectoryError) as error:
            raise StoreNotADirectoryError(
                f"a file stands where a directory must be: {error.path or directory}",
                operation=self.name,
                path=directory,
                next_step="name another root, or remove the file",
                causes=[error],
            ) from error

    async def _claim(self, claim: bytes) -> list[FileStatus]:
        """Claims the id.

        Returns:
            Intents to commit an earlier job of this id.
        """
        for tries_left in reversed(range(_CLAIM_TRIES)):
            try:
                return await self._try_to_claim(claim)
            except StoreNotFoundError:
                # Another job that ends takes an empty `_temporary` with it, and one that gives its setup up takes the
                # directory of an id that no driver claimed yet.
                if not tries_left:
                    raise
        raise AssertionError(claim)

    async def _try_to_claim(self, claim: bytes) -> list[FileStatus]:
        layout, store = self.context.layout, self.context.store
        try:
            await store.make_directory(layout.job_directory, parents=True)
            # Elsewhere that was no call.
            self._began_to_make = store.capabilities.directories
        except (StoreExistsError, StoreNotADirectoryError) as error:
            if not await enclose_file(self.context):
                raise await file_in_the_way(self.context, self.name, error) from error
            return await self._try_to_claim(claim)
        # A directory alone claims nothing: a lost answer to its creation cannot be told from another driver's.
        # The record does. Anything else in the directory belongs to another job: Hadoop's, or one being cleaned up.
        remains, _none = await both(self._remains(), refuse_object(self.context, self.name))
        if remains is not None:
            self._began_to_make = True
            found = await create_once(
                store, layout.setup, claim, durable=self.context.durable, limit=limit_of(JobSetup)
            )
            if isinstance(found, StoreOutcomeUnknownError):
                self._lost = True
                raise found
            if found == claim and not await self._is_taken(claim):
                return [remains.children[name] for name in remains.intents]
        raise JobExistsError(
            f"job id {layout.job_id} is in use at {layout.destination}",
            operation=self.name,
            path=layout.job_directory,
            next_step="choose another job id, or join the job with attach_job or open_task; if its driver is dead, "
            f"{call('list_jobs', str(layout.destination))} says how far it came, and {page('recovery.md')} "
            "what ends it",
        )

    async def _is_taken(self, claim: bytes) -> bool:
        """Whether a job of this id that ended between the look at its directory and the claim still has records there.

        Its setup record was cleaned up since, so that this one could be created; it is taken back. Another process is
        about to remove the records, or they are to be kept.

        A process that is still at the removal of an earlier job of this id, and stands still, is kept out: it
        removes through a directory of its own, and can do nothing more once that is gone (`RemovalByRename`).

        Raises:
            JobNotFoundError: One of these took the record, or the job was ended since. This setup of the id is over
                then, and never claimed again: who ended it would take the job for that one.
        """
        layout, store = self.context.layout, self.context.store
        children = await children_of(store, layout.job_directory)
        found = JobDirectory(layout, {child.path.name: child for child in children})
        if found.decided or found.ended:
            await remove_records(self.context, [layout.setup])
            return True
        for left in found.being_removed:
            await store.delete_directory(left.path, recursive=True)
        if (found.being_removed or not found.set_up) and not await self._stands(claim):
            raise self._ended_meanwhile()
        return False

    async def _remains(self) -> JobDirectory | None:
        """What stands in the job's directory when that is no job; else None."""
        found = await self._standing()
        if not found.is_remains or await stands_beside(self.context.store, self.context.layout):
            return None
        return found

    async def _standing(self) -> JobDirectory:
        store, layout = self.context.store, self.context.layout
        children: list[FileStatus] = []
        with suppress(StoreNotFoundError):
            children = await list_job_directory(store, layout)
        return JobDirectory(layout, {child.path.name: child for child in children})

    async def _remove_intents(self, intents: list[FileStatus]) -> None:
        """Removes intents to commit an earlier job of this id: a recovery would take them for this job's.

        Not before the id is claimed: until then they may become another driver's that claims it. And not by name: by
        now they may be those of another job, whose driver set the id up when this one stood still.
        """
        for left in intents:
            standing = await status_or_none(self.context.store, left.path)
            if standing is not None and _tells(standing) == _tells(left):
                await delete_seen(self.context, left.path, standing)


def _tells(status: FileStatus) -> tuple[object, ...]:
    return status.identity, status.size, status.modified


def check_store(context: StageContext, needs: Mapping[str, str], *, operation: str) -> None:
    """Refuses a committer that the job's store cannot serve; no call.

    Args:
        context: The job.
        needs: What the committer needs of the store: capabilities, each with what it is to say.
        operation: What was called.

    Raises:
        UnsupportedError: The store lacks some of them.
    """
    can = context.store.capabilities
    missing = [text for ability, text in needs.items() if not getattr(can, ability)]
    if missing:
        raise UnsupportedError(
            f"committer {context.spec.committer!r} needs a store that can {' and '.join(missing)}; "
            f"{context.store.scheme}:// cannot",
            operation=operation,
            path=context.layout.destination,
            next_step="leave `committer` out, which takes the one that suits the store, or write to another store",
        )
