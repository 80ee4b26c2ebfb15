"""What an operator does about jobs at a destination: see them, finish them, clean up, validate, read records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import msgspec

from committer.advice import call
from committer.committers.context import of_spec, open_context
from committer.committers.find_job import default_committer_of, find_job
from committer.committers.magic.committer import MagicCommitter
from committer.committers.magic.hadoop_jobs import newest_of_magic
from committer.committers.opened_store import open_store
from committer.committers.registry import committer_for
from committer.committers.results import JobReport
from committer.config import CommitterConfig, ConfigLike, config_of
from committer.errors import (
    ConfigurationError,
    JobDecidedError,
    JobNotFoundError,
    OutcomeKeptError,
    RecordError,
    StoreError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.events import Listener
from committer.events.display import watched
from committer.flow.runtime import current_runtime
from committer.flow.workers import run_workers
from committer.layout import MAGIC_JOB, TEMPORARY, check_job_id, is_job_id
from committer.paths import StorePath
from committer.records.job_state import JobSetup, encode_record
from committer.shown import Shown
from committer.spec import Delivery, JobSpec
from committer.stages.base import StageContext
from committer.stages.cleanup import CleanupJob, RemoveDecision, RemoveFate
from committer.stages.decide import abort_decision, create_decision
from committer.stages.intent import release_lock, remove_taken_lock
from committer.stages.job_directory import (
    JobDirectory,
    JobState,
    layout_for,
    look_at_job,
    read_decision,
    read_outcome,
    read_setup,
    refuse_links,
)
from committer.stores.base import Store
from committer.stores.helpers import check_destination, children_of, create_exclusively, walk

Destination = str | os.PathLike[str] | StorePath


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
        updated: When the newest record in its directory was written, or a task of Hadoop's magic committer last
            committed; None where the store does not say, and before there is any.
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


class CleanupReport(Shown, frozen=True, kw_only=True):
    """What a cleanup did.

    Attributes:
        removed: Ids of jobs whose directories were removed.
        kept: Ids of jobs that were kept, with the reason.
    """

    removed: list[str]
    kept: dict[str, str]


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

    May be called from any process, more than once, and by several at a time. A finished job gives its report.

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
        JobDecidedError: It was aborted.
        ConfigurationError: It publishes below `absolute_roots` that were not given; nothing was changed.
        JobRolledBackError: It was rolled back (without `rollback`).
        OutcomeUnknownError: See `next_step`; nothing was deleted.
    """
    told, display = watched(progress, listeners)
    context = await _context_of_recovery(dest, job_id, config, storage_options, told)
    try:
        return await committer_for(context.spec.committer).recover_job(context, rollback=rollback, force=force)
    finally:
        try:
            await context.store.close()
        finally:
            if display is not None:
                await display.close()


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
    context = await _context_of_recovery(dest, job_id, config, storage_options)
    try:
        await committer_for(context.spec.committer).check_recovery(context, rollback=rollback, force=force)
    finally:
        await context.store.close()


async def _context_of_recovery(
    dest: Destination,
    job_id: str,
    config: ConfigLike | None,
    storage_options: Mapping[str, object] | None,
    listeners: Iterable[Listener] = (),
) -> StageContext:
    destination = StorePath.of(dest)
    check_job_id(job_id)
    choices = config_of(config)
    try:
        spec, _identity = await find_job(destination, job_id, config=choices, storage_options=storage_options)
    except JobNotFoundError:
        committer = await default_committer_of(destination, storage_options)
        spec = JobSpec(
            destination=destination.uri, job_id=job_id, committer=committer, config=choices or CommitterConfig()
        )
    return await open_context(spec, storage_options, listeners)


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
            await _job_ids(store, destination, "list_jobs"), look, workers=config.io_concurrency, operation="list_jobs"
        )
        return sorted(found, key=lambda info: info.job_id)
    finally:
        await store.close()


async def _job_ids(store: Store, destination: StorePath, operation: str) -> list[str]:
    try:
        job_ids = [
            child.path.name
            async for child in store.list(destination / TEMPORARY)
            # No job's directory is a link; one that has a job's name is shown, so that it is found.
            if (is_job_id(child.path.name) if child.is_link else child.is_directory)
        ]
    except (StoreNotFoundError, StoreNotADirectoryError) as error:
        job_ids = []
        await check_destination(store, destination, operation)
        if isinstance(error, StoreNotADirectoryError):
            raise StoreNotADirectoryError(
                f"a file stands where the directory of all jobs must be: {destination / TEMPORARY}",
                operation=operation,
                path=destination / TEMPORARY,
                next_step="remove the file; no job can be there while it stands",
            ) from error
    return sorted({*job_ids, *await _magic_job_ids(store, destination)})


async def _magic_job_ids(store: Store, destination: StorePath) -> list[str]:
    """Jobs that have one of Hadoop's magic directories, which lie among the output: one call a thousand names there."""
    if not store.capabilities.publishes_uploads:
        return []
    try:
        found = [child.path.name async for child in store.list(destination) if child.is_directory]
    except (StoreNotFoundError, StoreNotADirectoryError):
        return []
    return [name.removeprefix(MAGIC_JOB) for name in found if name.startswith(MAGIC_JOB) and name != MAGIC_JOB]


_NO_RECORD: Final = "no record says that a job stands there: another committer's directory, or what a dead driver left"


async def _info(store: Store, destination: StorePath, job_id: str) -> JobInfo | None:
    layout = layout_for(store, destination, job_id)
    try:
        found = await look_at_job(store, layout)
        await refuse_links(store, found, operation="list_jobs")
        started = delivery = committer = files = None
        if found.set_up:
            setup = await read_setup(store, layout)
            started, delivery, committer = _time(setup.created), setup.spec.delivery, setup.spec.committer
        if found.is_remains or not found.is_job:
            return JobInfo(job_id=job_id, state="unknown", problem=_NO_RECORD)
        newest = found.newest
        if found.beside:
            committer, newest = MagicCommitter.name, max(newest, await newest_of_magic(store, layout))
        state, files, kept = await _state(store, found)
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


async def _state(store: Store, found: JobDirectory) -> tuple[JobState, int | None, bool]:
    decision = await read_decision(store, found.layout) if found.decided else None
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


async def cleanup(
    dest: Destination,
    *,
    job_id: str | None = None,
    older_than: timedelta | float | None = None,
    force: bool = False,
    storage_options: Mapping[str, object] | None = None,
    config: ConfigLike | None = None,
) -> CleanupReport:
    """Removes what jobs left below a destination's `_temporary`; never anything else.

    An open job is decided `abort` first, so that a driver that still lives learns of it. What holds no record of any
    job goes too: what a driver left that was killed in its setup, or wrote when its job was over. A job that is decided
    to be committed but did not end is kept unless `force`: its files would be lost; `recover` it instead. An outcome
    that is kept (`CommitterConfig.outcome_kept`) stays unless `force`: without it a stream that repeats that job, as
    one does after a crash, cannot tell that it committed, and publishes its rows a second time or stops at the files
    that stand.

    Args:
        dest: The destination.
        job_id: This job.
        older_than: Every job whose newest record is older than this (seconds, or a timedelta).
        force: Remove even a decided commit without outcome, and outcomes that are kept.
        storage_options: How to reach the store.
        config: Concurrency and rate of the deletes.

    Raises:
        ConfigurationError: Neither `job_id` nor `older_than` was given (it is a ValueError), or that is no age.
        JobDecidedError: The job named by `job_id` is decided to be committed, and not ended.
        OutcomeKeptError: The job named by `job_id` committed, and its outcome is kept. Nothing was changed.
        JobNotFoundError: There is no such job.
        StoreLinkError: A link stands in the place of `_temporary`, or of a directory or record of the job named by
            `job_id`. It was not followed; nothing was changed.
        DestinationNotFoundError: The destination does not exist, or its bucket or container.
    """
    report = await _cleanup(
        dest,
        job_id=job_id,
        older_than=older_than,
        force=force,
        dry=False,
        storage_options=storage_options,
        config=config,
    )
    if job_id is not None and job_id in report.kept:
        refuse_to_clean(StorePath.of(dest), job_id, report.kept[job_id])
    return report


def refuse_to_clean(destination: StorePath, job_id: str, reason: str) -> None:
    """Raises what `cleanup` of a job by its name raises when it is kept for this reason.

    Raises:
        JobDecidedError: It is decided to be committed, or its last steps are missing.
        OutcomeKeptError: It committed, and its outcome is kept.
    """
    if reason in (_DECIDED, _UNFINISHED):
        raise JobDecidedError(
            f"job {job_id} was kept: {reason}",
            operation="cleanup",
            path=destination,
            outcome="partial",
            next_step=f"{call('recover', str(destination), job_id)} finishes it; "
            f"{call('cleanup', str(destination), job_id=job_id, force=True)} removes it all the same",
        )
    if reason == KEPT:
        raise OutcomeKeptError(
            f"job {job_id} was kept: {reason}",
            operation="cleanup",
            path=destination,
            outcome="committed",
            next_step="leave it, its stream removes it later; only where no stream will run it again: "
            f"{call('cleanup', str(destination), job_id=job_id, force=True)}",
        )


async def forget_outcome(
    dest: Destination,
    job_id: str,
    *,
    storage_options: Mapping[str, object] | None = None,
    config: ConfigLike | None = None,
) -> CleanupReport:
    """Cleans one job up, its kept outcome too: for a caller that knows that the job is never repeated.

    Unlike `cleanup` with `force` it removes nothing of a job that is decided to be committed and did not end.

    Raises:
        JobNotFoundError: There is no such job.
    """
    return await _cleanup(
        dest,
        job_id=job_id,
        older_than=None,
        force=False,
        dry=False,
        forgets=True,
        storage_options=storage_options,
        config=config,
    )


async def plan_cleanup(
    dest: Destination,
    *,
    job_id: str | None = None,
    older_than: timedelta | float | None = None,
    force: bool = False,
    storage_options: Mapping[str, object] | None = None,
    config: ConfigLike | None = None,
) -> CleanupReport:
    """What `cleanup` would do now, with the same arguments and errors; changes nothing.

    A job that is decided to be committed, or whose outcome is kept, is among the kept ones, with the reason, where
    `cleanup` of that job alone raises.
    """
    return await _cleanup(
        dest,
        job_id=job_id,
        older_than=older_than,
        force=force,
        dry=True,
        storage_options=storage_options,
        config=config,
    )


def _is_age(seconds: object) -> bool:
    return isinstance(seconds, int | float) and seconds >= 0


def age_in_seconds(older_than: timedelta | float | None, *, operation: str) -> float | None:
    """An age as a caller gives it, in seconds.

    Raises:
        ConfigurationError: It is negative, and would take in what is not begun yet; or it is no number.
    """
    age_s = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    if age_s is not None and not _is_age(age_s):
        raise ConfigurationError(
            f"older_than={older_than!r} is no age",
            operation=operation,
            next_step="give seconds, 0 or more, or a timedelta",
        )
    return age_s


async def _cleanup(
    dest: Destination,
    *,
    job_id: str | None,
    older_than: timedelta | float | None,
    force: bool,
    dry: bool,
    storage_options: Mapping[str, object] | None,
    config: ConfigLike | None,
    forgets: bool = False,
) -> CleanupReport:
    if job_id is None and older_than is None:
        raise ConfigurationError(
            "cleanup needs job_id or older_than",
            operation="cleanup",
            path=StorePath.of(dest),
            next_step=f"{call('cleanup', str(StorePath.of(dest)), job_id='ID')}, or with older_than=timedelta(days=7) "
            "in place of job_id",
        )
    destination = StorePath.of(dest)
    config = config_of(config) or CommitterConfig()
    age_s = age_in_seconds(older_than, operation="cleanup")
    chosen = [check_job_id(job_id)] if job_id is not None else None
    store = await open_store(destination, storage_options, config)
    try:
        if chosen is None:
            chosen = await _job_ids(store, destination, "cleanup")
    finally:
        await store.close()
    removed: list[str] = []
    kept: dict[str, str] = {}

    async def clean(name: str) -> None:
        try:
            reason = await _clean_one(
                destination,
                name,
                age_s=age_s,
                force=force,
                dry=dry,
                forgets=forgets,
                config=config,
                storage_options=storage_options,
            )
        except (ConfigurationError, RecordError, StoreError) as error:
            if job_id is not None:
                raise
            # One job's trouble is no reason to keep the others.
            reason = f"{error.message}; {error.next_step}" if error.next_step else error.message
        if reason is None:
            removed.append(name)
        else:
            kept[name] = reason

    await run_workers(chosen, clean, workers=min(8, config.io_concurrency), operation="cleanup")
    return CleanupReport(removed=sorted(removed), kept=dict(sorted(kept.items())))


_CLAIMED: Final = "another driver took the id, or removed what was left of it, at this moment"
_DECIDED: Final = "it is decided to be committed and did not end: recover it"
_FOREIGN: Final = "it holds no record of a job: another committer's, perhaps alive; only its id with force removes it"
KEPT: Final = (
    "it committed, and its outcome is kept for a stream: without it that batch, should it be repeated, is published a "
    "second time, or stops at the files that stand; only force removes it"
)
_UNFINISHED: Final = "it ended, but its last steps were not done: recover it"


async def _clean_one(
    destination: StorePath,
    job_id: str,
    *,
    age_s: float | None,
    force: bool,
    dry: bool,
    forgets: bool,
    config: CommitterConfig,
    storage_options: Mapping[str, object] | None,
) -> str | None:
    """Removes one job, or with `dry` only looks; returns why not."""
    spec = JobSpec(destination=destination.uri, job_id=job_id, config=config)
    context = await open_context(spec, storage_options)
    try:
        try:
            context = await _with_magic(context)
            found = await look_at_job(context.store, context.layout)
            await refuse_links(context.store, found, operation="cleanup")
        except JobNotFoundError:
            # Its directory is gone, but a lock it held may be left.
            if not dry:
                await release_lock(context)
                await remove_taken_lock(context)
            if age_s is None:
                raise
            return "it is gone"
        if found.is_foreign and not (force and age_s is None):
            return _FOREIGN
        if age_s is not None:
            newest = max(found.newest, await _newest_below(context, found)) or await _age_of_empty(context, found)
            if not newest:
                return "its age is unknown: the store does not say when its records were written"
            if context.runtime.now().timestamp() - newest < age_s:
                return "it is younger"
        named = age_s is None
        # By age all that stands beside a kept outcome is removed: `_remove` says at its end that it stays.
        spares_kept = not forgets and (dry or named)
        reason = await _reason_to_keep(context, found, force=force, spares_kept=spares_kept)
        if dry or reason is not None:
            return reason
        if found.is_remains:
            if not await _claim(context):
                return _CLAIMED
            found = await look_at_job(context.store, context.layout)
        return await _remove(context, found, force=force, forgets=forgets)
    finally:
        await context.store.close()


async def _age_of_empty(context: StageContext, found: JobDirectory) -> float:
    """When an empty directory was made, which no record tells; 0 where the store does not say. At most one call."""
    if found.children:
        return 0.0
    return (await context.store.status(context.layout.job_directory)).modified or 0.0


async def _claim(context: StageContext) -> bool:
    """Claims the id of what holds no record of a job, so that a job that is set up meanwhile is not cleaned up."""
    setup = JobSetup(spec=context.spec, created=context.timestamp(), owner=context.driver)
    claim = encode_record(setup)
    try:
        return await create_exclusively(context.store, context.layout.setup, claim) == claim
    except StoreNotFoundError:
        return False


async def _with_magic(context: StageContext) -> StageContext:
    """The context of a job that may have a magic directory, unless its setup record says that it has none."""
    if not context.store.capabilities.publishes_uploads:
        return context
    try:
        setup = await read_setup(context.store, context.layout)
    except (StoreNotFoundError, RecordError):
        delivery: Delivery = "listing"
    else:
        delivery = setup.spec.delivery
    spec = msgspec.structs.replace(context.spec, committer=MagicCommitter.name, delivery=delivery)
    return of_spec(context, spec)


async def _newest_below(context: StageContext, found: JobDirectory) -> float:
    """The newest task record, or list of uploads: a job whose tasks still work is young although its own are old."""
    newest = 0.0
    for attempt in found.children.values():
        if not attempt.is_directory:
            continue
        for records in ("manifests", "attempts", "tasks"):
            newest = max(newest, await _newest_in(context.store, attempt.path / records))
        if context.store.capabilities.multipart:
            # Where a copy of `_SUCCESS` may arrive when its job is over.
            newest = max(newest, await _newest_in(context.store, attempt.path / "superseded"))
            for run in await children_of(context.store, attempt.path / "uploads"):
                newest = max(newest, await _newest_in(context.store, run.path))
    if context.layout.beside is not None:
        try:
            async for status in walk(context.store, context.layout.beside):
                newest = max(newest, status.modified or 0.0)
        except StoreNotFoundError:
            pass
    return newest


async def _newest_in(store: Store, directory: StorePath) -> float:
    return max((child.modified or 0.0 for child in await children_of(store, directory)), default=0.0)


async def _reason_to_keep(context: StageContext, found: JobDirectory, *, force: bool, spares_kept: bool) -> str | None:
    store, layout = context.store, context.layout
    if force:
        # With force what was decided is not read: it may be what cannot be read.
        return None
    late = not store.capabilities.refuses_late_writes
    decision = await read_decision(store, layout) if found.decided and not found.is_void else None
    if found.ended:
        outcome = await read_outcome(store, layout)
        if outcome is not None and not outcome.finished:
            # `_SUCCESS`, or files that a rollback has to put back, may be missing.
            void = found.voids(decision, outcome, late=late) if decision is not None else late and not found.set_up
            return None if void else _UNFINISHED
        return KEPT if spares_kept and outcome is not None and outcome.kept else None
    if decision is None or decision.decision != "commit":
        return None
    return None if found.voids(decision, late=late) else _DECIDED


async def _remove(context: StageContext, found: JobDirectory, *, force: bool, forgets: bool) -> str | None:
    if not (found.ended or found.decided) and (found.set_up or found.attempts):
        anchored = context if found.set_up else _without_setup(context)
        try:
            decision = await create_decision(anchored, abort_decision(context))
        except JobNotFoundError:
            # Remains without setup record and job attempt: no driver can commit it.
            pass
        else:
            if decision.decision == "commit" and not force:
                return _DECIDED
    await release_lock(context)
    await CleanupJob(context).run(None)
    if not (force or (forgets and found.ended)):
        # Also one that an open job got since it was looked at.
        outcome = await read_outcome(context.store, context.layout)
        if outcome is not None and outcome.kept:
            await RemoveDecision(context).run(None)
            return KEPT
    await RemoveFate(context).run(None)
    return None


def _without_setup(context: StageContext) -> StageContext:
    """The context of a job whose setup record need not stand: Hadoop's, or one half removed."""
    return replace(context, spec=msgspec.structs.replace(context.spec, hadoop=True))
