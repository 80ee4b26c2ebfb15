"""What an operator does about jobs at a destination: see them, finish them, clean up, validate, read records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from committer.committers.base import committer_for, default_committer
from committer.committers.context import default_committer_of, find_job, layout_for, open_context, open_store
from committer.committers.magic import MagicCommitter
from committer.committers.results import JobReport
from committer.config import CommitterConfig
from committer.errors import (
    ConfigurationError,
    JobDecidedError,
    JobNotFoundError,
    RecordError,
    StoreError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.events import Listener
from committer.flow.runtime import current_runtime
from committer.flow.workers import run_workers
from committer.layout import MAGIC_JOB, TEMPORARY, check_job_id
from committer.paths import StorePath
from committer.spec import Delivery, JobSpec
from committer.stages.base import StageContext
from committer.stages.cleanup import CleanupJob, RemoveDecision, RemoveFate
from committer.stages.decide import abort_decision, create_decision
from committer.stages.intent import release_lock, remove_taken_lock
from committer.stages.job_directory import (
    JobDirectory,
    JobState,
    look_at_job,
    newest_of_magic,
    read_decision,
    read_outcome,
    read_setup,
)
from committer.stores.base import Store
from committer.stores.helpers import children_of, status_or_none, walk

Destination = str | os.PathLike[str] | StorePath


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job that left something below a destination's `_temporary`.

    Attributes:
        job_id: Its id.
        state: ``open``, ``committing`` (decided, not ended), ``committed``, ``aborted``, ``rolled-back``, or
            ``unknown`` when its records cannot be read, or when it holds none (another committer's directory).
        delivery: How task commits reach its driver; None when its setup record is gone, or it is Hadoop's.
        committer: Its committer; None when unknown.
        started: When it was set up; None when unknown.
        updated: When the newest record in its directory was written, or a task of Hadoop's magic committer last
            committed; None where the store does not say, and before there is any.
        files: Files its decision publishes; None before a decision.
    """

    job_id: str
    state: JobState
    delivery: str | None = None
    committer: str | None = None
    started: datetime | None = None
    updated: datetime | None = None
    files: int | None = None


class CleanupReport(msgspec.Struct, frozen=True, kw_only=True):
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
    config: CommitterConfig | None = None,
    storage_options: Mapping[str, object] | None = None,
    listeners: Iterable[Listener] = (),
) -> JobReport:
    """Finishes a job whose driver died in its commit, as one undisturbed run would have ended.

    May be called by anyone, again and again, and by several at once. A finished job gives its report.

    Args:
        dest: The job's destination.
        job_id: Its id.
        rollback: Take back what a decided commit published instead of finishing it; abort an undecided job.
        force: The old driver is known to be dead: roll back where the store cannot fence it off, or commit what a
            listing finds although nobody began to.
        config: Where reports and kept records go, and below which roots outside the destination the job may write. All
            else is as the job was set up: a record on the store may not name a place outside the destination (G10).
        storage_options: How to reach the store.
        listeners: Called with each event of progress.

    Raises:
        JobNotFoundError: There is no such job, and no report speaks of it.
        JobUndecidedError: Nobody began to commit it: commit or abort it instead.
        JobDecidedError: It was aborted.
        ConfigurationError: It publishes below `absolute_roots` that were not given; nothing was changed.
        JobRolledBackError: It was rolled back (without `rollback`).
        OutcomeUnknownError: See `next_step`; nothing was deleted.
    """
    destination = StorePath.of(dest)
    check_job_id(job_id)
    try:
        spec, _identity = await find_job(destination, job_id, config=config, storage_options=storage_options)
    except JobNotFoundError:
        committer = await default_committer_of(destination, storage_options)
        spec = JobSpec(
            destination=destination.uri, job_id=job_id, committer=committer, config=config or CommitterConfig()
        )
    context = await open_context(spec, storage_options, listeners)
    try:
        return await committer_for(spec.committer).recover_job(context, rollback=rollback, force=force)
    finally:
        await context.store.close()


async def list_jobs(
    dest: Destination, *, storage_options: Mapping[str, object] | None = None, config: CommitterConfig | None = None
) -> list[JobInfo]:
    """The jobs that left something below a destination, by id: one listing, and up to four calls a job.

    Where files wait in uploads, and Hadoop puts what its jobs need among the output, the destination is listed too; a
    job of Hadoop's costs up to six calls there, and one a job attempt.

    Committed jobs that were cleaned up are not among them; `_SUCCESS` and summary reports speak of those.
    """
    destination = StorePath.of(dest)
    config = config or CommitterConfig()
    store = await open_store(destination, storage_options, config)
    try:
        found: list[JobInfo] = []

        async def look(job_id: str) -> None:
            info = await _info(store, destination, job_id)
            if info is not None:
                found.append(info)

        await run_workers(
            await _job_ids(store, destination), look, workers=config.io_concurrency, operation="list_jobs"
        )
        return sorted(found, key=lambda info: info.job_id)
    finally:
        await store.close()


async def _job_ids(store: Store, destination: StorePath) -> list[str]:
    try:
        job_ids = [
            child.path.name
            async for child in store.list(destination / TEMPORARY)
            if child.is_directory and not child.is_link
        ]
    except (StoreNotFoundError, StoreNotADirectoryError):
        job_ids = []
    return sorted({*job_ids, *await _magic_job_ids(store, destination)})


async def _magic_job_ids(store: Store, destination: StorePath) -> list[str]:
    """Jobs that have one of Hadoop's magic directories, which lie among the output: one call a thousand names there."""
    if not _may_be_magic(store):
        return []
    try:
        found = [child.path.name async for child in store.list(destination) if child.is_directory]
    except (StoreNotFoundError, StoreNotADirectoryError):
        return []
    return [name.removeprefix(MAGIC_JOB) for name in found if name.startswith(MAGIC_JOB) and name != MAGIC_JOB]


def _may_be_magic(store: Store) -> bool:
    return default_committer(store.capabilities) == MagicCommitter.name


async def _info(store: Store, destination: StorePath, job_id: str) -> JobInfo | None:
    layout = layout_for(store, destination, job_id)
    try:
        found = await look_at_job(store, layout)
        started = delivery = committer = files = None
        if found.set_up:
            setup = await read_setup(store, layout)
            started, delivery, committer = _time(setup.created), setup.spec.delivery, setup.spec.committer
        if not found.is_job and found.children:
            return JobInfo(job_id=job_id, state="unknown")
        newest = found.newest
        if found.magic:
            committer, newest = MagicCommitter.name, max(newest, await newest_of_magic(store, layout))
        state, files = await _state(store, found)
    except JobNotFoundError:
        return None
    except (StoreError, RecordError):
        return JobInfo(job_id=job_id, state="unknown")
    return JobInfo(
        job_id=job_id,
        state=state,
        delivery=delivery,
        committer=committer,
        started=started,
        updated=datetime.fromtimestamp(newest, tz=current_runtime().now().tzinfo) if newest else None,
        files=files,
    )


async def _state(store: Store, found: JobDirectory) -> tuple[JobState, int | None]:
    decision = await read_decision(store, found.layout) if found.decided else None
    files = decision.files if decision is not None else None
    outcome = await read_outcome(store, found.layout) if found.ended else None
    if outcome is not None:
        return outcome.outcome, outcome.files if outcome.outcome == "committed" else files
    if decision is None:
        return "open", None
    return ("committing", files) if decision.decision == "commit" else ("aborted", None)


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
    config: CommitterConfig | None = None,
) -> CleanupReport:
    """Removes what jobs left below a destination's `_temporary`; never anything else.

    An open job is decided `abort` first, so that a driver that still lives learns of it. A job that is decided to be
    committed but did not end is kept unless `force`: its files would be lost; `recover` it instead. An outcome that was
    to be kept (`CommitterConfig.outcome_kept`) goes when its job is named, or with `force`; by age alone it stays.

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
        JobNotFoundError: There is no such job.
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
    if job_id in report.kept and report.kept[job_id] in (_DECIDED, _UNFINISHED):
        destination = StorePath.of(dest)
        raise JobDecidedError(
            f"job {job_id} was kept: {report.kept[job_id]}",
            operation="cleanup",
            path=destination,
            outcome="partial",
            next_step=f"recover({str(destination)!r}, {job_id!r}) finishes it; force=True removes it all the same",
        )
    return report


async def plan_cleanup(
    dest: Destination,
    *,
    job_id: str | None = None,
    older_than: timedelta | float | None = None,
    force: bool = False,
    storage_options: Mapping[str, object] | None = None,
    config: CommitterConfig | None = None,
) -> CleanupReport:
    """What `cleanup` would do now, with the same arguments and errors; changes nothing.

    A job that is decided to be committed is among the kept ones, with the reason, where `cleanup` of that job alone
    raises.
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


def age_in_seconds(older_than: timedelta | float | None, *, operation: str) -> float | None:
    """An age as a caller gives it, in seconds.

    Raises:
        ConfigurationError: It is negative, and would take in what is not begun yet; or it is no number.
    """
    age_s = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    if age_s is not None and not age_s >= 0:
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
    config: CommitterConfig | None,
) -> CleanupReport:
    if job_id is None and older_than is None:
        raise ConfigurationError("cleanup needs job_id or older_than", operation="cleanup")
    destination = StorePath.of(dest)
    config = config or CommitterConfig()
    age_s = age_in_seconds(older_than, operation="cleanup")
    chosen = [check_job_id(job_id)] if job_id is not None else None
    store = await open_store(destination, storage_options, config)
    try:
        if chosen is None:
            chosen = await _job_ids(store, destination)
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
                config=config,
                storage_options=storage_options,
            )
        except (ConfigurationError, RecordError, StoreError) as error:
            if job_id is not None:
                raise
            # One job's trouble is no reason to keep the others.
            reason = f"{type(error).__name__}: {error.message}"
        if reason is None:
            removed.append(name)
        else:
            kept[name] = reason

    await run_workers(chosen, clean, workers=min(8, config.io_concurrency), operation="cleanup")
    return CleanupReport(removed=sorted(removed), kept=dict(sorted(kept.items())))


_DECIDED = "it is decided to be committed and did not end: recover it"
_FOREIGN = "it holds no record of a job: another committer's, perhaps alive; only its id with force removes it"
_KEPT = "it committed, and its outcome is kept: only its id, or force, removes it"
_UNFINISHED = "it ended, but its last steps were not done: recover it"


async def _clean_one(
    destination: StorePath,
    job_id: str,
    *,
    age_s: float | None,
    force: bool,
    dry: bool,
    config: CommitterConfig,
    storage_options: Mapping[str, object] | None,
) -> str | None:
    """Removes one job, or with `dry` only looks; returns why not."""
    spec = JobSpec(destination=destination.uri, job_id=job_id, config=config)
    context = await open_context(spec, storage_options)
    try:
        try:
            context = await _with_magic(context)
            await _refuse_link(context)
            found = await look_at_job(context.store, context.layout)
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
            newest = max(found.newest, await _newest_below(context, found))
            if not newest:
                return "its age is unknown: the store does not say when its records were written"
            if context.runtime.now().timestamp() - newest < age_s:
                return "it is younger"
        named = age_s is None
        reason = await _reason_to_keep(context, found, force=force, spares_kept=dry and not named)
        if dry or reason is not None:
            return reason
        return await _remove(context, found, force=force, named=named)
    finally:
        await context.store.close()


async def _with_magic(context: StageContext) -> StageContext:
    """The context of a job that may have a magic directory, unless its setup record says that it has none."""
    if not _may_be_magic(context.store):
        return context
    try:
        setup = await read_setup(context.store, context.layout)
    except (StoreNotFoundError, RecordError):
        delivery: Delivery = "listing"
    else:
        delivery = setup.spec.delivery
    spec = msgspec.structs.replace(context.spec, committer=MagicCommitter.name, delivery=delivery)
    return replace(context, spec=spec, layout=spec.layout)


async def _refuse_link(context: StageContext) -> None:
    """A link in the place of a job's directory leads to somebody else's files."""
    store, directory = context.store, context.layout.job_directory
    if store.capabilities.links:
        status = await status_or_none(store, directory)
        if status is not None and status.is_link:
            raise JobNotFoundError(
                f"{directory} is a link, not a job's directory",
                operation="cleanup",
                path=directory,
                next_step="remove the link by hand",
            )


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
    if context.layout.pending_sets:
        try:
            async for status in walk(context.store, context.layout.magic_directory):
                newest = max(newest, status.modified or 0.0)
        except StoreNotFoundError:
            pass
    return newest


async def _newest_in(store: Store, directory: StorePath) -> float:
    return max((child.modified or 0.0 for child in await children_of(store, directory)), default=0.0)


async def _reason_to_keep(context: StageContext, found: JobDirectory, *, force: bool, spares_kept: bool) -> str | None:
    store, layout = context.store, context.layout
    if force:
        # With force nobody asks what was decided: it may be what cannot be read.
        return None
    late = not store.capabilities.refuses_late_writes
    decision = await read_decision(store, layout) if found.decided and not found.is_void else None
    if found.ended:
        outcome = await read_outcome(store, layout)
        if outcome is not None and not outcome.finished:
            # `_SUCCESS`, or files that a rollback has to put back, may be missing.
            void = found.voids(decision, outcome, late=late) if decision is not None else late and not found.set_up
            return None if void else _UNFINISHED
        # What else is left of such a job is removed all the same: `_remove` says this at its end.
        return _KEPT if spares_kept and outcome is not None and outcome.kept else None
    if decision is None or decision.decision != "commit":
        return None
    return None if found.voids(decision, late=late) else _DECIDED


async def _remove(context: StageContext, found: JobDirectory, *, force: bool, named: bool) -> str | None:
    if not (found.ended or found.decided) and (found.set_up or found.attempts):
        anchored = context if found.set_up else _without_setup(context)
        try:
            decision = await create_decision(anchored, abort_decision(context))
        except JobNotFoundError:
            # Litter without setup record and job attempt: no driver can commit it.
            pass
        else:
            if decision.decision == "commit" and not force:
                return _DECIDED
    await release_lock(context)
    await CleanupJob(context).run(None)
    if not (force or (named and found.ended)):
        # Also one that an open job got since it was looked at.
        outcome = await read_outcome(context.store, context.layout)
        if outcome is not None and outcome.kept:
            await RemoveDecision(context).run(None)
            return _KEPT
    await RemoveFate(context).run(None)
    return None


def _without_setup(context: StageContext) -> StageContext:
    """The context of a job whose setup record need not stand: Hadoop's, or one half removed."""
    return replace(context, spec=msgspec.structs.replace(context.spec, hadoop=True))
