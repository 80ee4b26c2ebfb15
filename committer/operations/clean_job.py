"""Removing what one job left, or saying why it is kept."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from committer.advice import call
from committer.committers.context import of_spec, open_context
from committer.committers.file.shared import jobs_that_use
from committer.committers.find_job import read_directory
from committer.committers.last_steps import close_job
from committer.committers.look import Position, look_where_it_stands
from committer.committers.registry import committer_for, is_known
from committer.committers.standing import Standing
from committer.config import CommitterConfig
from committer.errors import (
    JobNotFoundError,
    RecordError,
    StoreIsADirectoryError,
    StoreNotFoundError,
)
from committer.layout import DirectoryName, is_job_id
from committer.logs import job_logger
from committer.operations.unfinished import end_unfinished
from committer.paths import StorePath
from committer.spec import Delivery, JobSpec
from committer.stages.base import StageContext
from committer.stages.cleanup import CleanupJob, RemoveJob
from committer.stages.decide import abort_decision, create_decision
from committer.stages.job_directory import JobDirectory, look_at_job, refuse_links
from committer.stages.removal import keep_outcome, remove_leftover
from committer.stores.base import Store
from committer.stores.helpers import children_of, walk

_log = job_logger("committer.operations")

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
BEGUN: Final = "another driver began to commit it meanwhile"


class Cleaning(NamedTuple):
    """The arguments of a cleanup.

    Attributes:
        age_s: Keep what is younger; None for a job that the caller named.
        force: Remove even a decided commit without outcome, and a kept outcome.
        dry: Only look.
        forgets: Remove a kept outcome.
        ahead_s: Seconds by which this machine's clock is ahead of the store's.
        intents: Keep an undecided job that has another intent than these; None: whatever it has.
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
    """Removes one directory that a job left, or only looks; returns why not.

    Args:
        store: The store, without limits.
        destination: Where.
        name: The directory's.
        config: The choices of the call.
        asked: What is asked for.
        given_up: Is told why the last steps of a job could not be done that is removed all the same.

    Raises:
        CommitterError: The last steps of a job failed for a reason that may pass. Nothing was removed.
        JobNotFoundError: It is gone.
        StoreLinkError: A link stands in the place of one of its directories or records.
    """
    spec = JobSpec(destination=destination.uri, job_id=name.job_id, committer="", config=config, setup=name.setup)
    context = await open_context(spec, store, owned=False)
    try:
        if name.suffix:
            return await _clean_leftover(context, name, asked)
        context = await _joined(context, store, name, asked)
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
            elif (await look_where_it_stands(context)).standing is Standing.GONE:
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
        # Its entries stay: what was being made may be a job that is live since.
        await remove_leftover(context, directory)
    return None


async def _look(context: StageContext, asked: Cleaning) -> Position | None:
    """Where the job stands; None with force where its records cannot be read."""
    try:
        position = await look_where_it_stands(context)
        if position.standing is Standing.ARRIVING and not asked.dry:
            await close_job(context)
            position = await look_where_it_stands(context)
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
    """Why a directory is kept whatever its records say: whose it is, and its age."""
    named = asked.age_s is None
    if found.is_foreign and not (asked.force and named):
        return _FOREIGN
    using = await _jobs_that_use(context) if found.is_foreign else []
    if using:
        return f"tasks of {', '.join(using[:3])} commit there: end these jobs first"
    if asked.age_s is None:
        return None
    newest = max(found.newest, await _newest_below(context, found)) or await _age_of_rest(context, found)
    return _reason_of_age(context, newest, asked)


def _reason_of_age(context: StageContext, newest: float, asked: Cleaning) -> str | None:
    if not newest:
        return "its age is unknown: the store does not say when its records were written"
    now = context.runtime.now().timestamp() - asked.ahead_s
    if asked.age_s is not None and now - newest < asked.age_s:
        return _FUTURE if newest > now else "it is younger"
    return None


def _reason_of(position: Position, asked: Cleaning) -> str | None:
    """Why a job is kept, by where it stands."""
    if asked.force:
        return None
    if position.standing is Standing.KEPT:
        return None if asked.forgets else KEPT
    reasons = {
        Standing.DECIDED: DECIDED,
        Standing.COMMITTED: UNFINISHED,
        Standing.ROLLED_BACK: NOT_TAKEN_BACK,
    }
    return reasons.get(position.standing)


async def _remove(context: StageContext, position: Position | None, asked: Cleaning) -> str | None:
    if position is not None and position.standing in (Standing.OPEN, Standing.INTENDED):
        intents = position.found.intents if position.found is not None else []
        if asked.intents is not None and not asked.intents.issuperset(intents):
            return BEGUN
        # A driver that still lives learns of it.
        try:
            decision = await create_decision(context, abort_decision(context))
        except JobNotFoundError:
            # Another driver ended it since it was looked at, and may keep its outcome.
            position = await look_where_it_stands(context)
            reason = _reason_of(position, asked)
            if reason is not None or position.standing is Standing.GONE:
                return reason
        else:
            if decision.decision == "commit" and not asked.force:
                return DECIDED
    await CleanupJob(context).run(None)
    await RemoveJob(context).run(None)
    return None


async def _jobs_that_use(context: StageContext) -> list[str]:
    """The jobs of file committers whose tasks' output is in what looks like another committer's directory."""
    destination, job_id = context.layout.destination, context.layout.job_id
    if not job_id.isdecimal():
        return []
    jobs = [DirectoryName.of(child.path.name) for child in await children_of(context.store, context.layout.temporary)]
    using = await jobs_that_use(context.store, destination, job_id, [job for job in jobs if is_job_id(job.job_id)])
    return [layout.job_id for layout in using]


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


async def _joined(context: StageContext, store: Store, name: DirectoryName, asked: Cleaning) -> StageContext:
    """The context of the job as it was set up; 3 calls.

    Where no setup record tells how task commits reach the driver, the place tells where uploads are listed: one call.
    """
    try:
        read = await read_directory(context.store, context.layout.destination, name, config=context.config)
    except (RecordError, StoreIsADirectoryError):
        if not asked.force:
            raise
        read = None
    spec = context.spec if read is None else read.spec
    if not is_known(spec.committer):
        spec = msgspec.structs.replace(spec, committer=context.spec.committer)
    if read is None or not read.found.set_up:
        spec = msgspec.structs.replace(spec, delivery=await _delivery_shown(context))
    return of_spec(context, spec)


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
