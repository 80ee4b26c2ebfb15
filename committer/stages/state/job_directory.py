"""Looking at one job's directory: what stands there says what state the job is in."""

from __future__ import annotations

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
from committer.layout import INTENT, RECORDS, REMOVED, WORK, DirectoryName, JobLayout
from committer.paths import StorePath
from committer.stores.abilities import LINKS
from committer.stores.base import FileStatus, Store
from committer.stores.helpers import CORRECT_THE_PATH, check_destination, status_or_none

JobState: TypeAlias = Literal["open", "committing", "committed", "aborted", "rolled-back", "unknown"]


@dataclass(frozen=True, slots=True)
class JobDirectory:
    """The children of a job's directory, by name.

    Attributes:
        layout: Where the job lives.
        children: What stands there.
        beside: Whether what a job of Hadoop's keeps beside it stands.
    """

    layout: JobLayout
    children: dict[str, FileStatus]
    beside: bool = False

    @property
    def set_up(self) -> bool:
        """Whether the setup record stands."""
        return self.layout.setup.name in self.children

    @property
    def opened(self) -> bool:
        """Whether it is settled whether the job was opened; of a job of Hadoop's it always is."""
        return self.layout.opened.name in self.children or not self.layout.setup_name

    @property
    def decided(self) -> bool:
        """Whether a decision stands."""
        return self.layout.decision.name in self.children

    @property
    def ended(self) -> bool:
        """Whether an outcome stands."""
        return self.layout.outcome.name in self.children

    @property
    def kept(self) -> bool:
        """Whether the record of a committed job stands that keeps its outcome."""
        return self.layout.kept.name in self.children

    @property
    def keeps_outcome(self) -> bool:
        """Whether the job is over, but for its outcome. `kept` is created beside all other records, then `setup` goes.

        A setup record that stands there later was created by a repeated request.
        """
        return self.kept and not (self.set_up and self.decided and self.ended)

    @property
    def intents(self) -> list[str]:
        """Records of drivers that began to commit it."""
        return sorted(name for name in self.children if name.startswith(INTENT))

    @property
    def attempts(self) -> bool:
        """Whether a job attempt of this engine, or of Hadoop's manifest committer, stands."""
        return any(child.is_directory and name.isdecimal() for name, child in self.children.items())

    @property
    def is_foreign(self) -> bool:
        """Whether it holds things that neither this engine nor Hadoop's manifest committer put there."""
        own = any(name in RECORDS or name.startswith(INTENT) for name in self.children)
        return bool(self.children) and not (self.layout.setup_name or own or self.attempts)

    @property
    def newest(self) -> float:
        """When the newest record was written, in seconds since the epoch; 0 where the store does not say."""
        return max((child.modified or 0.0 for child in self.children.values()), default=0.0)


async def list_job_directories(store: Store, temporary: StorePath, job_id: str) -> list[DirectoryName]:
    """The directories in `_temporary` that are named after a job's id, sorted: one listing.

    Raises:
        StoreNotFoundError: There is no `_temporary`.
        StoreNotADirectoryError: A file stands in its place.
    """
    children = [child async for child in store.list(temporary) if child.is_directory or child.is_link]
    found = [DirectoryName.of(child.path.name) for child in children]
    return sorted(name for name in found if name.job_id == job_id)


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
    drivers = [WORK] if WORK in found.children else []
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
        if (
            child.is_directory
            and child.path not in (layout.job_directory, layout.entries)
            and not child.path.name.endswith(REMOVED)
        ):
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
    """Lists the directory of a job of Hadoop's that the caller wants to go on with: one call.

    Raises:
        JobNotFoundError: There is none, or what stands there is no job.
    """
    found = await look_at_job(store, layout)
    if not (found.attempts or found.set_up or found.decided or found.ended):
        raise JobNotFoundError(
            f"there is no job {layout.job_id} at {layout.destination}: its directory holds no record of one",
            operation="look_at_job",
            path=layout.job_directory,
            next_step="it was cleaned up, or is another committer's",
        )
    return found
