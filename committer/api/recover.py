"""Finishes, rolls back or settles a job whose driver died."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Final

import msgspec

from committer.advice import call
from committer.api.cleanup import (
    BEGUN,
    DECIDED,
    KEPT,
    NOT_TAKEN_BACK,
    UNFINISHED,
    Cleaning,
    age_in_seconds,
    clean_directory,
)
from committer.committers.advising import advised
from committer.committers.context import open_context
from committer.committers.failures import with_abort_advice
from committer.committers.find_job import find_job
from committer.committers.opened_store import store_of_call
from committer.committers.position import read_position
from committer.committers.registry import committer_for, suited_committer
from committer.committers.reports import check_reported
from committer.committers.results import JobReport
from committer.committers.standing import Standing
from committer.errors import JobDecidedError, JobNotFoundError, JobRolledBackError, JobStateError, JobUndecidedError
from committer.events import Listener
from committer.events.display import watched
from committer.layout import DirectoryName, check_job_id
from committer.options.config import CommitterConfig, ConfigLike, config_of
from committer.options.values import check_flag
from committer.paths import Destination, StorePath
from committer.spec import JobSpec
from committer.stages.base import StageContext
from committer.stages.remove.removal import remove_leftovers
from committer.stages.setup.setup_job import exists_error
from committer.stages.state.own_records import read_drivers
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
    """Finishes a job whose driver died in its commit, with the result of an undisturbed run.

    May be called from any process, more than once, and by several at once. For a finished job it returns the
    report, as long as its kept outcome, its summary report or `_SUCCESS` tells: without the first two until a
    later job wrote `_SUCCESS`, and not at all with `mark_successful_jobs=False`.

    Args:
        rollback: Roll a decided commit back instead of finishing it; abort an undecided job.
        force: The old driver is known to be dead: roll back where the store cannot fence it off, or commit what
            a listing finds although no driver began to.
        config: The places of reports and kept records, `absolute_roots`, and the rate of calls from this process. All
            other options are those of the setup: a stored record may not name a place outside the destination (G10).
        progress: As for `open_job`; `listeners` are called with each event of progress.

    Raises:
        JobNotFoundError: There is no such job, and no report of it.
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
    """Finishes a job from its current state, and removes what dead removals of its id left."""
    async with AsyncExitStack() as stack:
        if not rollback:
            await stack.enter_async_context(with_abort_advice(context))
        stack.push_async_callback(remove_leftovers, context)
        committer = committer_for(context.spec.committer)
        try:
            return await committer.recover_job(context, rollback=rollback, force=force)
        except JobNotFoundError as error:
            if not context.spec.setup or error.outcome != "unchanged":
                raise
            # What existed there was left by another run of the id: the reports of any run count.
            any_run = committer.known_as(context, msgspec.structs.replace(context.spec, setup=""))
            return await committer.recover_job(any_run, rollback=rollback, force=force)


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
    """Raises what `recover` would raise, as far as that is known without trying; changes nothing."""
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
    """Yields the context of an existing job, or of one that only reports may describe."""
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


_UNDECIDED: Final = (Standing.OPEN, Standing.INTENDED)
_ADVANCED: Final = (BEGUN, DECIDED, KEPT, NOT_TAKEN_BACK, UNFINISHED)
_LOOKS: Final = 20


@advised
async def settle(
    dest: Destination,
    job_id: str,
    *,
    older_than: timedelta | float | None = None,
    force: bool = False,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: bool | Listener | None = None,
    listeners: Iterable[Listener] = (),
) -> JobReport | None:
    """Ends what an earlier run of a job id left, and reports whether that id is committed.

    Call it before `open_job` for a job that may run again under its id. A job that is decided to be committed is
    finished, as by `recover`; an undecided one is aborted and removed, as by `cleanup`. Drivers of a job are the
    process that set it up, and each process that began to commit it. A process that only joined it is not known.

    Cost: that of `recover`: 8 to 19 calls, by store, if no job of the id exists. For an undecided one the calls
    of `cleanup` and some 20 more, and one for each driver that began to commit it.

    Args:
        older_than: Also end an undecided job whose newest record is older than this (seconds, or a timedelta).
        force: The driver of an undecided job is known to be dead.
        config: As for `recover`; so are `progress` and `listeners`.

    Returns:
        The report if the job is committed; None if the id is free to run. Once a later job wrote `_SUCCESS`, or
        with `mark_successful_jobs=False`, a committed job is known by its summary report
        (`summary_report_directory`) or its kept outcome (`outcome_kept`); without these the result is None.

    Raises:
        JobExistsError: It is undecided, and its driver runs or may run: not of this machine, boot and
            container, or not recorded. Nothing was changed.
        ConfigurationError: `older_than` is no age; or the job publishes below `absolute_roots` that were not given.
        OutcomeUnknownError: See `next_step`; nothing was deleted.
        CommitterError: A decided job cannot be finished now, as `recover` says.
    """
    report: JobReport | None = None
    told, display = watched(progress, listeners)
    try:
        async with _asked(dest, job_id, older_than, storage_options, force=force) as (store, destination, age_s):
            choices = config_of(config)
            ended = {""}
            for _look in range(_LOOKS):
                async with found_job(store, destination, job_id, choices, told) as context:
                    standing, intents = await _where_it_stands(context, store, age_s, force=force)
                    try:
                        if standing in _UNDECIDED or standing is Standing.ABORTED:
                            if not await _remove(context, store, None, dry=False, intents=intents):
                                continue
                        else:
                            report = await finish(context)
                    except (JobDecidedError, JobUndecidedError):
                        # Another driver aborted it meanwhile, or set the id up again.
                        continue
                    except (JobNotFoundError, JobRolledBackError) as error:
                        if error.outcome != "unchanged":
                            raise
                    # A report may be of an earlier setup of the id. The directory of a job that ended may stay.
                    if report is not None or context.spec.setup in ended:
                        return report
                    ended.add(context.spec.setup)
    finally:
        if display is not None:
            await display.close()
    raise JobStateError(
        f"job {job_id} at {destination} was set up and ended by other drivers, again and again",
        operation="settle",
        path=destination,
        next_step="see that the job runs only once, then make the call again",
    )


@advised
async def check_settlement(
    dest: Destination,
    job_id: str,
    *,
    older_than: timedelta | float | None = None,
    force: bool = False,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Standing:
    """Returns the state of the job that `settle` would end, or raises its `JobExistsError`; changes nothing."""
    async with (
        _asked(dest, job_id, older_than, storage_options, force=force) as (store, destination, age_s),
        found_job(store, destination, job_id, config_of(config)) as context,
    ):
        return (await _where_it_stands(context, store, age_s, force=force))[0]


@asynccontextmanager
async def _asked(
    dest: Destination,
    job_id: str,
    older_than: timedelta | float | None,
    storage_options: Mapping[str, object] | None,
    *,
    force: bool,
) -> AsyncIterator[tuple[Store, StorePath, float | None]]:
    check_flag(force, "force", "settle")
    age_s = age_in_seconds(older_than, operation="settle")
    destination = StorePath.of(dest)
    check_job_id(job_id, "settle", call("list_jobs", str(destination)))
    async with store_of_call(destination, storage_options) as store:
        yield store, destination, age_s


async def _where_it_stands(
    context: StageContext, store: Store, age_s: float | None, *, force: bool
) -> tuple[Standing, frozenset[str] | None]:
    """Returns the state of a job that may be ended, and the intents that were judged; None for any."""
    position = await read_position(context)
    found = position.found
    is_hadoop_job = found is not None and found.may_be_s3a_job and position.standing is Standing.OVER
    is_not_ours = found is not None and (found.is_foreign or not (found.children or context.layout.setup_name))
    if is_not_ours or is_hadoop_job:
        try:
            committed = await check_reported(context)
        except JobNotFoundError:
            committed = False
        if committed:
            return position.standing, None
        if is_hadoop_job and (force or (age_s is not None and await _remove(context, store, age_s, dry=True))):
            return Standing.OPEN, None
        raise exists_error(context.layout, "open" if is_hadoop_job else "unknown", operation="settle")
    if force or position.standing not in _UNDECIDED or position.found is None:
        return position.standing, None
    drivers = await read_drivers(context.store, position.found)
    if drivers and all(state == "dead" for _driver, state in drivers):
        return position.standing, frozenset(position.found.intents)
    if age_s is not None and await _remove(context, store, age_s, dry=True):
        return position.standing, None
    raise exists_error(context.layout, "open", operation="settle", drivers=drivers)


async def _remove(
    context: StageContext, store: Store, age_s: float | None, *, dry: bool, intents: frozenset[str] | None = None
) -> bool:
    """Aborts and removes a job, or only checks; returns False if it is too young, or another driver advanced it."""
    layout, config = context.layout, context.config
    name = DirectoryName(layout.job_id, layout.setup_name, "")
    asked = Cleaning(age_s, False, dry, intents=intents)
    reason = await clean_directory(store, layout.destination, name, config, asked, [])
    if not (reason is None or dry or reason in _ADVANCED):
        raise JobStateError(
            f"job {layout.job_id} is kept: {reason}",
            operation="settle",
            path=layout.job_directory,
            next_step=f"{call('list_jobs', str(layout.destination))} shows what exists there, and what ends it",
        )
    return reason is None
