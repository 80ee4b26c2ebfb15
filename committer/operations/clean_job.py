"""Removing what one job left, or saying why it is kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import msgspec

from committer.committers.context import of_spec
from committer.committers.file.shared import jobs_that_use
from committer.committers.registry import committer_for, is_known
from committer.errors import (
    JobNotFoundError,
    RecordError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.file_names import job_id_in
from committer.layout import JobLayout, is_job_id
from committer.logs import job_logger
from committer.paths import StorePath
from committer.records.job_state import Decision, JobSetup, encode_record, limit_of
from committer.spec import Delivery
from committer.stages.base import StageContext
from committer.stages.cleanup import CleanupJob, RemoveDecision, RemoveLastRecords
from committer.stages.decide import abort_decision, create_decision
from committer.stages.job_directory import JobDirectory, look_at_job, refuse_links
from committer.stages.other_setup import is_anew
from committer.stages.own_records import read_decision, read_outcome, read_setup
from committer.stages.release_lock import release_lock
from committer.stages.removal import removal_of
from committer.stores.base import Store
from committer.stores.helpers import children_of, create_exclusively, walk

_log = job_logger("committer.operations")

_CLAIMED: Final = "another driver took the id, or removed what was left of it, at this moment"
DECIDED: Final = "it is decided to be committed and did not end: recover it"
_FUTURE: Final = (
    "it is younger: its newest record is of the future, so this machine's clock or the store's is wrong; only its "
    "id removes it"
)
_FOREIGN: Final = "it holds no record of a job: another committer's, perhaps alive; only its id with force removes it"
KEPT: Final = (
    "it committed, and its outcome is kept for a stream: without it that batch, should it be repeated, is published a "
    "second time, or stops at the files that stand; only force removes it"
)
UNFINISHED: Final = "it committed, but its last steps were not done: recover it"
NOT_TAKEN_BACK: Final = "it is being taken back, and that was not done to its end: roll it back"


async def clean_job(
    context: StageContext,
    *,
    age_s: float | None,
    force: bool,
    dry: bool,
    forgets: bool,
    end: Callable[[], Awaitable[None]],
) -> str | None:
    """Removes what a job left, or with `dry` only looks; returns why not.

    Args:
        context: Of the job, as if it had no setup record.
        age_s: Keep it when it is younger; None for a job that the caller named.
        force: Remove even a decided commit without outcome, and a kept outcome.
        dry: Only look.
        forgets: Remove a kept outcome.
        end: Does the last steps of a job that ended, which need what is removed here; called with `force`, which does
            not look whether they were done.

    Raises:
        CommitterError: `end` raised it. Nothing was removed.
        JobNotFoundError: A job that the caller named is not there.
        StoreLinkError: A link stands in the place of one of its directories or records.
    """
    try:
        context = await _joined(context)
        found = await look_at_job(context.store, context.layout)
        await refuse_links(context.store, found, operation="cleanup")
    except JobNotFoundError:
        # Its directory is gone, but a lock it held may be left.
        if not dry:
            await release_lock(context)
        if age_s is None:
            raise
        return "it is gone"
    if found.is_foreign and not (force and age_s is None):
        return _FOREIGN
    using = await _jobs_that_use(context) if found.is_foreign else []
    if using:
        return f"tasks of {', '.join(using[:3])} commit there: end these jobs first"
    if await is_anew(context, found.children):
        return _CLAIMED
    if age_s is not None:
        newest = max(found.newest, await _newest_below(context, found)) or await _age_of_rest(context, found)
        if not newest:
            return "its age is unknown: the store does not say when its records were written"
        now = context.runtime.now().timestamp()
        if now - newest < age_s:
            return _FUTURE if newest > now else "it is younger"
    named = age_s is None
    # By age all that stands beside a kept outcome is removed: `_remove` says at its end that it stays.
    spares_kept = not forgets and (dry or named)
    reason = await _reason_to_keep(context, found, force=force, spares_kept=spares_kept)
    if dry or reason is not None:
        return reason
    was = _what_it_was(found)
    reason = await _end_and_remove(context, found, force=force, forgets=forgets, end=end)
    if reason is None:
        await committer_for(context.spec.committer).forget(context)
        _log.info("job %s is removed by a cleanup: %s", context.layout.job_id, was)
    return reason


async def _jobs_that_use(context: StageContext) -> list[str]:
    """The jobs of file committers whose tasks' output is in what looks like another committer's directory."""
    destination, job_id = context.layout.destination, context.layout.job_id
    if not job_id.isdecimal():
        return []
    jobs = [job_id_in(child.path.name) for child in await children_of(context.store, context.layout.temporary)]
    using = await jobs_that_use(context.store, destination, job_id, list(filter(is_job_id, jobs)))
    return [layout.job_id for layout in using]


async def _end_and_remove(
    context: StageContext, found: JobDirectory, *, force: bool, forgets: bool, end: Callable[[], Awaitable[None]]
) -> str | None:
    if found.is_remains:
        if not await _claim(context):
            return _CLAIMED
        context = replace(context, claimed=True)
        found = await look_at_job(context.store, context.layout)
    if force and found.ended:
        await end()
        try:
            found = await look_at_job(context.store, context.layout)
        except JobNotFoundError:
            return None
        if await is_anew(context, found.children):
            return None
    try:
        async with committer_for(context.spec.committer).opened(context) as opened:
            return await _remove(opened, found, force=force, forgets=forgets)
    except JobNotFoundError:
        return _CLAIMED


def _what_it_was(found: JobDirectory) -> str:
    """What a removed job was, as far as its directory's listing told: with force its records are not read."""
    if found.ended:
        return "it had ended"
    if found.decided:
        return "it was decided, and had no outcome"
    return "it was open, and is aborted" if found.set_up or found.attempts else "no record said that a job stood there"


async def _age_of_rest(context: StageContext, found: JobDirectory) -> float:
    """How old is what no record tells of; 0 where the store does not say.

    One call for an empty directory; else a listing for each: where directories have no time, what a task attempt wrote
    late is told by its files alone.
    """
    if not found.children:
        return (await context.store.status(context.layout.job_directory)).modified or 0.0
    return await _newest_under(context.store, context.layout.job_directory)


async def _claim(context: StageContext) -> bool:
    """Claims the id of what holds no record of a job, so that a job that is set up meanwhile is not cleaned up."""
    setup = JobSetup(spec=context.spec, created=context.timestamp(), owner=context.driver, remains=True)
    claim = encode_record(setup)
    try:
        found = await create_exclusively(context.store, context.layout.setup, claim, limit=limit_of(JobSetup))
        return found == claim
    except StoreNotFoundError:
        return False


async def _joined(context: StageContext) -> StageContext:
    """The context of the job as it was set up.

    One call, two where directories are not real. Where no setup record stands one more, and one where files wait in
    uploads, as nothing tells how the driver learns of task commits.

    Without the name of its setup a cleanup that is stopped would abort, and delete, the job that is set up under the id
    meanwhile. The record is read before anything else is looked at, so that all of that is of this setup, or `is_anew`
    tells: by the directory named after it, or, where directories are not real, by the identity of the record, which is
    older than what was read.
    """
    store, layout = context.store, context.layout
    spec, identity, claimed = context.spec, None, False
    try:
        if not store.capabilities.directories:
            identity = (await store.status(layout.setup)).identity
        record = await read_setup(store, layout)
    except (StoreNotFoundError, StoreNotADirectoryError):
        # Every record that comes to stand there is another job's, then, and of no setup that an outcome names.
        setup_name = await _setup_of_outcome(store, layout) or context.driver
        spec = msgspec.structs.replace(spec, setup=setup_name, delivery=await _delivery_shown(context))
    except (StoreIsADirectoryError, RecordError):
        spec = msgspec.structs.replace(spec, delivery=await _delivery_shown(context))
    else:
        setup, claimed = record.spec, record.remains
        committer = setup.committer if is_known(setup.committer) else spec.committer
        known = {
            "setup": setup.setup,
            "delivery": setup.delivery,
            "job_attempt": setup.job_attempt,
            "records_at": setup.records_at,
        }
        spec = msgspec.structs.replace(spec, committer=committer, **known)
    return replace(of_spec(context, spec), setup_identity=identity, claimed=claimed)


async def _setup_of_outcome(store: Store, layout: JobLayout) -> str:
    """The setup that the outcome names which a job kept, or a cleanup left; empty where there is none: one call."""
    try:
        outcome = await read_outcome(store, layout)
    except (StoreNotADirectoryError, StoreIsADirectoryError, RecordError):
        return ""
    return outcome.setup if outcome is not None else ""


async def _delivery_shown(context: StageContext) -> Delivery:
    """How task commits reach the driver of a job that has no setup record, by where its lists of uploads lie.

    At most one listing.
    """
    if not context.store.capabilities.publishes_uploads:
        return context.spec.delivery
    by_message = msgspec.structs.replace(context.spec, delivery="message").layout
    return "message" if await children_of(context.store, by_message.uploads) else context.spec.delivery


async def _newest_below(context: StageContext, found: JobDirectory) -> float:
    """The newest task record, or list of uploads: a job whose tasks still work is young although its own are old."""
    newest, layout = 0.0, context.layout
    for attempt in found.children.values():
        if not attempt.is_directory:
            continue
        for records in (layout.manifests, layout.attempts, layout.tasks):
            newest = max(newest, await _newest_in(context.store, attempt.path / records.name))
        if context.store.capabilities.multipart:
            # Where a copy of `_SUCCESS` may arrive when its job is over.
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
    try:
        async for status in walk(store, directory):
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
    decision = await read_decision(store, layout) if found.decided and not found.holds_no_job else None
    if found.ended:
        outcome = await read_outcome(store, layout)
        if outcome is not None and not outcome.finished:
            # `_SUCCESS`, or files that a rollback has to put back, may be missing.
            stale = found.is_stale(decision, outcome, late=late) if decision is not None else late and not found.set_up
            if stale:
                return None
            return UNFINISHED if outcome.outcome == "committed" else NOT_TAKEN_BACK
        return KEPT if spares_kept and outcome is not None and outcome.kept else None
    if decision is None or decision.decision != "commit":
        return None
    return None if found.is_stale(decision, late=late) else DECIDED


async def _remove(context: StageContext, found: JobDirectory, *, force: bool, forgets: bool) -> str | None:
    if not (found.ended or found.decided) and (found.set_up or found.attempts):
        try:
            decision = await _decide_against(context, found)
        except JobNotFoundError:
            # Remains without setup record and job attempt: no driver can commit it.
            pass
        else:
            if decision.decision == "commit" and not force:
                return DECIDED
    await release_lock(context)
    removal = removal_of(context)
    await CleanupJob(context).run(removal)
    if not (force or (forgets and found.ended)):
        # Also one that an open job got since it was looked at.
        outcome = await read_outcome(context.store, context.layout)
        if outcome is not None and outcome.kept:
            await RemoveDecision(context).run(removal)
            return KEPT
    await RemoveLastRecords(context).run(removal)
    return None


async def _decide_against(context: StageContext, found: JobDirectory) -> Decision:
    """Decides against an undecided job.

    What stands without setup record may be an open job of Hadoop's, or what late tasks left of a job that committed:
    the two look alike. So the decision says, as the cleanup's setup, that it is about remains.
    """
    if found.set_up:
        return await create_decision(context, abort_decision(context))
    as_hadoops = of_spec(context, msgspec.structs.replace(context.spec, hadoop=True, setup=""))
    return await create_decision(as_hadoops, abort_decision(replace(context, claimed=True)))
