"""Looking at one job's directory: what stands there says what state the job is in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from committer.advice import call
from committer.errors import (
    DestinationNotFoundError,
    JobNotFoundError,
    StoreError,
    StoreLinkError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.layout import DRIVERS, ENDED, PLAN, JobLayout
from committer.records.job_state import Decision, JobOutcome
from committer.stores.abilities import LINKS
from committer.stores.base import FileStatus, Store
from committer.stores.helpers import CORRECT_THE_PATH, check_destination, status_or_none

JobState: TypeAlias = Literal["open", "committing", "committed", "aborted", "rolled-back", "unknown"]

# Temporary files of records (`Store.put`), intents, side files of decisions, marks about the lock, files taken away.
_REMNANT = re.compile(r"\..+\.(tmp|aside)|intent(-.+)?|plan-.+|replace-lock-.+|taken-.+")


@dataclass(frozen=True, slots=True)
class JobDirectory:
    """The children of a job's directory, by name.

    Attributes:
        layout: Where the job lives.
        children: What stands there.
        beside: Whether what a job keeps beside stands, and no setup record of this engine explains it.
    """

    layout: JobLayout
    children: dict[str, FileStatus]
    beside: bool = False

    @property
    def set_up(self) -> bool:
        """Whether this engine set the job up."""
        return self.layout.setup.name in self.children

    @property
    def decided(self) -> bool:
        """Whether a decision stands."""
        return self.layout.decision.name in self.children

    @property
    def ended(self) -> bool:
        """Whether an outcome stands."""
        return self.layout.outcome.name in self.children

    @property
    def intents(self) -> list[str]:
        """Records of drivers that began to commit it, the first driver's first."""
        return sorted(filter(self.layout.is_intent, self.children))

    @property
    def attempts(self) -> bool:
        """Whether a job attempt of this engine, or of Hadoop's manifest committer, stands."""
        return any(child.is_directory and name.isdecimal() for name, child in self.children.items())

    @property
    def has_records(self) -> bool:
        """Whether a record says that a job stands there; an intent alone may have come after a cleanup."""
        return self.set_up or self.decided or self.ended

    @property
    def is_job(self) -> bool:
        """Whether a job stands there, perhaps Hadoop's. What a late request leaves after a cleanup is none."""
        return self.has_records or self.attempts or bool(self.intents)

    @property
    def holds_no_job(self) -> bool:
        """Whether a decision that may stand there speaks of nothing: a late request made it after a cleanup."""
        directories = any(child.is_directory and not _is_ended(child) for child in self.children.values())
        return not (self.set_up or self.ended or directories)

    def is_stale(self, decision: Decision, outcome: JobOutcome | None = None, *, late: bool) -> bool:
        """Whether this decision, which was read there, speaks of nothing: a late request made it after a cleanup.

        Where a late write makes directories again, those that stand there say nothing: a task that outlived its job
        makes them with its record. But a decision without outcome stands beside the setup record of its job, always,
        and so does one with an outcome that is not finished: a driver wrote that because of the decision, and died.

        Args:
            decision: The decision.
            outcome: The outcome, where it was read.
            late: Whether the store takes writes into directories that are gone.
        """
        over = self.ended if outcome is None else outcome.finished
        if self.set_up or over:
            return False
        return self.holds_no_job or (late and not decision.hadoop)

    @property
    def is_remains(self) -> bool:
        """Whether it holds no record of any job: nothing but what a driver of this engine leaves that died in a setup,
        or wrote when its job was over and cleaned up.
        """
        if self.beside or self.has_records:
            return False
        left = [child for child in self.children.values() if not _is_ended(child)]
        files = (not (child.is_directory or child.is_link or child.is_special) for child in left)
        return all(files) and all(_REMNANT.fullmatch(child.path.name) for child in left)

    @property
    def being_removed(self) -> list[FileStatus]:
        """Directories that processes moved to what they clean up: each alive or dead, and none makes it again."""
        return [child for child in self.children.values() if _is_ended(child)]

    def outlived(self, name: str, *, directories: bool) -> bool:
        """Whether an intent that stands there is of an earlier job of this id, whose directory was claimed since.

        The driver that claims it removes such intents, before it makes the directory of the job attempt.

        Args:
            name: The intent's.
            directories: Whether directories are real.
        """
        if not self.set_up:
            return False
        if directories:
            return not self.attempts
        setup, intent = self.children[self.layout.setup.name].modified, self.children[name].modified
        return setup is not None and intent is not None and intent < setup

    @property
    def is_foreign(self) -> bool:
        """Whether it holds things that this engine did not put there: perhaps another committer's, and alive."""
        own = self.is_remains or any(
            name.startswith((PLAN, "replace-lock-", "taken-", DRIVERS, ENDED)) for name in self.children
        )
        return bool(self.children) and not (self.is_job or own)

    @property
    def newest(self) -> float:
        """When the newest record was written, in seconds since the epoch; 0 where the store does not say."""
        return max((child.modified or 0.0 for child in self.children.values()), default=0.0)


def _is_ended(child: FileStatus) -> bool:
    return child.is_directory and child.path.name.startswith(ENDED)


async def look_at_job(store: Store, layout: JobLayout) -> JobDirectory:
    """Lists a job's directory: one call, two where there is none; three where a job may keep things beside it, and no
    setup record stands; two more where directories are not real, and it shows nothing else.

    A job that Hadoop set up may have nothing there: what it keeps beside counts as its job attempt's.

    Raises:
        JobNotFoundError: There is none.
    """
    children: dict[str, FileStatus] = {}
    missing: StoreError | None = None
    try:
        children = {child.path.name: child for child in await list_job_directory(store, layout)}
    except (StoreNotFoundError, StoreNotADirectoryError) as error:
        missing = error
    beside = layout.setup.name not in children and await stands_beside(store, layout)
    if beside:
        attempt = layout.job_attempt_directory
        children.setdefault(attempt.name, FileStatus(attempt, True, 0))
    elif missing is not None:
        await refuse_place(store, layout, operation="look_at_job")
        raise JobNotFoundError(
            f"there is no job {layout.job_id} at {layout.destination}",
            operation="look_at_job",
            path=layout.job_directory,
            next_step=f"{call('list_jobs', str(layout.destination))} shows the jobs that are there",
        ) from missing
    return JobDirectory(layout, children, beside)


async def refuse_place(store: Store, layout: JobLayout, *, operation: str) -> None:
    """Says why no job of any id can be where one was looked for in vain; at most three calls, none without directories.

    Raises:
        JobNotFoundError: The destination does not exist, or a file stands in its place, in that of `_temporary` or of
            the job's directory.
    """
    if not store.capabilities.directories:
        return
    why, step = "", ""
    try:
        await check_destination(store, layout.destination, operation)
        for place in (layout.temporary, layout.job_directory):
            standing = await status_or_none(store, place)
            if standing is None or not (standing.is_directory or standing.is_link):
                break
        if standing is not None and not (standing.is_directory or standing.is_link):
            why = f"a file stands at {standing.path}, where a directory must be"
            step = f"{CORRECT_THE_PATH}, or remove the file"
    except (DestinationNotFoundError, StoreNotADirectoryError) as error:
        why, step = error.message, error.next_step
    except StoreError:
        pass
    if why:
        raise JobNotFoundError(
            f"there is no job {layout.job_id} at {layout.destination}: {why}",
            operation=operation,
            path=layout.job_directory,
            next_step=step,
        )


async def refuse_links(store: Store, found: JobDirectory, *, operation: str) -> None:
    """Refuses a job where a link stands in the place of a directory or a record: at most one call.

    The store follows none; this is for those who want to know before they change anything.

    Raises:
        StoreLinkError: It names the link.
    """
    if not store.capabilities.links:
        return
    for child in found.children.values():
        if child.is_link:
            raise StoreLinkError.at(child.path, operation=operation)
    layout = found.layout
    attempts = [name for name, child in found.children.items() if child.is_directory and name.isdecimal()]
    drivers = [name for name, child in found.children.items() if child.is_directory and name.startswith(DRIVERS)]
    if attempts or drivers:
        inside = [f"{place}/{name}" for place in (*attempts, *drivers) for name in layout.of_attempts]
        link = await LINKS.required(store, "find_link").find_link(layout.job_directory, inside)
        if link is not None:
            raise StoreLinkError.at(layout.job_directory / link, operation=operation)


async def list_job_directory(store: Store, layout: JobLayout) -> list[FileStatus]:
    """The children of a job's directory: one listing.

    Where directories are not real, those that a listing shows may have nothing in them any more: SeaweedFS keeps them
    for a while when all that was below is deleted. So where there are no others, 2 calls more look for anything there.

    Raises:
        StoreNotFoundError: Nothing is there.
        StoreNotADirectoryError: A file is.
    """
    children = [child async for child in store.list(layout.job_directory)]
    if not store.capabilities.directories and all(child.is_directory for child in children):
        await store.status(layout.job_directory)
    return children


async def other_job_stands(store: Store, layout: JobLayout) -> bool:
    """Whether another job has a directory at the destination. One listing.

    Raises:
        StoreNotFoundError: No job has.
    """
    async for child in store.list(layout.temporary):
        if child.is_directory and child.path != layout.job_directory:
            return True
    return False


async def stands_beside(store: Store, layout: JobLayout) -> bool:
    """Whether anything is in what a job keeps beside, if only what marks it as a directory: two calls, if it keeps any.

    Not by a listing of its children: SeaweedFS shows directories there that nothing is in any more.
    """
    if layout.beside is None:
        return False
    try:
        return (await store.status(layout.beside)).is_directory
    except StoreNotFoundError:
        return False


async def join_job(store: Store, layout: JobLayout) -> JobDirectory:
    """Lists the directory of a job that the caller wants to go on with: one call.

    Raises:
        JobNotFoundError: There is none, or what stands there is no job.
    """
    found = await look_at_job(store, layout)
    if not found.is_job:
        raise JobNotFoundError(
            f"there is no job {layout.job_id} at {layout.destination}: its directory holds no record of one",
            operation="look_at_job",
            path=layout.job_directory,
            next_step="it was cleaned up, or is another committer's",
        )
    return found
