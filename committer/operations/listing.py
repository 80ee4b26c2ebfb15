"""The jobs that left something below a destination."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from committer.committers.advising import advised
from committer.committers.file.shared import holds_output_of_jobs
from committer.committers.opened_store import open_store
from committer.committers.registry import layout_for, suited_committer
from committer.config import CommitterConfig, ConfigLike, config_of
from committer.errors import (
    JobNotFoundError,
    RecordError,
    StoreError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.file_names import job_id_in
from committer.flow.runtime import current_runtime
from committer.flow.workers import run_workers
from committer.layout import TEMPORARY, is_job_id
from committer.paths import Destination, StorePath
from committer.records.job_state import Decision
from committer.shown import Shown
from committer.stages.job_directory import JobDirectory, JobState, look_at_job, refuse_links
from committer.stages.own_records import read_decision, read_outcome, read_setup
from committer.stores.base import Store
from committer.stores.helpers import check_destination


class JobInfo(Shown, frozen=True, kw_only=True):
    """A job that left something below a destination's `_temporary`.

    Attributes:
        job_id: Its id.
        state: ``open``, ``committing`` (decided, not ended), ``committed``, ``aborted``, ``rolled-back``, or
            ``unknown`` when its records cannot be read, when it holds none (another committer's directory), or when a
            link stands in the place of one of its directories or records; `problem` says which.
        delivery: How task commits reach its driver; None when its setup record is gone, or it is Hadoop's.
        committer: Its committer; None when unknown.
        started: When it was set up; None when unknown.
        updated: When the newest record in its directory was written, or a task of a job of Hadoop's that has none there
            last committed; None where the store does not say, and before there is any.
        files: Files its decision publishes; None before a decision.
        kept: Whether it committed and its outcome is kept (`CommitterConfig.outcome_kept`), so that a stream that
            repeats it finds it committed: it is kept on purpose.
        problem: Why the state is ``unknown``, and what to do; empty for every other state.
    """

    job_id: str
    state: JobState
    delivery: str | None = None
    committer: str | None = None
    started: datetime | None = None
    updated: datetime | None = None
    files: int | None = None
    kept: bool = False
    problem: str = ""


@advised
async def list_jobs(
    dest: Destination, *, storage_options: Mapping[str, object] | None = None, config: ConfigLike | None = None
) -> list[JobInfo]:
    """The jobs that left something below a destination, by id: one listing, and up to four calls a job, on a local disk
    five.

    Where files wait in uploads, and Hadoop puts what its jobs need among the output, the destination is listed too; a
    job of Hadoop's costs up to six calls there, and one a job attempt.

    Committed jobs that were cleaned up are not among them; `_SUCCESS` and summary reports speak of those.

    Raises:
        DestinationNotFoundError: The destination does not exist, or its bucket or container. Looked for, by one call
            more, only where nothing stands below `_temporary`.
        StoreLinkError: A link stands in the place of `_temporary`; it was not followed.
        StoreNotADirectoryError: A file stands in the place of the destination, or of `_temporary`.
    """
    destination = StorePath.of(dest)
    config = config_of(config) or CommitterConfig()
    store = await open_store(destination, storage_options, config)
    try:
        found: list[JobInfo] = []

        async def look(job_id: str) -> None:
            info = await _info(store, destination, job_id)
            if info is not None:
                found.append(info)

        await run_workers(
            await job_ids(store, destination, "list_jobs"), look, workers=config.io_concurrency, operation="list_jobs"
        )
        return sorted(found, key=lambda info: info.job_id)
    finally:
        await store.close()


async def job_ids(store: Store, destination: StorePath, operation: str) -> list[str]:
    """The ids of all jobs that left something, sorted: one listing; another where files wait in uploads."""
    try:
        found = [
            job_id_in(child.path.name)
            async for child in store.list(destination / TEMPORARY)
            # No job's directory is a link; one that has a job's name is shown, so that it is found.
            if (is_job_id(job_id_in(child.path.name)) if child.is_link else child.is_directory)
        ]
    except (StoreNotFoundError, StoreNotADirectoryError) as error:
        found = []
        await check_destination(store, destination, operation)
        if isinstance(error, StoreNotADirectoryError):
            raise StoreNotADirectoryError(
                f"a file stands where the directory of all jobs must be: {destination / TEMPORARY}",
                operation=operation,
                path=destination / TEMPORARY,
                next_step="remove the file; no job can be there while it stands",
            ) from error
    jobs = {*found, *await _job_ids_beside(store, destination)}
    return sorted([name for name in jobs if not await holds_output_of_jobs(store, destination, name, jobs)])


async def _job_ids_beside(store: Store, destination: StorePath) -> list[str]:
    """Jobs that have a directory of their own among the output: one call a thousand names there, if any can have."""
    prefix = suited_committer(store).listed_layout.beside_prefix
    if not prefix:
        return []
    try:
        found = [child.path.name async for child in store.list(destination) if child.is_directory]
    except (StoreNotFoundError, StoreNotADirectoryError):
        return []
    return [job_id_in(name.removeprefix(prefix)) for name in found if name.startswith(prefix) and name != prefix]


NO_RECORD: Final = "no record says that a job stands there: another committer's directory, or what a dead driver left"


async def _info(store: Store, destination: StorePath, job_id: str) -> JobInfo | None:
    layout = layout_for(store, destination, job_id)
    try:
        found = await look_at_job(store, layout)
        await refuse_links(store, found, operation="list_jobs")
        started = delivery = committer = files = None
        setup = await read_setup(store, layout) if found.set_up else None
        decision = await read_decision(store, layout) if found.decided else None
        if setup is not None:
            started, delivery, committer = _time(setup.created), setup.spec.delivery, setup.spec.committer
        claimed = any(record is not None and record.remains for record in (setup, decision))
        if found.is_remains or not found.is_job or claimed:
            return JobInfo(job_id=job_id, state="unknown", problem=NO_RECORD)
        newest = found.newest
        if found.beside:
            suited = suited_committer(store)
            committer, newest = suited.name, max(newest, await suited.last_task_commit(store, layout))
        state, files, kept = await _state(store, found, decision)
    except JobNotFoundError:
        return None
    except (StoreError, RecordError) as error:
        problem = f"{error.message}; {error.next_step}" if error.next_step else error.message
        return JobInfo(job_id=job_id, state="unknown", problem=problem)
    return JobInfo(
        job_id=job_id,
        state=state,
        delivery=delivery,
        committer=committer,
        started=started,
        updated=datetime.fromtimestamp(newest, tz=current_runtime().now().tzinfo) if newest else None,
        files=files,
        kept=kept,
    )


async def _state(store: Store, found: JobDirectory, decision: Decision | None) -> tuple[JobState, int | None, bool]:
    files = decision.files if decision is not None else None
    outcome = await read_outcome(store, found.layout) if found.ended else None
    if outcome is not None:
        return outcome.outcome, outcome.files if outcome.outcome == "committed" else files, outcome.kept
    if decision is None:
        return "open", None, False
    return ("committing", files, False) if decision.decision == "commit" else ("aborted", None, False)


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
