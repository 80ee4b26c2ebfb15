"""Telling a job from another one that was set up under its id since, and what is written for one from the other's.

A driver may be stopped while its job is ended and its id set up anew: a stream's ids are fixed. Where late writes are
refused its calls then fail, because each goes through the directory that is named after its setup. Elsewhere its
records may arrive beside the new job's. They say which setup they are of, and no driver of another one goes by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from committer.errors import (
    RecordError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StorePreconditionError,
)
from committer.paths import StorePath
from committer.records.job_state import DecisionHead, Intent, JobOutcome, decode_record, is_of
from committer.stages.base import StageContext
from committer.stages.job_stands import is_set_up_anew
from committer.stages.own_records import read_outcome, read_record, read_setup
from committer.stages.take_away import move_away, remove_apart, take_away
from committer.stores.base import FileStatus
from committer.stores.conditions import CONDITIONAL_DELETE
from committer.stores.helpers import exists, status_or_none


def is_another_setup(context: StageContext, standing: FileStatus | None) -> bool:
    """Whether the setup record that stands is not the one that this driver made, or joined.

    The job was aborted and cleaned up then, and a request to set it up, which had been taken for lost, came after that.
    """
    known, found = context.setup_identity, standing.identity if standing is not None else None
    return None not in (known, found) and known != found


async def is_anew(context: StageContext, children: Mapping[str, FileStatus]) -> bool:
    """Whether another job was set up under the id since this process set the job up or joined it.

    Args:
        context: The job.
        children: What was listed in its directory. Where that rules it out no call is made, else one.
    """
    standing = children.get(context.layout.setup.name)
    if standing is None:
        return False
    if context.store.capabilities.directories:
        own = context.layout.drivers.name in children and not is_another_setup(context, standing)
    else:
        own = None is not context.setup_identity == standing.identity
    return not own and await is_set_up_anew(context.store, context.layout)


async def remove_mistaken(context: StageContext) -> None:
    """Removes a decision and an outcome of an earlier setup of the job's id, which came late: 4 calls, and the deletes.

    Each is looked at again right before: another driver of this setup may have removed it, and written its own. The
    store deletes, or renames, on condition that it is what was looked at. To a driver whose own setup is over nothing
    is a mistake: the record is that of the job that has the id now.
    """
    layout = context.layout
    seen = await status_or_none(context.store, layout.outcome)
    outcome = await read_outcome(context.store, layout)
    if outcome is not None and not is_of(outcome.setup, layout.setup_name):
        await _remove_late(context, layout.outcome, seen)
    seen = await status_or_none(context.store, layout.decision)
    decision = await read_record(context.store, layout.decision, DecisionHead)
    if decision is not None and not is_of(decision.setup, layout.setup_name):
        await _remove_late(context, layout.decision, seen)


async def _remove_late(context: StageContext, path: StorePath, seen: FileStatus | None) -> None:
    """Removes a record of another setup as long as it is this driver's setup that stands: 2 calls more.

    Looked at after the record: else that of a job that was set up since, which is no mistake, would go.

    Where the store is not told which file to take, it goes to the directory that goes with this setup, whose name for
    it stays taken. Where the driver that set the job up did not make that yet, or died before, it goes to one that is
    made for it and deleted. Either way a request that is served late, or a second time, does nothing: it would take
    the decision that a driver of this setup has made by then.
    """
    store, layout = context.store, context.layout
    try:
        if (await read_setup(store, layout)).spec.setup != layout.setup_name:
            return
    except (StoreNotFoundError, StoreNotADirectoryError, StoreIsADirectoryError, RecordError):
        return
    if seen is not None and CONDITIONAL_DELETE.of(store) is None and not await exists(store, layout.drivers):
        with suppress(StoreNotFoundError):
            mistaken = partial(_is_mistaken, context, path)
            await remove_apart(context, path, identity=seen.identity, is_own=mistaken, parents=False)
        return
    await delete_seen(context, path, seen)


def _is_mistaken(context: StageContext, path: StorePath, data: bytes) -> bool:
    """Whether these bytes are a decision or an outcome of another setup; what is no record counts as one of this."""
    layout, source = context.layout, str(path)
    try:
        if path == layout.decision:
            setup = decode_record(data, DecisionHead, source=source).setup
        else:
            setup = decode_record(data, JobOutcome, source=source).setup
    except RecordError:
        return False
    return not is_of(setup, layout.setup_name)


async def delete_intent(context: StageContext, *, driver: str | None = None) -> None:
    """Deletes the intent of the job's first driver, unless it is of another setup: 2 calls, and the delete.

    The delete is one call where the store deletes on conditions, else 3.

    Where the directory that goes with this setup is gone the store has to move the intent elsewhere first: to this
    driver's own name, where a new driver's intent, moved by mistake, can still go back from.

    Args:
        context: The job.
        driver: Only an intent that this driver wrote.
    """
    store, layout, path = context.store, context.layout, context.layout.intent
    seen = await status_or_none(store, path)
    intent = await read_record(store, path, Intent)
    if intent is None or not is_of(intent.setup, layout.setup_name) or driver not in (None, intent.driver):
        return
    if CONDITIONAL_DELETE.of(store) is not None or await exists(store, layout.drivers):
        await delete_seen(context, path, seen)
    elif seen is not None:
        own = layout.joined_intent(context.driver)
        if await move_away(context, path, own, identity=seen.identity):
            await store.delete_file(own)


async def delete_seen(context: StageContext, path: StorePath, seen: FileStatus | None) -> None:
    """Deletes a record if it is the one that was looked at: one call, without conditional deletes 2 or 3.

    Without these it is moved to the directory that goes with this setup, which has to stand.
    """
    able = CONDITIONAL_DELETE.of(context.store)
    if seen is None or seen.identity is None:
        await context.store.delete_file(path)
    elif able is None:
        await take_away(context, path, context.layout.drivers, identity=seen.identity)
    else:
        with suppress(StorePreconditionError):
            await able.delete_file_if(path, identity=seen.identity)
