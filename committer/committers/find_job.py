"""Finds a job by its destination and id."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from committer.advice import call
from committer.committers.opened_store import limited
from committer.committers.registry import layout_for, suited_committer
from committer.committers.trusted_config import trusted_config
from committer.errors import JobNotFoundError, RecordError, StoreError, StoreNotADirectoryError, StoreNotFoundError
from committer.layout import DirectoryName, JobLayout, check_job_id
from committer.options.config import CommitterConfig
from committer.paths import StorePath
from committer.spec import JobSpec
from committer.stages.state.job_directory import (
    JobDirectory,
    list_job_directories,
    look_at_job,
    refuse_hidden,
    refuse_place,
)
from committer.stages.state.job_liveness import is_hadoops
from committer.stages.state.own_records import is_open, read_job_attempt, read_outcome, read_setup
from committer.stores.base import Store

# A job may end, and its id be set up again, while this process reads it.
_LOOKS: Final = 5


class FoundJob(NamedTuple):
    """A directory of a job's id, as its records describe it.

    `live` tells whether the setup record exists and the job was opened (always for Hadoop's); `kept` whether
    only the outcome is left.
    """

    spec: JobSpec
    found: JobDirectory
    live: bool
    kept: bool = False


async def find_job(
    opened: Store, dest: StorePath, job_id: str, *, config: CommitterConfig | None, half: bool = False
) -> JobSpec:
    """Returns the spec of a job that is live or keeps its outcome: a listing, and 3 calls a directory of the id.

    Args:
        config: Its places outside the destination count; for a job without setup record all of it.
        half: Also finds a job that was never opened, or whose removal died.
    """
    check_job_id(job_id, "find_job", call("list_jobs", str(dest)))
    async with limited(opened, config) as store:
        layout = layout_for(store, dest, job_id)
        jobs = await find_jobs(store, dest, job_id, config=config)
        over = [job for job in jobs if not (job.live or job.kept)]
        if half and len(over) == len(jobs) > 1:
            jobs = await _best_known_first(store, jobs)
    # A job of Hadoop's may have the same id, if it keeps everything among the output.
    jobs.sort(key=lambda job: not job.spec.setup)
    best = next((job for job in jobs if job.live), None) or next((job for job in jobs if job.kept), None)
    if best is None and jobs and half:
        best = jobs[0]
    if best is not None:
        return best.spec
    if jobs:
        raise JobNotFoundError(
            f"job {job_id} at {dest} is over, or was never opened: something of it is left",
            operation="find_job",
            path=jobs[0].found.layout.job_directory,
            next_step=f"{call('cleanup', str(dest), job_id=job_id)} removes the rest",
        )
    raise JobNotFoundError(
        f"there is no job {job_id} at {dest}: no record speaks of one, and no task attempt of Hadoop's",
        operation="find_job",
        path=layout.job_directory,
        next_step=f"{call('list_jobs', str(dest))} shows the jobs that are there; a job that Hadoop set up is joined "
        "by attach_job(JobSpec.for_hadoop(...))",
    )


async def _best_known_first(store: Store, jobs: list[FoundJob]) -> list[FoundJob]:
    """Sorts finished jobs: committed ones first, then the newest; one call for each that has an outcome."""

    async def rank(job: FoundJob) -> tuple[bool, float]:
        outcome = await read_outcome(store, job.found.layout) if job.found.ended else None
        return outcome is not None and outcome.outcome == "committed", job.found.newest

    ranked = [(await rank(job), job) for job in jobs]
    return [job for _rank, job in sorted(ranked, key=lambda one: one[0], reverse=True)]


async def find_setup(opened: Store, known: JobSpec, *, config: CommitterConfig | None) -> JobSpec:
    """Returns the spec of exactly the setup that a spec names, as its records describe it: 3 calls."""
    dest = StorePath.from_uri(known.destination)
    async with limited(opened, config) as store:
        job = await read_directory(store, dest, DirectoryName(known.job_id, known.setup, ""), config=config)
    if job is None or not (job.live or job.kept):
        raise JobNotFoundError(
            f"job {known.job_id} at {dest} is over",
            operation="attach_job",
            path=known.layout.job_directory,
            next_step="stop this driver or task; a job of that id that exists there now is another one, with tasks of "
            "its own",
        )
    return job.spec


async def find_layout(store: Store, dest: StorePath, job_id: str) -> JobLayout:
    """Returns the layout of a job by its id, a live one first: a listing, and 3 calls if there are several."""
    bare = layout_for(store, dest, job_id)
    try:
        names = [name for name in await list_job_directories(store, bare.temporary, job_id) if not name.suffix]
    except (StoreNotFoundError, StoreNotADirectoryError):
        return bare
    layouts = [layout_for(store, dest, job_id, setup=name.setup) for name in names]
    if len(layouts) > 1:
        for name, layout in zip(names, layouts, strict=True):
            try:
                job = await read_directory(store, dest, name, config=None)
            except (RecordError, StoreError):
                continue
            if job is not None and (job.live or job.kept):
                return layout
    return layouts[0] if layouts else bare


async def find_jobs(store: Store, dest: StorePath, job_id: str, *, config: CommitterConfig | None) -> list[FoundJob]:
    """Reads each directory of a job's id, except those being made or removed; at most one is live or kept."""
    layout = layout_for(store, dest, job_id)
    try:
        names = await list_job_directories(store, layout.temporary, job_id)
    except (StoreNotFoundError, StoreNotADirectoryError):
        await refuse_place(store, layout, operation="find_job")
        names = []
    beside = DirectoryName(job_id, "", "")
    if layout.beside is not None and beside not in names:
        names.append(beside)
    found = [await read_directory(store, dest, name, config=config) for name in names if not name.suffix]
    return [job for job in found if job is not None]


async def read_directory(
    store: Store, dest: StorePath, name: DirectoryName, *, config: CommitterConfig | None
) -> FoundJob | None:
    """Reads a job's directory: 3 calls; returns None if it is gone, or no job's."""
    if not name.setup:
        return await _read_hadoops(store, dest, name, config=config)
    suited = suited_committer(store).name
    spec = JobSpec(
        destination=dest.uri, job_id=name.job_id, committer=suited, config=config or CommitterConfig(), setup=name.setup
    )
    layout = spec.layout
    for _look in range(_LOOKS):
        try:
            found = await look_at_job(store, layout)
        except JobNotFoundError:
            return None
        if found.keeps_outcome or not found.set_up:
            refuse_hidden(found, operation="find_job")
            return FoundJob(spec, found, live=False, kept=found.keeps_outcome)
        opened = await is_open(store, layout) if found.opened else None
        try:
            record = await read_setup(store, layout)
        except (StoreNotFoundError, StoreNotADirectoryError):
            # The record was removed since it was listed: the outcome may be kept.
            continue
        return FoundJob(_trusted(record.spec, dest, name, config), found, live=bool(opened))
    return None


def _trusted(told: JobSpec, dest: StorePath, name: DirectoryName, config: CommitterConfig | None) -> JobSpec:
    """Returns the spec of a setup record, with what the path says of the job in place of what the record says (G10)."""
    return msgspec.structs.replace(
        told,
        destination=dest.uri,
        job_id=name.job_id,
        setup=name.setup,
        hadoop=False,
        config=trusted_config(told.config, config),
    )


async def _read_hadoops(
    store: Store, dest: StorePath, name: DirectoryName, *, config: CommitterConfig | None
) -> FoundJob | None:
    """Reads the directory of a job that Hadoop set up, or that a driver of this engine claimed from it.

    Without a setup record that job attempt counts which a driver of this engine began to commit, else the highest.
    Where writes create directories, a late task leaves almost the same: there only a record or a task attempt of
    Hadoop's makes a job (1 call more).
    """
    layout, job_id = layout_for(store, dest, name.job_id), name.job_id
    try:
        found = await look_at_job(store, layout)
    except JobNotFoundError:
        return None
    try:
        record = await read_setup(store, layout) if found.set_up else None
    except (StoreNotFoundError, StoreNotADirectoryError):
        record = None
    if record is not None:
        return FoundJob(_trusted(record.spec, dest, name, config), found, live=True)
    refuse_hidden(found, operation="find_job")
    suited = suited_committer(store)
    newest = max(found.attempts, default=0)
    beside = await suited.newest_hadoop_attempt(store, layout) if found.beside else None
    if beside is None:
        # A lone intent was written after its job was over.
        recorded = found.decided or found.ended
        attempt = found.attempts and await is_hadoops(store, JobLayout(dest, job_id, newest))
        if not (recorded or attempt):
            return None
    begun = await read_job_attempt(store, found)
    job_attempt = begun if begun is not None else beside if beside is not None else newest
    spec = JobSpec.for_hadoop(dest, job_id, job_attempt, config=config, committer=suited.name)
    return FoundJob(spec, found, live=True)
