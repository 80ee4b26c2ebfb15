"""Finishing, or taking back, a job whose driver died."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from committer.advice import call
from committer.committers.advising import advised
from committer.committers.context import open_context
from committer.committers.find_job import find_job
from committer.committers.opened_store import store_of_call
from committer.committers.refused_output import naming_the_end
from committer.committers.registry import committer_for, suited_committer
from committer.committers.results import JobReport
from committer.config import CommitterConfig, ConfigLike, config_of
from committer.errors import (
    JobNotFoundError,
)
from committer.events import Listener
from committer.events.display import watched
from committer.layout import check_job_id
from committer.operations.arguments import check_flag
from committer.paths import Destination, StorePath
from committer.spec import JobSpec
from committer.stages.base import StageContext
from committer.stages.removal import remove_leftovers
from committer.stores.base import Store


@advised
async def recover(
    dest: Destination,
    job_id: str,
    *,
    rollback: bool = False,
    force: bool = False,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: bool | Listener | None = None,
    listeners: Iterable[Listener] = (),
) -> JobReport:
    """Finishes a job whose driver died in its commit, as one undisturbed run would have ended.

    May be called from any process, more than once, and by several at a time. A finished job gives its report, as long
    as its kept outcome, its summary report or `_SUCCESS` speaks of it: without the first two until a later job wrote
    `_SUCCESS`.

    Args:
        dest: The job's destination.
        job_id: Its id.
        rollback: Take back what a decided commit published instead of finishing it; abort an undecided job.
        force: The old driver is known to be dead: roll back where the store cannot fence it off, or commit what a
            listing finds although no driver began to.
        config: Where reports and kept records go, below which roots outside the destination the job may write, and the
            rate of calls from this process. All else is as the job was set up: a record on the store may not name a
            place outside the destination (G10).
        storage_options: How to reach the store.
        progress: True shows a bar with rate and time left in a terminal or a notebook, elsewhere a line every five
            seconds, on standard error; a callable is told each event, on the event loop, and must return at once.
        listeners: Called with each event of progress.

    Raises:
        JobNotFoundError: There is no such job, and no report speaks of it.
        JobUndecidedError: No driver began to commit it: commit or abort it instead.
        JobDecidedError: It was aborted, and its directory still exists.
        ConfigurationError: It publishes below `absolute_roots` that were not given; nothing was changed.
        JobRolledBackError: It was rolled back, or a summary report says that it was not committed (without
            `rollback`).
        OutcomeUnknownError: See `next_step`; nothing was deleted.
    """
    check_flag(rollback, "rollback", "recover")
    check_flag(force, "force", "recover")
    told, display = watched(progress, listeners)
    try:
        async with _found(dest, job_id, config, storage_options, told) as context:
            return await finish(context, rollback=rollback, force=force)
    finally:
        if display is not None:
            await display.close()


async def finish(context: StageContext, *, rollback: bool = False, force: bool = False) -> JobReport:
    """Brings a job to its end from where it stands, and removes what removals of its id left half done."""
    async with AsyncExitStack() as stack:
        if not rollback:
            await stack.enter_async_context(naming_the_end(context))
        stack.push_async_callback(remove_leftovers, context)
        return await committer_for(context.spec.committer).recover_job(context, rollback=rollback, force=force)


@advised
async def check_recovery(
    dest: Destination,
    job_id: str,
    *,
    rollback: bool = False,
    force: bool = False,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> None:
    """Raises what `recover` would raise with the same arguments, as far as it is known before it is tried.

    Changes nothing.
    """
    async with _found(dest, job_id, config, storage_options) as context:
        await committer_for(context.spec.committer).check_recovery(context, rollback=rollback, force=force)


@asynccontextmanager
async def _found(
    dest: Destination,
    job_id: str,
    config: ConfigLike | None,
    storage_options: Mapping[str, object] | None,
    listeners: Iterable[Listener] = (),
) -> AsyncIterator[StageContext]:
    destination = StorePath.of(dest)
    check_job_id(job_id, "recover", call("list_jobs", str(destination)))
    choices = config_of(config)
    async with (
        store_of_call(destination, storage_options) as store,
        found_job(store, destination, job_id, choices, listeners) as context,
    ):
        yield context


@asynccontextmanager
async def found_job(
    store: Store,
    destination: StorePath,
    job_id: str,
    choices: CommitterConfig | None,
    listeners: Iterable[Listener] = (),
) -> AsyncIterator[StageContext]:
    """The context of a job that stands, or that reports may speak of."""
    try:
        spec = await find_job(store, destination, job_id, config=choices, half=True)
    except JobNotFoundError:
        spec = JobSpec(
            destination=destination.uri,
            job_id=job_id,
            committer=suited_committer(store).name,
            config=choices or CommitterConfig(),
        )
    context = await open_context(spec, store, owned=False, listeners=listeners)
    try:
        yield context
    finally:
        await context.store.close()
