"""Removes the remains of one job, or of all jobs of an age, from a destination."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from committer.advice import call
from committer.api.list_jobs import NO_JOBS_NAME, directories_of_job, job_directories
from committer.committers.advising import advised
from committer.committers.backward_steps import close_job
from committer.committers.context import open_context
from committer.committers.file.base import jobs_that_use
from committer.committers.find_job import read_directory
from committer.committers.opened_store import limited, store_of_call
from committer.committers.position import Position, read_position
from committer.committers.registry import committer_for, is_known, layout_for
from committer.committers.standing import Standing
from committer.errors import (
    CommitterError,
    ConfigurationError,
    JobDecidedError,
    JobNotFoundError,
    JobRolledBackError,
    JobStateError,
    MultipleError,
    OutcomeKeptError,
    OutcomeUnknownError,
    RecordError,
    StoreCrossDeviceError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
    UnsupportedError,
)
from committer.flow.store_clock import StoreClock, watching_clock
from committer.flow.workers import run_workers
from committer.layout import DirectoryName, JobLayout, check_job_id, is_job_id
from committer.logs import audit, job_logger
from committer.options.config import CommitterConfig, ConfigLike, config_of
from committer.options.values import check_flag
from committer.paths import Destination, StorePath
from committer.readable import Shown, seconds
from committer.spec import Delivery, JobSpec
from committer.stages.base import StageContext, abandon_advice
from committer.stages.decide.decide import abort_decision, create_decision
from committer.stages.decide.entries import remove_orphans
from committer.stages.remove.removal import CleanupJob, RemoveJob, keep_outcome, remove_leftover
from committer.stages.state.job_directory import JobDirectory, look_at_job, refuse_links
from committer.stores.base import Store
from committer.stores.helpers import children_of, walk

_log = job_logger("committer.operations")

# Failures that the job's own records and files cause. Any other may pass, or go with another configuration: a
# refused call, a lost response, a store that is down.
_FOR_GOOD = (
    RecordError,
    JobStateError,
    OutcomeUnknownError,
    StoreCrossDeviceError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
)


def _is_for_good(error: BaseException) -> bool:
    """Returns whether a later call would fail the same way, for the error and each of its causes."""
    if isinstance(error, MultipleError):
        return all(map(_is_for_good, error.causes))
    return isinstance(error, _FOR_GOOD) and all(map(_is_for_good, getattr(error, "causes", ())))


async def end_unfinished(context: StageContext, *, rollback: bool) -> str:
    """Finishes the last steps of a job with an outcome, as `recover` would; returns why that is impossible, or "".

    Raises a failure that may pass: a later cleanup continues from there.
    """
    job_id = context.layout.job_id
    try:
        await committer_for(context.spec.committer).recover_job(context, rollback=rollback, force=True)
    except (JobNotFoundError, JobRolledBackError):
        # Another driver of the job did it meanwhile.
        return ""
    except CommitterError as error:
        if not _is_for_good(error):
            raise
        _log.warning("job %s is removed without its last steps, which fail: %s", job_id, error, extra={"job": job_id})
        return error.message
    return ""


DECIDED: Final = "it is decided to be committed and did not end: recover it"
_FUTURE: Final = (
    "it is younger: its newest record is of the future, so this machine's clock or the store's is wrong; only its "
    "id removes it"
)
_FOREIGN: Final = "it holds no record of a job: another committer's, perhaps alive; only its id with force removes it"
KEPT: Final = (
    "it committed, and its outcome is kept for a stream or a rerun: without it that work, should it be repeated, is "
    "published a second time, or stops at the files that exist; only force removes it"
)
UNFINISHED: Final = "it committed, but its last steps were not done: recover it"
NOT_TAKEN_BACK: Final = "its rollback was begun and not finished: roll it back"
BEGUN: Final = "another driver began to commit it meanwhile"
_REASONS: Final = {
    Standing.DECIDED: DECIDED,
    Standing.KEPT: KEPT,
    Standing.COMMITTED: UNFINISHED,
    Standing.ROLLED_BACK: NOT_TAKEN_BACK,
}


class Cleaning(NamedTuple):
    """Arguments of a cleanup.

    Attributes:
        age_s: Keep jobs younger than this; None for a job that the caller named.
        force: Remove even a decided commit without outcome, and a kept outcome.
        dry: Change nothing.
        forgets: Remove a kept outcome.
        ahead_s: Seconds by which this machine's clock is ahead of the store's.
        intents: Keep an undecided job with another intent than these; None allows any.
    """

    age_s: float | None
    force: bool
    dry: bool
    forgets: bool = False
    ahead_s: float = 0.0
    intents: frozenset[str] | None = None


async def clean_directory(
    store: Store,
    destination: StorePath,
    name: DirectoryName,
    config: CommitterConfig,
    asked: Cleaning,
    given_up: list[str],
) -> str | None:
    """Removes one directory of a job, or only inspects it; returns the reason to keep it, or None.

    `given_up` receives the reason if a job is removed although its last steps failed for good. A failure of
    these that may pass is raised, and nothing is removed.
    """
    spec = JobSpec(destination=destination.uri, job_id=name.job_id, committer="", config=config, setup=name.setup)
    context = await open_context(spec, store, owned=False)
    try:
        if name.suffix:
            return await _clean_leftover(context, name, asked)
        context = await _joined(context, name, asked)
        found = await look_at_job(context.store, context.layout)
        await refuse_links(context.store, found, operation="cleanup")
        reason = await _reason_of_directory(context, found, asked)
        if reason is not None:
            return reason
        position = await _look(context, asked)
        reason = _reason_of(position, asked) if position is not None else None
        if reason == KEPT and asked.age_s is not None and not asked.dry:
            await keep_outcome(context)
        if reason is not None or asked.dry:
            return reason
        ended = position is not None and position.standing in (Standing.COMMITTED, Standing.ROLLED_BACK)
        if asked.force and position is not None and ended:
            problem = await end_unfinished(context, rollback=position.standing is Standing.ROLLED_BACK)
            if problem:
                given_up.append(problem)
            elif (await read_position(context)).standing is Standing.GONE:
                return None
        async with committer_for(context.spec.committer).opened(context) as opened:
            reason = await _remove(opened, position, asked)
        if reason is None:
            await committer_for(context.spec.committer).forget(context)
            _log.info("job %s is removed by a cleanup: %s", name.job_id, _what_it_was(found))
        return reason
    finally:
        await context.store.close()


async def _clean_leftover(context: StageContext, name: DirectoryName, asked: Cleaning) -> str | None:
    directory = context.layout.temporary / f"{name.job_id}~{name.setup}{name.suffix}"
    if asked.age_s is not None:
        newest = await _newest_under(context.store, directory)
        if not newest:
            newest = (await context.store.status(directory)).modified or 0.0
        reason = _reason_of_age(context, newest, asked)
        if reason is not None:
            return reason
    if not asked.dry:
        # Its entries stay: a job that was being set up may be live since.
        await remove_leftover(context, directory)
    return None


async def _look(context: StageContext, asked: Cleaning) -> Position | None:
    """Reads the job's position; None if its records cannot be read and `force` is set."""
    try:
        position = await read_position(context)
        if position.standing is Standing.ARRIVING and not asked.dry:
            await close_job(context)
            position = await read_position(context)
    except (RecordError, StoreIsADirectoryError):
        if not asked.force:
            raise
        return None
    if position.standing is Standing.GONE and position.found is None:
        raise JobNotFoundError(
            f"job {context.layout.job_id} is gone",
            operation="cleanup",
            path=context.layout.job_directory,
            next_step=f"{call('list_jobs', str(context.layout.destination))} shows the jobs that are there",
        )
    return position


async def _reason_of_directory(context: StageContext, found: JobDirectory, asked: Cleaning) -> str | None:
    """Returns why a directory is kept whatever its records say: its owner, or its age."""
    named = asked.age_s is None
    foreign = found.is_foreign or await _only_looks_like_a_job(context, found)
    if foreign and not (asked.force and named):
        return _FOREIGN if is_job_id(context.layout.job_id) else NO_JOBS_NAME
    using = await _jobs_that_use(context) if foreign else []
    if using:
        return f"tasks of {', '.join(using[:3])} commit there: end these jobs first"
    if asked.age_s is None:
        return None
    newest = max(found.newest, await _newest_below(context, found))
    if not newest or (not found.set_up and _reason_of_age(context, newest, asked) is None):
        # A Hadoop job's task files count too; they are listed only if its records are old.
        newest = max(newest, await _newest_of_rest(context, found))
    return _reason_of_age(context, newest, asked)


def _reason_of_age(context: StageContext, newest: float, asked: Cleaning) -> str | None:
    if not newest:
        return "its age is unknown: the store does not say when its records were written"
    now = context.runtime.now().timestamp() - asked.ahead_s
    if asked.age_s is not None and now - newest < asked.age_s:
        return _FUTURE if newest > now else "it is younger"
    return None


def _reason_of(position: Position, asked: Cleaning) -> str | None:
    if asked.force or (asked.forgets and position.standing is Standing.KEPT):
        return None
    return _REASONS.get(position.standing)


async def _remove(context: StageContext, position: Position | None, asked: Cleaning) -> str | None:
    if position is not None and position.standing in (Standing.OPEN, Standing.INTENDED):
        intents = position.found.intents if position.found is not None else []
        if asked.intents is not None and not asked.intents.issuperset(intents):
            return BEGUN
        # A driver that is alive learns of it.
        try:
            decision = await create_decision(context, abort_decision(context))
        except JobNotFoundError:
            # Another driver ended the job since it was read, and may keep its outcome.
            position = await read_position(context)
            reason = _reason_of(position, asked)
            if reason is not None or position.standing is Standing.GONE:
                return reason
        else:
            if decision.decision == "commit" and not asked.force:
                return DECIDED
    await CleanupJob(context).run(None)
    await RemoveJob(context).run(None)
    return None


async def _only_looks_like_a_job(context: StageContext, found: JobDirectory) -> bool:
    """Whether a directory without records holds numbers, as if of job attempts, and none of these has a task."""
    if context.layout.setup_name or found.beside or found.records or not found.attempts:
        return False
    inside: set[str] = set()
    for name, child in found.children.items():
        if child.is_directory and name.isdecimal():
            inside |= {below.path.name for below in await children_of(context.store, child.path)}
    return bool(inside) and not inside & context.layout.of_attempts


async def _jobs_that_use(context: StageContext) -> list[str]:
    """Returns the file committers' jobs whose task output is in what looks like another committer's directory."""
    destination, job_id = context.layout.destination, context.layout.job_id
    if not job_id.isdecimal():
        return []
    jobs = [DirectoryName.of(child.path.name) for child in await children_of(context.store, context.layout.temporary)]
    using = await jobs_that_use(context.store, destination, job_id, [job for job in jobs if is_job_id(job.job_id)])
    return [layout.job_id for layout in using]


def _what_it_was(found: JobDirectory) -> str:
    """Describes a removed job by its directory's listing; with force its records are not read."""
    if found.ended:
        return "it had ended"
    if found.decided:
        return "it was decided, and had no outcome"
    return (
        "it was open, and is aborted" if found.set_up or found.attempts else "no record said that a job existed there"
    )


async def _newest_of_rest(context: StageContext, found: JobDirectory) -> float:
    """Returns when a directory without records last changed; 0 if unknown. A directory may have no time."""
    if not found.children:
        return (await context.store.status(context.layout.job_directory)).modified or 0.0
    return await _newest_under(context.store, context.layout.job_directory)


async def _joined(context: StageContext, name: DirectoryName, asked: Cleaning) -> StageContext:
    """Returns the context of the job: 3 calls, and one more if no setup record has the delivery."""
    try:
        read = await read_directory(context.store, context.layout.destination, name, config=context.config)
    except (RecordError, StoreIsADirectoryError):
        if not asked.force:
            raise
        read = None
    spec = context.spec if read is None else read.spec
    if not (is_known(spec.committer) or asked.force):
        # Only its class can tell what the job keeps outside its directory.
        raise UnsupportedError(
            f"job {spec.job_id} uses the committer {spec.committer!r}, which this process does not know",
            operation="cleanup",
            path=context.layout.job_directory,
            next_step="register that committer's class first (register_committer); or, if its output is not needed, "
            f"{call('cleanup', str(context.layout.destination), job_id=spec.job_id, force=True)}",
        )
    if not is_known(spec.committer):
        spec = msgspec.structs.replace(spec, committer=context.spec.committer)
    if read is None or not read.found.set_up:
        spec = msgspec.structs.replace(spec, delivery=await _delivery_shown(context))
    return committer_for(spec.committer).known_as(context, spec)


async def _delivery_shown(context: StageContext) -> Delivery:
    """Returns the delivery of a job without setup record, by the place of its lists of uploads: at most one listing."""
    if not context.store.capabilities.publishes_uploads:
        return context.spec.delivery
    by_message = msgspec.structs.replace(context.spec, delivery="message").layout
    return "message" if await children_of(context.store, by_message.uploads) else context.spec.delivery


async def _newest_below(context: StageContext, found: JobDirectory) -> float:
    """Returns the time of the newest task record or list of uploads: a job with working tasks is young."""
    newest, layout = 0.0, context.layout
    for attempt in found.children.values():
        if not attempt.is_directory:
            continue
        for records in (layout.manifests, layout.attempts, layout.tasks):
            newest = max(newest, await _newest_in(context.store, attempt.path / records.name))
        if context.store.capabilities.multipart:
            # A copy of `_SUCCESS` may arrive here after its job is over.
            newest = max(newest, await _newest_in(context.store, attempt.path / layout.superseded.name))
            for run in await children_of(context.store, attempt.path / layout.uploads.name):
                newest = max(newest, await _newest_in(context.store, run.path))
        if context.store.capabilities.publishes_block_lists:
            for run in await children_of(context.store, attempt.path / layout.tasks.name):
                newest = max(newest, await _newest_in(context.store, run.path))
    if context.layout.keeps_elsewhere:
        async with committer_for(context.spec.committer).opened(context) as opened:
            newest = max(newest, await _newest_in(opened.holding(layout.manifests), layout.manifests))
    for place in await context.forms.outside(context):
        below = await _newest_under(context.store, place.path) if place.is_directory else 0.0
        newest = max(newest, place.modified or 0.0, below)
    return newest


async def _newest_under(store: Store, directory: StorePath) -> float:
    newest = 0.0
    with suppress(StoreNotFoundError):
        async for status in walk(store, directory):
            newest = max(newest, status.modified or 0.0)
    return newest


async def _newest_in(store: Store, directory: StorePath) -> float:
    return max((child.modified or 0.0 for child in await children_of(store, directory)), default=0.0)


class CleanupReport(Shown, frozen=True, kw_only=True):
    """Result of a cleanup.

    Attributes:
        removed: Ids of jobs whose directories were removed.
        kept: Ids of jobs that were kept, with the reason.
        failed: Of these, ids of jobs whose records could not be read, or whose removal failed.
        given_up: Ids of jobs removed with `force` although their last steps failed, with the reason. Files that
            such a job had published stay; old files that it had moved aside are gone.
        clock_ahead_s: Seconds by which this machine's clock is ahead of the store's, which decides ages; None
            below ten minutes, or if the store shows no clock.
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
    """Removes the remains of jobs below a destination's `_temporary`; never anything else.

    An open job is first decided `abort`, so that a driver that is alive learns of it. Directories without any
    record of a job are removed too. A job that is decided to be committed but did not end is kept unless
    `force`: its files would be lost; `recover` it instead. A kept outcome (`CommitterConfig.outcome_kept`)
    stays unless `force`: without it a stream that repeats the job, as after a crash, would publish its rows a
    second time or fail because its files exist.

    Args:
        job_id: Clean up this job.
        older_than: Every job whose newest record is older than this (seconds, or a timedelta), by the clock of
            the store if its responses show one (S3, Google Cloud Storage, Azure), else by this machine's.
        force: Remove even a decided commit without outcome, and kept outcomes. If the job has an outcome, its
            last steps (`_SUCCESS`, or the rest of a rollback) are done first.
        config: Concurrency and rate of the deletes; `absolute_roots`, below which uploads of the job are ended
            as well.

    Raises:
        ConfigurationError: Neither `job_id` nor `older_than` was given (it is a ValueError), or that is no age.
        JobDecidedError: The job `job_id` is decided to be committed and has not ended, or its last steps are not done.
        UnsupportedError: The job `job_id` is one of a committer that this process does not know; `force` removes it.
        OutcomeKeptError: The job `job_id` committed, and its outcome is kept. Nothing was changed.
        JobNotFoundError: There is no such job.
        StoreLinkError: A link is in the place of `_temporary`, or of a directory or record of the job `job_id`.
            It was not followed; nothing was changed.
        DestinationNotFoundError: The destination does not exist, or its bucket or container.
        StoreError, MultipleError: A call failed. With `force` also if the last steps of the job `job_id` failed
            for a reason that may pass: it was not removed.
    """
    report = await clean_and_report(
        dest, job_id=job_id, older_than=older_than, force=force, storage_options=storage_options, config=config
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
    """Raises the error of a named job that is kept for this reason; returns for any other reason."""
    place = str(destination)
    steps = {
        DECIDED: f"finish it: {call('recover', place, job_id)}; or roll it back: "
        f"{call('recover', place, job_id, rollback=True)}; where neither can be, "
        f"{abandon_advice(JobLayout(destination, job_id))}",
        UNFINISHED: f"finish it: {call('recover', place, job_id)}",
        NOT_TAKEN_BACK: f"roll it back to its end: {call('recover', place, job_id, rollback=True)}",
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


def _is_age(seconds: object) -> bool:
    return isinstance(seconds, int | float) and seconds >= 0


def age_in_seconds(older_than: timedelta | float | None, *, operation: str) -> float | None:
    """Converts an age to seconds; raises `ConfigurationError` for a negative one, or no number."""
    age_s = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    if age_s is not None and not _is_age(age_s):
        raise ConfigurationError(
            f"older_than={older_than!r} is no age",
            operation=operation,
            next_step="give seconds, 0 or more, or a timedelta",
        )
    return age_s


@advised
async def clean_and_report(
    dest: Destination,
    *,
    job_id: str | None = None,
    older_than: timedelta | float | None = None,
    force: bool = False,
    dry: bool = False,
    forgets: bool = False,
    storage_options: Mapping[str, object] | None = None,
    config: ConfigLike | None = None,
) -> CleanupReport:
    """Cleans up as `cleanup`, but only reports that a job is kept for which `cleanup` of that job alone raises.

    `dry` changes nothing. `forgets` removes a kept outcome, too, but no decided job that did not end: for a job that
    is never repeated.
    """
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
            # One job's failure does not keep the others.
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
            async with limited(store, config) as listed:
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
        # An id with a kept directory does not count as removed.
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
    async with limited(store, config) as listed:
        with watching_clock() as clock:
            if job_id is None:
                return await job_directories(listed, destination, "cleanup"), clock
            return await directories_of_job(listed, destination, job_id), clock
