"""Reads one job's directory: its children show the job's state."""

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
from committer.layout import INTENT, RECORDS, WORK, DirectoryName, JobLayout
from committer.paths import StorePath
from committer.stores.abilities import LOCAL_PATHS
from committer.stores.base import FileStatus, Store
from committer.stores.helpers import CORRECT_THE_PATH, check_destination, status_or_none

JobState: TypeAlias = Literal["open", "committing", "committed", "aborted", "rolled-back", "unknown"]


@dataclass(frozen=True, slots=True)
class JobDirectory:
    """The children of a job's directory by name; `beside` says whether a Hadoop job's directory beside it exists."""

    layout: JobLayout
    children: dict[str, FileStatus]
    beside: bool = False

    @property
    def set_up(self) -> bool:
        """Whether the setup record exists."""
        return self.layout.setup.name in self.children

    @property
    def opened(self) -> bool:
        """Whether the job was opened or closed; always true for a Hadoop job."""
        return self.layout.opened.name in self.children or not self.layout.setup_name

    @property
    def decided(self) -> bool:
        """Whether a decision exists."""
        return self.layout.decision.name in self.children

    @property
    def ended(self) -> bool:
        """Whether an outcome exists."""
        return self.layout.outcome.name in self.children

    @property
    def kept(self) -> bool:
        """Whether the outcome that a committed job keeps exists."""
        return self.layout.kept.name in self.children

    @property
    def keeps_outcome(self) -> bool:
        """Whether only the kept outcome remains: `kept` is created beside all records, then `setup` is deleted."""
        # A setup record that exists later was created by a delayed request.
        return self.kept and not (self.set_up and self.decided and self.ended)

    @property
    def intents(self) -> list[str]:
        """Names of the records of drivers that began to commit the job."""
        return sorted(name for name in self.children if name.startswith(INTENT))

    @property
    def attempts(self) -> set[int]:
        """Numbers of the job attempts of this engine, or of Hadoop's manifest committer."""
        return {int(name) for name, child in self.children.items() if child.is_directory and name.isdecimal()}

    @property
    def is_foreign(self) -> bool:
        """Whether the content comes from neither this engine nor Hadoop's manifest committer."""
        return bool(self.children) and not (self.layout.setup_name or self.records or self.attempts)

    @property
    def may_be_s3a_job(self) -> bool:
        """Whether only a directory `__magic_job-*` exists: a live job of S3A's looks the same."""
        return self.beside and not (self.layout.setup_name or self.records)

    @property
    def records(self) -> bool:
        """Whether a record of this engine exists."""
        return any(name in RECORDS or name.startswith(INTENT) for name in self.children)

    @property
    def newest(self) -> float:
        """The newest modification time of a child, in seconds since the epoch; 0 if the store has none."""
        return max((child.modified or 0.0 for child in self.children.values()), default=0.0)


async def list_job_directories(store: Store, temporary: StorePath, job_id: str) -> list[DirectoryName]:
    """Lists the directories in `_temporary` of a job's id, sorted, with the errors of `Store.list`: one call."""
    listed = [child async for child in store.list(temporary) if child.is_directory or child.is_link]
    found = (DirectoryName.of(child.path.name) for child in listed)
    return sorted(name for name in found if name.job_id == job_id)


async def look_at_job(store: Store, layout: JobLayout) -> JobDirectory:
    """Lists a job's directory, or raises `JobNotFoundError`: one call, two if it does not exist."""
    # One more where a job may keep data beside it, which counts as the job attempt of a Hadoop job, and no
    # setup record exists; two more where directories are not real and the listing shows nothing else.
    children: dict[str, FileStatus] = {}
    missing: StoreError | None = None
    try:
        listed = {child.path.name: child async for child in store.list(layout.job_directory)}
        if not store.capabilities.directories and all(child.is_directory for child in listed.values()):
            # SeaweedFS lists empty directories for a while.
            await store.status(layout.job_directory)
        children = listed
    except (StoreNotFoundError, StoreNotADirectoryError) as error:
        missing = error
    beside = layout.setup.name not in children and await magic_directory_exists(store, layout)
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
    """Raises `JobNotFoundError` if the destination is missing, or a file is in its place or below: at most 3 calls."""
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
            why = f"a file exists at {standing.path}, where a directory must be"
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


def no_own_job(found: JobDirectory) -> JobNotFoundError:
    """Builds the error for an id whose directory is another committer's, which no call but a forced cleanup removes."""
    layout = found.layout
    return JobNotFoundError(
        f"there is no job {layout.job_id} at {layout.destination}: the directory of that name holds no record of one, "
        "and is another committer's, perhaps alive",
        operation="recover",
        path=layout.job_directory,
        next_step=f"leave it to that committer; once no job uses it, "
        f"{call('cleanup', str(layout.destination), job_id=layout.job_id, force=True)} deletes it",
    )


async def refuse_links(store: Store, found: JobDirectory, *, operation: str) -> None:
    """Raises `StoreLinkError` if a link is in the place of a directory or a record of the job: at most one call."""
    # The store follows no such link; callers use this to know before they change anything.
    if not store.capabilities.local_paths:
        return
    refuse_hidden(found, operation=operation)
    layout = found.layout
    attempts = [name for name, child in found.children.items() if child.is_directory and name.isdecimal()]
    drivers = [WORK] if WORK in found.children else []
    if attempts or drivers:
        inside = [f"{place}/{name}" for place in (*attempts, *drivers) for name in layout.of_attempts]
        link = await LOCAL_PATHS.required(store, "find_link").find_link(layout.job_directory, inside)
        if link is not None:
            raise StoreLinkError.at(layout.job_directory / link, operation=operation)


def refuse_hidden(found: JobDirectory, *, operation: str) -> None:
    """Raises `StoreLinkError` if a link is in a job's directory: it may hide a record."""
    for child in found.children.values():
        if child.is_link:
            raise StoreLinkError.at(child.path, operation=operation)


async def magic_directory_exists(store: Store, layout: JobLayout) -> bool:
    """Whether the directory that a job keeps beside its own exists: two calls, if it keeps any."""
    # A listing of its children cannot tell: SeaweedFS lists directories that are empty by now.
    if layout.beside is None:
        return False
    try:
        return (await store.status(layout.beside)).is_directory
    except StoreNotFoundError:
        return False


async def join_job(store: Store, layout: JobLayout) -> JobDirectory:
    """Lists the directory of a Hadoop job that the caller continues, or raises `JobNotFoundError`: one call."""
    found = await look_at_job(store, layout)
    if not (found.attempts or found.set_up or found.decided or found.ended):
        raise JobNotFoundError(
            f"there is no job {layout.job_id} at {layout.destination}: its directory holds no record of one",
            operation="look_at_job",
            path=layout.job_directory,
            next_step="it was cleaned up, or is another committer's",
        )
    return found
