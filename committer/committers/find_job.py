"""Finding a job of which only the destination and the id are known."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from committer.advice import call
from committer.committers.opened_store import paced
from committer.committers.registry import layout_for, suited_committer
from committer.committers.trusted_config import trusted_config
from committer.config import CommitterConfig
from committer.errors import (
    JobNotFoundError,
    JobStateError,
    StoreIsADirectoryError,
    StoreLinkError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.events import Statistics
from committer.layout import DRIVERS, JobLayout, check_job_id, is_setup
from committer.paths import StorePath
from committer.records.job_state import JobSetup
from committer.spec import JobSpec
from committer.stages.job_directory import JobDirectory, look_at_job
from committer.stages.job_stands import is_hadoops
from committer.stages.own_records import read_decision, read_outcome, read_setup
from committer.stores.base import Store
from committer.stores.helpers import status_or_none

# A listing may name a record for a while that is gone; and a job may be ended, and set up anew, while it is looked at.
_LOOKS = 5


class FoundJob(NamedTuple):
    """A job that stands, as its records tell.

    Attributes:
        spec: Its spec.
        setup_identity: As in `StageContext`.
        claimed: As in `StageContext`.
    """

    spec: JobSpec
    setup_identity: str | None = None
    claimed: bool = False


async def find_job(
    opened: Store,
    dest: StorePath,
    job_id: str,
    *,
    config: CommitterConfig | None,
) -> FoundJob:
    """Rebuilds the spec of a job that stands, from its setup record: 2 calls, 3 where late writes are taken.

    `opened` is the store of the destination, without limits. `config` says where reports and kept records go, and where
    outside the destination files may; for a job without setup record it holds altogether.

    A job without one was set up by Hadoop, or is half cleaned up, as its decision or its outcome tells (2 calls more);
    then its highest job attempt is taken. One that lost
    it, as a directory tells that this engine's setup alone makes, is joined only if it is decided. Where writes
    make directories again, a task that writes after its job was cleaned up looks almost the same: there another record
    makes a job, or a task attempt of Hadoop's (1 call more), and where directories are not real a record alone: this
    engine's, or a pending set that a task of Hadoop's left (2 calls more).

    Where records vanish while they are looked at, all of it is done again, a few times.

    Raises:
        JobNotFoundError: There is no such job.
        JobStateError: The job lost its setup record, and is not decided.
        StoreLinkError: No setup record stands, but a link in the place of a directory or a record.
    """
    check_job_id(job_id, "find_job", call("list_jobs", str(dest)))
    store = paced(opened, config or CommitterConfig(), Statistics(), owned=False)
    layout = layout_for(store, dest, job_id)
    try:
        for _ in range(_LOOKS):
            standing = await _find_standing(store, layout, config)
            if standing is not None:
                return standing
        raise _no_job(layout)
    finally:
        await store.close()


async def _find_standing(store: Store, layout: JobLayout, config: CommitterConfig | None) -> FoundJob | None:
    """What `find_job` returns; None where what was listed is gone, as another process ended the job or set it up."""
    dest, job_id = layout.destination, layout.job_id
    looked = await _look(store, layout)
    if looked is None:
        return None
    found, setup, identity = looked
    if setup is not None:
        return FoundJob(_at(dest, job_id, setup.spec, config), identity, setup.remains)
    for child in found.children.values():
        if child.is_link:
            # What it hides may be the record that is missing.
            raise StoreLinkError.at(child.path, operation="find_job")
    attempts = [int(name) for name, child in found.children.items() if child.is_directory and name.isdecimal()]
    job_attempt = max(attempts, default=0)
    suited = suited_committer(store)
    beside = await suited.newest_hadoop_attempt(store, layout) if found.beside else None
    if beside is not None:
        return FoundJob(JobSpec.for_hadoop(dest, job_id, beside, config=config, committer=suited.name))
    # An empty directory is what a setup makes first: the job that will stand there in a moment is not Hadoop's.
    if not (found.has_records or (attempts and await is_hadoops(store, JobLayout(dest, job_id, job_attempt)))):
        if found.being_removed:
            raise JobNotFoundError(
                f"job {job_id} at {dest} is over: a process is removing what it left, or died while it did",
                operation="find_job",
                path=layout.job_directory,
                next_step=f"{call('cleanup', str(dest), job_id=job_id)} removes the rest",
            )
        raise _no_job(layout)
    names = _setups_of_directories(store, found)
    if names and not found.has_records:
        raise JobStateError(
            f"job {job_id} lost its setup record, and no driver decided it: how its tasks commit, and what it may "
            "replace, is not known any more",
            operation="find_job",
            path=layout.setup,
            next_step=f"{call('cleanup', str(dest), job_id=job_id)} removes what it left, with what its tasks "
            "wrote; then run it again; nothing was published",
        )
    spec = JobSpec.for_hadoop(dest, job_id, job_attempt, config=config, committer=suited.name)
    told = await _told_by_records(store, layout, found)
    if told is None:
        return None
    if told.setup:
        return FoundJob(msgspec.structs.replace(spec, hadoop=False, setup=told.setup), claimed=told.remains)
    # Old files that its driver moved aside lie in the directory of its setup.
    return FoundJob(msgspec.structs.replace(spec, setup=names[0] if len(names) == 1 else ""))


def _no_job(layout: JobLayout) -> JobNotFoundError:
    dest, job_id = layout.destination, layout.job_id
    return JobNotFoundError(
        f"there is no job {job_id} at {dest}: no record speaks of one, and no task attempt of Hadoop's",
        operation="find_job",
        path=layout.job_directory,
        next_step="it was cleaned up; if Hadoop set it up, `job = await committer.attach_job("
        f"committer.JobSpec.for_hadoop({str(dest)!r}, {job_id!r}))` joins it",
    )


class _Told(NamedTuple):
    setup: str
    remains: bool = False


async def _told_by_records(store: Store, layout: JobLayout, found: JobDirectory) -> _Told | None:
    """The setup that the decision or the outcome of a job without setup record names: at most 2 calls.

    This engine's, half cleaned up: taken for a job of Hadoop's, which has none, it would be committed anew by what a
    task attempt writes late.

    Returns:
        Empty where neither names one; None where both are gone since they were listed.
    """
    try:
        outcome = await read_outcome(store, layout) if found.ended else None
        if outcome is not None and outcome.kept:
            # What stands beside it came late.
            return _Told(outcome.setup)
        decision = await read_decision(store, layout) if found.decided else None
        if decision is not None and (decision.setup or decision.hadoop):
            return _Told(decision.setup, decision.remains)
    except StoreIsADirectoryError:
        # What stands in the place of a record names no setup. The call that ends the job says what it is.
        return _Told("")
    if outcome is not None:
        return _Told(outcome.setup)
    return None if decision is None and (found.decided or found.ended) else _Told("")


def _setups_of_directories(store: Store, found: JobDirectory) -> list[str]:
    """The setups whose directories stand, of a job that lost its setup record: Hadoop's has none.

    None where a late write can have made them.
    """
    if not store.capabilities.refuses_late_writes:
        return []
    names = [name for name, child in found.children.items() if child.is_directory and name.startswith(DRIVERS)]
    return [setup for setup in (name.removeprefix(DRIVERS) for name in names) if setup and is_setup(setup)]


async def _look(store: Store, layout: JobLayout) -> tuple[JobDirectory, JobSetup | None, str | None] | None:
    """What stands in a job's directory, its setup record, and the identity of that where late writes are taken.

    None where the setup record came or went in between.
    """
    found = await look_at_job(store, layout)
    setup = await _setup_or_none(store, layout)
    if (setup is not None) != found.set_up:
        return None
    if setup is None or store.capabilities.refuses_late_writes:
        return found, setup, None
    identity = found.children[layout.setup.name].identity
    standing = await status_or_none(store, layout.setup)
    # Else the job was cleaned up in between, and its id may have been set up anew: the identity would be the one
    # job's, the record the other's, and a driver that went by both would write an outcome and take it back.
    return (found, setup, identity) if standing is not None and standing.identity == identity else None


async def _setup_or_none(store: Store, layout: JobLayout) -> JobSetup | None:
    try:
        return await read_setup(store, layout)
    except (StoreNotFoundError, StoreNotADirectoryError):
        return None


def _at(dest: StorePath, job_id: str, spec: JobSpec, config: CommitterConfig | None) -> JobSpec:
    # A setup record is as untrusted as any other (G10): where it lies says which job it is, not what it says.
    return msgspec.structs.replace(
        spec, destination=dest.uri, job_id=job_id, config=trusted_config(spec.config, config)
    )
