"""Looking at one job, and for entries of jobs that are gone: what stands, and what of it cannot be read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from committer.committers.registry import layout_for
from committer.errors import CommitterError, JobNotFoundError, RecordError, StoreError, StoreLinkError
from committer.layout import JobLayout
from committer.operations.listing import why_no_job
from committer.paths import StorePath
from committer.readable import count
from committer.records.job_state import Decision, Intent, JobOutcome
from committer.stages.entries import owners_of_entries
from committer.stages.job_directory import JobDirectory, look_at_job, refuse_links
from committer.stages.own_records import read_decision, read_intent, read_kept, read_outcome, read_setup
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
        half: Why its directory, one of this engine's, holds no job; empty where it does.
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
    half: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether its fate is decided: nothing is left to plan."""
        return self.decision is not None or self.outcome is not None

    @property
    def is_no_job(self) -> bool:
        """Whether a directory of that name stands, and no job in it."""
        return bool(self.half) or (self.found is not None and _is_no_job(self.found))

    @property
    def is_kept(self) -> bool:
        """Whether its outcome is kept, so that a stream that repeats the job finds it committed."""
        return self.found is not None and self.found.keeps_outcome

    @property
    def words(self) -> str:
        """The job's state in words."""
        if self.link is not None:
            return f"cannot be looked at: {self.link.message}"
        if self.problem:
            return f"cannot be read: {self.problem}"
        if self.outcome is not None:
            over = self.found is not None and bool(self.found.layout.setup_name) and not self.found.set_up
            last = "; it is not cleaned up" if over else "; its last steps may be missing"
            last = "; its outcome is kept for a stream" if self.is_kept else last
            return f"ended: {self.outcome.outcome}{last}"
        if self.decision is not None:
            size = f", {count(self.decision.files, 'file')}" if self.decision.decision == "commit" else ""
            return f"decided ({self.decision.decision}{size}), not ended"
        if self.found is None:
            return "gone: it ended and was cleaned up, or never was here"
        if self.intent is not None:
            return "undecided; a driver began to commit it"
        if self.half:
            return f"no job: {self.half}"
        return "open" if not self.is_no_job else "no job: its directory holds no record of one"


async def look_at(store: Store, layout: JobLayout) -> Look:
    """Looks at one job: 2 calls, on a local disk 3, and one a record that says how far it came."""
    try:
        found = await look_at_job(store, layout)
        await refuse_links(store, found, operation="look_at_job")
    except JobNotFoundError as error:
        return Look(None, absent=error)
    except StoreLinkError as error:
        return Look(JobDirectory(layout, {}), link=error)
    try:
        half = await why_no_job(store, found) if layout.setup_name else ""
        if half:
            return Look(found, half=half)
        kept = found.keeps_outcome
        outcome = await read_kept(store, layout) if kept else await read_outcome(store, layout) if found.ended else None
        decision = await read_decision(store, layout) if found.decided else None
        settled = decision is not None or outcome is not None
        began = bool(found.intents) and not settled
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


async def jobs_of_orphans(store: Store, destination: StorePath) -> list[str]:
    """The jobs that are gone and left entries: one listing, up to 3 calls an entry."""
    owners = await owners_of_entries(store, lambda job_id, setup: layout_for(store, destination, job_id, setup=setup))
    return sorted(job_id for job_id, live in owners.items() if not live)


def _is_no_job(found: JobDirectory) -> bool:
    """Whether no command can join what stands there."""
    if found.layout.setup_name:
        return not found.kept and not (found.set_up and found.opened)
    return not (found.set_up or found.decided or found.ended or found.attempts)


def _unread(found: JobDirectory, error: CommitterError) -> Look:
    damaged = isinstance(error, RecordError) and error.field != "version"
    problem = error.message if damaged or not error.next_step else f"{error.message}; {error.next_step}"
    return Look(found, problem=problem, is_damaged=damaged)
