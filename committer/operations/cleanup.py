"""Removing what jobs left below a destination: one by its id, or all of an age."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from committer.advice import call
from committer.audit import audit
from committer.committers.advising import advised
from committer.committers.opened_store import paced, store_of_call
from committer.committers.registry import layout_for
from committer.config import CommitterConfig, ConfigLike, config_of
from committer.errors import CommitterError, ConfigurationError, JobDecidedError, JobNotFoundError, OutcomeKeptError
from committer.events import Statistics
from committer.flow.store_clock import StoreClock, watching_clock
from committer.flow.workers import run_workers
from committer.layout import DirectoryName, JobLayout, check_job_id
from committer.logs import job_logger
from committer.operations.arguments import check_flag
from committer.operations.clean_job import DECIDED, KEPT, NOT_TAKEN_BACK, UNFINISHED, Cleaning, clean_directory
from committer.operations.listing import directories_of_job, job_directories
from committer.paths import Destination, StorePath
from committer.readable import seconds
from committer.shown import Shown
from committer.stages.entries import remove_orphans
from committer.stages.giving_up import giving_up
from committer.stores.base import Store

_log = job_logger("committer.operations")


class CleanupReport(Shown, frozen=True, kw_only=True):
    """What a cleanup did.

    Attributes:
        removed: Ids of jobs whose directories were removed.
        kept: Ids of jobs that were kept, with the reason.
        failed: Of these, the ids of jobs whose records could not be read, or that could not be removed: a call failed.
        given_up: Ids of jobs that were removed with `force` although their last steps could not be done, with the
            reason. What such a job had published and not taken back stays; old files that it had moved aside are gone.
        clock_ahead_s: Seconds by which this machine's clock is ahead of the store's, by which ages were told; None
            where that is less than ten minutes, or the store shows no clock.
    """

    removed: list[str]
    kept: dict[str, str]
    given_up: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    failed: list[str] = msgspec.field(default_factory=list[str])
    clock_ahead_s: float | None = None


@advised
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
        older_than: Every job whose newest record is older than this (seconds, or a timedelta), by the clock of the
            store where its answers show one (S3, Google Cloud Storage, Azure), else by this machine's.
        force: Remove even a decided commit without outcome, and outcomes that are kept. The last steps of a job with
            an outcome, `_SUCCESS` or what a rollback has left to undo, are done first.
        storage_options: How to reach the store.
        config: Concurrency and rate of the deletes; `absolute_roots`, below which uploads of the job are ended as well.

    Raises:
        StoreUnavailableError, StoreThrottledError, StorePermissionError, StoreOutcomeUnknownError, MultipleError: With
            `force`, also where the last steps of the job named by `job_id` failed for a reason that may pass: the job
            was not removed.
        ConfigurationError: Neither `job_id` nor `older_than` was given (it is a ValueError), or that is no age.
        JobDecidedError: The job named by `job_id` is decided to be committed and not ended, or its last steps are not
            done.
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


def clock_told(ahead_s: float) -> str:
    """Builds the warning for a clock that differs from the store's."""
    side = "ahead of" if ahead_s > 0 else "behind"
    clock = f"this machine's clock is {seconds(abs(ahead_s))} {side} the store's"
    return f"{clock}, which decides the age of jobs: set it right"


def refuse_to_clean(destination: StorePath, job_id: str, reason: str) -> None:
    """Raises what `cleanup` of a job by its name raises when it is kept for this reason.

    Raises:
        JobDecidedError: It is decided to be committed, or its last steps are missing.
        OutcomeKeptError: It committed, and its outcome is kept.
    """
    place = str(destination)
    steps = {
        DECIDED: f"finish it: {call('recover', place, job_id)}; or take it back: "
        f"{call('recover', place, job_id, rollback=True)}; where neither can be, "
        f"{giving_up(JobLayout(destination, job_id))}",
        UNFINISHED: f"finish it: {call('recover', place, job_id)}",
        NOT_TAKEN_BACK: f"take it back to its end: {call('recover', place, job_id, rollback=True)}",
    }
    if reason in steps:
        raise JobDecidedError(
            f"job {job_id} was kept: {reason}",
            operation="cleanup",
            path=destination,
            outcome="committed" if reason == UNFINISHED else "partial",
            next_step=steps[reason],
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


@advised
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


@advised
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
    check_flag(force, "force", "cleanup")
    destination = StorePath.of(dest)
    config = config_of(config) or CommitterConfig()
    age_s = age_in_seconds(older_than, operation="cleanup")
    shown_by = call("list_jobs", str(destination))
    if job_id is not None:
        check_job_id(job_id, "cleanup", shown_by)
    asked = Cleaning(age_s, force, dry, forgets)
    removed = set[str]()
    kept: dict[str, str] = {}
    given_up: dict[str, str] = {}
    failed: list[str] = []

    async def clean(name: DirectoryName) -> None:
        problems = list[str]()
        try:
            with audit(ji=name.job_id):
                reason = await clean_directory(store, destination, name, config, asked, problems)
        except JobNotFoundError:
            # Another process removed it since it was listed.
            return
        except CommitterError as error:
            if job_id is not None:
                raise
            # One job's trouble is no reason to keep the others.
            at = f": {error.path}" if error.path and error.path not in error.message else ""
            reason = f"{error.message}{at}" + (f"; {error.next_step}" if error.next_step else "")
            failed.append(name.job_id)
        if problems:
            given_up[name.job_id] = problems[0]
        if reason is None:
            removed.add(name.job_id)
        else:
            kept[name.job_id] = reason

    async with store_of_call(destination, storage_options) as store:
        chosen, clock = await _listed(store, destination, job_id, config)
        asked = asked._replace(ahead_s=clock.ahead_s)
        if clock.ahead_s and age_s is not None and not dry:
            _log.warning(clock_told(clock.ahead_s))
        await run_workers(chosen, clean, workers=min(8, config.io_concurrency), operation="cleanup")
        if not dry:
            before = clock.now() - (age_s or 0)
            listed = paced(store, config, Statistics(), owned=False)
            await remove_orphans(
                listed,
                lambda name, setup: layout_for(store, destination, name, setup=setup),
                before=before,
                job_id=job_id,
            )
    if job_id is not None and not (removed or kept):
        raise JobNotFoundError(
            f"there is no job {job_id} at {destination}",
            operation="cleanup",
            path=destination,
            next_step=f"{shown_by} shows the jobs that are there",
        )
    return CleanupReport(
        # Of an id of which a directory is kept what is removed is no job.
        removed=sorted(removed - kept.keys()),
        kept=dict(sorted(kept.items())),
        given_up=dict(sorted(given_up.items())),
        failed=sorted(failed),
        clock_ahead_s=clock.ahead_s or None,
    )


async def _listed(
    store: Store, destination: StorePath, job_id: str | None, config: CommitterConfig
) -> tuple[list[DirectoryName], StoreClock]:
    """Lists the directories of a job, or of all, and reads the store's clock."""
    listed = paced(store, config, Statistics(), owned=False)
    try:
        with watching_clock() as clock:
            if job_id is None:
                return await job_directories(listed, destination, "cleanup"), clock
            return await directories_of_job(listed, destination, job_id), clock
    finally:
        await listed.close()
