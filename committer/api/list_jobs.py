"""Lists the jobs that left something below a destination."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from committer.committers.advising import advised
from committer.committers.file.base import holds_output_of_jobs
from committer.committers.opened_store import open_store
from committer.committers.registry import layout_for, suited_committer
from committer.driver_process import DriverProcess, DriverState, state_of
from committer.errors import JobNotFoundError, RecordError, StoreError, StoreNotADirectoryError, StoreNotFoundError
from committer.flow.runtime import current_runtime
from committer.flow.workers import run_workers
from committer.layout import COMMITTING, NEW, TEMPORARY, DirectoryName, is_job_id
from committer.options.config import CommitterConfig, ConfigLike, config_of
from committer.paths import Destination, StorePath
from committer.readable import Shown
from committer.stages.state.job_directory import (
    JobDirectory,
    JobState,
    list_job_directories,
    look_at_job,
    magic_directory_exists,
    refuse_links,
    refuse_place,
)
from committer.stages.state.own_records import is_open, read_decision, read_setup, read_state
from committer.stores.base import Store
from committer.stores.helpers import check_destination


class JobInfo(Shown, frozen=True, kw_only=True):
    """A job that left something below a destination's `_temporary`.

    Attributes:
        job_id: Its id. One id can have several directories: at most one is that of a job, the others are what
            dead setups and removals left.
        directory: The name of its directory: ``JobSpec.unique_id``, with a suffix while it is made or removed.
        state: ``open``, ``committing`` (decided, not ended), ``committed``, ``aborted``, ``rolled-back``; or
            ``unknown`` if its records cannot be read, if it has none (another committer's directory), if it is
            no job any more, or not yet, or if a link is in the place of one of its directories or records;
            `problem` says which.
        delivery: How task commits reach its driver; None if its setup record is gone, or it is Hadoop's.
        committer: Its committer; None when unknown.
        started: When it was set up; None when unknown.
        updated: When the newest record in its directory was written, or a task of a job of Hadoop's without
            records last committed; None if the store does not tell, and before there is any.
        files: Number of files that its decision publishes; None before a decision.
        kept: Whether it committed and its outcome is kept on purpose (`CommitterConfig.outcome_kept`), so that
            a stream that repeats the job finds it committed.
        problem: Why the state is ``unknown``, and what to do; empty for every other state.
        driver: The process that set the job up; None when unknown.
        driver_state: ``running`` or ``dead`` if that process is or was one of this machine, else ``unknown``.
            Another process may have joined the job to commit it.
    """

    job_id: str
    state: JobState
    directory: str = ""
    delivery: str | None = None
    committer: str | None = None
    started: datetime | None = None
    updated: datetime | None = None
    files: int | None = None
    kept: bool = False
    problem: str = ""
    driver: DriverProcess | None = None
    driver_state: DriverState = "unknown"


@advised
async def list_jobs(
    dest: Destination, *, storage_options: Mapping[str, object] | None = None, config: ConfigLike | None = None
) -> list[JobInfo]:
    """Lists the jobs that left something below a destination, by id: one listing, and up to five calls a job.

    Where files wait in uploads, and Hadoop keeps its jobs' records among the output, the destination is listed
    too; a job of Hadoop's costs up to six calls there, and one a job attempt. Jobs that were committed and
    cleaned up are not listed; `_SUCCESS` and summary reports describe them.

    Raises:
        DestinationNotFoundError: The destination does not exist, or its bucket or container. Checked, by one
            more call, only if `_temporary` is empty.
        StoreLinkError: A link is in the place of `_temporary`; it was not followed.
        StoreNotADirectoryError: A file is in the place of the destination, or of `_temporary`.
    """
    destination = StorePath.of(dest)
    config = config_of(config) or CommitterConfig()
    async with open_store(destination, storage_options, config) as store:
        found: list[JobInfo] = []

        async def look(name: DirectoryName) -> None:
            info = await _info(store, destination, name)
            if info is not None:
                found.append(info)

        names = await job_directories(store, destination, "list_jobs")
        await run_workers(names, look, workers=config.io_concurrency, operation="list_jobs")
        return sorted(found, key=lambda info: (info.job_id, info.directory))


async def job_directories(store: Store, destination: StorePath, operation: str) -> list[DirectoryName]:
    """Lists the directories of all jobs, sorted: one listing; another if files wait in uploads."""
    try:
        children = store.list(destination / TEMPORARY)
        listed = [child async for child in children if child.path.name != COMMITTING]
    except (StoreNotFoundError, StoreNotADirectoryError) as error:
        listed = []
        await check_destination(store, destination, operation)
        if isinstance(error, StoreNotADirectoryError):
            raise StoreNotADirectoryError(
                f"a file exists where the directory of all jobs must be: {destination / TEMPORARY}",
                operation=operation,
                path=destination / TEMPORARY,
                next_step="remove the file; no job can be there while it exists",
            ) from error
    named = [(DirectoryName.of(child.path.name), child) for child in listed if child.is_directory or child.is_link]
    # A job's directory is never a link; a link with a job's name is shown, so that a user finds it.
    found = {name for name, child in named if is_job_id(name.job_id) or not child.is_link}
    standing = {name.job_id for name in found}
    found |= {name for name in await _beside(store, destination) if name not in found and name.job_id not in standing}
    return sorted([name for name in found if not await holds_output_of_jobs(store, destination, name, found)])


async def directories_of_job(store: Store, destination: StorePath, job_id: str) -> list[DirectoryName]:
    """Lists the directories of one id: one listing; 2 calls more where a Hadoop job may have one among the output."""
    layout = layout_for(store, destination, job_id)
    try:
        names = await list_job_directories(store, layout.temporary, job_id)
    except (StoreNotFoundError, StoreNotADirectoryError):
        await refuse_place(store, layout, operation="cleanup")
        names = []
    if layout.beside is None:
        return names
    if names:
        bare = DirectoryName(job_id, "", "")
        return [*names, bare] if bare not in names and await magic_directory_exists(store, layout) else names
    late = [name for name in await _beside(store, destination) if name.job_id == job_id]
    return late or [DirectoryName(job_id, "", "")]


async def _beside(store: Store, destination: StorePath) -> list[DirectoryName]:
    """Lists jobs with a directory among the output, if the committer has such: one call a thousand names."""
    prefix = suited_committer(store).listed_layout.beside_prefix
    if not prefix:
        return []
    try:
        found = [child.path.name async for child in store.list(destination) if child.is_directory]
    except (StoreNotFoundError, StoreNotADirectoryError):
        return []
    return [DirectoryName.of(name.removeprefix(prefix)) for name in found if name.startswith(prefix) and name != prefix]


NO_JOBS_NAME: Final = "no job has such a name: look at it, and remove it by hand"
NO_RECORD: Final = "no record says that a job exists there: another committer's directory, or what a dead driver left"
HALF_MADE: Final = "it is being set up, or its driver died in the setup"
HALF_REMOVED: Final = "it is over; its directory is being removed, or the driver that did died"


async def _info(store: Store, destination: StorePath, name: DirectoryName) -> JobInfo | None:
    directory = f"{name.job_id}~{name.setup}{name.suffix}" if name.setup or name.suffix else name.job_id
    if name.suffix:
        problem = HALF_MADE if name.suffix == NEW else HALF_REMOVED
        return JobInfo(job_id=name.job_id, directory=directory, state="unknown", problem=problem)
    layout = layout_for(store, destination, name.job_id, setup=name.setup)
    try:
        found = await look_at_job(store, layout)
        await refuse_links(store, found, operation="list_jobs")
        started = delivery = committer = files = None
        setup = await read_setup(store, layout) if found.set_up else None
        driver = setup.process if setup is not None else None
        if setup is not None:
            started, delivery, committer = _time(setup.created), setup.spec.delivery, setup.spec.committer
        # A lone intent was written after its job was over.
        if not name.setup and not (found.attempts or found.set_up or found.decided or found.ended):
            return JobInfo(job_id=name.job_id, directory=directory, state="unknown", problem=NO_RECORD)
        half = await why_no_job(store, found) if name.setup else ""
        if half:
            return JobInfo(job_id=name.job_id, directory=directory, state="unknown", problem=half)
        newest = found.newest
        if found.beside:
            suited = suited_committer(store)
            committer, newest = suited.name, max(newest, await suited.last_task_commit(store, layout))
        state, files, kept = await read_state(store, found)
    except JobNotFoundError:
        # A late task attempt may have written among the output again after its job was removed.
        kind = suited_committer(store).listed_layout
        if name.setup and await magic_directory_exists(store, kind(destination, name.job_id, setup=name.setup)):
            return JobInfo(job_id=name.job_id, directory=directory, state="unknown", problem=HALF_REMOVED)
        return None
    except (StoreError, RecordError) as error:
        problem = f"{error.message}; {error.next_step}" if error.next_step else error.message
        return JobInfo(job_id=name.job_id, directory=directory, state="unknown", problem=problem)
    return JobInfo(
        job_id=name.job_id,
        directory=directory,
        state=state,
        delivery=delivery,
        committer=committer,
        started=started,
        updated=datetime.fromtimestamp(newest, tz=current_runtime().now().tzinfo) if newest else None,
        files=files,
        kept=kept,
        driver=driver,
        driver_state=await current_runtime().run_blocking(lambda: state_of(driver)) if driver else "unknown",
    )


async def why_no_job(store: Store, found: JobDirectory) -> str:
    """Returns why a directory holds no job; empty if it does, or tells how one ended. At most one call."""
    if found.keeps_outcome:
        return ""
    if not (found.opened or found.decided or found.ended):
        return HALF_MADE
    if found.set_up:
        return "" if await is_open(store, found.layout) else HALF_REMOVED
    decision = await read_decision(store, found.layout) if found.decided and not found.ended else None
    return "" if found.ended or (decision is not None and decision.decision == "abort") else HALF_REMOVED


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
