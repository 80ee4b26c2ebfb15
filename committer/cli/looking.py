"""Reads the state of one job, its entries, and the owners of directories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from committer.api.list_jobs import JobInfo, why_no_job
from committer.committers.registry import DEFAULT_COMMITTER, committer_for, layout_for, suited_committer
from committer.committers.staging.committer import StagingCommitter
from committer.errors import (
    CommitterError,
    JobNotFoundError,
    RecordError,
    StoreError,
    StoreLinkError,
    StoreNotFoundError,
    StorePermissionError,
)
from committer.layout import MANIFEST_SUFFIX, TEMPORARY, DirectoryName, JobLayout, has_nonce
from committer.paths import StorePath
from committer.readable import count
from committer.records.job_state import Decision, Intent, JobOutcome
from committer.spec import JobSpec
from committer.stages.decide.entries import owners_of_entries
from committer.stages.state.job_directory import JobDirectory, look_at_job, refuse_links
from committer.stages.state.own_records import read_decision, read_intent, read_kept, read_outcome, read_setup
from committer.stores.base import Store


@dataclass(frozen=True, slots=True)
class Look:
    """State of one job.

    Attributes:
        found: The children of its directory; None if it does not exist.
        unread: The error of a record that cannot be read, other than a damaged intent, which no way to end it needs.
        hidden: The error that hides it: a link in place of one of its directories or records, or no right to list it.
        absent: If nothing of the job exists, the error that says so.
        half: Why its directory, one of this engine's, holds no job.
    """

    found: JobDirectory | None
    decision: Decision | None = None
    outcome: JobOutcome | None = None
    intent: Intent | None = None
    unread: CommitterError | None = None
    hidden: StoreError | None = None
    absent: JobNotFoundError | None = None
    half: str = ""

    @property
    def is_damaged(self) -> bool:
        """True if a record itself is at fault, not the store or an old release."""
        return isinstance(self.unread, RecordError) and self.unread.field != "version"

    @property
    def problem(self) -> str:
        """The reason that a record cannot be read; empty if all can."""
        if self.unread is None:
            return ""
        return self.unread.message if self.is_damaged else with_step(self.unread)

    @property
    def is_settled(self) -> bool:
        """True if the job is decided: nothing is left to plan."""
        return self.decision is not None or self.outcome is not None

    @property
    def is_no_job(self) -> bool:
        """True if a directory of that name exists without a job that a command could join."""
        found = self.found
        if self.half or found is None:
            return bool(self.half)
        if found.layout.setup_name:
            return not found.kept and not (found.set_up and found.opened)
        return not (found.set_up or found.decided or found.ended or found.attempts)

    @property
    def is_kept(self) -> bool:
        """True if the outcome is kept, so that a stream that repeats the job finds it committed."""
        return self.found is not None and self.found.keeps_outcome

    @property
    def words(self) -> str:
        """The job's state in words."""
        if self.hidden is not None:
            return f"cannot be looked at: {self.hidden.message}"
        if self.problem:
            return f"cannot be read: {self.problem}"
        if self.outcome is not None:
            over = self.found is not None and bool(self.found.layout.setup_name) and not self.found.set_up
            last = "; it is not cleaned up" if over else "; its last steps may be missing"
            last = "; its outcome is kept for a stream or a rerun" if self.is_kept else last
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
    """Reads one job's state: 2 calls, on a local disk 3, and one per record that shows its progress."""
    try:
        found = await look_at_job(store, layout)
        await refuse_links(store, found, operation="look_at_job")
    except JobNotFoundError as error:
        return Look(None, absent=error)
    except (StoreLinkError, StorePermissionError) as error:
        return Look(JobDirectory(layout, {}), hidden=error)
    try:
        half = await why_no_job(store, found) if layout.setup_name else ""
        if half:
            return Look(found, half=half)
        kept = found.keeps_outcome
        outcome = await read_kept(store, layout) if kept else await read_outcome(store, layout) if found.ended else None
        decision = await read_decision(store, layout) if found.decided else None
        settled = decision is not None or outcome is not None
        began = bool(found.intents) and not settled
        intent = await _intent_of(store, found) if began else None
    except (RecordError, StoreError) as error:
        return Look(found, unread=error)
    return Look(found, decision, outcome, intent)


async def _intent_of(store: Store, found: JobDirectory) -> Intent | None:
    try:
        return await read_intent(store, found)
    except RecordError as error:
        if error.field == "version":
            raise
        return None


async def look_at_setup(store: Store, look: Look) -> Look:
    """Adds a problem of the setup record, if the state has no other."""
    if look.found is None or not look.found.set_up or look.problem:
        return look
    try:
        await read_setup(store, look.found.layout)
    except (RecordError, StoreError) as error:
        return Look(look.found, unread=error)
    return look


async def jobs_of_orphans(store: Store, destination: StorePath) -> list[str]:
    """Lists jobs that no longer exist but left entries: one listing, up to 3 calls per entry."""
    owners = await owners_of_entries(store, lambda job_id, setup: layout_for(store, destination, job_id, setup=setup))
    return sorted(job_id for job_id, live in owners.items() if not live)


def with_step(error: CommitterError) -> str:
    """Returns an error's message with its next step, if it has one."""
    return f"{error.message}; {error.next_step}" if error.next_step else error.message


Owner: TypeAlias = Literal["committer", "hadoop", "classic", "nobody", "unknown"]
"""Owner of a job's directory: this engine, Hadoop's manifest committer, or its FileOutputCommitter ("classic")."""


async def owner_of(store: Store, found: JobDirectory) -> Owner:
    """Returns the owner of a job's directory: without a setup record, at most one listing per job attempt."""
    if found.layout.setup_name or found.set_up:
        return "committer"
    recorded = found.decided or found.ended
    if found.beside and not recorded:
        return "hadoop"
    if found.attempts:
        return await _owner_of_attempts(store, found)
    if recorded:
        return "committer"
    if found.layout.job_id.isdecimal() and all(
        name == TEMPORARY or name.startswith(("task_", ".")) for name in found.children
    ):
        return "classic"
    if found.intents or not found.is_foreign:
        return "nobody"
    return "unknown"


def can_be_joined(found: JobDirectory) -> bool:
    """Reports whether directories are named as in Hadoop 3.4.1 and later: ``<id>/00``, not
    ``manifest_<id>`` or ``0``.
    """
    if found.layout.job_id.startswith("manifest_"):
        return False
    return all(attempt.name == f"{int(attempt.name):02d}" for attempt in _attempts(found))


async def count_of_hadoop(store: Store, found: JobDirectory) -> int:
    """Counts task records of a Hadoop job's newest job attempt: one listing; three where they lie beside."""
    number = 0
    attempts = sorted(_attempts(found), key=lambda attempt: int(attempt.name))
    suffix, places = MANIFEST_SUFFIX, [attempt / "manifests" for attempt in attempts[-1:]]
    if found.beside:
        job_attempt = await suited_committer(store).newest_hadoop_attempt(store, found.layout) or 0
        newest = layout_for(store, found.layout.destination, found.layout.job_id, job_attempt)
        suffix, places = newest.record_suffix, [newest.manifests]
    for place in places:
        try:
            async for child in store.list(place):
                number += child.path.name.endswith(suffix) and not child.path.name.startswith(".")
        except StoreError:
            continue
    return number


async def count_of_ours(store: Store, destination: StorePath, info: JobInfo) -> int | None:
    """Counts task commits of an open job of this engine, None if unknown: one listing.

    For staging committers also one read: their records may lie where no record may send a reader (G10).
    """
    spec = JobSpec(
        destination=destination.uri,
        job_id=info.job_id,
        committer=info.committer or DEFAULT_COMMITTER,
        delivery="message" if info.delivery == "message" else "listing",
        setup=DirectoryName.of(info.directory).setup,
    )
    by_message = spec.delivery == "message"
    try:
        kind = committer_for(spec.committer)
        layout = kind.layout(spec)
        if not by_message and isinstance(kind, StagingCommitter) and (await read_setup(store, layout)).spec.records_at:
            return None
        place = layout.attempts if by_message else layout.manifests
        names = [child.path.name async for child in store.list(place)]
    except StoreNotFoundError:
        return 0
    except CommitterError:
        return None
    return sum(name.endswith(MANIFEST_SUFFIX) if by_message else layout.is_record(name) for name in names)


async def _owner_of_attempts(store: Store, found: JobDirectory) -> Owner:
    """Returns the owner of job attempts without a setup record: at most two listings each.

    Only this engine's jobs have records by attempt and lists of uploads, and only its task attempts have a nonce
    in their directory's name. On stores that refuse delayed writes these may belong to a Hadoop job that they
    joined.
    """
    late = not store.capabilities.refuses_late_writes
    owner: Owner = "unknown"
    for attempt in _attempts(found):
        try:
            names = {child.path.name async for child in store.list(attempt)}
            if names & {"attempts", "uploads"}:
                return "committer"
            if late and "tasks" in names:
                runs = [child.path.name async for child in store.list(attempt / "tasks")]
                if runs and all(map(has_nonce, runs)):
                    return "committer"
        except StoreNotFoundError:
            continue
        if not names or names & {"manifests", "tasks", "tasks-fenced"}:
            owner = "hadoop"
    return owner


def _attempts(found: JobDirectory) -> list[StorePath]:
    return [child.path for name, child in found.children.items() if child.is_directory and name.isdecimal()]
