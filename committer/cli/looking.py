"""Looking at one job, and at the replace lock: what stands, and what of it cannot be read."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from committer.committers.registry import layout_for
from committer.errors import CommitterError, JobNotFoundError, RecordError, StoreError, StoreLinkError
from committer.layout import JobLayout, is_job_id
from committer.paths import StorePath
from committer.readable import count
from committer.records.job_state import Decision, Intent, JobOutcome, ReplaceLock
from committer.stages.job_directory import JobDirectory, look_at_job, refuse_links
from committer.stages.own_records import read_decision, read_intent, read_outcome, read_record, read_setup
from committer.stores.base import Store


@dataclass(frozen=True, slots=True)
class Look:
    """What stands of one job.

    Attributes:
        found: The children of its directory; None when that is gone.
        decision: Its decision, if any.
        outcome: Its outcome, if any.
        intent: The intent of a driver that began to commit it, if any.
        problem: Why one of its records cannot be read; empty when all can.
        is_damaged: Whether that record itself is at fault: not the store, nor a release too old to read it.
        link: A link in the place of one of its directories or records, as the error that names it; None without one.
        absent: Where nothing stands of it, the error that says so, and why none can be there.
        is_out_of_sight: Whether its directory cannot be listed.
    """

    found: JobDirectory | None
    decision: Decision | None = None
    outcome: JobOutcome | None = None
    intent: Intent | None = None
    problem: str = ""
    is_damaged: bool = False
    link: StoreLinkError | None = None
    absent: JobNotFoundError | None = None
    is_out_of_sight: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether its fate is decided: nothing is left to plan."""
        return self.decision is not None or self.outcome is not None

    @property
    def is_no_job(self) -> bool:
        """Whether a directory of that name stands, and no job in it."""
        return self.found is not None and _is_no_job(self.found)

    @property
    def is_kept(self) -> bool:
        """Whether its outcome is kept, so that a stream that repeats the job finds it committed."""
        return self.outcome is not None and self.outcome.kept

    @property
    def words(self) -> str:
        """The job's state in words."""
        if self.link is not None:
            return f"cannot be looked at: {self.link.message}"
        if self.problem:
            return f"cannot be read: {self.problem}"
        if self.outcome is not None:
            last = "" if self.outcome.finished else "; its last steps may be missing"
            last += "; its outcome is kept for a stream" if self.is_kept else ""
            return f"ended: {self.outcome.outcome}{last}"
        if self.decision is not None:
            size = f", {count(self.decision.files, 'file')}" if self.decision.decision == "commit" else ""
            return f"decided ({self.decision.decision}{size}), not ended"
        if self.found is None:
            return "gone: it ended and was cleaned up, or never was here"
        if self.intent is not None:
            return "undecided; a driver began to commit it"
        return "open" if not self.is_no_job else "no job: its directory holds no record of one"


class LockRow(msgspec.Struct, frozen=True, kw_only=True):
    """The replace lock.

    Attributes:
        job_id: The job that holds it; empty when its record cannot be read.
        orphan: Whether that job's directory is gone, or holds no job, so that no driver will release it.
        created: When it was taken, as the record says.
    """

    job_id: str
    orphan: bool
    created: str = ""


async def look_at(store: Store, layout: JobLayout) -> Look:
    """Looks at one job: 1 call, on a local disk 2, and one a record it has."""
    try:
        found = await look_at_job(store, layout)
        await refuse_links(store, found, operation="look_at_job")
    except JobNotFoundError as error:
        return Look(None, absent=error)
    except StoreLinkError as error:
        return Look(JobDirectory(layout, {}), link=error)
    try:
        outcome = await read_outcome(store, layout) if found.ended else None
        decision = await read_decision(store, layout) if found.decided else None
        settled = decision is not None or outcome is not None
        began = bool(found.intents) and not (settled or found.is_remains)
        intent = await read_intent(store, found) if began else None
    except (RecordError, StoreError) as error:
        return _unread(found, error)
    return Look(found, decision, outcome, intent)


def out_of_sight(layout: JobLayout, error: StoreError) -> Look:
    """A job of which nothing can be seen but that it is there."""
    return replace(_unread(JobDirectory(layout, {}), error), is_out_of_sight=True)


async def look_at_setup(store: Store, look: Look) -> Look:
    """What is wrong with the setup record of a job that could not be told otherwise."""
    if look.found is None or not look.found.set_up or look.problem:
        return look
    try:
        await read_setup(store, look.found.layout)
    except (RecordError, StoreError) as error:
        return _unread(look.found, error)
    return look


async def find_lock(store: Store, destination: StorePath) -> LockRow | None:
    """The replace lock, and whether its owner is gone: 1 or 2 calls, 4 where jobs keep things beside."""
    path = JobLayout(destination, "-").replace_lock
    try:
        lock = await read_record(store, path, ReplaceLock)
    except CommitterError as error:
        return LockRow(job_id="", orphan=True) if isinstance(error, RecordError | StoreLinkError) else None
    if lock is None:
        return None
    if not is_job_id(lock.job_id):
        return LockRow(job_id="", orphan=True)
    try:
        found = await look_at_job(store, layout_for(store, destination, lock.job_id))
    except JobNotFoundError:
        return LockRow(job_id=lock.job_id, orphan=True, created=lock.created)
    return LockRow(job_id=lock.job_id, orphan=_is_no_job(found), created=lock.created)


def _is_no_job(found: JobDirectory) -> bool:
    """Whether no command can join what stands there; an intent alone came when its job was over and cleaned up."""
    return found.is_remains or not found.is_job


def _unread(found: JobDirectory, error: CommitterError) -> Look:
    damaged = isinstance(error, RecordError) and error.field != "version"
    problem = error.message if damaged or not error.next_step else f"{error.message}; {error.next_step}"
    return Look(found, problem=problem, is_damaged=damaged)
