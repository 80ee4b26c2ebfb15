"""The replace lock: a job that takes old files away holds it, so that no other job commits beside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from committer.advice import COMMIT_AGAIN, call
from committer.errors import (
    CommitterError,
    ConfigurationError,
    DestinationBusyError,
    JobNotFoundError,
    RecordError,
    StoreIsADirectoryError,
    StoreNotFoundError,
)
from committer.file_names import job_id_in
from committer.flow.workers import run_workers
from committer.layout import JobLayout, is_job_id
from committer.records.job_state import ReplaceLock, decode_record, encode_record, limit_of
from committer.stages.base import Stage, StageContext
from committer.stages.job_directory import look_at_job
from committer.stages.own_records import read_decision, read_outcome
from committer.stages.release_lock import kept_place, lock_at, take_away_lock
from committer.stores.helpers import create_exclusively

_LOCK_TRIES = 5
_MOST_NAMED = 10


class TakeReplaceLock(Stage[None, None]):
    """Takes the replace lock, then looks for other jobs that are about to commit, or have not finished with it.

    A job that has its outcome is still in the way: it is about to write `_SUCCESS`, or to put old files back. Were its
    files replaced before, its `_SUCCESS` would name files that are gone, and stand where this job's belongs.

    The lock is the job's: where another driver of the job took it, this one rests on it, and from then on only the
    job's end releases it. Each try of a commit is a driver of its own (`Job.commit`). So a try that finds the lock of
    an earlier one, which may still be given back by a request that is under way, rests on it too.

    Preconditions: this job's intent stands.
    Postconditions: the lock is this job's, and every other job that has an intent is finished.
    Failure modes: `DestinationBusyError` names every owner; the caller withdraws.
    Cost: 2 calls and one to three a neighbouring job; 3 more where another driver of the job took the lock.
    """

    name = "job_stage_take_replace_lock"

    async def execute(self, value: None) -> None:
        """Takes, looks."""
        await self._take_lock()
        await self._refuse_neighbours()

    async def _take_lock(self) -> None:
        layout = self.context.layout
        lock = ReplaceLock(
            job_id=layout.job_id,
            driver=self.context.driver,
            created=self.context.timestamp(),
            setup=layout.setup_name,
        )
        for tries_left in reversed(range(_LOCK_TRIES)):
            try:
                found = await create_exclusively(
                    self.context.store,
                    layout.replace_lock,
                    encode_record(lock),
                    # What a driver that dies leaves half written goes with its job.
                    temporary=layout.drivers / f"replace-lock-{self.context.driver}.tmp",
                    durable=self.context.durable,
                    limit=limit_of(ReplaceLock),
                )
            except StoreNotFoundError:
                # It was released since it stood in the way, or the job is gone with all of `_temporary`.
                await look_at_job(self.context.store, layout)
                if not tries_left:
                    raise
                continue
            standing = decode_record(found, ReplaceLock, source=str(layout.replace_lock))
            if standing.job_id != layout.job_id:
                raise _busy(self.context, [standing.job_id], "replaces data there")
            if standing.driver == self.context.driver or await self._rest_on(standing, lock):
                return
        raise _busy(self.context, [layout.job_id], "has another driver, which takes the lock again and again")

    async def _rest_on(self, standing: ReplaceLock, own: ReplaceLock) -> bool:
        """Keeps the lock of another driver of this job from being taken back. False when it was, so that none stands.

        The lock is never taken over: the other driver may be alive and decide in the moment in which none stands, and
        another job that looks in that moment commits beside this one.
        """
        context = self.context
        kept = kept_place(context, standing)
        try:
            found = await create_exclusively(
                context.store,
                kept,
                encode_record(own),
                temporary=context.layout.temporary_of(kept, context.driver),
                durable=context.durable,
                limit=limit_of(ReplaceLock),
            )
        except StoreNotFoundError:
            # What stood there was deleted since, or the job is gone.
            await look_at_job(context.store, context.layout)
            return False
        taken_back = decode_record(found, ReplaceLock, source=str(kept)).driver == standing.driver
        still = await lock_at(context, context.layout.replace_lock)
        if still is None or (still.job_id, still.driver) != (standing.job_id, standing.driver):
            return False
        if taken_back:
            # Its driver died half way, where a rename is a link and a delete. No driver rests on it.
            await take_away_lock(context, driver=standing.driver)
        return not taken_back

    async def _refuse_neighbours(self) -> None:
        layout = self.context.layout
        children = self.context.store.list(layout.temporary)
        neighbours = [job_id_in(child.path.name) async for child in children if child.is_directory]
        busy: dict[str, _InTheWay] = {}

        async def look(job_id: str) -> None:
            if job_id == layout.job_id or not is_job_id(job_id):
                return
            try:
                other = self.context.listed_layout(layout.destination, job_id, layout.job_attempt)
                found = await self._in_the_way(other)
            except (ConfigurationError, JobNotFoundError):
                return
            if found is not None:
                busy[job_id] = found

        await run_workers(neighbours, look, workers=self.context.config.io_concurrency, operation=self.name)
        if busy:
            owners = sorted(busy)
            raise _busy(self.context, owners, busy[owners[0]].what, causes=[one.error for one in busy.values()])

    async def _in_the_way(self, other: JobLayout) -> _InTheWay | None:
        """Why a job that replaces cannot commit beside another one; None when it can."""
        store = self.context.store
        try:
            found = await look_at_job(store, other)
            # An intent that came after a cleanup, where directories are not real, belongs to no job.
            if not (found.decided or (found.intents and not found.holds_no_job and not found.ended)):
                return None
            decision = await read_decision(store, other) if found.decided else None
            if decision is not None and decision.decision == "abort":
                return None
            if not found.ended:
                return _InTheWay("is being committed there")
            # Without a decision it is a kept outcome, or what a cleanup leaves: only a finished job comes that far.
            outcome = await read_outcome(store, other) if decision is not None else None
            if outcome is None or outcome.finished:
                return None
            return _InTheWay(
                "is committed there and has yet to write _SUCCESS"
                if outcome.outcome == "committed"
                else "is being rolled back there"
            )
        except (RecordError, StoreIsADirectoryError) as error:
            return _InTheWay(f"may be committed there: {error.message}", error)


class _InTheWay(NamedTuple):
    what: str
    error: CommitterError | None = None


def _busy(
    context: StageContext, owners: list[str], what: str, causes: Iterable[CommitterError | None] = ()
) -> DestinationBusyError:
    destination, job_id = str(context.layout.destination), context.layout.job_id
    if owners == [job_id]:
        who, step = f"job {job_id} {what}", f"{COMMIT_AGAIN}: it goes on from where the other driver stands"
    elif len(owners) == 1:
        who = f"job {owners[0]} {what}"
        step = (
            f"{COMMIT_AGAIN} once job {owners[0]} has ended; if its driver is dead, "
            f"{call('recover', destination, owners[0])} finishes it, and "
            f"{call('recover', destination, owners[0], rollback=True)} aborts it or takes it back"
        )
    else:
        more = f" and {len(owners) - _MOST_NAMED} more" if len(owners) > _MOST_NAMED else ""
        who = f"jobs {', '.join(owners[:_MOST_NAMED])}{more} are in the way, the first {what}"
        step = (
            f"{COMMIT_AGAIN} once each of these jobs has ended; if the driver of one is dead, "
            f"{call('recover', destination, owners[0])} finishes the first, and "
            f"{call('recover', destination, owners[0], rollback=True)} aborts it or takes it back"
        )
    return DestinationBusyError(
        f"job {job_id} cannot commit into {destination} now: {who}",
        owners=owners,
        operation="job_stage_declare_intent",
        path=destination,
        next_step=step,
        causes=[cause for cause in causes if cause is not None],
    )


async def look_for_lock(context: StageContext) -> Exception | None:
    """What keeps a job that replaces nothing, and whose intent stands, from going on: another one that replaces.

    Whatever goes wrong is returned rather than raised, so that it can go together with a call that must not be
    cancelled. One call.
    """
    try:
        owner = await lock_owner(context)
    except Exception as error:
        return error
    if owner is None or owner == context.layout.job_id:
        return None
    return _busy(context, [owner], "replaces data there")


async def is_held_since_decision(context: StageContext, decided_by: str) -> bool:
    """Whether the job holds the lock since it was decided, so that no other job of this engine ended since.

    The lock's own record tells, or that of the first driver that rests on it: 1 or 2 calls. Another driver
    of the job may have stood still before it took the lock, and takes it anew when the job has committed and released
    it, and other jobs have ended.

    Args:
        context: The job.
        decided_by: The driver that decided it.
    """
    lock = await lock_at(context, context.layout.replace_lock)
    if lock is None or lock.job_id != context.layout.job_id:
        return False
    if lock.driver == decided_by:
        return True
    resting = await lock_at(context, kept_place(context, lock))
    return resting is not None and resting.driver == decided_by


async def lock_owner(context: StageContext) -> str | None:
    """The job that holds the replace lock; None when none does. One call."""
    lock = await lock_at(context, context.layout.replace_lock)
    return lock.job_id if lock is not None else None
