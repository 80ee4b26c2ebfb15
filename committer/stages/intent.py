"""Intent and replace lock: how jobs that commit into one destination keep out of each other's way (G11)."""

from __future__ import annotations

from dataclasses import dataclass

from committer.errors import (
    CommitterError,
    ConfigurationError,
    DestinationBusyError,
    JobNotFoundError,
    RecordError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
)
from committer.flow.workers import run_workers
from committer.layout import JobLayout, check_job_id
from committer.paths import StorePath
from committer.records.job_state import Intent, NamedRecord, ReplaceLock, decode_record, encode_record
from committer.stages.base import Stage, StageContext
from committer.stages.cleanup import remove_emptied
from committer.stages.job_directory import look_at_job, read_decision, read_record
from committer.stores.helpers import create_exclusively

_LOCK_TRIES = 5


@dataclass(frozen=True, slots=True)
class CommitIntent:
    """What a commit is about to do.

    Attributes:
        winners: Records named by messages; None for a listing.
        tasks: How many tasks the job has; None when unknown.
        replacing: Whether old files will be taken away.
    """

    winners: list[NamedRecord] | None
    tasks: int | None
    replacing: bool


class DeclareIntent(Stage[CommitIntent, StorePath]):
    """Writes the intent, then looks for the replace lock; a replacing job takes the lock, then looks for intents.

    Either order of the two jobs lets at least one of them see the other, and who does withdraws.

    A driver that finds another one's intent, dead or alive, writes one of its own beside it. So whoever withdraws takes
    back nothing that another driver of the job rests on.

    Preconditions: the job stands, undecided.
    Postconditions: the intent stands; for a replacing job so does the lock, and no other job's intent does.
    Returns: this driver's own intent.
    Failure modes: `DestinationBusyError` names the owner; an intent of one's own, and the lock, are gone again.
    Cost: 2 calls; for a replacing job 1 more and one a neighbouring job; 2 more beside another driver.
    """

    name = "job_stage_declare_intent"

    async def execute(self, value: CommitIntent) -> StorePath:
        """Declares, looks, withdraws when somebody is in the way."""
        layout = self.context.layout
        try:
            own = await self._declare(value)
        except StoreNotFoundError as error:
            raise JobNotFoundError(
                f"the directory of job {layout.job_id} vanished: somebody cleaned it up, or a Hadoop committer deleted "
                "all of _temporary",
                operation=self.name,
                path=layout.job_directory,
                next_step="run the job again; nothing was published",
                causes=[error],
            ) from error
        try:
            if value.replacing:
                await TakeReplaceLock(self.context).run(None)
            else:
                owner = await lock_owner(self.context)
                if owner is not None and owner != layout.job_id:
                    raise _busy(self.context, owner, "replaces data there")
        except CommitterError:
            await withdraw(self.context, own, keep_lock=own != layout.intent)
            raise
        return own

    async def _declare(self, value: CommitIntent) -> StorePath:
        layout, store, durable = self.context.layout, self.context.store, self.context.durable
        intent = Intent(
            job_id=layout.job_id,
            driver=self.context.driver,
            created=self.context.timestamp(),
            winners=value.winners,
            tasks=value.tasks,
            replacing=value.replacing,
        )
        wanted = encode_record(intent)
        found = await create_exclusively(store, layout.intent, wanted, durable=durable)
        standing = decode_record(found, Intent, source=str(layout.intent))
        own = layout.intent
        if standing.driver != self.context.driver:
            own = layout.joined_intent(self.context.driver)
            await store.put(own, wanted, durable=durable)
        if (standing.winners, standing.tasks) != (intent.winners, intent.tasks):
            # Another try with other winners: whoever recovers now must take these.
            await store.put(layout.intent, wanted, durable=durable)
        return own


class TakeReplaceLock(Stage[None, None]):
    """Takes the replace lock, then looks for other jobs that are about to commit.

    Preconditions: this job's intent stands.
    Postconditions: the lock is this job's, and no other job has an intent without an end.
    Failure modes: `DestinationBusyError` names the owner; the caller withdraws.
    Cost: 2 calls and one or two a neighbouring job.
    """

    name = "job_stage_take_replace_lock"

    async def execute(self, value: None) -> None:
        """Takes, looks."""
        await self._take_lock()
        await self._refuse_neighbours()

    async def _take_lock(self) -> None:
        layout = self.context.layout
        lock = ReplaceLock(job_id=layout.job_id, driver=self.context.driver, created=self.context.timestamp())
        for tries_left in reversed(range(_LOCK_TRIES)):
            try:
                found = await create_exclusively(
                    self.context.store,
                    layout.replace_lock,
                    encode_record(lock),
                    # What a driver that dies leaves half written goes with its job.
                    temporary=layout.job_directory / f"replace-lock-{self.context.driver}.tmp",
                    durable=self.context.durable,
                )
            except StoreNotFoundError:
                # It was released since it stood in the way, or the job is gone with all of `_temporary`.
                await look_at_job(self.context.store, layout)
                if not tries_left:
                    raise
                continue
            standing = decode_record(found, ReplaceLock, source=str(layout.replace_lock))
            if standing.job_id != layout.job_id:
                raise _busy(self.context, standing.job_id, "replaces data there")
            if standing.driver == self.context.driver:
                return
            # Another driver of this job took it, and takes it back should it withdraw.
            await release_lock(self.context)
        raise _busy(self.context, layout.job_id, "has another driver, which takes the lock again and again")

    async def _refuse_neighbours(self) -> None:
        layout = self.context.layout
        neighbours = [
            child.path.name async for child in self.context.store.list(layout.temporary) if child.is_directory
        ]

        async def look(job_id: str) -> None:
            if job_id == layout.job_id:
                return
            try:
                other = JobLayout(layout.destination, check_job_id(job_id), layout.job_attempt)
                found = await look_at_job(self.context.store, other)
                # An intent that came after a cleanup, where directories are not real, is nobody's.
                if found.ended or not (found.decided or (found.intents and not found.is_void)):
                    return
                decision = await read_decision(self.context.store, other) if found.decided else None
            except (ConfigurationError, JobNotFoundError):
                return
            except (RecordError, StoreIsADirectoryError) as error:
                raise _busy(self.context, job_id, f"may be committed there: {error.message}") from error
            if decision is None or decision.decision == "commit":
                raise _busy(self.context, job_id, "is being committed there")

        await run_workers(neighbours, look, workers=self.context.config.io_concurrency, operation=self.name)


def _busy(context: StageContext, owner: str, what: str) -> DestinationBusyError:
    destination = str(context.layout.destination)
    return DestinationBusyError(
        f"job {context.layout.job_id} cannot commit into {destination} now: job {owner} {what}",
        owner=owner,
        operation=DeclareIntent.name,
        path=destination,
        next_step=f"commit again once job {owner} has ended; if its driver is dead, "
        f"recover({destination!r}, {owner!r}) or abort it",
    )


async def lock_owner(context: StageContext) -> str | None:
    """The job that holds the replace lock; None when nobody does. One call."""
    lock = await _lock_at(context, context.layout.replace_lock)
    return lock.job_id if lock is not None else None


async def _lock_at(context: StageContext, path: StorePath) -> ReplaceLock | None:
    try:
        return await read_record(context.store, path, ReplaceLock)
    except StoreNotADirectoryError:
        return None


async def release_lock(context: StageContext, *, driver: str | None = None) -> None:
    """Releases the replace lock when this job holds it: 1 call when it does not, else 4.

    By a rename, which is never repeated blindly: a second delete after a lost answer could take another job's lock.
    What was taken is looked at, and put back should it be another's after all.

    Args:
        context: The job.
        driver: Only a lock that this driver took.
    """
    layout, store = context.layout, context.store

    def is_own(lock: ReplaceLock | None) -> bool:
        return lock is not None and lock.job_id == layout.job_id and driver in (None, lock.driver)

    try:
        # Looked at before it is read, so that a rename that is told the identity cannot take one that came later.
        known = await store.status(layout.replace_lock) if store.capabilities.conditional_rename else None
        if not is_own(await _lock_at(context, layout.replace_lock)):
            return
    except (RecordError, StoreNotFoundError):
        return
    identity = known.identity if known is not None else None
    # Into the job's directory, so that cleanup finds it should this driver die right here; beside the lock only when
    # that directory is gone.
    for taken in (
        layout.job_directory / f"replace-lock-{context.driver}",
        layout.temporary / f"{layout.replace_lock.name}-{layout.job_id}",
    ):
        try:
            await store.rename_file(layout.replace_lock, taken, replace=True, identity=identity)
            break
        except StorePreconditionError:
            # Released and taken anew since.
            return
        except StoreNotFoundError:
            if not is_own(await _lock_at(context, layout.replace_lock)):
                return
        except StoreOutcomeUnknownError:
            if await _lock_at(context, taken) is None:
                raise
            break
    else:
        return
    found = await _lock_at(context, taken)
    if found is not None and not is_own(found):
        try:
            await store.rename_file(taken, layout.replace_lock)
            return
        except StoreExistsError:
            pass
    await store.delete_file(taken)


async def remove_taken_lock(context: StageContext) -> None:
    """Removes the lock that a driver of this job had taken away when it died, and the job's directory was gone."""
    layout = context.layout
    taken = layout.temporary / f"{layout.replace_lock.name}-{layout.job_id}"
    try:
        lock = await _lock_at(context, taken)
    except RecordError:
        return
    if lock is not None and lock.job_id == layout.job_id:
        await context.store.delete_file(taken)
        await remove_emptied(context)


async def withdraw(context: StageContext, intent: StorePath, *, keep_lock: bool = False) -> None:
    """Takes a driver's intent back, and the lock where this driver took it and no other one of the job rests on it."""
    if not keep_lock:
        await release_lock(context, driver=context.driver)
    await context.store.delete_file(intent)
